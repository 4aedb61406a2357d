//! Tools of MCP servers, told apart over all clients.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A tool of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolKey {
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
}

impl ToolKey {
    /// Returns the form that all spellings of a tool have in common. Clients write `_` for other
    /// characters than letters and digits, each for other ones.
    #[must_use]
    pub fn comparable(&self) -> Self {
        Self {
            server: comparable_name(&self.server),
            tool: comparable_name(&self.tool),
        }
    }
}

/// The spellings of tools in the transcripts of different clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Spellings {
    servers: BTreeMap<String, String>,
    tools: BTreeMap<ToolKey, String>,
}

impl Spellings {
    /// Adds a spelling of a tool. Returns the comparable form.
    pub(super) fn add(&mut self, key: &ToolKey) -> ToolKey {
        let common = key.comparable();
        keep_best(&mut self.servers, &common.server, &key.server);
        keep_best(&mut self.tools, &common, &key.tool);
        common
    }

    /// Returns the best spelling of a tool, given its comparable form.
    pub(super) fn best(&self, common: &ToolKey) -> ToolKey {
        let server = self.servers.get(&common.server).unwrap_or(&common.server);
        let tool = self.tools.get(common).unwrap_or(&common.tool);
        ToolKey {
            server: server.clone(),
            tool: tool.clone(),
        }
    }
}

/// Returns the form that all spellings of a name have in common: `_` for other characters than letters
/// and digits.
#[must_use]
pub fn comparable_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(plain).collect()
}

/// Keeps the spelling with the fewest replaced characters: that of the server itself, if any client
/// has it.
fn keep_best<K: Clone + Ord>(spellings: &mut BTreeMap<K, String>, common: &K, spelling: &str) {
    let rank = |name: &str| (Reverse(name.matches(is_special).count()), name.to_owned());
    match spellings.get_mut(common) {
        Some(best) if rank(spelling) < rank(best) => spelling.clone_into(best),
        Some(_) => {}
        None => {
            spellings.insert(common.clone(), spelling.to_owned());
        }
    }
}

fn is_special(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(server: &str, tool: &str) -> ToolKey {
        ToolKey {
            server: server.to_owned(),
            tool: tool.to_owned(),
        }
    }

    #[test]
    fn the_spelling_of_the_server_is_preferred() {
        let mut spellings = Spellings::default();
        let common = spellings.add(&key("my_server", "get_user_name"));
        assert_eq!(spellings.add(&key("my-server", "get_user_name")), common);
        assert_eq!(spellings.add(&key("my_server", "get-user_name")), common);
        assert_eq!(spellings.best(&common), key("my-server", "get-user_name"));
        let other = spellings.add(&key("my.server", "other"));
        assert_eq!(spellings.best(&other), key("my-server", "other"));
    }
}
