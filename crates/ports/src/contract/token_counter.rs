//! The clauses of [`TokenCounter`].

use crate::token_counter::TokenCounter;

const TEXTS: [&str; 10] = [
    "read a file",
    r#"{"path":"src/main.rs","limit":100}"#,
    "прочитать файл",
    "读取文件的内容",
    "قراءة ملف",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "\u{0}\u{feff}\u{202e}\u{fffd}\n\t\u{301}",
    "<|endoftext|>",
    " \n\t ",
    "a",
];

/// Expands to a module with one `tokio::test` for each clause of a token counter.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a
/// token counter.
#[macro_export]
macro_rules! token_counter_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(token_counter [$(#[$attribute])*] $fresh;
                the_empty_text_has_no_tokens,
                a_text_of_words_has_tokens,
                a_text_has_the_same_count_each_time,
                threads_get_the_counts_of_their_texts,
                a_text_of_a_megabyte_is_counted,
            );
        }
    };
}

/// The empty text has no tokens.
pub async fn the_empty_text_has_no_tokens(counter: &impl TokenCounter) {
    assert_eq!(counter.count(""), 0);
}

/// A text with a word has tokens, and ten times the text has more.
pub async fn a_text_of_words_has_tokens(counter: &impl TokenCounter) {
    for text in ["a", "read a file", "прочитать файл", "{\"n\": 1}"] {
        let n_tokens = counter.count(text);
        assert!(n_tokens > 0, "{text:?}");
        let n_of_more = counter.count(&format!("{text} ").repeat(10));
        assert!(n_of_more > n_tokens, "{text:?}: {n_of_more} > {n_tokens}");
    }
}

/// The same text has the same count, whatever was counted in between.
pub async fn a_text_has_the_same_count_each_time(counter: &impl TokenCounter) {
    let first = TEXTS.map(|text| counter.count(text));
    for n in 0..5_000 {
        counter.count(&format!("text number {n}"));
    }
    let mut again = TEXTS.map(|text| counter.count(text));
    assert_eq!(again, first);
    let backwards = TEXTS.iter().rev().map(|text| counter.count(text));
    again.reverse();
    assert_eq!(backwards.collect::<Vec<_>>(), again);
}

/// Threads that count at the same time get the counts of their own texts.
pub async fn threads_get_the_counts_of_their_texts(counter: &impl TokenCounter) {
    let expected = TEXTS.map(|text| counter.count(text));
    std::thread::scope(|scope| {
        for from in 0..4 {
            scope.spawn(move || {
                for n in 0..200 {
                    let n = (n + from) % TEXTS.len();
                    assert_eq!(counter.count(TEXTS[n]), expected[n], "{:?}", TEXTS[n]);
                }
            });
        }
    });
}

/// A text of a megabyte is counted, whether it has many words or a single one.
pub async fn a_text_of_a_megabyte_is_counted(counter: &impl TokenCounter) {
    for part in ["read a file. ", "x", "é", "语"] {
        let text = part.repeat(1_000_000 / part.len());
        assert!(counter.count(&text) > 0, "{part:?}");
    }
}
