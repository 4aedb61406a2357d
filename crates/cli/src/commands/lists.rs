//! `riglm lists`: cost and savings of tool lists, and the reasons for their selection.

mod session_lists;

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_app::control::list_accounts::{RecentLists, recent_lists};
use riglm_domain::selection::account::{ASSUMPTIONS, PolicySummary};
use riglm_domain::selection::economics::CostModel;
use riglm_ports::analytics::{ListRepository as _, SessionRepository as _};
use riglm_ports::clock::Clock as _;
use serde_json::{Map, Value, json};

use super::table::{Column, foreign_cell, table};
use crate::args::ListsArgs;
use crate::config::Config;
use crate::output::{note, print};

/// Prints a summary of recent lists, or each list of one session.
pub(super) async fn run(config: &Config, arguments: &ListsArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    if let Some(session) = arguments.session {
        let lists = store.lists_shown(session, arguments.limit).await?;
        let text = if arguments.store.format.is_json() {
            let json = session_lists::as_json(&lists);
            serde_json::to_string(&json).context("failed to write lists as JSON")?
        } else {
            session_lists::as_table(&lists)
        };
        return Ok(print(&text)?);
    }
    let since = since(arguments.days);
    let prices = config.filtering.costs.model();
    let clients = (store.sessions(arguments.limit).await?.into_iter())
        .map(|summary| (summary.session.id, summary.session.client_info.name))
        .collect();
    let recent = recent_lists(&store, since, arguments.limit, &prices, &clients).await?;
    if recent.is_cut {
        note_limit(arguments.limit);
    }
    if recent.summary.all.sessions == 0 {
        note(&no_lists_reason(config, &recent, arguments));
    }
    let text = if arguments.store.format.is_json() {
        let json = as_json(&recent, since, &prices);
        serde_json::to_string(&json).context("failed to write lists as JSON")?
    } else {
        as_table(&recent)
    };
    Ok(print(&text)?)
}

/// Returns the JSON output for an unused database.
pub(super) fn empty(config: &Config, arguments: &ListsArgs) -> Value {
    match arguments.session {
        Some(_) => json!([]),
        None => as_json(
            &RecentLists::default(),
            since(arguments.days),
            &config.filtering.costs.model(),
        ),
    }
}

/// Prints a note that the limit has left out sessions.
pub(super) fn note_limit(limit: u32) {
    note(&format!(
        "only the newest {limit} connections and work sessions are included; there are more, see --limit"
    ));
}

/// Returns the time this many days ago.
pub(super) fn since(days: u32) -> Timestamp {
    let age = SignedDuration::from_hours(24 * i64::from(days));
    (SystemClock.now().checked_sub(age)).unwrap_or(Timestamp::MIN)
}

fn as_json(recent: &RecentLists, since: Timestamp, prices: &CostModel) -> Value {
    let policies = recent.summary.by_policy.iter();
    let policies: Map<String, Value> = policies
        .map(|(policy, summary)| (policy.clone(), summary_as_json(summary)))
        .collect();
    let clients = recent.summary.by_client.iter();
    let clients: Map<String, Value> = clients
        .map(|(client, summary)| (client.clone(), summary_as_json(summary)))
        .collect();
    json!({
        "since": since,
        "connections": recent.n_connections,
        "all": summary_as_json(&recent.summary.all),
        "policies": policies,
        "clients": clients,
        "prices": {
            "cached_read": prices.cached_read,
            "cache_write": prices.cache_write,
            "context_tokens": prices.context_tokens,
            "search": prices.search,
            "inline_search": prices.inline_search,
        },
        "assumptions": ASSUMPTIONS,
    })
}

fn summary_as_json(summary: &PolicySummary) -> Value {
    let total = &summary.total;
    json!({
        "sessions": summary.sessions,
        "mean_list_size": summary.mean_list_size(),
        "share_shown": summary.share_shown(),
        "misses_per_session": summary.misses_per_session(),
        "searches_per_session": summary.searches_per_session(),
        "list_changes_per_session": summary.list_changes_per_session(),
        "tools_used": total.tools_used,
        "tool_misses": total.tool_misses,
        "tool_escalations": total.tool_escalations,
        "searches": total.searches,
        "list_changes": total.list_changes,
        "tokens_saved": total.tokens_saved,
        "cost_avoided": total.cost_avoided,
        "share_at_a_loss": summary.share_at_a_loss(),
        "sessions_hiding": summary.sessions_hiding,
        "share_looking": summary.share_looking(),
    })
}

/// Returns the reason why no lists are recorded for the selected sessions.
fn no_lists_reason(config: &Config, recent: &RecentLists, arguments: &ListsArgs) -> String {
    let ListsArgs { days, limit, .. } = arguments;
    if recent.n_connections == 0 {
        return format!("no session was open in the last {days} days: see --days");
    }
    if config.filtering.may_hide() {
        format!(
            "no client requested a tool list in the newest {} sessions of the last {days} days: \
             see --days and --limit ({limit})",
            recent.n_connections
        )
    } else {
        "lists have all tools, so there are no savings to show: filtering.strategy is none, see \
         `riglm serve --strategy prediction`"
            .into()
    }
}

fn as_table(recent: &RecentLists) -> String {
    if recent.summary.all.sessions == 0 {
        return "no lists are recorded".into();
    }
    let columns = |of: &'static str| {
        [
            Column::Text(of),
            Column::Number("SESSIONS"),
            Column::Number("LIST SIZE"),
            Column::Number("SHOWN %"),
            Column::Number("MISSES"),
            Column::Number("SEARCHES"),
            Column::Number("CHANGES"),
            Column::Number("TOKENS SAVED"),
            Column::Number("COST AVOIDED"),
            Column::Number("AT A LOSS %"),
            Column::Number("LOOK %"),
        ]
    };
    let policies = (recent.summary.by_policy.iter()).map(|(policy, summary)| {
        let name = foreign_cell(policy);
        row(name, summary)
    });
    let all = row("all".into(), &recent.summary.all);
    let policies = table(&columns("POLICY"), policies.chain([all]).collect());
    let clients = (recent.summary.by_client.iter())
        .map(|(client, summary)| row(foreign_cell(client), summary));
    let clients = table(&columns("CLIENT"), clients.collect());
    format!(
        "{policies}\n\n{clients}\n\nLIST SIZE, MISSES, SEARCHES and CHANGES are means per session; \
         COST AVOIDED\nis in the price of a token that no prompt cache has. `riglm lists --help` \
         explains each column."
    )
}

fn row(name: String, summary: &PolicySummary) -> Vec<String> {
    vec![
        name,
        summary.sessions.to_string(),
        format!("{:.1}", summary.mean_list_size()),
        format!("{:.1}", 100.0 * summary.share_shown()),
        format!("{:.2}", summary.misses_per_session()),
        format!("{:.2}", summary.searches_per_session()),
        format!("{:.2}", summary.list_changes_per_session()),
        summary.total.tokens_saved.to_string(),
        format!("{:.0}", summary.total.cost_avoided),
        format!("{:.1}", 100.0 * summary.share_at_a_loss()),
        (summary.share_looking())
            .map_or_else(|| "-".into(), |share| format!("{:.1}", 100.0 * share)),
    ]
}

#[cfg(test)]
mod tests {
    use riglm_domain::selection::account::ListAccount;

    use super::*;

    fn recent() -> RecentLists {
        let mut recent = RecentLists {
            n_connections: 4,
            ..RecentLists::default()
        };
        let account = |cost_avoided| ListAccount {
            shown_tools: 10,
            available_tools: 40,
            searches: 3,
            tokens_saved: 6_000,
            cost_avoided,
            ..ListAccount::default()
        };
        recent.summary.add("epoch", None, &account(900.4));
        recent.summary.add("epoch", None, &account(-100.0));
        recent.summary.add("\u{1b}[2J", None, &account(0.0));
        recent
    }

    #[test]
    fn json_output_has_all_policies_and_assumptions() {
        let json = as_json(&recent(), Timestamp::UNIX_EPOCH, &CostModel::default());
        let keys = [
            "since",
            "connections",
            "all",
            "policies",
            "prices",
            "assumptions",
        ];
        for key in keys {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["all"]["sessions"], 3);
        let epoch = &json["policies"]["epoch"];
        assert_eq!(epoch["share_shown"], 0.25);
        assert_eq!(epoch["searches_per_session"], 3.0);
        assert_eq!(epoch["share_at_a_loss"], 0.5);
        assert_eq!(epoch["tokens_saved"], 12_000);
        let n_assumptions = json["assumptions"].as_array().map(Vec::len);
        assert_eq!(n_assumptions, Some(ASSUMPTIONS.len()));
    }

    #[test]
    fn tables_have_one_row_per_policy_and_a_total() {
        let shown = as_table(&recent());
        let lines: Vec<Vec<&str>> = (shown.lines())
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected = [
            "epoch", "2", "10.0", "25.0", "0.00", "3.00", "0.00", "12000", "800", "50.0", "100.0",
        ];
        assert_eq!(lines[2], expected);
        assert_eq!(lines[3][..2], ["all", "3"]);
        assert!(!shown.contains('\u{1b}'), "{shown}");
        assert_eq!(as_table(&RecentLists::default()), "no lists are recorded");
    }
}
