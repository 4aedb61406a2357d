//! The configuration section `search`.

use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

/// The longest name of a tool, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The configuration section `search`: the tool by which clients search for tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SearchConfig {
    /// Whether the tool is there. It is listed where `filtering` may leave tools out of lists.
    pub enabled: bool,
    /// The name under which it is listed: 1 to 64 letters, digits, `_` and `-`.
    #[validate(custom(function = "check_name"))]
    pub tool_name: String,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            tool_name: "search_available_tools".into(),
        }
    }
}

fn check_name(name: &str) -> Result<(), ValidationError> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(is_known) {
        return Ok(());
    }
    let text = "expected 1 to 64 letters, digits, `_` and `-`";
    Err(ValidationError::new("tool_name").with_message(text.into()))
}
