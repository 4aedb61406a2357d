//! Token counter.
//!
//! [`O200kTokenCounter`] uses `o200k_base`, the vocabulary of GPT-4o and later models. Models of
//! other vendors split text differently, so their counts differ.

mod class;
mod merge;
mod split;
mod vocabulary;

use riglm_ports::token_counter::TokenCounter;

use merge::Merger;
use split::Pieces;

/// Counts tokens of `o200k_base`. Special tokens in the text count as ordinary text.
///
/// The time is O(n log n) in the length of the text, for any content. The vocabulary is used in
/// place in the binary: nothing is loaded, at the start or later.
#[derive(Clone, Copy, Debug, Default)]
pub struct O200kTokenCounter;

impl TokenCounter for O200kTokenCounter {
    fn count(&self, text: &str) -> u64 {
        let mut merger = Merger::default();
        Pieces::new(text)
            .map(|piece| merger.count(piece.as_bytes()))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use proptest::prelude::*;

    use super::*;

    riglm_ports::token_counter_contract!(contract, ready(Box::new(O200kTokenCounter)));

    /// Returns the count of the library from which the vocabulary comes.
    fn library_count(text: &str) -> u64 {
        tiktoken_rs::o200k_base_singleton().count_ordinary(text) as u64
    }

    #[test]
    fn counts_are_those_of_the_vocabulary() {
        let texts = [
            ("", 0),
            ("a", 1),
            ("hello world", 2),
            (r#"{"path":"src/main.rs","limit":100}"#, 11),
            ("<|endoftext|>", 7),
        ];
        for (text, tokens) in texts {
            assert_eq!(O200kTokenCounter.count(text), tokens, "{text}");
            assert_eq!(library_count(text), tokens, "{text}");
        }
    }

    #[test]
    fn long_runs_of_one_character_are_counted_too() {
        for unit in [
            "a", "A", " ", "\n", " \n", "=", "漢", "aA", "漢A", "'s", "e\u{301}",
        ] {
            let text = unit.repeat((16 << 10) / unit.len());
            assert_eq!(
                O200kTokenCounter.count(&text),
                library_count(&text),
                "{unit:?}"
            );
        }
    }

    /// Returns texts with characters of every class, and with the characters that the splitting
    /// rules name.
    fn any_text() -> impl Strategy<Value = String> {
        let alphabet = "aesTMßſKÀǅʰª漢ก\u{301}\u{93e}\u{20dd}07½Ⅷ٣ \t\r\n\u{a0}\u{85}\u{2028}/'’\".,:{}_-=🦀\u{200d}\0rvldREVL";
        let characters: Vec<char> = alphabet.chars().collect();
        proptest::collection::vec(proptest::sample::select(characters), 0..40)
            .prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn any_text_has_the_count_of_the_library(text in any_text()) {
            prop_assert_eq!(O200kTokenCounter.count(&text), library_count(&text));
        }

        #[test]
        fn words_have_the_count_of_the_library(text in "([A-Za-z]{1,12}('[a-z]{1,2})?[ ,.\n]{1,3}|[0-9]{1,8}|\\PC){0,20}") {
            prop_assert_eq!(O200kTokenCounter.count(&text), library_count(&text));
        }

        #[test]
        fn pieces_are_the_text(text in any_text()) {
            prop_assert_eq!(Pieces::new(&text).collect::<String>(), text);
        }
    }
}
