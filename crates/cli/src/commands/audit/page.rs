//! The figures of an audit as a page: one file without scripts and without other files.

use std::fmt::Write as _;

use super::figures::{AuditFigures, AuditedTool};
use super::report::{or_dash, sentences};
use crate::output::{printable, with_separators};

/// The style of the page.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;\
    padding:0 1rem;color:#1b1b1b;background:#fff}table{border-collapse:collapse;width:100%}\
    th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #ddd}\
    .n{text-align:right}.text{white-space:pre-line}.bar{background:#3b6fb6;height:.6rem}\
    @media(prefers-color-scheme:dark){body{color:#eee;background:#161616}th,td{border-color:#444}}";

pub(super) fn html(figures: &AuditFigures) -> String {
    let sentences = sentences(figures).into_iter();
    let sentences: Vec<String> = sentences.map(|line| escape_html(&line)).collect();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>riglm audit</title>\n\
         <style>{STYLE}</style>\n<h1>Your MCP tools</h1>\n<p class=text>{}</p>\n",
        sentences.join("\n")
    );
    let largest = figures
        .servers
        .iter()
        .filter_map(|server| server.n_tokens)
        .max();
    let largest = largest.unwrap_or_default().max(1);
    page.push_str(
        "<h2>Tokens by server</h2>\n<table>\n<tr><th>Server<th class=n>Tools<th class=n>Tokens\
         <th class=n>Calls<th class=n>Unused<th>\n",
    );
    for server in &figures.servers {
        let share = server.n_tokens.unwrap_or_default() * 100 / largest;
        let last = match &server.error {
            Some(error) => escape_html(error),
            None => format!("<div class=bar style=\"width:{share}%\"></div>"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "<tr><td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td style=\"width:30%\">{last}",
            escape_html(&server.name),
            or_dash(server.n_tools),
            or_dash(server.n_tokens),
            or_dash(server.n_calls),
            or_dash(server.n_unused)
        );
    }
    page.push_str("</table>\n");
    let unused = format!("Tools without a call in {} days", figures.unused_days);
    let used: Vec<&AuditedTool> = (figures.tools.iter())
        .filter(|tool| tool.n_calls() > 0)
        .collect();
    for (title, tools) in [
        (
            "Tools that often fail, or are slow",
            figures.troubled_tools(),
        ),
        (unused.as_str(), figures.unused_tools()),
        ("Used tools", used),
    ] {
        tool_table(&mut page, title, &tools);
    }
    let _ = writeln!(
        page,
        "<p>{} lines of transcripts were skipped.</p>\n</html>",
        figures.n_skipped_lines
    );
    page
}

fn tool_table(page: &mut String, title: &str, tools: &[&AuditedTool]) {
    if tools.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<h2>{}</h2>\n<table>\n<tr><th>Tool<th>Server<th class=n>Tokens<th class=n>Calls<th class=n>\
         Errors<th>Last used",
        escape_html(title)
    );
    for tool in tools {
        let usage = tool.usage.as_ref();
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}",
            escape_html(&tool.name),
            escape_html(&tool.server),
            tool.n_tokens.map_or_else(String::new, with_separators),
            tool.n_calls(),
            usage.map_or(0, |usage| usage.n_errors),
            usage.map_or_else(String::new, |usage| {
                usage.last_used.strftime("%Y-%m-%d").to_string()
            })
        );
    }
    page.push_str("</table>\n");
}

/// Escapes a text for HTML. Control characters and marks of direction become visible.
fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}
