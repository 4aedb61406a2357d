//! What a session could call: the tools that a search is made over.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use riglm_domain::edit::member;
use riglm_domain::excerpt::excerpt;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::list_shown::ToolSet;
use riglm_domain::naming::names_of;
use riglm_domain::scan::unescaped;
use riglm_domain::tool::ToolRef;
use sha2::{Digest, Sha256};

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerText {
    /// Its name, as it is configured.
    pub name: String,
    /// Its title, or the name that it gave itself; empty when it did not say.
    pub title: String,
    /// Its instructions; empty when it did not say.
    pub instructions: String,
}

/// A tool that a session could call.
#[derive(Clone, Debug)]
pub struct OfferedTool {
    /// The name by which the client calls it.
    pub name: String,
    /// The tool, by the name that its upstream knows.
    pub tool: ToolRef,
    /// The JSON text of its definition, with the name that the client knows or the upstream's.
    pub definition: Arc<str>,
    /// Whether lists of the session leave it out.
    pub is_hidden: bool,
}

impl OfferedTool {
    /// The longest line that is returned, in characters.
    const MAX_LINE_CHARS: usize = 200;

    /// Returns the names by which operators may mean it: all of its own, and the one that clients see.
    #[must_use]
    pub fn names(&self) -> Vec<ToolName> {
        let mut names = names_of(&self.tool.upstream, &self.tool.tool);
        let shown = ToolName::from(self.name.as_str());
        if !names.contains(&shown) {
            names.push(shown);
        }
        names
    }

    /// Returns the first line of the description, of a longer one the first words in 200 characters;
    /// empty where there is none.
    #[must_use]
    pub fn first_line(&self) -> String {
        let description = member(&self.definition, "description").and_then(unescaped);
        let description = description.unwrap_or_default();
        let is_end = |c: char| {
            matches!(
                c,
                '\n' | '\r' | '\u{0b}' | '\u{0c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
            )
        };
        let line = description.trim().split(is_end).next().unwrap_or_default();
        let shown: String = line.chars().filter(|c| !is_hidden(*c)).collect();
        excerpt(&shown, Self::MAX_LINE_CHARS).into_owned()
    }
}

/// Returns whether a character is one that a reader does not see and that changes what they see: a
/// control character, or one that turns the direction of text.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The tools that a session could call, in the order of the list, and their servers.
#[derive(Clone, Debug)]
pub struct Offer {
    positions: OnceLock<HashMap<ToolRef, usize>>,
    canonical: OnceLock<Vec<usize>>,
    canonical_text: OnceLock<Arc<str>>,
    tool_set: OnceLock<Arc<ToolSet>>,
    id: [u8; 32],
    tools: Vec<OfferedTool>,
    servers: Vec<(UpstreamName, ServerText)>,
    is_partial: bool,
    lacks_upstreams: bool,
}

impl Offer {
    /// Returns the offer of these tools. `servers` has what each upstream says of itself.
    #[must_use]
    pub fn new(tools: Vec<OfferedTool>, servers: Vec<(UpstreamName, ServerText)>) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        for (upstream, server) in &servers {
            add(upstream.as_str());
            add(&server.name);
            add(&server.title);
            add(&server.instructions);
        }
        for tool in &tools {
            add(&tool.name);
            add(tool.tool.upstream.as_str());
            add(tool.tool.tool.as_str());
            add(&tool.definition);
        }
        Self {
            positions: OnceLock::new(),
            canonical: OnceLock::new(),
            canonical_text: OnceLock::new(),
            tool_set: OnceLock::new(),
            id: digest.finalize().into(),
            tools,
            servers,
            is_partial: false,
            lacks_upstreams: false,
        }
    }

    /// Returns the offer as one without the tools of some upstreams, which are starting or down.
    #[must_use]
    pub fn lacking_upstreams(self) -> Self {
        let mut digest = Sha256::new();
        digest.update(self.id);
        digest.update(b"lacking upstreams");
        Self {
            id: digest.finalize().into(),
            lacks_upstreams: true,
            ..self
        }
    }

    /// Returns whether the tools of some upstreams are missing for now: what is chosen of it must
    /// not last.
    #[must_use]
    pub fn lacks_upstreams(&self) -> bool {
        self.lacks_upstreams
    }

    /// Returns the offer as one that has the first tools only of those that there are.
    #[must_use]
    pub fn partial(self) -> Self {
        Self {
            id: Sha256::digest(self.id).into(),
            is_partial: true,
            ..self
        }
    }

    /// Returns the offer of those of its tools that a question about their positions holds for.
    #[must_use]
    pub fn kept(&self, is_kept: impl Fn(usize) -> bool) -> Self {
        let tools = self.tools.iter().enumerate();
        let tools = tools.filter(|(at, _)| is_kept(*at));
        let tools = tools.map(|(_, tool)| tool.clone()).collect();
        let mut kept = Self::new(tools, self.servers.clone());
        if self.is_partial {
            kept = kept.partial();
        }
        if self.lacks_upstreams {
            kept = kept.lacking_upstreams();
        }
        kept
    }

    /// Returns whether there are more tools than these, which cannot be found.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns what identifies the content: offers with the same texts, whatever of them is
    /// hidden, have the same.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// Returns the position of a tool; of one that is listed twice the first.
    #[must_use]
    pub fn position_of(&self, tool: &ToolRef) -> Option<usize> {
        let positions = self.positions.get_or_init(|| {
            let all = self.tools.iter().enumerate().rev();
            all.map(|(at, tool)| (tool.tool.clone(), at)).collect()
        });
        positions.get(tool).copied()
    }

    /// Returns the positions of all tools in the order of upstream and name, which is the same
    /// whatever the order of the list.
    #[must_use]
    pub fn canonical(&self) -> &[usize] {
        self.canonical.get_or_init(|| {
            let mut positions: Vec<usize> = (0..self.tools.len()).collect();
            positions.sort_by(|a, b| self.tools[*a].tool.cmp(&self.tools[*b].tool));
            positions
        })
    }

    /// Returns the definitions in that order, separated by commas.
    #[must_use]
    pub fn canonical_text(&self) -> Arc<str> {
        let text = self.canonical_text.get_or_init(|| {
            let all = self.canonical().iter();
            let definitions: Vec<&str> = all.map(|at| &*self.tools[*at].definition).collect();
            definitions.join(",").into()
        });
        Arc::clone(text)
    }

    /// Returns the tools in that order.
    #[must_use]
    pub fn tool_set(&self) -> Arc<ToolSet> {
        let set = self.tool_set.get_or_init(|| {
            let all = self.canonical().iter();
            Arc::new(ToolSet::new(
                all.map(|at| self.tools[*at].tool.clone()).collect(),
            ))
        });
        Arc::clone(set)
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tools(&self) -> &[OfferedTool] {
        &self.tools
    }

    /// Returns the tool that the client calls by this name, or that is the only one which its
    /// upstream calls so.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&OfferedTool> {
        let by_name = self.tools.iter().find(|tool| tool.name == name);
        by_name.or_else(|| {
            let mut own = self
                .tools
                .iter()
                .filter(|tool| tool.tool.tool.as_str() == name);
            own.next().filter(|_| own.next().is_none())
        })
    }

    /// Returns what an upstream says of itself.
    #[must_use]
    pub fn server(&self, upstream: &UpstreamName) -> Option<&ServerText> {
        let mut servers = self.servers.iter();
        servers
            .find(|(name, _)| name == upstream)
            .map(|(_, server)| server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_breaks_and_nothing_that_hides() {
        let tool = |description: &str| OfferedTool {
            name: "n".into(),
            tool: ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: "n".into(),
            },
            definition: serde_json::json!({ "description": description })
                .to_string()
                .into(),
            is_hidden: false,
        };
        let line = |description: &str| tool(description).first_line();
        for end in ["\n", "\r", "\u{2028}", "\u{85}"] {
            assert_eq!(line(&format!("Pays.{end}2. fake (0.99)")), "Pays.");
        }
        assert_eq!(line("a\u{1b}[2J\u{202e}b"), "a[2Jb");
        assert_eq!(line(&"\u{e9}".repeat(300)).chars().count(), 200);
        let words = line(&"Reads files ".repeat(30));
        assert!(words.ends_with(" files Reads…"), "{words}");
        assert_eq!(line(""), "");
    }
}
