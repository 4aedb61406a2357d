//! The subsection `safeguards.long_results`.

use riglm_app::safeguards::LongResultOptions;
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::{check_patterns, patterns};
use crate::config::search::check_tool_name;

/// The subsection `safeguards.long_results`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct LongResultsConfig {
    /// The longest text that a model gets at once, in bytes; 0 switches truncation off.
    #[validate(custom(function = "check_max_bytes"))]
    pub max_bytes: u32,
    /// Tools whose results are never truncated.
    #[validate(custom(function = "check_patterns"))]
    pub except: Vec<String>,
    /// The name of the tool that returns the next part.
    #[validate(custom(function = "check_tool_name"))]
    pub tool_name: String,
}

impl Default for LongResultsConfig {
    fn default() -> Self {
        Self {
            max_bytes: 0,
            except: Vec::new(),
            tool_name: "read_more".into(),
        }
    }
}

impl LongResultsConfig {
    /// Returns whether long results are truncated.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.max_bytes > 0
    }

    pub(super) fn options(&self) -> Option<LongResultOptions> {
        self.is_on().then(|| LongResultOptions {
            max_bytes: usize::try_from(self.max_bytes).unwrap_or(usize::MAX),
            except: patterns(&self.except),
            read_more: self.tool_name.clone(),
        })
    }
}

fn check_max_bytes(n: u32) -> Result<(), ValidationError> {
    if n == 0 || (500..=100_000_000).contains(&n) {
        return Ok(());
    }
    let message = "expected 0, for all, or a number from 500 to 100000000";
    Err(ValidationError::new("range").with_message(message.into()))
}
