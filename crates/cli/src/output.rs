//! Results on standard output, notes on standard error, and escaping of foreign text.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::{self, Write};
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

/// Returns a log line in JSON.
fn json_line(level: &str, text: &str) -> serde_json::Value {
    serde_json::json!({
        "timestamp": SystemClock.now(),
        "level": level,
        "fields": {"message": text},
        "target": "riglm",
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(printable("get_é→x"), "get_é→x");
        assert_eq!(printable("a\x1b[31mb\n"), "a\\u{1b}[31mb\\u{a}");
        assert_eq!(printable("\u{202e}x\u{9b}"), "\\u{202e}x\\u{9b}");
    }
}
