//! The keys of clients and operators, which may change while riglm runs. Keys of the configuration
//! change with a reload, the token of the control server with its file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use riglm_adapters_http::{ControlAddress, ControlConfig, ControlKey, ControlKeys, Scope};
use riglm_adapters_mcp::downstream::KeyRing;
use riglm_domain::privacy::key_digest::KeyDigest;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::authenticator::{Authenticator, Revocation};
use tokio_util::sync::CancellationToken;

use super::foundation::Foundation;
use crate::config::Config;

/// The poll interval of the token file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Keys {
    clients: Arc<ClientKeys>,
    control: ControlKeys,
    data_dir: PathBuf,
    state: Mutex<ControlKeyState>,
}

/// The sources of the keys of the control server.
#[derive(Debug)]
struct ControlKeyState {
    config: ControlConfig,
    token: ControlToken,
}

/// The result of reading the token file.
#[derive(Clone, Debug, PartialEq)]
enum ControlToken {
    /// The file is not needed.
    Unused,
    Read(KeyDigest),
    /// The file cannot be read, with the reason.
    Unreadable(String),
}

/// Returns the keys of the configuration, and starts to follow their files.
pub(super) fn keys_from(base: &Foundation<'_>) -> anyhow::Result<Arc<Keys>> {
    let keys = Arc::new(Keys::new(base.config)?);
    let watch = Arc::clone(&keys).keep_watch(base.stop.clone());
    base.tasks.spawn(watch);
    Ok(keys)
}

impl Keys {
    /// Creates the keys of a configuration. It creates the token file of the control server if it
    /// is needed and missing.
    ///
    /// # Errors
    ///
    /// Returns the configured key that cannot be used.
    pub(super) fn new(config: &Config) -> anyhow::Result<Self> {
        let token = token_of(&config.control, &config.data_dir);
        warn_of(&token);
        let state = ControlKeyState {
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

    pub(super) fn clients(&self) -> Arc<dyn Authenticator> {
        self.clients.clone()
    }

    pub(super) fn control(&self) -> ControlKeys {
        self.control.clone()
    }

    /// Applies the keys of a validated, reloaded configuration.
    pub(super) fn follow(&self, config: &Config) {
        self.clients.replace(config.keys.clone());
        let mut state = self.state.lock();
        if state.config != config.control {
            state.config = config.control.clone();
            state.token = token_of(&state.config, &self.data_dir);
            warn_of(&state.token);
            self.replace_control(&state);
        }
    }

    /// Polls the token file until `stop` is cancelled.
    pub(super) async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let watching = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let keys = Arc::clone(&self);
                // A panic in the task is reported by the panic hook; the next poll tries again.
                let _ = tokio::task::spawn_blocking(move || keys.look()).await;
            }
        };
        stop.run_until_cancelled(watching).await;
    }

    fn look(&self) {
        let mut state = self.state.lock();
        let token = token_of(&state.config, &self.data_dir);
        if token == state.token {
            return;
        }
        warn_of(&token);
        if matches!(token, ControlToken::Read(_)) {
            tracing::info!("control port: token replaced; the old token is now rejected");
        }
        state.token = token;
        self.replace_control(&state);
    }

    fn replace_control(&self, state: &ControlKeyState) {
        match control_keys(state) {
            Ok(keys) => self.control.replace(keys),
            // The keys were validated when the configuration was loaded.
            Err(error) => tracing::error!("control port: failed to replace the keys: {error:#}"),
        }
    }
}

#[derive(Debug)]
struct ClientKeys(Mutex<AcceptedKeys>);

/// The keys, and the streams that were opened with them.
#[derive(Debug)]
struct AcceptedKeys {
    ring: Arc<KeyRing>,
    /// A token for each principal, cancelled when its key is removed.
    opened: HashMap<Principal, CancellationToken>,
}

impl ClientKeys {
    fn new(ring: KeyRing) -> Self {
        Self(Mutex::new(AcceptedKeys {
            ring: Arc::new(ring),
            opened: HashMap::new(),
        }))
    }

    /// Replaces all keys, and ends the streams of removed ones.
    fn replace(&self, ring: KeyRing) {
        let mut let_in = self.0.lock();
        let AcceptedKeys { ring: old, opened } = &mut *let_in;
        opened.retain(|principal, open| {
            let stays = ring.has_key_of(principal, old);
            if !stays {
                open.cancel();
            }
            stays
        });
        *old = Arc::new(ring);
    }
}

impl Authenticator for ClientKeys {
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal> {
        let ring = Arc::clone(&self.0.lock().ring);
        ring.authenticate(bearer)
    }

    fn revocation(&self, bearer: Option<&str>) -> Revocation {
        let mut let_in = self.0.lock();
        let Some(principal) = let_in.ring.authenticate(bearer) else {
            return Box::pin(std::future::ready(()));
        };
        let open = let_in.opened.entry(principal).or_default().clone();
        Box::pin(open.cancelled_owned())
    }
}

/// Returns the keys of the control server: its token, and those of the configuration.
fn control_keys(state: &ControlKeyState) -> anyhow::Result<Vec<ControlKey>> {
    let control = &state.config;
    if control.address == ControlAddress::Off {
        return Ok(Vec::new());
    }
    let token = match (&control.token, &state.token) {
        (Some(token), _) => Some(token.digest().context("control.token")?),
        (None, ControlToken::Read(digest)) => Some(*digest),
        (None, ControlToken::Unused | ControlToken::Unreadable(_)) => None,
    };
    let token = token.map(|digest| ControlKey {
        holder: Principal::from_name("control"),
        digest,
        scopes: Scope::ALL.to_vec(),
    });
    let mut keys: Vec<ControlKey> = token.into_iter().collect();
    for (name, key) in &control.keys {
        let digest = key.key.digest();
        keys.push(ControlKey {
            holder: Principal::from_name(name),
            digest: digest.with_context(|| format!("control.keys.{name}.key"))?,
            scopes: key.scopes.clone(),
        });
    }
    Ok(keys)
}

/// Returns the token in the data directory, and creates it if it is missing. A failure is not
/// fatal: the proxy works without the control API.
fn token_of(control: &ControlConfig, data_dir: &Path) -> ControlToken {
    if control.address == ControlAddress::Off || control.token.is_some() {
        return ControlToken::Unused;
    }
    let token = riglm_adapters_storage::control_token(data_dir).map_err(anyhow::Error::from);
    match token.and_then(|token| Ok(KeyDigest::of(&token)?)) {
        Ok(digest) => ControlToken::Read(digest),
        Err(error) => ControlToken::Unreadable(format!("{error:#}")),
    }
}

fn warn_of(token: &ControlToken) {
    if let ControlToken::Unreadable(reason) = token {
        tracing::warn!("control port: no token, so requests need a key of control.keys: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt as _;
    use riglm_ports::contract::authenticator::AuthenticatorScene;
    use secrecy::SecretString;

    use super::*;
    use riglm_adapters_mcp::downstream::AuthConfig;

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

    impl AuthenticatorScene for ClientKeys {
        fn authenticator(&self) -> &dyn Authenticator {
            self
        }

        fn accepted(&self) -> Vec<(Option<String>, Principal)> {
            let key = |key: &str, name| (Some(key.to_owned()), Principal::from_name(name));
            vec![key(A, "alice"), key(B, "bob")]
        }

        fn refused(&self) -> Vec<Option<String>> {
            vec![None, Some("the key of carol".into())]
        }

        fn revoke_first(&self) -> bool {
            self.replace(ring(&[("bob", B)]));
            true
        }
    }

    riglm_ports::authenticator_contract!(
        contract,
        ready(Box::new(ClientKeys::new(ring(&[("alice", A), ("bob", B)]))))
    );

    #[test]
    fn removed_keys_end_only_their_own_streams() {
        let keys = ClientKeys::new(ring(&[("alice", A), ("bob", B)]));
        let [mut alice, mut bob] = [A, B].map(|key| keys.revocation(Some(key)));
        keys.replace(ring(&[("alice", "another key of alice"), ("bob", B)]));
        assert_eq!((&mut alice).now_or_never(), Some(()));
        assert_eq!((&mut bob).now_or_never(), None);
        // A removed key opens no stream, not even between two looks at the ring.
        assert_eq!(keys.revocation(Some(A)).now_or_never(), Some(()));
        keys.replace(ring(&[("bob", B), ("carol", A)]));
        assert_eq!(bob.now_or_never(), None);
    }

    #[test]
    fn streams_without_a_key_end_once_keys_are_required() {
        let keys = ClientKeys::new(ring(&[]));
        let mut open = keys.revocation(None);
        keys.replace(ring(&[]));
        assert_eq!((&mut open).now_or_never(), None);
        keys.replace(ring(&[("alice", A)]));
        assert_eq!(open.now_or_never(), Some(()));
    }
}
