//! Sessions for a replay: one JSON object per line, in the order of their start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use riglm_evaluation::replay::{ReplayCall, ReplayCatalog, ReplaySession, SessionSource};
use serde::Deserialize;

use super::Leniency;
use super::lines::LineReader;
use crate::commands::moment::moment;

#[derive(Debug, Deserialize)]
struct SessionLine {
    session_id: Option<String>,
    client: Option<String>,
    task_id: Option<String>,
    started_at: Option<String>,
    query: Option<String>,
    turns: Option<Vec<String>>,
    calls: Vec<CallEntry>,
}

#[derive(Debug, Deserialize)]
struct CallEntry {
    tool: String,
    ok: Option<bool>,
    turn: Option<usize>,
    t: Option<String>,
}

/// The numbers of skipped items since the start of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SkippedCounts {
    /// Lines that are not sessions.
    pub(super) lines: u64,
    /// Calls with an unknown tool or turn, or an invalid time.
    pub(super) calls: u64,
    /// Sessions without calls.
    pub(super) empty_sessions: u64,
}

/// A file of sessions, read line by line.
#[derive(Debug)]
pub(super) struct SessionFile {
    lines: LineReader,
    catalog: PathBuf,
    positions: HashMap<String, usize>,
    leniency: Leniency,
    skipped: SkippedCounts,
}

impl SessionFile {
    /// Opens a file of sessions for the tools of a catalog.
    pub(super) fn open(
        path: &Path,
        catalog_path: &Path,
        catalog: &ReplayCatalog,
        leniency: Leniency,
    ) -> anyhow::Result<Self> {
        let names = catalog.tools.iter().map(|tool| tool.name.clone());
        Ok(Self {
            lines: LineReader::open(path)?,
            catalog: catalog_path.to_owned(),
            positions: names.zip(0..).collect(),
            leniency,
            skipped: SkippedCounts::default(),
        })
    }

    pub(super) fn skipped_counts(&self) -> SkippedCounts {
        self.skipped
    }

    /// Returns the next session with calls.
    fn read(&mut self) -> anyhow::Result<Option<ReplaySession>> {
        loop {
            let path = self.lines.path().to_owned();
            let Some(line) = self.lines.next()? else {
                return Ok(None);
            };
            let number = line.number;
            let at = || format!("{}: line {number}", path.display());
            let parsed = match line.text {
                Some(text) => parse(text).with_context(|| format!("{} is not a session", at())),
                None => Err(anyhow!("{} is too long", at())),
            };
            let (mut session, entries) = match parsed {
                Ok(parsed) => parsed,
                Err(_) if self.leniency == Leniency::Skip => {
                    self.skipped.lines += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if session.id.is_empty() {
                session.id = format!("line {number}");
            }
            for (place, entry) in (1..).zip(entries) {
                let call = self.call(&entry, session.turns.len());
                match call.with_context(|| format!("{}: call {place}", at())) {
                    Ok(call) => session.calls.push(call),
                    Err(_) if self.leniency == Leniency::Skip => self.skipped.calls += 1,
                    Err(error) => return Err(error),
                }
            }
            if session.calls.is_empty() {
                self.skipped.empty_sessions += 1;
            } else {
                return Ok(Some(session));
            }
        }
    }

    fn call(&self, entry: &CallEntry, n_turns: usize) -> anyhow::Result<ReplayCall> {
        let Some(tool) = self.positions.get(&entry.tool) else {
            let catalog = self.catalog.display();
            bail!("tool {:?} is not in {catalog}", entry.tool);
        };
        if let Some(turn) = entry.turn.filter(|turn| n_turns > 0 && *turn >= n_turns) {
            bail!("unknown turn {turn}: the session has {n_turns} turns, numbered from 0");
        }
        Ok(ReplayCall {
            tool: *tool,
            ok: entry.ok.unwrap_or(true),
            turn: entry.turn,
            at: entry.t.as_deref().map(moment).transpose()?,
        })
    }
}

impl SessionSource for SessionFile {
    type Error = anyhow::Error;

    async fn next(&mut self) -> anyhow::Result<Option<ReplaySession>> {
        self.read()
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        self.skipped = SkippedCounts::default();
        self.lines.restart()
    }
}

/// Parses a line into a session without its calls, and the calls.
fn parse(text: &[u8]) -> anyhow::Result<(ReplaySession, Vec<CallEntry>)> {
    let line: SessionLine = serde_json::from_slice(text)?;
    let known = |text: Option<String>| text.filter(|text| !text.is_empty());
    let session = ReplaySession {
        id: line.session_id.unwrap_or_default(),
        principal: None,
        client: known(line.client),
        task: known(line.task_id),
        started_at: line.started_at.as_deref().map(moment).transpose()?,
        query: known(line.query),
        turns: line.turns.unwrap_or_default(),
        calls: Vec::new(),
    };
    Ok((session, line.calls))
}

#[cfg(test)]
mod tests;
