//! The result of a check.

use std::error::Error;

use serde_json::{Value, json};

use crate::output::{printable, with_causes};

/// The severity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Status {
    /// Nothing has to be done.
    Ok,
    /// Something may be wrong.
    Warning,
    /// Something is wrong.
    Problem,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The part of the set-up.
    pub(crate) name: &'static str,
    pub(crate) status: Status,
    /// The fact, with its place.
    pub(crate) detail: String,
    /// The command or the edit that helps; empty if nothing has to be done.
    pub(crate) cure: String,
}

impl Finding {
    /// Returns a result without a problem.
    pub(super) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            detail: detail.into(),
            cure: String::new(),
        }
    }

    /// Returns a result that may be a problem.
    pub(super) fn warning(
        name: &'static str,
        detail: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            name,
            status: Status::Warning,
            detail: detail.into(),
            cure: cure.into(),
        }
    }

    pub(super) fn problem(
        name: &'static str,
        detail: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Problem,
            ..Self::warning(name, detail, cure)
        }
    }

    /// Returns the result as text; the cure is in its own line.
    pub(super) fn text(&self) -> String {
        let status: &str = self.status.into();
        let text = format!("{status:<8} {}: {}", self.name, self.detail);
        if self.cure.is_empty() {
            return text;
        }
        format!("{text}\n         cure: {}", self.cure)
    }

    pub(super) fn as_json(&self) -> Value {
        let status: &str = self.status.into();
        json!({"name": self.name, "status": status, "detail": self.detail, "cure": self.cure})
    }
}

/// Returns an error with its causes in one line. The lines of a file that a parser quotes are left
/// out: they may have secrets.
pub(super) fn error_line(error: &(dyn Error + 'static)) -> String {
    let text = with_causes(error);
    let lines = text.lines().map(str::trim);
    let lines: Vec<String> = lines
        .filter(|line| !line.is_empty() && !is_quoted(line))
        .map(printable)
        .collect();
    lines.join(": ")
}

/// Returns whether a line of an error quotes a file: a number of a line or nothing, and a bar.
fn is_quoted(line: &str) -> bool {
    let before = line.split_once('|').map(|(before, _)| before.trim());
    before.is_some_and(|before| before.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Quoting(&'static str);

    #[test]
    fn an_error_of_a_parser_is_one_line_without_the_file() {
        let error = Quoting(
            "a.toml is not valid TOML: error at line 12, column 8\n   |\n12 | token = \"s3cret\n   \
             |        ^\nno end | of a \u{1b}text\n",
        );
        assert_eq!(
            error_line(&error),
            "a.toml is not valid TOML: error at line 12, column 8: no end | of a \\u{1b}text"
        );
    }
}
