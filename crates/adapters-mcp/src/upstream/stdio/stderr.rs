//! What a child writes to standard error, as log lines.

use riglm_domain::id::UpstreamName;
use tokio::process::ChildStderr;

use super::lines::{Line, Lines};

/// Longer lines are cut, in bytes.
const MAX_LINE_BYTES: usize = 4 * 1024;
/// The first lines tell how the start went, or why it failed; later ones follow single requests.
const N_START_LINES: usize = 20;

/// Logs the lines of `stderr` to its end.
pub(super) async fn log(upstream: UpstreamName, stderr: ChildStderr) {
    let mut lines = Lines::new(stderr, MAX_LINE_BYTES);
    let mut n_lines = 0;
    while let Ok(Some(line)) = lines.next().await {
        let (Line::Whole(text) | Line::Cut { head: text, .. }) = line;
        if text.is_empty() {
            continue;
        }
        if n_lines < N_START_LINES {
            n_lines += 1;
            tracing::info!(%upstream, "{upstream}: {}", printable(&text));
        } else {
            tracing::debug!(%upstream, "{upstream}: {}", printable(&text));
        }
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

    #[test]
    fn control_characters_and_bad_bytes_are_made_visible() {
        assert_eq!(
            printable(b"a\tb\x1b[31m\xff\r"),
            "a\tb\\u{1b}[31m\u{fffd}\\u{d}"
        );
        assert_eq!(printable("x\u{202e}y".as_bytes()), "x\\u{202e}y");
    }
}
