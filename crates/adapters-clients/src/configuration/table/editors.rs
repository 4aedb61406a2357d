//! Editors and their extensions. They use the same code as the tested clients with other facts.

use super::{
    CLAUDE_DIALECT, LISTED, LITERAL, OPENCODE_DIALECT, PLAIN_URL, TYPED_URL, VSCODE_DIALECT,
    current, list, map, variant,
};
use crate::configuration::client::{
    Client, Connection, Constant, Dialect, FilePlace, FileRole, HeaderPlace, HttpEntry, Member,
    NextStep, ReferenceSyntax, TimeoutUnit, UntypedUrl, VariableReference,
};
use crate::configuration::document::DocumentFormat;

/// The rows.
pub(super) static CLIENTS: &[Client] = &[
    Client {
        id: "visual-studio",
        title: "Visual Studio",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &[],
            macos: &[],
            windows: &["~/.mcp.json"],
        }],
        project_files: &[".mcp.json"],
        format: DocumentFormat::JsonWithComments,
        map: map("servers"),
        connection: Connection::Http(TYPED_URL),
        reference: VariableReference::Input,
        dialect: VSCODE_DIALECT,
        next_steps: &[NextStep::StartServer],
        ..LISTED
    },
    Client {
        id: "copilot-jetbrains",
        title: "Copilot in JetBrains IDEs",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["~/.config/github-copilot/intellij/mcp.json"],
            macos: &["~/.config/github-copilot/intellij/mcp.json"],
            windows: &["%LOCALAPPDATA%/github-copilot/intellij/mcp.json"],
        }],
        format: DocumentFormat::JsonWithComments,
        map: map("servers"),
        connection: Connection::Http(HttpEntry {
            headers: HeaderPlace::RequestInit,
            ..PLAIN_URL
        }),
        next_steps: &[NextStep::Restart],
        ..LISTED
    },
    Client {
        id: "claude-xcode",
        title: "Claude Agent in Xcode",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &[],
            macos: &["~/Library/Developer/Xcode/CodingAssistant/ClaudeAgentConfig/.claude.json"],
            windows: &[],
        }],
        connection: Connection::Http(TYPED_URL),
        reference: VariableReference::Braces,
        dialect: CLAUDE_DIALECT,
        ..LISTED
    },
    Client {
        id: "antigravity",
        title: "Antigravity",
        files: &[
            current(&["~/.gemini/config/mcp_config.json"]),
            variant(&["~/.gemini/antigravity/mcp_config.json"]),
        ],
        project_files: &[".agents/mcp_config.json"],
        connection: Connection::Http(HttpEntry {
            address_key: "serverUrl",
            ..PLAIN_URL
        }),
        next_steps: &[NextStep::ReloadWindow],
        ..LISTED
    },
    Client {
        id: "roo",
        title: "Roo Code (discontinued)",
        files: &[
            FilePlace {
                role: FileRole::Variant,
                linux: &[
                    "$XDG_CONFIG_HOME/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
                macos: &[
                    "~/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
                windows: &[
                    "%APPDATA%/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &[
                    "$XDG_CONFIG_HOME/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
                macos: &[
                    "~/Library/Application Support/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
                windows: &[
                    "%APPDATA%/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ],
            },
        ],
        project_files: &[".roo/mcp.json"],
        connection: Connection::Http(HttpEntry {
            before: &[Member {
                key: "type",
                value: Constant::Text("streamable-http"),
            }],
            ..PLAIN_URL
        }),
        reference: VariableReference::EnvBraces,
        dialect: Dialect {
            references: &[ReferenceSyntax::EnvBraces, ReferenceSyntax::Workspace],
            untyped_url: UntypedUrl::Refused,
            ..LITERAL
        },
        next_steps: &[],
        ..LISTED
    },
    Client {
        id: "kilo",
        title: "Kilo Code",
        files: &[current(&["~/.config/kilo/kilo.jsonc"])],
        project_files: &["kilo.jsonc", ".kilo/kilo.jsonc"],
        format: DocumentFormat::JsonWithComments,
        map: map("mcp"),
        connection: Connection::Http(HttpEntry {
            before: &[Member {
                key: "type",
                value: Constant::Text("remote"),
            }],
            after: &[
                Member {
                    key: "enabled",
                    value: Constant::True,
                },
                Member {
                    key: "oauth",
                    value: Constant::False,
                },
            ],
            ..PLAIN_URL
        }),
        reference: VariableReference::EnvOnly,
        dialect: OPENCODE_DIALECT,
        ..LISTED
    },
    Client {
        id: "continue",
        title: "Continue",
        files: &[current(&["~/.continue/config.yaml"])],
        project_files: &[".continue/mcpServers/*.yaml", ".continue/mcpServers/*.json"],
        format: DocumentFormat::Yaml,
        map: list("mcpServers"),
        connection: Connection::Http(HttpEntry {
            before: &[
                Member {
                    key: "name",
                    value: Constant::Name,
                },
                Member {
                    key: "type",
                    value: Constant::Text("streamable-http"),
                },
            ],
            headers: HeaderPlace::RequestOptions,
            ..PLAIN_URL
        }),
        reference: VariableReference::Secrets,
        dialect: Dialect {
            references: &[ReferenceSyntax::Secrets],
            timeout_unit: TimeoutUnit::Milliseconds,
            ..LITERAL
        },
        next_steps: &[NextStep::ReloadWindow],
        ..LISTED
    },
    Client {
        id: "junie",
        title: "Junie",
        files: &[current(&["~/.junie/mcp/mcp.json"])],
        project_files: &[".junie/mcp/mcp.json"],
        ..LISTED
    },
    Client {
        id: "jetbrains-ai",
        title: "JetBrains AI Assistant",
        files: &[current(&["~/.ai/mcp/mcp.json"])],
        project_files: &[".ai/mcp/mcp.json"],
        next_steps: &[NextStep::Restart],
        ..LISTED
    },
    Client {
        id: "augment",
        title: "Augment",
        files: &[current(&["~/.augment/settings.json"])],
        project_files: &[".augment/settings.json", ".augment/settings.local.json"],
        connection: Connection::Http(TYPED_URL),
        ..LISTED
    },
    Client {
        id: "trae",
        title: "Trae",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["$XDG_CONFIG_HOME/Trae/User/mcp.json"],
            macos: &["~/Library/Application Support/Trae/User/mcp.json"],
            windows: &["%APPDATA%/Trae/User/mcp.json"],
        }],
        next_steps: &[NextStep::ReloadWindow],
        ..LISTED
    },
    Client {
        id: "qoder",
        title: "Qoder",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["~/.qoder/mcp.json"],
            macos: &["~/.qoder/mcp.json"],
            windows: &["%APPDATA%/Qoder/SharedClientCache/mcp.json"],
        }],
        next_steps: &[NextStep::ReloadWindow],
        ..LISTED
    },
    Client {
        id: "tabnine",
        title: "Tabnine",
        files: &[current(&["~/.tabnine/mcp_servers.json"])],
        project_files: &[".tabnine/mcp_servers.json"],
        connection: Connection::Bridge,
        ..LISTED
    },
];
