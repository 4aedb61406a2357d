//! Patterns that match no tool. The operator gets a warning once all tools are known.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::nearest_names;

use super::LimitRule;
use crate::safeguards::names::ToolNames;

// Names are kept only until all tools are known, to suggest the nearest one.
const MAX_NAMES: usize = 5_000;

/// The patterns that have matched no tool so far.
#[derive(Debug)]
pub(in crate::safeguards) struct UnmatchedPatterns {
    is_over: AtomicBool,
    state: Mutex<PatternState>,
}

#[derive(Debug, Default)]
struct PatternState {
    /// The patterns with their configuration keys in the section `safeguards`.
    left: Vec<(String, NamePattern)>,
    names: Vec<ToolName>,
    /// The upstreams whose lists are complete.
    known: HashSet<UpstreamName>,
}

impl UnmatchedPatterns {
    /// Creates the check for these limits, without patterns that match an own tool of the proxy.
    pub(super) fn new(rules: &[LimitRule], own_tools: &[ToolName]) -> Self {
        let rules = rules.iter().enumerate();
        let all = rules.flat_map(|(place, LimitRule { tools, .. })| {
            let key = format!("limits.rules[{place}].tools");
            (tools.iter()).map(move |pattern| (key.clone(), pattern.clone()))
        });
        let is_own = |pattern: &NamePattern| own_tools.iter().any(|name| pattern.matches(name));
        Self::of(all.filter(|(_, pattern)| !is_own(pattern)).collect())
    }

    /// Creates the check for patterns with their configuration keys in the section `safeguards`.
    pub(in crate::safeguards) fn of(left: Vec<(String, NamePattern)>) -> Self {
        Self {
            is_over: AtomicBool::new(left.is_empty()),
            state: Mutex::new(PatternState {
                left,
                ..PatternState::default()
            }),
        }
    }

    /// Records tools of an upstream. Once the lists of `n_upstreams` upstreams are complete, it
    /// logs the patterns that match no tool, each with the nearest name.
    pub(in crate::safeguards) fn record_list(
        &self,
        upstream: &UpstreamName,
        tools: &[ToolName],
        is_last: bool,
        n_upstreams: usize,
    ) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        for (key, pattern, nearest) in self.missing_patterns(upstream, tools, is_last, n_upstreams)
        {
            tracing::warn!(
                "safeguards.{key}: no tool matches {}; the nearest name is {}",
                pattern.as_str(),
                nearest.as_ref().map_or("none", ToolName::as_str)
            );
        }
    }

    /// Returns, once, the patterns that match no tool, with their keys and the nearest names.
    fn missing_patterns(
        &self,
        upstream: &UpstreamName,
        tools: &[ToolName],
        is_last: bool,
        n_upstreams: usize,
    ) -> Vec<(String, NamePattern, Option<ToolName>)> {
        let mut state = self.state.lock();
        let PatternState { left, names, known } = &mut *state;
        let of_tools: Vec<ToolNames> = (tools.iter())
            .map(|tool| ToolNames::new(Some(upstream), tool, None))
            .collect();
        left.retain(|(_, pattern)| !of_tools.iter().any(|names| names.fit(pattern)));
        let room = MAX_NAMES.saturating_sub(names.len());
        names.extend(tools.iter().take(room).cloned());
        if is_last {
            known.insert(upstream.clone());
        }
        if known.len() < n_upstreams && !left.is_empty() {
            return Vec::new();
        }
        self.is_over.store(true, Ordering::Relaxed);
        // The check is over, so the names are freed.
        let PatternState { left, names, .. } = std::mem::take(&mut *state);
        let texts: Vec<&str> = names.iter().map(ToolName::as_str).collect();
        let missing = left.into_iter().map(|(key, pattern)| {
            let nearest = nearest_names(pattern.as_str(), &texts, 1);
            let nearest = nearest.first().map(|at| names[*at].clone());
            (key, pattern, nearest)
        });
        missing.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safeguards::limits::tests::rule;

    fn upstream(name: &str) -> UpstreamName {
        UpstreamName::parse(name).unwrap()
    }

    #[test]
    fn unmatched_patterns_are_reported_after_the_last_list() {
        let rules = [
            rule(&["find", "finds"]),
            rule(&["web__*", "search_tools", "x"]),
        ];
        let unmatched = UnmatchedPatterns::new(&rules, &["search_tools".into()]);
        let missing = |name, tools: &[&str], is_last| -> Vec<(String, String, Option<String>)> {
            let tools: Vec<ToolName> = tools.iter().map(|name| (*name).into()).collect();
            let missing = unmatched.missing_patterns(&upstream(name), &tools, is_last, 2);
            missing
                .into_iter()
                .map(|(key, pattern, nearest)| {
                    let nearest = nearest.map(|name| name.as_str().to_owned());
                    (key, pattern.as_str().to_owned(), nearest)
                })
                .collect()
        };
        assert_eq!(missing("notes", &["list"], false), []);
        assert_eq!(missing("notes", &["find"], true), []);
        assert_eq!(missing("notes", &["find"], true), []);
        assert!(!unmatched.is_over.load(Ordering::Relaxed));
        let expected = [
            (
                "limits.rules[0].tools".to_owned(),
                "finds".to_owned(),
                Some("find".to_owned()),
            ),
            ("limits.rules[1].tools".to_owned(), "x".to_owned(), None),
        ];
        assert_eq!(missing("web", &["read"], true), expected);
        assert!(unmatched.is_over.load(Ordering::Relaxed));
    }

    #[test]
    fn tracking_ends_after_all_patterns_match() {
        let unmatched = UnmatchedPatterns::new(&[rule(&["f*"])], &[]);
        unmatched.record_list(&upstream("notes"), &["find".into()], false, 9);
        assert!(unmatched.is_over.load(Ordering::Relaxed));
        assert!(UnmatchedPatterns::new(&[], &[]).is_over.into_inner());
    }
}
