//! Tool definitions as their server wrote them, split out of a `tools/list` result.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::catalog::naming::{earlier_name, may_be_hashed, prefixed_name};
use crate::id::{IdError, ToolName, UpstreamName};
use crate::privacy::canonical::write_canonical;

/// One entry of a tool list: its name and the position of its text in the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTool {
    /// The name of the tool.
    pub name: ToolName,
    /// Position of the definition in the text of the result, in bytes.
    pub at: Range<usize>,
}

/// One page of a `tools/list` result, split into its definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPage {
    tools: Vec<ListedTool>,
    list_at: Range<usize>,
}

/// The error for a `tools/list` result that cannot be split.
#[derive(Debug, thiserror::Error)]
#[error("tools/list result has no array of tools")]
pub struct ToolPageError(#[source] serde_json::Error);

impl ToolPage {
    /// Splits the JSON text of a `tools/list` result.
    ///
    /// An entry without a string `name` is not among [`Self::tools`], and is missing in
    /// [`Self::without`].
    ///
    /// # Errors
    ///
    /// Returns [`ToolPageError`] when the text has no array `tools`.
    pub fn split(result: &str) -> Result<Self, ToolPageError> {
        #[derive(Deserialize)]
        struct Page<'a> {
            #[serde(borrow)]
            tools: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct NamedEntry<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
        }
        let page: Page<'_> = serde_json::from_str(result).map_err(ToolPageError)?;
        let entries: Vec<&RawValue> =
            serde_json::from_str(page.tools.get()).map_err(ToolPageError)?;
        let place = |text: &str| {
            let start = text.as_ptr() as usize - result.as_ptr() as usize;
            start..start + text.len()
        };
        let tools = entries
            .into_iter()
            .filter_map(|entry| {
                let named: NamedEntry<'_> = serde_json::from_str(entry.get()).ok()?;
                Some(ListedTool {
                    name: ToolName::from(named.name.as_ref()),
                    at: place(entry.get()),
                })
            })
            .collect();
        Ok(Self {
            tools,
            list_at: place(page.tools.get()),
        })
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tools(&self) -> &[ListedTool] {
        &self.tools
    }

    /// Returns the text of `result`, which this page was split from, without the tools at the
    /// positions in `hidden` (indices into [`Self::tools`]). The shown tools keep their bytes.
    #[must_use]
    pub fn without(&self, result: &str, hidden: &[usize]) -> String {
        let mut kept = String::with_capacity(result.len());
        kept.push_str(&result[..self.list_at.start]);
        kept.push('[');
        // A page may have a million tools, for which a linear search would be too slow.
        let hidden: HashSet<&usize> = hidden.iter().collect();
        let shown = (0..self.tools.len()).filter(|index| !hidden.contains(index));
        for (position, index) in shown.enumerate() {
            if position > 0 {
                kept.push(',');
            }
            kept.push_str(&result[self.tools[index].at.clone()]);
        }
        kept.push(']');
        kept.push_str(&result[self.list_at.end..]);
        kept
    }
}

/// A tool as seen in a list: its name and its definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSighting {
    /// The name of the tool.
    pub name: ToolName,
    /// SHA-256 of the canonical definition, in hexadecimal. Another hash means another definition.
    pub content_hash: String,
    /// The JSON text of the definition as its server wrote it. It is empty in records of versions
    /// that did not store it, and if it is longer than [`Self::MAX_DEFINITION_BYTES`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub definition: String,
}

impl ToolSighting {
    /// The maximum length of a stored definition, in bytes.
    pub const MAX_DEFINITION_BYTES: usize = 64 * 1024;
}

/// A definition of a tool, with the times at which it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolDefinition {
    /// The upstream that listed it.
    pub upstream: UpstreamName,
    /// The name and the definition.
    pub sighting: ToolSighting,
    /// The time at which it was first seen.
    pub first_seen: Timestamp,
    /// The time at which it was last seen.
    pub last_seen: Timestamp,
}

/// A tool of an upstream, by name.
///
/// Its text form is `UPSTREAM/TOOL`. The name of an upstream has no `/`, so the first one separates
/// the two names, and any tool can be written.
///
/// # Examples
///
/// ```
/// use riglm_domain::catalog::tool::ToolRef;
///
/// let tool: ToolRef = "files/read_file".parse().unwrap();
/// assert_eq!(tool.upstream.as_str(), "files");
/// assert_eq!(tool.tool.as_str(), "read_file");
/// assert_eq!(tool.to_string(), "files/read_file");
/// assert!("read_file".parse::<ToolRef>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToolRef {
    /// The upstream.
    pub upstream: UpstreamName,
    /// The name that the upstream knows.
    pub tool: ToolName,
}

impl ToolRef {
    /// Returns the key of the tool, the same on every machine: the first eight bytes of the
    /// SHA-256 of the upstream's name, a zero byte and the tool's name.
    #[must_use]
    pub fn key(&self) -> ToolKey {
        let mut digest = Sha256::new();
        digest.update(self.upstream.as_str());
        // A zero byte separates the names, so that their boundaries count.
        digest.update([0]);
        digest.update(self.tool.as_str());
        let mut key = [0; 8];
        key.copy_from_slice(&digest.finalize()[..8]);
        ToolKey(i64::from_be_bytes(key))
    }
}

impl ToolRef {
    /// Returns whether a name can refer to this tool: its own name, its name with the upstream as a
    /// prefix, or its name in a list of several upstreams.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let own = self.tool.as_str();
        let shown = || {
            name.strip_prefix(self.upstream.as_str())?
                .strip_prefix("__")
        };
        own == name || shown() == Some(own) || (may_be_hashed(name) && self.is_shown_as(name))
    }

    /// Returns whether lists of several upstreams show this tool under a name, or did so in earlier
    /// versions.
    #[must_use]
    pub fn is_shown_as(&self, name: &str) -> bool {
        let own = self.tool.as_str();
        prefixed_name(&self.upstream, own) == name || earlier_name(&self.upstream, own) == name
    }
}

impl fmt::Display for ToolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.upstream, self.tool)
    }
}

impl FromStr for ToolRef {
    type Err = IdError;

    /// Parses the text form.
    ///
    /// # Errors
    ///
    /// Returns [`IdError::ToolRef`] for a text without `/` or with nothing after it, and
    /// [`IdError::UpstreamName`] for an invalid name before it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((upstream, tool)) if !tool.is_empty() => Ok(Self {
                upstream: UpstreamName::parse(upstream)?,
                tool: tool.into(),
            }),
            _ => Err(IdError::ToolRef {
                text: text.chars().take(64).collect(),
            }),
        }
    }
}

/// A short key of a tool, for rows of counts, since names may have thousands of characters.
///
/// The probability that two of a million tools share a key is 3 in 10^8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolKey(pub i64);

/// One page of tools that an upstream listed, identified by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolListing {
    /// SHA-256 over upstream, names and content hashes, in hexadecimal.
    pub id: String,
    /// The upstream that listed them.
    pub upstream: UpstreamName,
    /// The tools in the order of the list.
    pub tools: Vec<ToolSighting>,
}

impl ToolListing {
    /// The maximum number of stored tools of one page. Further tools count for its [`Self::id`]
    /// only.
    pub const MAX_TOOLS: usize = 5_000;

    /// Returns the listing of a page that was split from `result`.
    #[must_use]
    pub fn new(upstream: &UpstreamName, page: &ToolPage, result: &str) -> Self {
        let mut list_digest = Sha256::new();
        list_digest.update(upstream.as_str());
        let sightings: Vec<Option<ToolSighting>> = page
            .tools()
            .iter()
            .enumerate()
            .map(|(position, tool)| {
                let definition = &result[tool.at.clone()];
                let mut digest = Sha256::new();
                // A definition without a canonical form is hashed as it is written. The failed
                // attempt has added nothing to the digest.
                if write_canonical(definition, &mut |piece| digest.update(piece)).is_err() {
                    digest.update(definition);
                }
                let content_hash = hex::encode(digest.finalize());
                list_digest.update([0]);
                list_digest.update(tool.name.as_str());
                list_digest.update([0]);
                list_digest.update(&content_hash);
                let is_kept = definition.len() <= ToolSighting::MAX_DEFINITION_BYTES;
                (position < Self::MAX_TOOLS).then(|| ToolSighting {
                    name: tool.name.clone(),
                    content_hash,
                    definition: if is_kept {
                        definition.into()
                    } else {
                        String::new()
                    },
                })
            })
            .collect();
        Self {
            id: hex::encode(list_digest.finalize()),
            upstream: upstream.clone(),
            tools: sightings.into_iter().flatten().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"x":1.0,"tools":[ {"name":"a","n":1e3}, {"nameless":true} ,{"name":"b"}],"nextCursor":"z"}"#;

    #[test]
    fn a_page_is_split_into_its_definitions() {
        let page = ToolPage::split(RESULT).unwrap();
        let names: Vec<_> = page.tools().iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(
            &RESULT[page.tools()[0].at.clone()],
            r#"{"name":"a","n":1e3}"#
        );
        assert!(ToolPage::split(r#"{"tools":{}}"#).is_err());
    }

    #[test]
    fn hiding_tools_does_not_change_the_rest_of_a_page() {
        let page = ToolPage::split(RESULT).unwrap();
        assert_eq!(
            page.without(RESULT, &[0]),
            r#"{"x":1.0,"tools":[{"name":"b"}],"nextCursor":"z"}"#
        );
        assert_eq!(
            page.without(RESULT, &[0, 1]),
            r#"{"x":1.0,"tools":[],"nextCursor":"z"}"#
        );
    }

    #[test]
    fn the_id_of_a_listing_covers_tools_beyond_the_maximum() {
        let upstream = UpstreamName::parse("u").unwrap();
        let listing = |last: &str| {
            let many = r#"{"name":"a"},"#.repeat(ToolListing::MAX_TOOLS);
            let text = format!(r#"{{"tools":[{many}{{"name":"{last}"}}]}}"#);
            let page = ToolPage::split(&text).unwrap();
            let hidden: Vec<usize> = (0..ToolListing::MAX_TOOLS).collect();
            let rest = format!(r#"{{"tools":[{{"name":"{last}"}}]}}"#);
            assert_eq!(page.without(&text, &hidden), rest);
            ToolListing::new(&upstream, &page, &text)
        };
        let one = listing("b");
        assert_eq!(one.tools.len(), ToolListing::MAX_TOOLS);
        assert_ne!(one.id, listing("c").id);
    }

    #[test]
    fn a_listing_is_identified_by_its_content_not_its_spelling() {
        let upstream = UpstreamName::parse("u").unwrap();
        let listing =
            |text: &str| ToolListing::new(&upstream, &ToolPage::split(text).unwrap(), text);
        let one = listing(r#"{"tools":[{"name":"a","x":1}]}"#);
        assert_eq!(one.id, listing(r#"{"tools":[{"x":1.0, "name":"a"}]}"#).id);
        assert_ne!(one.id, listing(r#"{"tools":[{"name":"a","x":2}]}"#).id);
    }
}
