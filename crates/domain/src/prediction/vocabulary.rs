//! The vocabulary: all tools ever seen, with dense indices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::numeric::text_key;
use crate::catalog::tool::ToolRef;
use crate::id::UpstreamName;
use crate::retrieval::words;

/// The index of a tool in a [`Vocabulary`]: from 0, without gaps, and never reused for another
/// tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolIx(pub(super) u32);

impl ToolIx {
    /// Returns the index as `usize`.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All tools ever listed or called, in the order of their first occurrence.
///
/// A removed tool keeps its index and its learned data. It is only not a candidate any more. The
/// default is the vocabulary without tools; [`Self::intern`] adds them. The serialized form is the
/// list of tools, in the order of their indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SerializedVocabulary", into = "SerializedVocabulary")]
pub struct Vocabulary {
    tools: Vec<ToolRef>,
    by_tool: BTreeMap<ToolRef, ToolIx>,
    server_of: Vec<u32>,
    servers: BTreeMap<UpstreamName, u32>,
    /// The distinct words of each tool's name, as dense numbers.
    words_of: Vec<Vec<u32>>,
    words: BTreeMap<u64, u32>,
}

impl Vocabulary {
    /// Maximum number of tools. Further tools have no index and are never predicted.
    pub const MAX_TOOLS: usize = 100_000;
    /// Maximum number of words of a name that count.
    const MAX_WORDS: usize = 16;

    /// Returns the index of a tool; a new one if it was never seen. `None` if there are
    /// [`Self::MAX_TOOLS`] others.
    pub fn intern(&mut self, tool: &ToolRef) -> Option<ToolIx> {
        if let Some(slot) = self.by_tool.get(tool) {
            return Some(*slot);
        }
        if self.tools.len() >= Self::MAX_TOOLS {
            return None;
        }
        let slot = ToolIx(u32::try_from(self.tools.len()).ok()?);
        let n_servers = u32::try_from(self.servers.len()).ok()?;
        let server = *(self.servers)
            .entry(tool.upstream.clone())
            .or_insert(n_servers);
        let mut numbers = Vec::new();
        for word in words(tool.tool.as_str()).iter().take(Self::MAX_WORDS) {
            let n_words = u32::try_from(self.words.len()).ok()?;
            let number = *self.words.entry(text_key(word)).or_insert(n_words);
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        self.server_of.push(server);
        self.words_of.push(numbers);
        self.tools.push(tool.clone());
        self.by_tool.insert(tool.clone(), slot);
        Some(slot)
    }

    /// Returns the tools with their indexes, in the order of their first occurrence.
    pub fn tools(&self) -> impl Iterator<Item = (ToolIx, &ToolRef)> {
        (0..).map(ToolIx).zip(&self.tools)
    }

    /// Returns the index of a tool, if it was seen.
    #[must_use]
    pub fn slot(&self, tool: &ToolRef) -> Option<ToolIx> {
        self.by_tool.get(tool).copied()
    }

    /// Returns the tool at an index; `None` for an index of another vocabulary.
    #[must_use]
    pub fn tool(&self, slot: ToolIx) -> Option<&ToolRef> {
        self.tools.get(slot.index())
    }

    /// Returns the number of tools ever seen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns whether no tool was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) fn n_servers(&self) -> usize {
        self.servers.len()
    }

    /// Returns the number of the server of a tool.
    pub(super) fn server(&self, slot: ToolIx) -> Option<u32> {
        self.server_of.get(slot.index()).copied()
    }

    /// Returns the number of the server of each tool.
    pub(super) fn server_of(&self) -> &[u32] {
        &self.server_of
    }

    /// Returns the number of different words in all names.
    pub(super) fn n_words(&self) -> usize {
        self.words.len()
    }

    pub(super) fn words_of(&self, slot: ToolIx) -> &[u32] {
        self.words_of_index(slot.index())
    }

    pub(super) fn words_of_index(&self, slot: usize) -> &[u32] {
        self.words_of.get(slot).map_or(&[], Vec::as_slice)
    }
}

/// The serialized form of a vocabulary: the tools in order. All other fields are derived from it.
#[derive(Serialize, Deserialize)]
struct SerializedVocabulary(Vec<ToolRef>);

impl From<SerializedVocabulary> for Vocabulary {
    fn from(listed: SerializedVocabulary) -> Self {
        let mut vocabulary = Self::default();
        for tool in &listed.0 {
            vocabulary.intern(tool);
        }
        vocabulary
    }
}

impl From<Vocabulary> for SerializedVocabulary {
    fn from(vocabulary: Vocabulary) -> Self {
        Self(vocabulary.tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(upstream: &str, name: &str) -> ToolRef {
        ToolRef {
            upstream: UpstreamName::parse(upstream).unwrap(),
            tool: name.into(),
        }
    }

    #[test]
    fn each_tool_of_a_server_has_one_slot() {
        let mut vocabulary = Vocabulary::default();
        let first = vocabulary.intern(&tool("a", "x")).unwrap();
        let other = vocabulary.intern(&tool("b", "x")).unwrap();
        assert_eq!(vocabulary.intern(&tool("a", "x")), Some(first));
        assert_eq!((first.index(), other.index()), (0, 1));
        assert_eq!(vocabulary.tool(other), Some(&tool("b", "x")));
        let listed: Vec<ToolIx> = vocabulary.tools().map(|(slot, _)| slot).collect();
        assert_eq!(listed, [first, other]);
        assert_eq!(vocabulary.server_of(), [0, 1]);
        assert_eq!(vocabulary.slot(&tool("c", "x")), None);
    }

    #[test]
    fn slots_survive_serialization() {
        let mut vocabulary = Vocabulary::default();
        for (upstream, name) in [("b", "get_user"), ("a", "list"), ("b", "list")] {
            vocabulary.intern(&tool(upstream, name)).unwrap();
        }
        let bytes = postcard::to_allocvec(&vocabulary).unwrap();
        let read: Vocabulary = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, vocabulary);
    }
}
