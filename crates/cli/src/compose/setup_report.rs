//! The source of `GET /setup`: the checks of `riglm doctor` and the clients of `riglm clients`, for
//! the configuration and the user of this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use riglm_adapters_http::{SetupCheck, SetupClient, SetupReport, SetupSource, SetupStatus};
use riglm_adapters_storage::Store;
use riglm_domain::usage::session::SessionSummary;
use riglm_ports::analytics::SessionRepository as _;
use tokio::runtime::Handle;

use super::foundation::Foundation;
use super::reload::ReloadSource;
use crate::args::HomeArgs;
use crate::commands::clients;
use crate::commands::doctor::{self, Finding, Status};
use crate::commands::user_clients::{UserClients, client_that_declares, own_entry};
use crate::config::{ConfigSource, TuningUse};

/// The newest sessions that are searched for those of a client.
const N_SESSIONS: u32 = 500;
/// The user of this process, on this operating system.
const OWN_HOME: HomeArgs = HomeArgs {
    home: None,
    os: None,
};

/// Returns the source of the checks; `None` if the proxy does not follow its configuration. `mcp_port`
/// gets the address for clients when their port is open.
pub(super) fn setup_from(
    base: &Foundation<'_>,
    following: Option<&ReloadSource>,
    mcp_port: Arc<OnceLock<SocketAddr>>,
) -> Option<SetupSource> {
    let inspector = SetupInspector {
        source: following?.watch.source().clone(),
        store: base.store(),
        mcp_port,
    };
    // Some checks block, so all of them run on a thread that may.
    Some(SetupSource::new(move || {
        Handle::current().block_on(inspector.report())
    }))
}

/// The inspection of the set-up.
struct SetupInspector {
    source: ConfigSource,
    store: Option<Arc<Store>>,
    mcp_port: Arc<OnceLock<SocketAddr>>,
}

impl SetupInspector {
    async fn report(&self) -> SetupReport {
        let findings = doctor::check(&self.source, &OWN_HOME).await;
        let last_starts = self.last_starts().await;
        SetupReport {
            checks: findings.into_iter().map(check_of).collect(),
            clients: self.clients(&last_starts),
        }
    }

    /// Returns the clients of the user; none if the configuration cannot be loaded, or if there is no
    /// home directory. The checks have the reason.
    fn clients(&self, last_starts: &BTreeMap<&'static str, Timestamp>) -> Vec<SetupClient> {
        let Ok(mut loaded) = self.source.load(TuningUse::IfSound) else {
            return Vec::new();
        };
        // With port 0, only the running proxy knows where clients reach it.
        if loaded.config.listen.address.port() == 0
            && let Some(address) = self.mcp_port.get()
        {
            loaded.config.listen.address = *address;
        }
        let config = &loaded.config;
        let Ok(users) = UserClients::new(config, self.source.surroundings(), &OWN_HOME) else {
            return Vec::new();
        };
        let clients = clients::rows(&users, config).map(|row| SetupClient {
            last_seen: last_starts.get(row.client.id).copied(),
            id: row.client.id.into(),
            name: row.client.title.into(),
            is_installed: row.is_installed,
            riglm: row.riglm.word().into(),
            files: row.files,
            entry: own_entry(row.client, config),
        });
        clients.collect()
    }

    /// Returns the start of the newest session of each client, by its identifier.
    async fn last_starts(&self) -> BTreeMap<&'static str, Timestamp> {
        let Some(store) = &self.store else {
            return BTreeMap::new();
        };
        match store.sessions(N_SESSIONS).await {
            Ok(sessions) => last_starts_of(&sessions),
            Err(error) => {
                tracing::warn!("failed to read the newest session of each client: {error}");
                BTreeMap::new()
            }
        }
    }
}

/// Returns the newest start of the sessions of each client. The sessions are in the order of their
/// starts.
fn last_starts_of(sessions: &[SessionSummary]) -> BTreeMap<&'static str, Timestamp> {
    let sessions = sessions.iter().map(|summary| &summary.session);
    let starts = sessions.filter_map(|session| {
        let client = client_that_declares(&session.client_info.name)?;
        Some((client.id, session.started_at))
    });
    // A later entry replaces an earlier one.
    starts.collect()
}

fn check_of(finding: Finding) -> SetupCheck {
    SetupCheck {
        check: finding.name.into(),
        status: match finding.status {
            Status::Ok => SetupStatus::Ok,
            Status::Warning => SetupStatus::Warning,
            Status::Problem => SetupStatus::Problem,
        },
        text: finding.detail,
        cure: finding.cure,
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::{RunId, SessionId};
    use riglm_domain::mcp::protocol::{Revision, Transport};
    use riglm_domain::privacy::canonical::KeyedHasher;
    use riglm_domain::privacy::principal::Principal;
    use riglm_domain::usage::session::{ClientInfo, Session};

    use super::*;

    #[test]
    fn a_client_was_last_seen_in_its_newest_session() {
        let at = |second: i64| Timestamp::constant(second, 0);
        let summary = |second: i64, name: &str| SessionSummary {
            session: Session {
                id: SessionId::new(at(second), [1; 10]),
                run: RunId::new(at(0), [1; 10]),
                principal: Principal::local(),
                client: KeyedHasher::new(&[0; 32]).hash_text(name),
                client_info: ClientInfo::new(name, "1.0"),
                protocol: Revision::new(Revision::V2025_11_25),
                transport: Transport::StreamableHttp,
                started_at: at(second),
                profile: None,
                metadata: BTreeMap::new(),
            },
            ended_at: None,
            n_calls: 0,
            tools_available: Vec::new(),
        };
        let sessions = [
            summary(1, "cursor-vscode"),
            summary(2, "claude-code"),
            summary(3, "an agent of its own"),
            summary(4, "cursor-vscode"),
        ];
        let expected = BTreeMap::from([("claude-code", at(2)), ("cursor", at(4))]);
        assert_eq!(last_starts_of(&sessions), expected);
    }
}
