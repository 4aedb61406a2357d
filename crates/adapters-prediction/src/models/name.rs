//! Names of models and of their files, which become names of directories and files.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Maximum length of a name in bytes.
const MAX_BYTES: usize = 100;

/// The name of a model: 1 to 100 ASCII letters, digits, dots, underscores and hyphens, without a
/// dot at the start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ModelName(String);

impl ModelName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ModelName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if is_plain(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName(text.to_owned()))
        }
    }
}

/// A text that is not a valid name of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid model name {0:?}: expected up to 100 letters, digits, dots, underscores and hyphens, \
     and no dot at the beginning"
)]
pub struct InvalidName(String);

/// Returns whether a text is safe as a file name in the directory of models: without a path, and
/// not hidden.
pub(crate) fn is_plain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_BYTES).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_like_and_hidden_model_names_are_refused() {
        for good in ["all-MiniLM-L6-v2", "a", "x_1.0", &"n".repeat(100)] {
            assert_eq!(
                good.parse::<ModelName>().map(|name| name.to_string()),
                Ok(good.into())
            );
        }
        for bad in [
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a\\b",
            "é",
            "a b",
            &"n".repeat(101),
        ] {
            let error = bad.parse::<ModelName>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
