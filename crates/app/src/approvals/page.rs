//! A page of tools, and what becomes of its text.

use std::borrow::Cow;

use riglm_domain::edit::with_member;
use riglm_domain::id::UpstreamName;
use riglm_domain::tool::{ToolListing, ToolPage, ToolSighting};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What is shown of a list that cannot be read.
pub(super) const NO_TOOLS: &str = r#"{"tools":[]}"#;

/// The list is there and cannot be read.
pub(super) struct Unreadable;

/// A page of tools that was split and hashed.
pub(super) struct Page<'a> {
    pub(super) result: &'a str,
    pub(super) tools: Vec<ToolSighting>,
    /// The cursor of the page behind it.
    pub(super) next: Option<String>,
    texts: Vec<&'a str>,
    /// It has entries that have no name, so that nobody can approve them.
    has_nameless: bool,
}

impl<'a> Page<'a> {
    /// Reads a result; `None` if it is no list of tools.
    pub(super) fn read(
        upstream: &UpstreamName,
        result: &'a str,
    ) -> Result<Option<Self>, Unreadable> {
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
            // One that asks the client for something first has no list yet.
            let lists = serde_json::from_str::<Lists>(result);
            let has_none = lists.is_ok_and(|lists| lists.tools.is_none());
            return if has_none { Ok(None) } else { Err(Unreadable) };
        };
        let raw: Raw<'_> = serde_json::from_str(result).map_err(|_| Unreadable)?;
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

    /// Returns the definition at a position, as it is written.
    pub(super) fn text(&self, position: usize) -> &'a str {
        self.texts[position]
    }

    /// Returns what is shown when all tools are shown as they are listed; `None` for the result
    /// itself.
    pub(super) fn as_listed(&self) -> Option<String> {
        self.has_nameless.then(|| self.with(&self.texts))
    }

    /// Returns the result with these definitions in the place of its own.
    pub(super) fn with(&self, definitions: &[&str]) -> String {
        with_member(
            self.result,
            "tools",
            &format!("[{}]", definitions.join(",")),
        )
    }
}
