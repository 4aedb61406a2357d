//! Results on standard output, notes and progress on standard error, escaping of foreign text, and
//! numbers for people.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::error::Error;
use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;

/// Writes `text` and a line feed to standard output. A closed pipe is no error: the reader has seen
/// enough.
///
/// # Errors
///
/// Returns any other error of writing.
pub fn print(text: &str) -> io::Result<()> {
    match print_line(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes `text` and a line feed to standard output.
///
/// # Errors
///
/// Returns any error of writing, including a closed pipe.
pub fn print_line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Whether notes and errors are written as JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Switches standard error to JSON: each note, error and panic is one JSON object per line, in the
/// format of log lines.
pub fn write_json_remarks() {
    IS_JSON.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        let mut text = panic.to_string();
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{backtrace}");
        }
        failure(&text);
    }));
}

/// Writes a note to standard error.
pub fn note(text: &str) {
    remark("INFO", text);
}

/// Writes an error to standard error.
pub fn failure(text: &str) {
    remark("ERROR", text);
}

fn remark(level: &str, text: &str) {
    // A failed write to standard error cannot be reported anywhere.
    let _ = if IS_JSON.load(Ordering::Relaxed) {
        writeln!(io::stderr(), "{}", json_line(level, text))
    } else {
        writeln!(io::stderr(), "riglm: {text}")
    };
}

fn json_line(level: &str, text: &str) -> serde_json::Value {
    serde_json::json!({
        "timestamp": SystemClock.now(),
        "level": level,
        "fields": {"message": text},
        "target": "riglm",
    })
}

/// Returns an error with its causes.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

/// Escapes every character of `text` that a terminal would interpret: control characters, and those
/// that change the direction of writing.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_formatting(character) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns whether a character changes the display of others (Unicode bidirectional controls, tags
/// and line separators).
fn is_formatting(character: char) -> bool {
    matches!(
        character,
        '\u{061c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns a number with its noun, such as `1 file` or `1,200 files`.
pub(crate) fn number_of(n: impl Display, noun: &str) -> String {
    let number = with_separators(n);
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Returns a whole number with commas between groups of three digits.
pub(crate) fn with_separators(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressLine {
    /// Whether the line changes in place.
    pub(crate) is_terminal: bool,
}

impl ProgressLine {
    /// Returns the line for standard error.
    pub(crate) fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
        }
    }

    pub(crate) fn show(self, text: &str) {
        let mut stderr = io::stderr().lock();
        // A failed write to standard error cannot be reported anywhere.
        let _ = if self.is_terminal {
            write!(stderr, "\r\x1b[K{text}")
        } else {
            writeln!(stderr, "{text}")
        };
        let _ = stderr.flush();
    }

    /// Removes the changing line.
    pub(crate) fn clear(self) {
        if self.is_terminal {
            self.show("");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(printable("get_é→x"), "get_é→x");
        assert_eq!(printable("a\x1b[31mb\n"), "a\\u{1b}[31mb\\u{a}");
        assert_eq!(printable("\u{202e}x\u{9b}"), "\\u{202e}x\\u{9b}");
    }

    #[test]
    fn numbers_have_separators_and_their_noun() {
        for (number, expected) in [
            (0, "0"),
            (7, "7"),
            (123, "123"),
            (1_234, "1,234"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(with_separators(number), expected);
        }
        assert_eq!(number_of(1, "file"), "1 file");
        assert_eq!(number_of(0, "file"), "0 files");
        assert_eq!(number_of(1_200, "call"), "1,200 calls");
    }
}
