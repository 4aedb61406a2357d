//! The keys of clients and of operators, which may be replaced while riglm runs: those of the
//! configuration when it is loaded again, the token of the control server when its file changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use riglm_adapters_http::{ControlAddress, ControlConfig, ControlKey, ControlKeys, Scope};
use riglm_domain::key_digest::KeyDigest;
use riglm_domain::principal::Principal;
use riglm_ports::authenticator::{Authenticator, Revocation};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, KeyRing};

/// How often the file of the token is read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// All keys that are let in.
#[derive(Debug)]
pub(super) struct Keys {
    clients: Arc<ClientKeys>,
    control: ControlKeys,
    data_dir: PathBuf,
    state: Mutex<State>,
}

/// What the keys of the control server are made of.
#[derive(Debug)]
struct State {
    config: ControlConfig,
    token: Token,
}

/// What was found in the file of the token.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// The file is not asked for one.
    Unused,
    Read(KeyDigest),
    /// There is none to be had, and why.
    Unreadable(String),
}

impl Keys {
    /// Returns the keys of a configuration. Makes the token of the control server where it is needed
    /// and not there yet.
    ///
    /// # Errors
    ///
    /// Returns which configured key cannot be used.
    pub(super) fn new(config: &Config) -> anyhow::Result<Self> {
        let token = token_of(&config.control, &config.data_dir);
        warn_of(&token);
        let state = State {
            config: config.control.clone(),
            token,
        };
        Ok(Self {
            clients: Arc::new(ClientKeys::new(config.keys.clone())),
            control: ControlKeys::new(control_keys(&state)?),
            data_dir: config.data_dir.clone(),
            state: Mutex::new(state),
        })
    }

    /// Returns what tells who a client is.
    pub(super) fn clients(&self) -> Arc<dyn Authenticator> {
        self.clients.clone()
    }

    /// Returns the keys of the control server.
    pub(super) fn control(&self) -> ControlKeys {
        self.control.clone()
    }

    /// Takes over the keys of a configuration that was loaded again and checked.
    pub(super) fn follow(&self, config: &Config) {
        self.clients.replace(config.keys.clone());
        let mut state = self.state();
        if state.config != config.control {
            state.config = config.control.clone();
            state.token = token_of(&state.config, &self.data_dir);
            warn_of(&state.token);
            self.replace_control(&state);
        }
    }

    /// Reads the file of the token every now and then, until it is told to stop.
    pub(super) async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let watching = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let keys = Arc::clone(&self);
                // A panic in there would be reported as one; the next look is another one.
                let _ = tokio::task::spawn_blocking(move || keys.look()).await;
            }
        };
        stop.run_until_cancelled(watching).await;
    }

    fn look(&self) {
        let mut state = self.state();
        let token = token_of(&state.config, &self.data_dir);
        if token == state.token {
            return;
        }
        warn_of(&token);
        if matches!(token, Token::Read(_)) {
            tracing::info!(
                "the token of the control server was replaced; the earlier one is refused"
            );
        }
        state.token = token;
        self.replace_control(&state);
    }

    fn replace_control(&self, state: &State) {
        match control_keys(state) {
            Ok(keys) => self.control.replace(keys),
            // They were checked when the configuration was loaded.
            Err(error) => tracing::error!("the keys of the control server stay: {error:#}"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of clients that are let in now.
#[derive(Debug)]
struct ClientKeys(Mutex<LetIn>);

/// The keys, and what was opened with them.
#[derive(Debug)]
struct LetIn {
    ring: Arc<KeyRing>,
    /// A token for each principal, cancelled when its key is taken away.
    opened: HashMap<Principal, CancellationToken>,
}

impl ClientKeys {
    fn new(ring: KeyRing) -> Self {
        Self(Mutex::new(LetIn {
            ring: Arc::new(ring),
            opened: HashMap::new(),
        }))
    }

    /// Puts other keys in the place of these, and ends what was opened with those that are gone.
    fn replace(&self, ring: KeyRing) {
        let mut let_in = self.let_in();
        let LetIn { ring: old, opened } = &mut *let_in;
        opened.retain(|principal, open| {
            let stays = ring.has_key_of(principal, old);
            if !stays {
                open.cancel();
            }
            stays
        });
        *old = Arc::new(ring);
    }

    fn let_in(&self) -> MutexGuard<'_, LetIn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Authenticator for ClientKeys {
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal> {
        let ring = Arc::clone(&self.let_in().ring);
        ring.authenticate(bearer)
    }

    fn revoked(&self, bearer: Option<&str>) -> Revocation {
        let mut let_in = self.let_in();
        let Some(principal) = let_in.ring.authenticate(bearer) else {
            return Box::pin(std::future::ready(()));
        };
        let open = let_in.opened.entry(principal).or_default().clone();
        Box::pin(open.cancelled_owned())
    }
}

/// Returns the keys of the control server: its token, and those of the configuration.
fn control_keys(state: &State) -> anyhow::Result<Vec<ControlKey>> {
    let control = &state.config;
    if control.address == ControlAddress::Off {
        return Ok(Vec::new());
    }
    let token = match (&control.token, &state.token) {
        (Some(token), _) => Some(token.digest().context("control.token")?),
        (None, Token::Read(digest)) => Some(*digest),
        (None, Token::Unused | Token::Unreadable(_)) => None,
    };
    let token = token.map(|digest| ControlKey {
        holder: Principal::named("control"),
        digest,
        scopes: Scope::ALL.to_vec(),
    });
    let mut keys: Vec<ControlKey> = token.into_iter().collect();
    for (name, key) in &control.keys {
        let digest = key.key.digest();
        keys.push(ControlKey {
            holder: Principal::named(name),
            digest: digest.with_context(|| format!("control.keys.{name}.key"))?,
            scopes: key.scopes.clone(),
        });
    }
    Ok(keys)
}

/// Returns the token in the data directory, which is made where it is missing. Where there is none to
/// be had the proxy goes on without what needs it.
fn token_of(control: &ControlConfig, data_dir: &Path) -> Token {
    if control.address == ControlAddress::Off || control.token.is_some() {
        return Token::Unused;
    }
    let token = riglm_adapters_storage::control_token(data_dir).map_err(anyhow::Error::from);
    match token.and_then(|token| Ok(KeyDigest::of(&token)?)) {
        Ok(digest) => Token::Read(digest),
        Err(error) => Token::Unreadable(format!("{error:#}")),
    }
}

fn warn_of(token: &Token) {
    if let Token::Unreadable(reason) = token {
        tracing::warn!("the control server answers GET /health alone: no token: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use secrecy::SecretString;

    use super::*;
    use crate::config::AuthConfig;

    fn ring(keys: &[(&str, &str)]) -> KeyRing {
        let keys = keys.iter();
        let keys = keys.map(|(name, key)| ((*name).to_owned(), SecretString::from(*key)));
        KeyRing::from_config(&AuthConfig {
            keys: keys.collect(),
        })
        .unwrap()
    }

    const A: &str = "the key of alice";
    const B: &str = "the key of bob 1";

    #[test]
    fn what_was_opened_ends_with_its_own_key_alone() {
        let keys = ClientKeys::new(ring(&[("alice", A), ("bob", B)]));
        let [mut alice, mut bob] = [A, B].map(|key| keys.revoked(Some(key)));
        keys.replace(ring(&[("alice", "another key of alice"), ("bob", B)]));
        assert_eq!((&mut alice).now_or_never(), Some(()));
        assert_eq!((&mut bob).now_or_never(), None);
        // A key that is gone opens nothing, not even between two looks at the ring.
        assert_eq!(keys.revoked(Some(A)).now_or_never(), Some(()));
        keys.replace(ring(&[("bob", B), ("carol", A)]));
        assert_eq!(bob.now_or_never(), None);
    }

    #[test]
    fn what_was_opened_without_a_key_ends_when_keys_are_asked_for() {
        let keys = ClientKeys::new(ring(&[]));
        let mut open = keys.revoked(None);
        keys.replace(ring(&[]));
        assert_eq!((&mut open).now_or_never(), None);
        keys.replace(ring(&[("alice", A)]));
        assert_eq!(open.now_or_never(), Some(()));
    }
}
