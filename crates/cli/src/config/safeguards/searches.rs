//! The subsection `safeguards.searches`.

use riglm_app::safeguards::CircleOptions;
use riglm_domain::safeguards::diminishing_returns::DiminishingReturnsRules;
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::{check_patterns, patterns};

/// The subsection `safeguards.searches`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SearchesConfig {
    /// Whether models get a warning about searches with diminishing returns.
    pub enabled: bool,
    /// Upstream tools that search, in addition to riglm's search for tools.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<String>,
    /// Whether upstream tools count as searches if they are annotated as read-only and take a
    /// query.
    pub annotated: bool,
    /// The share of results in common above which two searches count as the same.
    #[validate(custom(function = "check_share"))]
    pub overlap: f64,
    /// The number of consecutive searches with falling yield that causes a warning.
    #[validate(range(min = 2, max = 16))]
    pub falling: u32,
    /// The number of searches without a call in between that causes a warning.
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
            rules: DiminishingReturnsRules {
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
