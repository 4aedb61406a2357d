//! What a child writes to standard error, as log lines.
//!
//! The lines may hold anything, so they are logged at debug only. The last ones are kept for a
//! process that fails, because they tell why.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use riglm_domain::id::UpstreamName;
use tokio::io::AsyncRead;

use super::lines::{Line, Lines};

/// Longer lines are cut, in bytes.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// How many lines are kept, and how much of each, in bytes.
const N_LAST_LINES: usize = 10;
const MAX_LAST_LINE_BYTES: usize = 512;

/// After how long the same failure is told of again.
const TELL_AGAIN: Duration = Duration::from_mins(10);

/// The last lines that a process wrote to standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn push(&self, text: &[u8]) {
        let text = &text[..text.len().min(MAX_LAST_LINE_BYTES)];
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == N_LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(printable(text));
    }

    /// Returns the lines, the oldest first, and forgets them.
    pub(super) fn take(&self) -> VecDeque<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells what processes of one upstream wrote before they failed: those that fail in the same way, one
/// after the other, say it again and again.
#[derive(Debug, Default)]
pub struct LastWords(Mutex<Option<(ExitStatus, Instant)>>);

impl LastWords {
    /// Logs the last lines of a process that ended with `status`: as warnings, unless that was so a
    /// short while ago.
    pub(super) fn tell(
        &self,
        upstream: &UpstreamName,
        status: ExitStatus,
        lines: &VecDeque<String>,
    ) {
        let now = Instant::now();
        let is_news = {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known = last
                .is_some_and(|(same, at)| same == status && now.duration_since(at) < TELL_AGAIN);
            if !is_known {
                *last = Some((status, now));
            }
            !is_known
        };
        for line in lines {
            if is_news {
                tracing::warn!(%upstream, "upstream {upstream} wrote before it ended: {line}");
            } else {
                tracing::debug!(%upstream, "upstream {upstream} wrote before it ended: {line}");
            }
        }
    }
}

/// Logs the lines of `stderr` to its end, and keeps the last ones in `last`.
pub(super) async fn log(upstream: UpstreamName, stderr: impl AsyncRead + Unpin, last: LastLines) {
    let mut lines = Lines::new(stderr, MAX_LINE_BYTES);
    while let Ok(Some(line)) = lines.next().await {
        let (Line::Whole(text) | Line::Cut { head: text, .. }) = line;
        if text.is_empty() {
            continue;
        }
        tracing::debug!(%upstream, "{upstream}: {}", printable(&text));
        last.push(&text);
    }
}

/// Returns the text with every character escaped that could act on a terminal.
fn printable(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in String::from_utf8_lossy(text).chars() {
        if character != '\t' && (character.is_control() || is_invisible(character)) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns whether a character changes the direction or the lines of the text around it.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_are_kept_and_each_is_cut() {
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let lines: Vec<String> = (0..20).map(|n| format!("line {n}\n")).collect();
        let text = lines.join("\n") + &long;
        let last = LastLines::default();
        log(
            UpstreamName::parse("u").unwrap(),
            text.as_bytes(),
            last.clone(),
        )
        .await;
        let lines = last.take();
        assert_eq!(lines.len(), N_LAST_LINES);
        assert_eq!(lines[0], "line 11");
        assert_eq!(lines[N_LAST_LINES - 1].len(), MAX_LAST_LINE_BYTES);
        assert!(last.take().is_empty());
    }

    #[test]
    fn control_characters_and_bad_bytes_are_made_visible() {
        assert_eq!(
            printable(b"a\tb\x1b[31m\xff\r"),
            "a\tb\\u{1b}[31m\u{fffd}\\u{d}"
        );
        assert_eq!(printable("x\u{202e}y".as_bytes()), "x\\u{202e}y");
    }
}
