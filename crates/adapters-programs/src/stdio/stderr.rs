//! The standard error output of a child, as log lines.
//!
//! The lines may hold anything, so they are logged only at debug level. The last lines are kept for
//! the case that the process fails, because they usually contain the cause.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use tokio::io::AsyncRead;

use super::lines::{Line, Lines};

/// The length in bytes at which lines are truncated.
const MAX_LINE_BYTES: usize = 4 * 1024;
// The number of last lines that are kept, and the maximum size of each in bytes.
const N_LAST_LINES: usize = 10;
const MAX_LAST_LINE_BYTES: usize = 512;

// The pauses before the same failure is logged again, and before a different one is.
const TELL_AGAIN: Duration = Duration::from_mins(10);
const TELL_ANOTHER: Duration = Duration::from_secs(10);

/// The last lines that a process wrote to standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLines(Arc<Mutex<VecDeque<String>>>);

impl LastLines {
    fn push(&self, text: &[u8]) {
        let text = &text[..text.len().min(MAX_LAST_LINE_BYTES)];
        let mut lines = self.0.lock();
        if lines.len() == N_LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(printable(text));
    }

    /// Removes and returns the lines, the oldest first.
    pub(super) fn take(&self) -> VecDeque<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Logs the last output of failed processes of one upstream. Processes that fail repeatedly in the
/// same way are logged only once in a while.
#[derive(Debug, Default)]
pub struct FailureLog(Mutex<Option<LoggedFailure>>);

/// A failure that was logged.
#[derive(Debug)]
struct LoggedFailure {
    status: ExitStatus,
    /// The digest of its output.
    digest: u64,
    at: Instant,
}

impl FailureLog {
    /// Logs the last lines of a process that ended with `status`. They are warnings, unless a
    /// process ended with the same status and output a while ago, or in any way just now.
    pub(super) fn log_failure(
        &self,
        upstream: &UpstreamName,
        status: ExitStatus,
        lines: &VecDeque<String>,
    ) {
        let is_news = self.should_warn(status, lines, Instant::now());
        for line in lines {
            if is_news {
                tracing::warn!(%upstream, "upstream {upstream} wrote before it ended: {line}");
            } else {
                tracing::debug!(%upstream, "upstream {upstream} wrote before it ended: {line}");
            }
        }
    }
}

impl FailureLog {
    /// Returns whether a failure is logged as a warning, and records it then.
    fn should_warn(&self, status: ExitStatus, lines: &VecDeque<String>, now: Instant) -> bool {
        let digest = digest_of(lines);
        let mut told = self.0.lock();
        let is_known = told.as_ref().is_some_and(|told| {
            let is_same = told.status == status && told.digest == digest;
            let pause = if is_same { TELL_AGAIN } else { TELL_ANOTHER };
            now.duration_since(told.at) < pause
        });
        if !is_known {
            *told = Some(LoggedFailure {
                status,
                digest,
                at: now,
            });
        }
        !is_known
    }
}

/// Returns a digest of the lines without their digits. Digits are times and process ids, which
/// differ each time although the cause is the same.
fn digest_of(lines: &VecDeque<String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in lines {
        let letters = line.chars().filter(|character| !character.is_ascii_digit());
        letters.for_each(|character| character.hash(&mut hasher));
        '\n'.hash(&mut hasher);
    }
    hasher.finish()
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

/// Returns the text with every character escaped that a terminal could interpret.
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
    use std::os::unix::process::ExitStatusExt as _;

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
    fn repeated_failures_are_logged_less_often_than_new_ones() {
        let words = FailureLog::default();
        let start = Instant::now();
        let is_news = |after: u64, status: i32, line: &str| {
            let lines = VecDeque::from([line.to_owned()]);
            let at = start + Duration::from_secs(after);
            words.should_warn(ExitStatus::from_raw(status), &lines, at)
        };
        assert!(is_news(0, 256, "12:00:01 [17] no such key"));
        assert!(!is_news(30, 256, "12:00:31 [18] no such key"));
        assert!(is_news(60, 256, "12:01:01 [19] the disk is full"));
        // Processes that fail differently each time do not fill the log.
        assert!(!is_news(65, 256, "another reason"));
        assert!(is_news(70, 256, "another reason"));
        assert!(is_news(90, 512, "another reason"));
        assert!(!is_news(680, 512, "another reason"));
        assert!(is_news(690, 512, "another reason"));
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
