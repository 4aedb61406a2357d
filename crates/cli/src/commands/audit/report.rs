//! The figures of an audit as text.

use std::fmt::Display;

use super::clients::{ClientFigures, ClientLists, ClientUsage};
use super::figures::{AuditFigures, AuditedTool};
use crate::commands::table::{Column, foreign_cell, table};
use crate::output::{number_of, with_separators};

/// The number of rows of each list of tools.
const N_ROWS: usize = 10;

pub(super) fn text(figures: &AuditFigures) -> String {
    let mut parts = vec![sentences(figures).join("\n")];
    if !figures.servers.is_empty() {
        parts.push(server_table(figures));
    }
    let unused = figures.unused_tools();
    if !unused.is_empty() && figures.n_sessions > 0 {
        let title = format!(
            "Largest tools without a call in {} days",
            figures.unused_days
        );
        parts.push(format!("{title}\n{}", tool_table(&unused)));
    }
    let troubled = figures.troubled_tools();
    if !troubled.is_empty() {
        parts.push(format!(
            "Tools that often fail, or are slow\n{}",
            tool_table(&troubled)
        ));
    }
    let used: Vec<&AuditedTool> = (figures.tools.iter())
        .filter(|tool| tool.n_calls() > 0)
        .collect();
    if !used.is_empty() {
        parts.push(format!("Most used tools\n{}", tool_table(&used)));
    }
    if figures.n_skipped_lines > 0 {
        parts.push(format!(
            "{} lines of transcripts were skipped, because they are unknown, broken or too long.",
            figures.n_skipped_lines
        ));
    }
    if figures.n_listed() > 0 {
        parts.push("Next: riglm setup --dry-run".into());
    }
    parts.join("\n\n")
}

pub(super) fn sentences(figures: &AuditFigures) -> Vec<String> {
    let mut lines = Vec::new();
    if figures.clients.is_empty() {
        lines.push(size_sentence(
            "",
            figures.servers.len(),
            figures.n_listed(),
            figures.n_tokens(),
        ));
    }
    for client in &figures.clients {
        let title = format!("{}: ", client.title);
        let tokens = client.tokens_per_prompt();
        let n_servers = client.n_servers;
        lines.push(size_sentence(&title, n_servers, client.n_tools, tokens));
        if client.n_listed > 0 && client.n_listed < n_servers {
            let unlisted = number_of(n_servers - client.n_listed, "server");
            lines.push(format!("  {unlisted} without a list of tools (see below)."));
        }
        match &client.usage {
            Some(usage) => {
                lines.push(format!(
                    "  {} in {} of the last {} days; {} made 95 % of them.",
                    number_of(usage.n_calls, "call"),
                    number_of(usage.n_sessions, "session"),
                    figures.n_days.unwrap_or(1),
                    number_of(usage.n_tools_for_most, "tool"),
                ));
                lines.extend(live_sentences(client, usage));
            }
            None if figures.n_sessions > 0 => {
                lines.push(
                    "  It has no transcripts that can be read, so its calls are unknown.".into(),
                );
            }
            None => {}
        }
    }
    if figures.n_sessions == 0 {
        lines.push("No call of a tool of an MCP server was found in the transcripts.".into());
    }
    if let Some(imported) = &figures.imported {
        lines.extend(imported.sentences());
    }
    lines
}

fn size_sentence(title: &str, n_servers: usize, n_tools: usize, tokens: Option<u64>) -> String {
    let servers = number_of(n_servers, "server");
    match tokens {
        _ if n_servers == 0 => format!("{title}no server is configured."),
        Some(tokens) => format!(
            "{title}{} of {servers}: {} tokens of definitions in each prompt.",
            number_of(n_tools, "tool"),
            with_separators(tokens)
        ),
        None => format!("{title}{servers} without a list, so tools and tokens are unknown."),
    }
}

/// Returns the sentences about the lists of riglm.
fn live_sentences(client: &ClientFigures, usage: &ClientUsage) -> Vec<String> {
    let Some(n_saved) = client.n_saved_tokens() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if n_saved == 0 {
        lines.push(
            "  With riglm: all tools are listed, because hiding some could not save tokens here."
                .into(),
        );
        return lines;
    }
    lines.push(format!(
        "  With riglm: {:.0} tools shown on average, {:.0} % of first uses were in the list, about {} \
         tokens",
        usage.live.mean_size,
        usage.live.first_use_coverage * 100.0,
        with_separators(n_saved)
    ));
    lines.push(
        "  less in each prompt (replayed as riglm would have learned; tokens are an estimate)."
            .into(),
    );
    if usage.lists == ClientLists::OnDemand {
        lines.push(format!(
            "  But {} loads tools on demand: by default riglm leaves its list whole and marks likely",
            client.title
        ));
        lines.push(
            "  tools. A rule in filtering.clients makes its list short (docs/lists.md).".into(),
        );
    }
    lines
}

fn server_table(figures: &AuditFigures) -> String {
    let columns = [
        Column::Text("SERVER"),
        Column::Number("TOOLS"),
        Column::Number("TOKENS"),
        Column::Number("CALLS"),
        Column::Number("UNUSED"),
        Column::Text("PROBLEM"),
    ];
    let rows = figures.servers.iter().map(|server| {
        vec![
            foreign_cell(&server.name),
            or_dash(server.n_tools),
            or_dash(server.n_tokens),
            or_dash(server.n_calls),
            or_dash(server.n_unused),
            server
                .error
                .as_deref()
                .map_or_else(String::new, foreign_cell),
        ]
    });
    table(&columns, rows.collect())
}

fn tool_table(tools: &[&AuditedTool]) -> String {
    let columns = [
        Column::Text("TOOL"),
        Column::Text("SERVER"),
        Column::Number("TOKENS"),
        Column::Number("CALLS"),
        Column::Number("ERRORS"),
        Column::Number("P95"),
        Column::Text("LAST USED"),
    ];
    let rows = tools.iter().take(N_ROWS).map(|tool| {
        let usage = tool.usage.as_ref();
        let p95 = usage.and_then(|usage| usage.p95);
        vec![
            foreign_cell(&tool.name),
            foreign_cell(&tool.server),
            tool.n_tokens.map_or_else(String::new, with_separators),
            tool.n_calls().to_string(),
            usage.map_or(0, |usage| usage.n_errors).to_string(),
            p95.map_or_else(String::new, |p95| format!("{:.1} s", p95.as_secs_f64())),
            usage.map_or_else(String::new, |usage| {
                usage.last_used.strftime("%Y-%m-%d").to_string()
            }),
        ]
    });
    let text = table(&columns, rows.collect());
    match tools.len().saturating_sub(N_ROWS) {
        0 => text,
        n_more => format!("{text}\n... and {n_more} more (--json has all)"),
    }
}

/// Returns a number, or a dash if it is unknown.
pub(super) fn or_dash(number: Option<impl Display>) -> String {
    number.map_or_else(|| "-".into(), with_separators)
}
