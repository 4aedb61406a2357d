//! The advice as a text and as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use riglm_domain::catalog::tool::ToolRef;
use serde_json::{Value, json};

use crate::advice::{Advice, SessionAdvice};
use crate::log::Log;

/// The number of bad entries that are printed with their reason.
const MAX_PRINTED: usize = 10;

/// Writes the places and reasons of bad entries, and their number.
pub(crate) fn write_bad_entries(out: &mut impl Write, log: &Log) -> io::Result<()> {
    if log.n_bad == 0 {
        return Ok(());
    }
    let kind = if log.is_array { "entry" } else { "line" };
    for entry in log.bad.iter().take(MAX_PRINTED) {
        let reason = printable(&entry.reason.to_string());
        writeln!(out, "{kind} {}: {reason}", entry.place)?;
    }
    writeln!(out, "bad entries, which were left out: {}", log.n_bad)
}

/// Returns the advice as JSON. Prices are in tokens.
pub(crate) fn as_json(log: &Log, advice: &Advice) -> Value {
    let bad: Vec<Value> = (log.bad.iter())
        .map(|entry| json!({"place": entry.place, "reason": entry.reason.to_string()}))
        .collect();
    let sessions: Vec<Value> = advice.sessions.iter().map(session_as_json).collect();
    json!({
        "tools": advice.catalog.len(),
        "calls": advice.n_calls,
        "continued": log.n_continued,
        "bad_entries": {"count": log.n_bad, "first": bad},
        "sessions": sessions,
        "fixed_size": {"tools": advice.fixed.n_tools, "price": advice.fixed.price},
        "price": total(advice, |session| session.price),
        "price_of_all": total(advice, |session| session.price_of_all),
        "never_used": names(&advice.never_used),
    })
}

fn session_as_json(session: &SessionAdvice) -> Value {
    json!({
        "session": session.session,
        "client": Some(&session.client).filter(|client| !client.is_empty()),
        "started_at": session.started_at.to_string(),
        "calls": session.n_calls,
        "size": session.list.len(),
        "first_uses": session.covered.len() + session.missing.len(),
        "covered": session.covered.len(),
        "list": names(&session.list),
        "missing": names(&session.missing),
        "unused": names(session.unused()),
        "price": session.price,
        "price_of_all": session.price_of_all,
    })
}

/// Returns the advice as a text for a terminal.
pub(crate) fn as_text(log: &Log, advice: &Advice) -> String {
    let n_tools = advice.catalog.len();
    let mut text = format!(
        "{} calls of {} sessions, {n_tools} tools\n",
        advice.n_calls,
        advice.sessions.len()
    );
    let mut line = |written: std::fmt::Arguments<'_>| {
        // Writing to a `String` cannot fail.
        let _ = text.write_fmt(written);
        text.push('\n');
    };
    if log.n_continued > 0 {
        line(format_args!(
            "left out, since they continue a call: {}",
            log.n_continued
        ));
    }
    for session in &advice.sessions {
        line(format_args!(""));
        line(format_args!(
            "session {}{}, from {:.0}",
            printable(&session.session),
            client_of(session),
            session.started_at
        ));
        let n_first_uses = session.covered.len() + session.missing.len();
        line(format_args!(
            "  list of {} of {n_tools} tools; first uses covered: {} of {n_first_uses}",
            session.list.len(),
            session.covered.len()
        ));
        line(format_args!(
            "  price: {:.0} tokens; of all tools: {:.0}",
            session.price, session.price_of_all
        ));
        for (what, tools) in [
            ("listed and called", joined(&session.covered)),
            ("listed, never called", joined(session.unused())),
            ("to be searched for", joined(&session.missing)),
        ] {
            if !tools.is_empty() {
                line(format_args!("  {what}: {tools}"));
            }
        }
    }
    line(format_args!(""));
    line(format_args!(
        "price of these lists: {:.0} tokens; of {} tools in every session: {:.0}; of all tools: {:.0}",
        total(advice, |session| session.price),
        advice.fixed.n_tools,
        advice.fixed.price,
        total(advice, |session| session.price_of_all)
    ));
    if !advice.never_used.is_empty() {
        line(format_args!(
            "never called by any session: {}",
            joined(&advice.never_used)
        ));
    }
    text
}

fn client_of(session: &SessionAdvice) -> String {
    if session.client.is_empty() {
        return String::new();
    }
    format!(" of {}", printable(&session.client))
}

fn total(advice: &Advice, price: impl Fn(&SessionAdvice) -> f64) -> f64 {
    advice.sessions.iter().map(price).sum()
}

fn names<'a>(tools: impl IntoIterator<Item = &'a ToolRef>) -> Vec<String> {
    tools.into_iter().map(ToString::to_string).collect()
}

fn joined<'a>(tools: impl IntoIterator<Item = &'a ToolRef>) -> String {
    printable(&names(tools).join(", "))
}

/// Returns a text from a log without characters that control a terminal.
fn printable(text: &str) -> String {
    text.replace(|character: char| character.is_control(), "\u{fffd}")
}
