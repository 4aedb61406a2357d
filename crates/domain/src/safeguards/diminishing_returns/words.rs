//! The words of searches: their normal form for comparison, and their form in quotes.

use crate::retrieval::excerpt::excerpt;

/// The maximum length of a quoted query, in characters.
const MAX_QUOTED_CHARS: usize = 60;

/// Punctuation and quotation marks, which do not change the meaning of a query.
const ENDS: [char; 8] = ['.', '?', '!', ',', ';', ':', '"', '\''];

/// Returns the normal form of a query: in lower case, with single spaces, without punctuation and
/// quotation marks around it. Queries with the same form count as the same.
///
/// The order of words counts, and so do all other characters: `usd to eur` is not `eur to usd`, and
/// `c` is neither `c++` nor `c#`. If the order makes no difference, the results show it.
#[must_use]
pub fn normalize_query(query: &str) -> String {
    let lower = query.to_lowercase();
    let is_around = |it: char| it.is_whitespace() || ENDS.contains(&it);
    let inner = lower.trim_matches(is_around);
    // A query of nothing but punctuation stays as it is.
    let inner = if inner.is_empty() {
        lower.trim()
    } else {
        inner
    };
    inner.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns words in quotation marks for a notice to a model: their beginning, on one line, without
/// invisible characters and characters that change the direction of the text, and with single
/// quotes in place of double ones.
#[must_use]
pub fn quote_query(words: &str) -> String {
    let visible = words
        .chars()
        .filter(|it| it.is_whitespace() || !is_hidden(*it));
    let (mut line, mut n, mut is_space_due) = (String::new(), 0, false);
    // One character more than the maximum shows that the text is longer.
    for character in visible {
        if n > MAX_QUOTED_CHARS {
            break;
        }
        if character.is_whitespace() {
            is_space_due = n > 0;
            continue;
        }
        if std::mem::take(&mut is_space_due) {
            line.push(' ');
            n += 1;
        }
        line.push(if character == '"' { '\'' } else { character });
        n += 1;
    }
    format!("\"{}\"", excerpt(&line, MAX_QUOTED_CHARS))
}

/// Returns whether a character is invisible, or changes the direction of the text after it.
fn is_hidden(it: char) -> bool {
    it.is_control()
        || matches!(it,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_spaces_and_surrounding_punctuation_are_normalised() {
        for same in [
            "read a file",
            " Read  a\tFILE ",
            "read a file?",
            "\"Read a file.\"",
            "Read a\nfile!",
        ] {
            assert_eq!(normalize_query(same), "read a file", "{same:?}");
        }
        assert_eq!(normalize_query("ÄRGER  Straße"), "ärger straße");
    }

    #[test]
    fn word_order_and_other_characters_stay_significant() {
        let all = [
            "usd to eur",
            "eur to usd",
            "c",
            "c++",
            "c#",
            "a b",
            "ab",
            "?",
            "!",
            "",
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                assert_ne!(
                    normalize_query(one),
                    normalize_query(other),
                    "{one:?}, {other:?}"
                );
            }
        }
    }

    #[test]
    fn a_query_is_quoted_on_one_line_without_invisible_characters() {
        assert_eq!(quote_query("find \"x\"\n\t now "), r#""find 'x' now""#);
        assert_eq!(
            quote_query("a\u{0}b\u{1b}[31m\u{202e}c\u{200b}\u{e0041}"),
            r#""ab[31mc""#
        );
        assert_eq!(quote_query(""), r#""""#);
        let (at, over) = ("x".repeat(60), "x".repeat(61));
        assert_eq!(quote_query(&at), format!("\"{at}\""));
        assert_eq!(quote_query(&over), format!("\"{}…\"", &at[1..]));
        let many = "find it ".repeat(9);
        assert_eq!(
            quote_query(&many),
            format!("\"{}find it…\"", "find it ".repeat(6))
        );
    }

    proptest! {
        #[test]
        fn any_quoted_query_is_short_without_hidden_characters(words in any::<String>()) {
            let text = quote_query(&words);
            prop_assert!(text.chars().count() <= MAX_QUOTED_CHARS + 2);
            prop_assert!(!text.chars().any(is_hidden));
            prop_assert_eq!(text.matches('"').count(), 2);
        }

        #[test]
        fn normalisation_is_idempotent(query in any::<String>()) {
            let once = normalize_query(&query);
            prop_assert_eq!(normalize_query(&once), once);
        }
    }
}
