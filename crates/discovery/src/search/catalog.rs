//! The catalog: the tools that a session may call, over which searches run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use riglm_domain::catalog::naming::tool_aliases;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::unescape;
use riglm_domain::retrieval::excerpt::excerpt;
use riglm_domain::selection::shown::ToolSet;
use sha2::{Digest, Sha256};

/// Self-description of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerText {
    /// The configured name.
    pub name: String,
    /// The title, or else the name that the server gave itself. Empty if it gave neither.
    pub title: String,
    /// The instructions. Empty if the server has none.
    pub instructions: String,
}

/// A tool that a session may call.
#[derive(Clone, Debug)]
pub struct CatalogTool {
    /// The name by which the client calls the tool.
    pub name: String,
    /// The tool with its name at the upstream.
    pub tool: ToolRef,
    /// JSON text of the definition, with the name for the client or the name at the upstream.
    pub definition: Arc<str>,
    /// Whether the lists of the session omit the tool.
    pub is_hidden: bool,
}

impl CatalogTool {
    /// Maximum length of a returned line in characters.
    const MAX_LINE_CHARS: usize = 200;

    /// Returns the names by which an operator may refer to the tool: all its own names, and the
    /// name that clients see.
    #[must_use]
    pub fn names(&self) -> Vec<ToolName> {
        let mut names = tool_aliases(&self.tool.upstream, &self.tool.tool);
        let shown = ToolName::from(self.name.as_str());
        if !names.contains(&shown) {
            names.push(shown);
        }
        names
    }

    /// Returns whether only apps may call the tool.
    #[must_use]
    pub fn is_app_only(&self) -> bool {
        is_app_only(&self.definition)
    }

    /// Returns the first line of the description, truncated at a word boundary to 200 characters.
    /// Returns an empty string without a description.
    #[must_use]
    pub fn first_line(&self) -> String {
        let description = member(&self.definition, "description").and_then(unescape);
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

/// Returns whether only apps may call a tool with this definition, JSON text: `_meta.ui.visibility`
/// names no `model` (extension `io.modelcontextprotocol/ui`, SEP-1865).
#[must_use]
pub fn is_app_only(definition: &str) -> bool {
    let ui = member(definition, "_meta").and_then(|meta| member(meta, "ui"));
    let visibility = ui.and_then(|ui| member(ui, "visibility"));
    let visibility: Option<Vec<&str>> = visibility.and_then(|text| serde_json::from_str(text).ok());
    visibility.is_some_and(|all| all.contains(&"app") && !all.contains(&"model"))
}

/// Returns whether a character is invisible and can change the displayed text: a control character,
/// or one that changes the direction of text.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The tools that a session may call, in the order of the list, and their servers.
#[derive(Clone, Debug)]
pub struct Catalog {
    positions: OnceLock<HashMap<ToolRef, usize>>,
    canonical: OnceLock<Vec<usize>>,
    canonical_text: OnceLock<Arc<str>>,
    tool_set: OnceLock<Arc<ToolSet>>,
    app_only: OnceLock<HashSet<usize>>,
    id: [u8; 32],
    tools: Vec<CatalogTool>,
    servers: Vec<(UpstreamName, ServerText)>,
    is_partial: bool,
    lacks_upstreams: bool,
}

impl Catalog {
    /// Returns the catalog of these tools. `servers` has the self-description of each upstream.
    #[must_use]
    pub fn new(tools: Vec<CatalogTool>, servers: Vec<(UpstreamName, ServerText)>) -> Self {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            // Lengths are hashed too, so that texts with the same concatenation differ.
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
            app_only: OnceLock::new(),
            id: digest.finalize().into(),
            tools,
            servers,
            is_partial: false,
            lacks_upstreams: false,
        }
    }

    /// Marks the catalog as incomplete because some upstreams are starting or down.
    #[must_use]
    pub fn mark_lacking_upstreams(self) -> Self {
        let mut digest = Sha256::new();
        digest.update(self.id);
        digest.update(b"lacking upstreams");
        Self {
            id: digest.finalize().into(),
            lacks_upstreams: true,
            ..self
        }
    }

    /// Returns whether the tools of some upstreams are missing temporarily. A selection from this
    /// catalog must not be kept.
    #[must_use]
    pub fn lacks_upstreams(&self) -> bool {
        self.lacks_upstreams
    }

    /// Marks the catalog as truncated: it has only the first of all tools.
    #[must_use]
    pub fn mark_truncated(self) -> Self {
        Self {
            id: Sha256::digest(self.id).into(),
            is_partial: true,
            ..self
        }
    }

    /// Returns the catalog of the tools whose position satisfies a predicate.
    #[must_use]
    pub fn filter(&self, is_kept: impl Fn(usize) -> bool) -> Self {
        let tools = self.tools.iter().enumerate();
        let tools = tools.filter(|(at, _)| is_kept(*at));
        let tools = tools.map(|(_, tool)| tool.clone()).collect();
        let mut kept = Self::new(tools, self.servers.clone());
        if self.is_partial {
            kept = kept.mark_truncated();
        }
        if self.lacks_upstreams {
            kept = kept.mark_lacking_upstreams();
        }
        kept
    }

    /// Returns whether the catalog is truncated. Tools beyond the limit cannot be found.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.is_partial
    }

    /// Returns the content hash. Catalogs with the same texts have the same hash, also if different
    /// tools are hidden.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// Returns the position of a tool, or the first position if it is listed twice.
    #[must_use]
    pub fn position_of(&self, tool: &ToolRef) -> Option<usize> {
        let positions = self.positions.get_or_init(|| {
            let all = self.tools.iter().enumerate().rev();
            all.map(|(at, tool)| (tool.tool.clone(), at)).collect()
        });
        positions.get(tool).copied()
    }

    /// Returns the positions of all tools, sorted by upstream and name. The order does not depend
    /// on the order of the list.
    #[must_use]
    pub fn canonical_order(&self) -> &[usize] {
        self.canonical.get_or_init(|| {
            let mut positions: Vec<usize> = (0..self.tools.len()).collect();
            positions.sort_by(|a, b| self.tools[*a].tool.cmp(&self.tools[*b].tool));
            positions
        })
    }

    /// Returns the definitions in canonical order, separated by commas.
    #[must_use]
    pub fn canonical_text(&self) -> Arc<str> {
        let text = self.canonical_text.get_or_init(|| {
            let all = self.canonical_order().iter();
            let definitions: Vec<&str> = all.map(|at| &*self.tools[*at].definition).collect();
            definitions.join(",").into()
        });
        Arc::clone(text)
    }

    /// Returns the tools in canonical order.
    #[must_use]
    pub fn tool_set(&self) -> Arc<ToolSet> {
        let set = self.tool_set.get_or_init(|| {
            let all = self.canonical_order().iter();
            Arc::new(ToolSet::new(
                all.map(|at| self.tools[*at].tool.clone()).collect(),
            ))
        });
        Arc::clone(set)
    }

    /// Returns the positions of the tools that only apps may call (extension
    /// `io.modelcontextprotocol/ui`). Hosts do not show them to models.
    #[must_use]
    pub fn app_only(&self) -> &HashSet<usize> {
        self.app_only.get_or_init(|| {
            let tools = self.tools.iter().enumerate();
            let of_apps = tools.filter(|(_, tool)| tool.is_app_only());
            of_apps.map(|(at, _)| at).collect()
        })
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tools(&self) -> &[CatalogTool] {
        &self.tools
    }

    /// Returns the tool with this name for the client. If there is none, returns the tool with this
    /// name at its upstream, provided that only one upstream has it.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&CatalogTool> {
        let by_name = self.tools.iter().find(|tool| tool.name == name);
        by_name.or_else(|| {
            let mut own = self
                .tools
                .iter()
                .filter(|tool| tool.tool.tool.as_str() == name);
            own.next().filter(|_| own.next().is_none())
        })
    }

    /// Returns the self-description of an upstream.
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
    fn tools_for_apps_alone_name_no_model() {
        for (meta, expected) in [
            (r#"{"ui":{"visibility":["app"]}}"#, true),
            (r#"{"ui":{"visibility":["app","model"]}}"#, false),
            (r#"{"ui":{"visibility":["model"]}}"#, false),
            (r#"{"ui":{"visibility":[]}}"#, false),
            (r#"{"ui":{"visibility":"app"}}"#, false),
            (r#"{"ui":{"resourceUri":"ui://x"}}"#, false),
            ("7", false),
        ] {
            let tool = CatalogTool {
                name: "n".into(),
                tool: ToolRef {
                    upstream: UpstreamName::parse("u").unwrap(),
                    tool: "n".into(),
                },
                definition: format!(r#"{{"name":"n","_meta":{meta}}}"#).into(),
                is_hidden: false,
            };
            let catalog = Catalog::new(vec![tool], Vec::new());
            assert_eq!(catalog.app_only().contains(&0), expected, "{meta}");
        }
    }

    #[test]
    fn the_first_line_has_no_breaks_or_hidden_characters() {
        let tool = |description: &str| CatalogTool {
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
