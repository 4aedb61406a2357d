//! `riglm sessions`: recorded sessions.

use std::collections::BTreeMap;

use anyhow::Context;
use riglm_adapters_storage::{Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::control::list_accounts::{SessionLists, accounts_of};
use riglm_app::tracking::is_imported;
use riglm_domain::id::SessionId;
use riglm_domain::selection::account::ListAccount;
use riglm_domain::usage::session::SessionSummary;
use riglm_ports::analytics::SessionRepository as _;
use serde_json::{Value, json};

use super::table::{Column, foreign_cell, table, time_cell};
use crate::args::SessionsArgs;
use crate::config::Config;
use crate::output::{note, print};

pub(super) async fn run(config: &Config, arguments: &SessionsArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let sessions = store.sessions(arguments.limit).await?;
    if u32::try_from(sessions.len()).is_ok_and(|n_sessions| n_sessions >= arguments.limit) {
        note(&format!(
            "showing the newest {} sessions; there may be more, see --limit",
            sessions.len()
        ));
    }
    let text = if arguments.format.is_json() {
        let lists = lists_of(&store, &sessions, config).await?;
        let json = as_json(&sessions, &lists);
        serde_json::to_string(&json).context("failed to write sessions as JSON")?
    } else if arguments.lists {
        as_table_of_lists(&sessions, &lists_of(&store, &sessions, config).await?)
    } else {
        as_table(&sessions)
    };
    Ok(print(&text)?)
}

/// The mark of a session that comes from the transcript of a client.
const IMPORTED: &str = "imported";

type Lists = BTreeMap<SessionId, SessionLists>;

async fn lists_of(
    store: &Store,
    sessions: &[SessionSummary],
    config: &Config,
) -> anyhow::Result<Lists> {
    let ids: Vec<SessionId> = sessions.iter().map(|summary| summary.session.id).collect();
    Ok(accounts_of(store, &ids, &config.filtering.costs.model()).await?)
}

/// Returns the sessions as JSON. Scripts rely on this format. `lists` is `null` for a session
/// without recorded lists.
fn as_json(sessions: &[SessionSummary], lists: &Lists) -> Value {
    sessions
        .iter()
        .map(|summary| {
            let session = &summary.session;
            let lists = lists.get(&session.id).map(|lists| lists.account);
            json!({
                "id": session.id,
                "client": session.client_info.name,
                "protocol": session.protocol,
                "transport": session.transport,
                "started_at": session.started_at,
                "ended_at": summary.ended_at,
                "calls": summary.n_calls,
                "client_id": session.client,
                "profile": session.profile,
                "imported": is_imported(session),
                "lists": lists,
            })
        })
        .collect()
}

fn as_table_of_lists(sessions: &[SessionSummary], lists: &Lists) -> String {
    let columns = [
        Column::Text("STARTED (UTC)"),
        Column::Text("SESSION"),
        Column::Text("CLIENT"),
        Column::Text("POLICY"),
        Column::Number("CALLS"),
        Column::Number("SHOWN"),
        Column::Number("OF"),
        Column::Number("USED"),
        Column::Number("MISSED"),
        Column::Number("SEARCHES"),
        Column::Number("CHANGES"),
        Column::Number("COST AVOIDED"),
    ];
    let rows = sessions.iter().map(|summary| {
        let session = &summary.session;
        let lists = lists.get(&session.id);
        let number = |of: fn(&ListAccount) -> String| {
            lists.map_or_else(String::new, |lists| of(&lists.account))
        };
        vec![
            time_cell(session.started_at),
            session.id.to_string(),
            foreign_cell(&session.client_info.name),
            match lists {
                Some(lists) => foreign_cell(&lists.policy),
                None if is_imported(session) => IMPORTED.into(),
                None => "none recorded".into(),
            },
            summary.n_calls.to_string(),
            number(|account| account.shown_tools.to_string()),
            number(|account| account.available_tools.to_string()),
            number(|account| account.tools_used.to_string()),
            number(|account| account.tool_misses.to_string()),
            number(|account| account.searches.to_string()),
            number(|account| account.list_changes.to_string()),
            number(|account| format!("{:.0}", account.cost_avoided)),
        ]
    });
    table(&columns, rows.collect())
}

pub(super) fn as_table(sessions: &[SessionSummary]) -> String {
    let columns = [
        Column::Text("STARTED (UTC)"),
        Column::Text("SESSION"),
        Column::Text("CLIENT"),
        Column::Text("PROTOCOL"),
        Column::Text("TRANSPORT"),
        Column::Text("ENDED (UTC)"),
        Column::Number("CALLS"),
    ];
    let rows = sessions.iter().map(|summary| {
        let session = &summary.session;
        let client = &session.client_info;
        let (protocol, transport) = if is_imported(session) {
            // The transcript of a client does not tell them.
            ("-".to_owned(), IMPORTED.to_owned())
        } else {
            let transport = session.transport.as_str();
            (
                foreign_cell(session.protocol.as_str()),
                transport.to_owned(),
            )
        };
        vec![
            time_cell(session.started_at),
            session.id.to_string(),
            foreign_cell(format!("{} {}", client.name, client.version).trim_end()),
            protocol,
            transport,
            summary.ended_at.map_or("running".into(), time_cell),
            summary.n_calls.to_string(),
        ]
    });
    table(&columns, rows.collect())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_domain::id::{RunId, SessionId};
    use riglm_domain::mcp::protocol::{Revision, Transport};
    use riglm_domain::privacy::canonical::KeyedHasher;
    use riglm_domain::privacy::principal::Principal;
    use riglm_domain::selection::account::Calibration;
    use riglm_domain::usage::session::{ClientInfo, Session};

    use super::*;

    fn session(ended_at: Option<&str>) -> SessionSummary {
        let started_at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        SessionSummary {
            session: Session {
                id: SessionId::new(started_at, [9; 10]),
                run: RunId::new(started_at, [8; 10]),
                principal: Principal::local(),
                client: KeyedHasher::new(&[0; 32]).hash_text("x"),
                client_info: ClientInfo::new("editor", "1.0"),
                protocol: Revision::new(Revision::V2025_11_25),
                transport: Transport::StreamableHttp,
                started_at,
                profile: None,
                metadata: std::collections::BTreeMap::new(),
            },
            ended_at: ended_at.map(|at| at.parse().unwrap()),
            n_calls: 3,
            tools_available: vec!["echo".into()],
        }
    }

    #[test]
    fn json_has_the_agreed_keys() {
        assert_eq!(
            as_json(&[session(None)], &Lists::new()).to_string(),
            concat!(
                r#"[{"id":"019b7ca9-8c88-7909-8909-090909090909","client":"editor","#,
                r#""protocol":"2025-11-25","transport":"streamable_http","#,
                r#""started_at":"2026-01-02T03:04:05Z","ended_at":null,"calls":3,"#,
                r#""client_id":"CLIENT","profile":null,"imported":false,"lists":null}]"#
            )
            .replace(
                "CLIENT",
                &KeyedHasher::new(&[0; 32]).hash_text("x").to_string()
            )
        );
        let ended = as_json(&[session(Some("2026-01-02T04:00:00Z"))], &Lists::new());
        assert_eq!(ended[0]["ended_at"], "2026-01-02T04:00:00Z");
    }

    #[test]
    fn sessions_are_shown_with_list_statistics() {
        let session = session(None);
        let lists = SessionLists {
            policy: "epoch".into(),
            account: ListAccount {
                shown_tools: 10,
                available_tools: 43,
                tokens_saved: 12_345,
                cost_avoided: -67.25,
                ..ListAccount::default()
            },
            calibration: Calibration::default(),
        };
        let lists = Lists::from([(session.session.id, lists)]);
        let json = as_json(std::slice::from_ref(&session), &lists);
        let keys = [
            "tools_loaded",
            "tools_used",
            "tool_misses",
            "tool_escalations",
            "searches",
            "list_changes",
            "shown_tools",
            "available_tools",
            "shown_tokens",
            "available_tokens",
            "tokens_saved",
            "cost_avoided",
        ];
        for key in keys {
            assert!(json[0]["lists"][key].is_number(), "{key}");
        }
        assert_eq!(json[0]["lists"]["cost_avoided"], -67.25);
        let shown = as_table_of_lists(&[session], &lists);
        let line: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = [
            "editor", "epoch", "3", "10", "43", "0", "0", "0", "0", "-67",
        ];
        assert_eq!(line[3..], expected);
    }

    #[test]
    fn imported_sessions_are_marked() {
        let mut imported = session(Some("2026-01-02T04:00:00Z"));
        let origin = ("origin".to_owned(), "transcript".to_owned());
        imported.session.metadata = [origin].into();
        let rows = [imported, session(None)];
        let json = as_json(&rows, &Lists::new());
        assert_eq!(json[0]["imported"], true);
        assert_eq!(json[1]["imported"], false);
        let cells = |shown: &str, line: usize| -> Vec<String> {
            let line = shown.lines().nth(line).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        let table = as_table(&rows);
        assert_eq!(cells(&table, 1)[5..7], ["-", "imported"]);
        assert_eq!(cells(&table, 2)[5..7], ["2025-11-25", "streamable_http"]);
        let lists = as_table_of_lists(&rows, &Lists::new());
        assert_eq!(cells(&lists, 1)[4..], ["imported", "3"]);
    }

    #[test]
    fn the_table_shows_one_session_a_line() {
        let shown = as_table(&[session(None)]);
        let line = shown.lines().nth(1).unwrap();
        for part in ["editor 1.0", "2025-11-25", "streamable_http", "running"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(line.ends_with('3'));
    }
}
