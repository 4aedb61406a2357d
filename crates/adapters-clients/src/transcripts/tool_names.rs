//! The names under which clients show the tools of MCP servers to their models.

use super::event::TranscriptClient;

/// A tool, split into server and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QualifiedTool {
    /// The MCP server; `None` for a tool of the client.
    pub server: Option<String>,
    /// The name of the tool without its server.
    pub tool: String,
}

/// The names of the configured MCP servers, to recognize them in the names of tools.
///
/// Clients join server and tool with `__` or `_`, and both parts may contain the separator. So the
/// longest configured name that fits is taken. Without a configured name that fits, the name is cut
/// at the first separator, as the clients do themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerNames {
    /// The longest one first.
    spellings: Vec<Spelling>,
}

/// A form of the name of a server, as a client may write it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spelling {
    written: String,
    configured: String,
}

/// Tools of opencode whose name has an underscore.
const OPENCODE_BUILTINS: [&str; 6] = [
    "apply_patch",
    "code_search",
    "plan_enter",
    "plan_exit",
    "todo_read",
    "todo_write",
];

impl ServerNames {
    /// Returns the names of these servers, as they are in the configuration of a client.
    pub fn new<S: Into<String>>(configured: impl IntoIterator<Item = S>) -> Self {
        let mut spellings: Vec<Spelling> = Vec::new();
        for configured in configured {
            let configured: String = configured.into();
            // Claude Code and opencode keep hyphens, Gemini CLI keeps dots and colons too, and
            // Codex keeps underscores alone. An early opencode replaced only spaces.
            for extra in ["-", "-.:", ""] {
                let keep = |c: char| c.is_ascii_alphanumeric() || c == '_' || extra.contains(c);
                let written: String = (configured.chars())
                    .map(|c| if keep(c) { c } else { '_' })
                    .collect();
                let is_new = !spellings.iter().any(|known| known.written == written);
                if is_new && !written.is_empty() {
                    spellings.push(Spelling {
                        written,
                        configured: configured.clone(),
                    });
                }
            }
        }
        spellings.sort_by(|a, b| {
            let by_length = b.written.len().cmp(&a.written.len());
            by_length.then_with(|| a.written.cmp(&b.written))
        });
        Self { spellings }
    }

    /// Splits the name of a tool, as the transcript of a client has it.
    #[must_use]
    pub fn split(&self, client: TranscriptClient, name: &str) -> QualifiedTool {
        let split = match client {
            TranscriptClient::ClaudeCode => self.after_prefix(name, "mcp__", "__"),
            TranscriptClient::Codex => (self.after_prefix(name, "mcp__", "__"))
                .or_else(|| self.with_configured(name, "__")),
            TranscriptClient::GeminiCli => {
                (self.after_prefix(name, "mcp_", "_")).or_else(|| self.with_configured(name, "__"))
            }
            TranscriptClient::Opencode => self.with_configured(name, "_").or_else(|| {
                let is_builtin = OPENCODE_BUILTINS.contains(&name);
                (!is_builtin).then(|| at_first(name, "_")).flatten()
            }),
        };
        split.unwrap_or_else(|| QualifiedTool {
            server: None,
            tool: name.to_owned(),
        })
    }

    /// Splits the name of a tool that Codex has apart from its namespace, such as `mcp__github`.
    /// Namespaces that are not of a server belong to the client.
    pub(super) fn split_namespace(&self, namespace: &str, name: &str) -> QualifiedTool {
        let bare = namespace.strip_prefix("mcp__").unwrap_or(namespace);
        let bare = bare.strip_suffix("__").unwrap_or(bare);
        let known = self.spellings.iter().find(|known| known.written == bare);
        let is_prefixed = namespace.starts_with("mcp__") && !bare.is_empty();
        let server = match known {
            Some(known) => Some(known.configured.clone()),
            None => is_prefixed.then(|| bare.to_owned()),
        };
        let tool = match &server {
            Some(_) => name.to_owned(),
            None => format!("{namespace}.{name}"),
        };
        QualifiedTool { server, tool }
    }

    /// Splits the path of a tool that a script of opencode calls, such as `github.create_issue`. A
    /// tool of opencode lies in its own namespace, or in none.
    pub(super) fn split_path(&self, path: &str) -> QualifiedTool {
        let split = self.with_configured(path, ".").or_else(|| {
            at_first(path, ".").filter(|split| split.server.as_deref() != Some("opencode"))
        });
        split.unwrap_or_else(|| QualifiedTool {
            server: None,
            tool: path.to_owned(),
        })
    }

    fn after_prefix(&self, name: &str, prefix: &str, separator: &str) -> Option<QualifiedTool> {
        let rest = name.strip_prefix(prefix)?;
        self.with_configured(rest, separator)
            .or_else(|| at_first(rest, separator))
    }

    fn with_configured(&self, name: &str, separator: &str) -> Option<QualifiedTool> {
        self.spellings.iter().find_map(|known| {
            let rest = name.strip_prefix(known.written.as_str())?;
            let tool = rest.strip_prefix(separator)?;
            (!tool.is_empty()).then(|| QualifiedTool {
                server: Some(known.configured.clone()),
                tool: tool.to_owned(),
            })
        })
    }
}

/// Splits a name at the first separator that has something before and after it.
fn at_first(name: &str, separator: &str) -> Option<QualifiedTool> {
    let (server, tool) = name.split_once(separator)?;
    let is_split = !server.is_empty() && !tool.is_empty();
    is_split.then(|| QualifiedTool {
        server: Some(server.to_owned()),
        tool: tool.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(client: TranscriptClient, configured: &[&str], name: &str) -> String {
        let tool = ServerNames::new(configured.iter().copied()).split(client, name);
        let server = tool.server.as_deref().unwrap_or("-");
        format!("{server} {}", tool.tool)
    }

    #[test]
    fn the_longest_configured_server_that_fits_is_taken() {
        use TranscriptClient::{ClaudeCode, Codex, GeminiCli, Opencode};
        let servers = ["a", "a_b", "a__b", "my.server", "two words"];
        for (client, name, expected) in [
            (ClaudeCode, "mcp__a__read_file", "a read_file"),
            (ClaudeCode, "mcp__a_b__read", "a_b read"),
            (ClaudeCode, "mcp__a__b__read", "a__b read"),
            (ClaudeCode, "mcp__my_server__do", "my.server do"),
            (ClaudeCode, "mcp__two_words__do", "two words do"),
            (ClaudeCode, "mcp__other_one__do_it", "other_one do_it"),
            (ClaudeCode, "mcp__other", "- mcp__other"),
            (ClaudeCode, "Bash", "- Bash"),
            (Codex, "mcp__a_b__read", "a_b read"),
            (Codex, "a_b__read", "a_b read"),
            (Codex, "c__read", "- c__read"),
            (Codex, "exec_command", "- exec_command"),
            (GeminiCli, "mcp_a_b_read", "a_b read"),
            (GeminiCli, "mcp_my.server_read", "my.server read"),
            (GeminiCli, "mcp_git_hub_read", "git hub_read"),
            (GeminiCli, "a__b__read", "a__b read"),
            (GeminiCli, "read_file", "- read_file"),
            (Opencode, "a_b_read", "a_b read"),
            (Opencode, "github_create_issue", "github create_issue"),
            (Opencode, "plan_exit", "- plan_exit"),
            (Opencode, "bash", "- bash"),
        ] {
            assert_eq!(split(client, &servers, name), expected, "{client} {name}");
        }
    }

    #[test]
    fn namespaces_of_servers_are_recognized() {
        let names = ServerNames::new(["my-server"]);
        for (namespace, server, tool) in [
            ("mcp__my_server", Some("my-server"), "go"),
            ("mcp__my_server__", Some("my-server"), "go"),
            ("my_server", Some("my-server"), "go"),
            ("mcp__other", Some("other"), "go"),
            ("multi_agent_v1", None, "multi_agent_v1.go"),
        ] {
            let split = names.split_namespace(namespace, "go");
            assert_eq!(split.server.as_deref(), server);
            assert_eq!(split.tool, tool);
        }
    }

    #[test]
    fn paths_of_scripts_are_recognized() {
        let names = ServerNames::new(["my-server", "dotted.name"]);
        for (path, server, tool) in [
            ("my-server.go", Some("my-server"), "go"),
            ("dotted_name.go.on", Some("dotted.name"), "go.on"),
            ("other.create_issue", Some("other"), "create_issue"),
            ("opencode.session_move", None, "opencode.session_move"),
            ("search", None, "search"),
        ] {
            let split = names.split_path(path);
            assert_eq!(split.server.as_deref(), server, "{path}");
            assert_eq!(split.tool, tool);
        }
    }

    proptest! {
        #[test]
        fn the_name_of_a_configured_server_is_found_again(
            server in "[a-z][a-z0-9_.-]{0,10}[a-z0-9]",
            tool in "[a-z][a-z_-]{0,12}",
        ) {
            let names = ServerNames::new([server.clone()]);
            let written = |extra: &str| {
                let keep = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
                server.chars().map(|c| if keep(c) { c } else { '_' }).collect::<String>()
            };
            for (client, name) in [
                (TranscriptClient::ClaudeCode, format!("mcp__{}__{tool}", written("_-"))),
                (TranscriptClient::Codex, format!("mcp__{}__{tool}", written("_"))),
                (TranscriptClient::GeminiCli, format!("mcp_{}_{tool}", written("_-.:"))),
                (TranscriptClient::Opencode, format!("{}_{tool}", written("_-"))),
            ] {
                let split = names.split(client, &name);
                prop_assert_eq!(split.server.as_deref(), Some(&*server), "{}", name);
                prop_assert_eq!(&split.tool, &tool, "{}", name);
            }
        }

        #[test]
        fn any_name_has_a_tool(name in "\\PC{1,20}", server in "\\PC{0,8}") {
            let names = ServerNames::new([server]);
            for client in TranscriptClient::ALL {
                let split = names.split(*client, &name);
                prop_assert!(!split.tool.is_empty());
                prop_assert!(name.ends_with(&split.tool));
            }
        }
    }
}
