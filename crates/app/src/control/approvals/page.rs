//! A page of a tool list, and edits of its text.

use std::borrow::Cow;

use riglm_domain::catalog::tool::{ToolListing, ToolPage, ToolSighting};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::with_member;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The result in place of an unreadable list.
pub(super) const NO_TOOLS: &str = r#"{"tools":[]}"#;

/// The error for a list that cannot be parsed.
pub(super) struct UnreadableList;

/// A page of tools, split and hashed.
pub(super) struct ToolListPage<'a> {
    pub(super) result: &'a str,
    pub(super) tools: Vec<ToolSighting>,
    /// The cursor of the next page.
    pub(super) next: Option<String>,
    texts: Vec<&'a str>,
    /// Whether entries have no name, so that they cannot be approved.
    has_nameless: bool,
}

impl<'a> ToolListPage<'a> {
    /// Parses a result; `None` if it is no list of tools.
    pub(super) fn read(
        upstream: &UpstreamName,
        result: &'a str,
    ) -> Result<Option<Self>, UnreadableList> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            tools: Vec<&'a RawValue>,
            #[serde(borrow, default, rename = "nextCursor")]
            next: Option<Cow<'a, str>>,
        }
        #[derive(Deserialize)]
        struct Lists {
            tools: Option<IgnoredAny>,
        }
        let Ok(page) = ToolPage::split(result) else {
            // A result that first asks the client for input has no list yet.
            let lists = serde_json::from_str::<Lists>(result);
            let has_none = lists.is_ok_and(|lists| lists.tools.is_none());
            return if has_none {
                Ok(None)
            } else {
                Err(UnreadableList)
            };
        };
        let raw: Raw<'_> = serde_json::from_str(result).map_err(|_| UnreadableList)?;
        let texts: Vec<&str> = (page.tools().iter())
            .map(|tool| &result[tool.at.clone()])
            .collect();
        Ok(Some(Self {
            result,
            tools: ToolListing::new(upstream, &page, result).tools,
            next: raw
                .next
                .map(Cow::into_owned)
                .filter(|next| !next.is_empty()),
            has_nameless: raw.tools.len() > texts.len(),
            texts,
        }))
    }

    /// Returns the text of the definition at a position.
    pub(super) fn text(&self, position: usize) -> &'a str {
        self.texts[position]
    }

    /// Returns the result with all its named tools; `None` if the original needs no change.
    pub(super) fn as_listed(&self) -> Option<String> {
        self.has_nameless.then(|| self.with(&self.texts))
    }

    /// Returns the result with other definitions.
    pub(super) fn with(&self, definitions: &[&str]) -> String {
        with_member(
            self.result,
            "tools",
            &format!("[{}]", definitions.join(",")),
        )
    }
}
