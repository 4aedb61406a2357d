//! A server for text: counting, comparing, rewriting.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::{schemars, tool, tool_router};
use serde::Deserialize;

use super::ToolFailure;
use super::difference::difference;

#[derive(Clone, Copy, Debug)]
pub(super) struct Text;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct OneText {
    /// The text.
    text: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct TwoTexts {
    /// The text before.
    before: String,
    /// The text after.
    after: String,
}

/// A title has no letters and no digits.
#[derive(Debug, thiserror::Error)]
#[error("the title has no letters and no digits")]
struct NoLetters;

#[tool_router(server_handler)]
impl Text {
    #[tool(
        description = "Count the lines, words and characters of a text",
        annotations(read_only_hint = true)
    )]
    fn word_count(Parameters(OneText { text }): Parameters<OneText>) -> String {
        format!(
            "{} lines, {} words, {} characters",
            text.lines().count(),
            text.split_whitespace().count(),
            text.chars().count()
        )
    }

    #[tool(
        description = "Show which lines differ between two texts",
        annotations(read_only_hint = true)
    )]
    fn compare(
        Parameters(TwoTexts { before, after }): Parameters<TwoTexts>,
    ) -> Result<String, ToolFailure> {
        Ok(difference(&before, &after)?)
    }

    #[tool(
        description = "Turn a title into a name that fits an address",
        annotations(read_only_hint = true)
    )]
    fn slugify(Parameters(OneText { text }): Parameters<OneText>) -> Result<String, ToolFailure> {
        let slug = slug(&text);
        if slug.is_empty() {
            return Err(NoLetters.into());
        }
        Ok(slug)
    }
}

/// Returns the letters and digits of a text in lower case, with `-` between runs of them.
fn slug(text: &str) -> String {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|run| !run.is_empty())
        .map(str::to_lowercase)
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_counted_and_rewritten() {
        let text = |text: &str| Parameters(OneText { text: text.into() });
        assert_eq!(
            Text::word_count(text("one two\nthree\n")),
            "2 lines, 3 words, 14 characters"
        );
        assert_eq!(
            Text::slugify(text("  Über-Größe: 3 Tips! ")),
            Ok("über-größe-3-tips".into())
        );
        assert!(Text::slugify(text("?!")).is_err());
    }
}
