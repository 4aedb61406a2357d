//! The change of a file of a client, for people.

use riglm_adapters_clients::configuration::{DiffLine, EntryChange, Preview};
use riglm_domain::privacy::redaction::{REDACTED, is_credential, is_secret_name, redact_text};

use crate::output::printable;

/// Returns a change as a diff with the path of the file. Secrets of other servers around the entry
/// are redacted.
pub(super) fn diff_text(preview: &Preview) -> String {
    let path = preview.path.display();
    if let (EntryChange::Unchanged { name }, true) = (&preview.change, preview.is_empty()) {
        return format!("{path}: {} is there already", printable(name));
    }
    let mut lines = vec![format!("--- {path}"), format!("+++ {path}")];
    let diff = preview.diff();
    lines.extend(diff.iter().map(|line| match line {
        DiffLine::Header { .. } => line.to_string(),
        line => {
            let line = without_secrets(&line.to_string());
            let parts: Vec<String> = line.split('\t').map(printable).collect();
            parts.join("\t")
        }
    }));
    lines.join("\n")
}

/// Returns a line without the values of quoted texts that are secrets by their form, or by the
/// quoted text or the word before them.
fn without_secrets(line: &str) -> String {
    if !line.contains('"') {
        return redact_text(line, usize::MAX);
    }
    let mut shown = String::with_capacity(line.len());
    let mut name = "";
    let mut rest = line;
    while let Some(at) = rest.find('"') {
        let (before, quoted) = rest.split_at(at);
        shown.push_str(before);
        // A word before an equals sign names a value in TOML.
        if let Some(word) = before.trim_end().strip_suffix('=') {
            name = word.split_whitespace().last().unwrap_or_default();
        }
        let n_bytes = quoted_length(quoted);
        let (text, after) = quoted.split_at(n_bytes);
        let value = text.trim_matches('"');
        let is_secret = is_secret_name(name) || value.split_whitespace().any(is_credential);
        let is_value = !after.trim_start().starts_with([':', '=']);
        if is_secret && is_value && !value.is_empty() {
            shown.push('"');
            shown.push_str(REDACTED);
            shown.push('"');
        } else {
            shown.push_str(text);
        }
        if !is_value {
            name = value;
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Returns the length of the quoted text at the start, with its quotes.
fn quoted_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_other_servers_are_not_shown() {
        for (line, expected) in [
            (
                r#" "db": {"args":["a\"b"],"env":{"DB_PASSWORD":"hunter2","MODE":"fast"}},"#,
                r#" "db": {"args":["a\"b"],"env":{"DB_PASSWORD":"[redacted]","MODE":"fast"}},"#,
            ),
            (
                r#" "headers":{"Authorization":"Bearer ghp_abcdefghijklmnopqrstuvwxyz"}"#,
                r#" "headers":{"Authorization":"[redacted]"}"#,
            ),
            (r#" api_key = "k1""#, r#" api_key = "[redacted]""#),
            (r#" "url": "https://h/mcp""#, r#" "url": "https://h/mcp""#),
            (r#" "a": "open"#, r#" "a": "open"#),
        ] {
            let shown = without_secrets(line);
            assert!(
                !shown.contains("hunter2") && !shown.contains("ghp_"),
                "{shown}"
            );
            assert_eq!(shown, expected);
        }
    }
}
