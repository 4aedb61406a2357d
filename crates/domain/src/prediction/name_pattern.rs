//! Patterns of tool names.

use serde::{Deserialize, Serialize};

use crate::id::ToolName;

/// A pattern of tool names, in which `*` matches any sequence of characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NamePattern(String);

impl NamePattern {
    /// Returns the pattern with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Returns the text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the whole name matches the pattern.
    #[must_use]
    pub fn matches(&self, name: &ToolName) -> bool {
        let mut rest = name.as_str();
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(after) = rest.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return after.is_empty();
        };
        rest = after;
        for part in parts {
            let Some(found) = rest.find(part) else {
                return false;
            };
            rest = &rest[found + part.len()..];
        }
        // The last part must be found in the rest after the others: parts may not overlap.
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, name: &str) -> bool {
        NamePattern::new(pattern).matches(&name.into())
    }

    #[test]
    fn patterns_match_whole_names() {
        assert!(fits("echo", "echo") && !fits("echo", "echo2") && !fits("echo", "an-echo"));
        assert!(fits("get_*", "get_") && fits("get_*", "get_x") && !fits("get_*", "forget_x"));
        assert!(fits("*_x", "a_x") && fits("*", "") && fits("a*b*c", "aXbXbc"));
        assert!(!fits("ab*ba", "aba"));
    }
}
