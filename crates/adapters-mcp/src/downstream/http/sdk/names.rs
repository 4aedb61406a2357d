//! Names that providers accept, made from names of tools and arguments.
//!
//! A name that a provider accepts stays as it is. Any other name becomes its accepted characters,
//! `-x`, and 16 hexadecimal digits of its SHA-256. A name that already has this form is changed too,
//! so two different names never become the same one, whatever other tools there are. So is the name
//! of a search of a provider.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// The maximum length that every provider accepts.
const MAX_CHARS: usize = 64;
/// The text before the digits of a changed name.
const MARK: &str = "-x";
/// The number of hexadecimal digits of a changed name.
const N_DIGITS: usize = 16;
/// The names of the searches of Anthropic. A tool with such a name would make two tools of one name.
pub(super) const BM25_SEARCH: &str = "tool_search_tool_bm25";
pub(super) const REGEX_SEARCH: &str = "tool_search_tool_regex";

/// Returns the name of a tool for providers: at most 64 characters of `A-Z`, `a-z`, `0-9`, `_` and
/// `-`.
pub(super) fn tool_name(name: &str) -> Cow<'_, str> {
    safe(name, |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
    })
}

/// Returns the name of an argument for providers that restrict them: as [`tool_name`], and with `.`.
pub(super) fn argument_name(name: &str) -> Cow<'_, str> {
    safe(name, |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
    })
}

/// Returns whether a name has the form of a changed one.
pub(super) fn is_changed(name: &str) -> bool {
    let at = name.len().checked_sub(N_DIGITS);
    let parts = at.and_then(|at| name.split_at_checked(at));
    parts.is_some_and(|(before, digits)| {
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        before.ends_with(MARK) && digits.bytes().all(is_digit)
    })
}

fn safe(name: &str, is_accepted: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_safe = !name.is_empty() && name.len() <= MAX_CHARS && name.chars().all(&is_accepted);
    let is_reserved = matches!(name, BM25_SEARCH | REGEX_SEARCH);
    if is_safe && !is_reserved && !is_changed(name) {
        return name.into();
    }
    let accepted = |c| if is_accepted(c) { c } else { '_' };
    let n_readable = MAX_CHARS - MARK.len() - N_DIGITS;
    let readable: String = name.chars().map(accepted).take(n_readable).collect();
    let digest = hex::encode(Sha256::digest(name.as_bytes()));
    format!("{readable}{MARK}{}", &digest[..N_DIGITS]).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn accepted_names_stay_and_others_become_accepted_ones() {
        assert_eq!(tool_name("files__read_file-2"), "files__read_file-2");
        let long = "x".repeat(65);
        let names = ["", "a/b", "a.b", "größe", "a b", &long, BM25_SEARCH];
        let mut seen = HashSet::new();
        for name in names {
            let changed = tool_name(name);
            assert!(
                changed.len() <= MAX_CHARS && is_changed(&changed),
                "{changed}"
            );
            let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(changed.chars().all(is_fine), "{changed}");
            assert!(seen.insert(changed.into_owned()));
        }
        assert!(tool_name("a/b").starts_with("a_b-x"));
        assert_eq!(argument_name("filter.id"), "filter.id");
        assert!(argument_name("$filter").starts_with("_filter-x"));
    }

    #[test]
    fn a_tool_cannot_take_the_changed_name_of_another() {
        let changed = tool_name("a/b").into_owned();
        let copy = tool_name(&changed).into_owned();
        assert_ne!(copy, changed);
        assert!(is_changed(&copy));
        assert!(!is_changed("é") && !is_changed("-x") && !is_changed("a-x0123456789abcdeF"));
    }
}
