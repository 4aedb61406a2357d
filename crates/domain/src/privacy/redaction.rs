//! Redaction: removal of secrets from stored JSON, such as arguments that the operator wants to
//! store.
//!
//! Two rules apply. The value of a member is replaced if the name of the member suggests a secret.
//! A string is replaced if it has the form of a well-known credential. This lowers the risk of
//! storing arguments. It cannot detect every secret, so arguments are not stored by default.

use serde_json::Value;

/// The text in place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Parts of member names that suggest a secret, compared without case, `-` and `_`.
const SECRET_NAMES: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "cookie",
    "sessionid",
    "signature",
    "connectionstring",
];

/// Prefixes of credentials of well-known services.
const SECRET_PREFIXES: [&str; 16] = [
    "Bearer ",
    "Basic ",
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "eyJ",
    "-----BEGIN",
];

/// The minimum length of a credential, in bytes.
const MIN_CREDENTIAL_CHARS: usize = 12;

/// Returns `json` without its secrets, in at most `max_bytes` bytes. A text that is not JSON, or is
/// longer, is replaced as a whole.
#[must_use]
pub fn redact_json(json: &str, max_bytes: usize) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(json) else {
        return Value::from(REDACTED).to_string();
    };
    redact(&mut value);
    let text = value.to_string();
    // A truncated text would not be JSON, so all of it is replaced.
    if text.len() > max_bytes {
        return Value::from(format!("[{} bytes left out]", text.len())).to_string();
    }
    text
}

/// Returns a text of words without its secrets, in at most `max_bytes` bytes. A longer text is
/// replaced as a whole.
///
/// A word is a secret by its form, by a name in front of it that suggests a secret (`token=...`,
/// `password: ...`), or because it follows `Bearer` or `Basic`. White space does not change.
#[must_use]
pub fn redact_text(text: &str, max_bytes: usize) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_named = false;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        kept.push_str(&redact_word(word, is_named));
        kept.push_str(&piece[word.len()..]);
        // Several spaces after a name do not separate it from its value.
        if !word.is_empty() {
            let name = word.strip_suffix([':', '=']);
            is_named = name.is_some_and(is_secret_name) || matches!(word, "Bearer" | "Basic");
        }
    }
    if kept.len() > max_bytes {
        return format!("[{} bytes left out]", text.len());
    }
    kept
}

fn redact_word(word: &str, is_named: bool) -> String {
    if word.is_empty() {
        return String::new();
    }
    if is_named || word.split(is_around_credential).any(is_credential) || is_credential(word) {
        return REDACTED.into();
    }
    match word.split_once(['=', ':']) {
        Some((name, value)) if !value.is_empty() && is_secret_name(name) => {
            format!("{}{REDACTED}", &word[..=name.len()])
        }
        _ => word.into(),
    }
}

/// Returns whether a character surrounds a credential in a word, rather than being a part of it.
fn is_around_credential(character: char) -> bool {
    matches!(
        character,
        '=' | ':' | ',' | ';' | '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '<' | '>' | '{' | '}'
    )
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) if is_credential(text) => *text = REDACTED.into(),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(members) => {
            for (name, member) in members {
                if is_secret_name(name) {
                    *member = REDACTED.into();
                } else {
                    redact(member);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns whether the name of a value, such as `api_key` or `--token`, suggests a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let folded: String = name
        .chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect();
    SECRET_NAMES.iter().any(|part| folded.contains(part))
}

/// Returns whether a text has the form of a well-known credential, or is a URL with a password.
#[must_use]
pub fn is_credential(text: &str) -> bool {
    let text = text.trim_start();
    text.len() >= MIN_CREDENTIAL_CHARS
        && (SECRET_PREFIXES
            .iter()
            .any(|prefix| text.starts_with(prefix))
            || has_password_url(text))
}

/// Returns whether the text is a URL with a password in it.
fn has_password_url(text: &str) -> bool {
    text.split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?', '#', ' ']).next())
        .and_then(|authority| authority.rsplit_once('@'))
        .is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_json_are_redacted_and_the_rest_is_kept() {
        let json = r#"{"q":"weather","api_key":"x","n":1.5,"deep":[{"Access-Token":{"a":1}}],
            "header":"Bearer abcdefgh","db":"postgres://u:pw@host/db","page":"https://host/a:b@c"}"#;
        assert_eq!(
            redact_json(json, 1_000),
            concat!(
                r#"{"q":"weather","api_key":"[redacted]","n":1.5,"deep":[{"Access-Token":"[redacted]"}],"#,
                r#""header":"[redacted]","db":"[redacted]","page":"https://host/a:b@c"}"#
            )
        );
    }

    #[test]
    fn secrets_in_text_are_redacted() {
        let text = "send\tmail, password: hunter2 token=abc with ghp_0123456789abcdef\n\
                    Authorization: Bearer abc to postgres://u:pw@host/db  at 10:30 a=b";
        assert_eq!(
            redact_text(text, 1_000),
            "send\tmail, password: [redacted] token=[redacted] with [redacted]\n\
             Authorization: [redacted] [redacted] to [redacted]  at 10:30 a=b"
        );
        let text = "key 'sk-live-0123456789' (AKIA0123456789) key=ghp_0123456789abcdef: no";
        assert_eq!(
            redact_text(text, 1_000),
            "key [redacted] [redacted] [redacted] no"
        );
        assert_eq!(redact_text("weather in Bern", 3), "[15 bytes left out]");
    }

    #[test]
    fn long_or_invalid_json_is_left_out() {
        assert_eq!(
            redact_json(r#"{"q":"weather"}"#, 3),
            r#""[15 bytes left out]""#
        );
        assert_eq!(redact_json("{", 100), r#""[redacted]""#);
    }
}
