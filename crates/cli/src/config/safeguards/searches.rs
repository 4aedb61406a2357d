//! The subsection `safeguards.searches`.

use riglm_app::safeguards::CircleOptions;
use riglm_domain::safeguard::circles::CircleRules;
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::{check_patterns, patterns};

/// The subsection `safeguards.searches`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SearchesConfig {
    /// Whether a model is told that it searches in circles.
    pub enabled: bool,
    /// Upstream tools that search, beside the search for tools.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<String>,
    /// Whether upstream tools search that say they only read, and take a query.
    pub annotated: bool,
    /// The share of results that an earlier search had, above which they are the same.
    #[validate(custom(function = "check_share"))]
    pub overlap: f64,
    /// How many searches in a row have to find ever less.
    #[validate(range(min = 2, max = 16))]
    pub falling: u32,
    /// How many searches without a call in between are too many.
    #[validate(range(min = 2, max = 1_000))]
    pub without_call: u32,
}

impl Default for SearchesConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            tools: Vec::new(),
            annotated: false,
            overlap: 0.8,
            falling: 3,
            without_call: 3,
        }
    }
}

impl SearchesConfig {
    pub(super) fn options(&self) -> Option<CircleOptions> {
        let at_least = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        self.enabled.then(|| CircleOptions {
            rules: CircleRules {
                overlap: self.overlap,
                falling: at_least(self.falling),
                without_call: at_least(self.without_call),
            },
            tools: patterns(&self.tools),
            annotated: self.annotated,
        })
    }
}

fn check_share(share: f64) -> Result<(), ValidationError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    let message = "expected a share above 0 and at most 1";
    Err(ValidationError::new("range").with_message(message.into()))
}
