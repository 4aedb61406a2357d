//! Waiting for the first request of each client.

use std::time::Duration;

use jiff::Timestamp;
use riglm_adapters_clients::configuration::Client;
use riglm_adapters_storage::{Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::control::list_accounts::accounts_of;
use riglm_domain::selection::ListPolicyName;
use riglm_domain::selection::shown::{ListShown, explain_selection};
use riglm_domain::usage::session::SessionSummary;
use riglm_ports::analytics::{ListRepository as _, SessionRepository as _};
use riglm_ports::clock::Clock as _;
use tokio::time::{Instant, sleep};

use crate::commands::empty_store::empty_store_note;
use crate::commands::user_clients::{own_names, without_separators};
use crate::config::Config;
use crate::output::{note, printable};

/// The pause between two looks at the records.
const POLL: Duration = Duration::from_secs(1);
/// The time in which the first list of a session follows, if the client requests one at once.
const LIST_FOLLOWS: Duration = Duration::from_secs(5);
/// The newest sessions that are looked at.
const N_SESSIONS: u32 = 200;

/// The handling of clients that have connected, and whose list is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingList {
    /// It may still follow.
    Awaited,
    /// The wait is over.
    GivenUp,
}

/// The first requests of clients since the start of their setup.
#[derive(Debug)]
pub(super) struct FirstRequests<'a> {
    config: &'a Config,
    clients: &'a [&'static Client],
    since: Timestamp,
}

impl<'a> FirstRequests<'a> {
    /// Creates a wait for requests since a moment.
    pub(super) fn new(
        config: &'a Config,
        clients: &'a [&'static Client],
        since: Timestamp,
    ) -> Self {
        Self {
            config,
            clients,
            since,
        }
    }

    /// Waits until each client has made a request, or for the given time. Tells each first request,
    /// and returns the identifiers of the clients that made one.
    ///
    /// # Errors
    ///
    /// Returns the error of reading the records.
    pub(super) async fn wait(&self, patience: Duration) -> anyhow::Result<Vec<&'static str>> {
        for client in self.clients {
            note(&format!("waiting for {} ...", client.title));
        }
        let deadline = Instant::now() + patience;
        let mut connected: Vec<&'static str> = Vec::new();
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let missing = if rest.is_zero() {
                MissingList::GivenUp
            } else {
                MissingList::Awaited
            };
            self.look(missing, &mut connected).await?;
            let is_complete = connected.len() == self.clients.len();
            if is_complete || missing == MissingList::GivenUp {
                return Ok(connected);
            }
            sleep(POLL.min(rest)).await;
        }
    }

    async fn look(
        &self,
        missing: MissingList,
        connected: &mut Vec<&'static str>,
    ) -> anyhow::Result<()> {
        if empty_store_note(self.config).await?.is_some() {
            return Ok(());
        }
        let store = open_reader(&self.config.storage, &self.config.data_dir, &SystemClock).await?;
        let mut sessions = store.sessions(N_SESSIONS).await?;
        sessions.retain(|summary| summary.session.started_at >= self.since);
        for client in self.clients {
            if connected.contains(&client.id) {
                continue;
            }
            if let Some(text) = self.request_of(&store, client, &sessions, missing).await? {
                connected.push(client.id);
                note(&printable(&text));
            }
        }
        store.close().await;
        Ok(())
    }

    /// Returns the sentence about the first request of a client; `None` if there is none yet.
    async fn request_of(
        &self,
        store: &Store,
        client: &Client,
        sessions: &[SessionSummary],
        missing: MissingList,
    ) -> anyhow::Result<Option<String>> {
        let mut without_list = None;
        for summary in sessions {
            // A name may fit to several clients.
            let name = &summary.session.client_info.name;
            let owner = self.clients.iter().find(|other| is_name_of(other, name));
            if owner.is_none_or(|owner| owner.id != client.id) {
                continue;
            }
            if let Some(tools) = self.tools_of(store, summary).await? {
                return Ok(Some(format!("{}: {tools}", description(summary))));
            }
            // The oldest one has waited longest for its list.
            without_list = without_list.or(Some(summary));
        }
        let is_told = |summary: &&SessionSummary| {
            missing == MissingList::GivenUp || is_older(summary, LIST_FOLLOWS)
        };
        Ok(without_list
            .filter(is_told)
            .map(|summary| format!("{}: connected, no list asked yet", description(summary))))
    }

    /// Returns the sizes of the list of a session, with the reason if it has all tools; `None` if it
    /// has no list.
    async fn tools_of(
        &self,
        store: &Store,
        summary: &SessionSummary,
    ) -> anyhow::Result<Option<String>> {
        let session = summary.session.id;
        let prices = self.config.filtering.costs.model();
        let lists = accounts_of(store, &[session], &prices).await?;
        let n_tools = summary.tools_available.len();
        Ok(match lists.get(&session).map(|lists| lists.account) {
            Some(account) => {
                let newest = store.lists_shown(session, 1).await?;
                let reason = newest.last().and_then(reason_for_all);
                let reason = reason.map(|reason| format!(": {reason}"));
                Some(format!(
                    "{} tools, {} shown{}",
                    account.available_tools,
                    account.shown_tools,
                    reason.unwrap_or_default()
                ))
            }
            // Lists that nothing is selected from are not accounted for.
            None if n_tools > 0 && !self.config.filtering.may_hide() => Some(format!(
                "{n_tools} tools, {n_tools} shown: the configuration asks for all tools \
                 (section filtering)"
            )),
            None if n_tools > 0 => Some(format!("{n_tools} tools, {n_tools} shown")),
            None => None,
        })
    }
}

/// Returns the reason why a list has all tools; `None` if it leaves some out.
fn reason_for_all(list: &ListShown) -> Option<&'static str> {
    if list.policy == ListPolicyName::Hints.as_str() {
        return Some(
            "the client loads tools on demand, so it gets all, and the likely ones are marked",
        );
    }
    let selection = list.selection.as_ref()?;
    let text = explain_selection(selection.mode, selection.reason);
    Some(text.strip_prefix("All tools: ")?.trim_end_matches('.'))
}

/// Returns whether a session started before a time.
fn is_older(summary: &SessionSummary, age: Duration) -> bool {
    let since = SystemClock.now().duration_since(summary.session.started_at);
    since.unsigned_abs() >= age
}

fn description(summary: &SessionSummary) -> String {
    let session = &summary.session;
    let info = &session.client_info;
    format!("{} {} ({})", info.name, info.version, session.protocol)
}

/// Returns whether a client gives itself this name.
fn is_name_of(client: &Client, name: &str) -> bool {
    let name = without_separators(name);
    own_names(client).any(|own| name.contains(&own))
}

#[cfg(test)]
mod tests {
    use riglm_adapters_clients::configuration::client;

    use super::*;

    #[test]
    fn clients_are_recognised_by_the_names_that_they_give_themselves() {
        for (id, name) in [
            ("claude-code", "claude-code"),
            ("claude-desktop", "claude-ai"),
            ("cursor", "cursor-vscode"),
            ("vscode", "Visual Studio Code"),
            ("codex", "codex-mcp-client"),
            ("gemini", "gemini-cli-mcp-client"),
        ] {
            assert!(is_name_of(client(id).unwrap(), name), "{id}");
        }
        assert!(!is_name_of(client("zed").unwrap(), "claude-code"));
    }
}
