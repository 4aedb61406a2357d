//! Similarity of recent calls to the declared context.

use std::collections::HashSet;

use crate::num::to_f64;
use crate::retrieval::words;
use crate::selection::is_core_verb;

/// A call, as the words of its tool name and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentCall {
    pub(super) tool: Box<str>,
    /// The terms of the name and the arguments, without generic verbs, which fit any object.
    terms: HashSet<String>,
}

impl RecentCall {
    /// Maximum number of stored characters of a name.
    const MAX_NAME_CHARS: usize = 64;
    /// Maximum number of stored terms.
    const MAX_TERMS: usize = 128;

    /// Returns a call of a tool with the words of its arguments.
    #[must_use]
    pub fn new(tool: &str, arguments: &str) -> Self {
        let tool: String = tool.chars().take(Self::MAX_NAME_CHARS).collect();
        let terms = words(&tool).into_iter().chain(words(arguments));
        Self {
            terms: without_core_verbs(terms).take(Self::MAX_TERMS).collect(),
            tool: tool.into(),
        }
    }
}

/// Returns the similarity of calls to a context, from 0 to 1: the mean of their overlap
/// coefficients (Szymkiewicz and Simpson), `|C and W| / min(|C|, |W|)`, over the terms C of the
/// context and W of a call, without generic verbs. Returns 1 if no call or not the context has
/// terms: nothing contradicts it.
#[must_use]
pub fn similarity<'a>(context: &str, calls: impl IntoIterator<Item = &'a RecentCall>) -> f64 {
    let context: HashSet<String> = without_core_verbs(words(context).into_iter()).collect();
    if context.is_empty() {
        return 1.0;
    }
    let (mut sum, mut n) = (0.0, 0.0);
    for call in calls.into_iter().filter(|call| !call.terms.is_empty()) {
        let shared = call.terms.intersection(&context).count();
        let least = call.terms.len().min(context.len());
        sum += to_f64(shared) / to_f64(least);
        n += 1.0;
    }
    if n > 0.0 { sum / n } else { 1.0 }
}

fn without_core_verbs(terms: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    terms.filter(|term| !is_core_verb(term))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(context: &str, calls: &[(&str, &str)]) -> f64 {
        let calls = calls.iter().map(|(tool, said)| RecentCall::new(tool, said));
        similarity(context, &calls.collect::<Vec<_>>())
    }

    #[test]
    fn similarity_is_the_share_of_common_words() {
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        close(of("list the boats", &[("get_boat", "")]), 1.0);
        close(of("list the boats", &[("list_crews", "")]), 0.0);
        close(of("sail boats", &[("list_boats", "crew 7")]), 0.5);
        close(of("boats", &[("list_boats", ""), ("get_crew", "")]), 0.5);
        close(of("boats", &[("list_boats", ""), ("get", "")]), 1.0);
        close(of("list the boats", &[]), 1.0);
        close(of("list", &[("get_crew", "")]), 1.0);
        close(of("boats", &[("", "")]), 1.0);
    }

    proptest! {
        #[test]
        fn similarity_is_between_zero_and_one(
            context in "\\PC{0,40}",
            calls in proptest::collection::vec(("\\PC{0,20}", "\\PC{0,20}"), 0..6),
        ) {
            let calls: Vec<RecentCall> = (calls.iter())
                .map(|(tool, said)| RecentCall::new(tool, said))
                .collect();
            let like = similarity(&context, &calls);
            prop_assert!((0.0..=1.0).contains(&like));
        }
    }
}
