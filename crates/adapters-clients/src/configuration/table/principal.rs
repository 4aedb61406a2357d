//! The clients that are tested byte for byte.

use super::{
    CLAUDE_DIALECT, DEVIN_DIALECT, GEMINI_DIALECT, LITERAL, OPENCODE_DIALECT, PLAIN_URL,
    SHELL_DIALECT, TESTED, TYPED_URL, VSCODE_DIALECT, current, map, variant,
};
use crate::configuration::client::{
    Client, Connection, Constant, Dialect, FilePlace, FileRole, HeaderPlace, HttpEntry, Member,
    NextStep, ReferenceSyntax, TimeoutUnit, UntypedUrl, VariableReference,
};
use crate::configuration::document::DocumentFormat;

/// The rows.
pub(super) static CLIENTS: &[Client] = &[
    Client {
        id: "claude-code",
        title: "Claude Code",
        files: &[current(&[
            "$CLAUDE_CONFIG_DIR/.claude.json",
            "~/.claude.json",
        ])],
        folder: &["$CLAUDE_CONFIG_DIR", "~/.claude"],
        project_files: &[".mcp.json"],
        managed_files: &[FilePlace {
            role: FileRole::Current,
            linux: &["/etc/claude-code/managed-mcp.json"],
            macos: &["/Library/Application Support/ClaudeCode/managed-mcp.json"],
            windows: &["C:/Program Files/ClaudeCode/managed-mcp.json"],
        }],
        connection: Connection::Http(TYPED_URL),
        reference: VariableReference::Braces,
        dialect: CLAUDE_DIALECT,
        own_command: Some("claude mcp add-json"),
        ..TESTED
    },
    Client {
        id: "claude-desktop",
        title: "Claude Desktop",
        files: &[
            FilePlace {
                role: FileRole::Current,
                linux: &["$XDG_CONFIG_HOME/Claude/claude_desktop_config.json"],
                macos: &["~/Library/Application Support/Claude/claude_desktop_config.json"],
                windows: &["%APPDATA%/Claude/claude_desktop_config.json"],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &[],
                macos: &[],
                windows: &[
                    "%LOCALAPPDATA%/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
                ],
            },
        ],
        connection: Connection::Bridge,
        next_steps: &[NextStep::Restart],
        ..TESTED
    },
    Client {
        id: "cursor",
        title: "Cursor",
        files: &[current(&["~/.cursor/mcp.json"])],
        project_files: &[".cursor/mcp.json"],
        format: DocumentFormat::JsonWithComments,
        reference: VariableReference::EnvBraces,
        dialect: Dialect {
            references: &[ReferenceSyntax::EnvBraces, ReferenceSyntax::Workspace],
            ..LITERAL
        },
        next_steps: &[NextStep::ReloadWindow],
        ..TESTED
    },
    Client {
        id: "vscode",
        title: "VS Code",
        files: &[
            FilePlace {
                role: FileRole::Current,
                linux: &["$XDG_CONFIG_HOME/Code/User/mcp.json"],
                macos: &["~/Library/Application Support/Code/User/mcp.json"],
                windows: &["%APPDATA%/Code/User/mcp.json"],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &["$XDG_CONFIG_HOME/Code/User/profiles/*/mcp.json"],
                macos: &["~/Library/Application Support/Code/User/profiles/*/mcp.json"],
                windows: &["%APPDATA%/Code/User/profiles/*/mcp.json"],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &["$XDG_CONFIG_HOME/Code - Insiders/User/mcp.json"],
                macos: &["~/Library/Application Support/Code - Insiders/User/mcp.json"],
                windows: &["%APPDATA%/Code - Insiders/User/mcp.json"],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &["~/.vscode-server/data/User/mcp.json"],
                macos: &[],
                windows: &[],
            },
        ],
        project_files: &[".vscode/mcp.json"],
        format: DocumentFormat::JsonWithComments,
        map: map("servers"),
        connection: Connection::Http(TYPED_URL),
        reference: VariableReference::Input,
        dialect: VSCODE_DIALECT,
        next_steps: &[NextStep::StartServer],
        own_command: Some("code --add-mcp"),
        ..TESTED
    },
    Client {
        id: "codex",
        title: "Codex",
        files: &[
            current(&["$CODEX_HOME/config.toml", "~/.codex/config.toml"]),
            FilePlace {
                role: FileRole::Variant,
                linux: &[],
                macos: &["~/Library/Developer/Xcode/CodingAssistant/codex/config.toml"],
                windows: &[],
            },
        ],
        project_files: &[".codex/config.toml"],
        format: DocumentFormat::Toml,
        map: map("mcp_servers"),
        connection: Connection::Http(HttpEntry {
            headers: HeaderPlace::TokenVariable,
            ..PLAIN_URL
        }),
        reference: VariableReference::Name,
        own_command: Some("codex mcp add"),
        ..TESTED
    },
    Client {
        id: "gemini",
        title: "Gemini CLI",
        files: &[current(&["~/.gemini/settings.json"])],
        project_files: &[".gemini/settings.json"],
        format: DocumentFormat::JsonWithComments,
        connection: Connection::Http(HttpEntry {
            address_key: "httpUrl",
            ..PLAIN_URL
        }),
        reference: VariableReference::Dollar,
        dialect: GEMINI_DIALECT,
        own_command: Some("gemini mcp add"),
        ..TESTED
    },
    Client {
        id: "devin",
        title: "Devin Desktop",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["~/.config/devin/mcp_config.json"],
            macos: &["~/.config/devin/mcp_config.json"],
            windows: &["%APPDATA%/devin/mcp_config.json"],
        }],
        project_files: &[".devin/mcp_config.json", ".devin/mcp_config.local.json"],
        reference: VariableReference::EnvBraces,
        dialect: DEVIN_DIALECT,
        next_steps: &[NextStep::ReloadWindow],
        own_command: Some("devin mcp add"),
        ..TESTED
    },
    Client {
        id: "windsurf",
        title: "Windsurf (before Devin Desktop)",
        files: &[
            current(&["~/.codeium/windsurf/mcp_config.json"]),
            variant(&["~/.codeium/windsurf-next/mcp_config.json"]),
            variant(&["~/.codeium/mcp_config.json"]),
        ],
        connection: Connection::Http(HttpEntry {
            address_key: "serverUrl",
            ..PLAIN_URL
        }),
        reference: VariableReference::EnvBraces,
        dialect: DEVIN_DIALECT,
        next_steps: &[NextStep::ReloadWindow],
        ..TESTED
    },
    Client {
        id: "zed",
        title: "Zed",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &[
                "$FLATPAK_XDG_CONFIG_HOME/zed/settings.json",
                "$XDG_CONFIG_HOME/zed/settings.json",
            ],
            macos: &["~/.config/zed/settings.json"],
            windows: &["%APPDATA%/Zed/settings.json"],
        }],
        project_files: &[".zed/settings.json"],
        format: DocumentFormat::JsonWithComments,
        map: map("context_servers"),
        dialect: Dialect {
            timeout_unit: TimeoutUnit::Milliseconds,
            ..LITERAL
        },
        next_steps: &[],
        ..TESTED
    },
    Client {
        id: "cline",
        title: "Cline",
        files: &[
            current(&[
                "$CLINE_MCP_SETTINGS_PATH",
                "$CLINE_DATA_DIR/settings/cline_mcp_settings.json",
                "$CLINE_DIR/data/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ]),
            FilePlace {
                role: FileRole::Variant,
                linux: &[
                    "$XDG_CONFIG_HOME/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
                macos: &[
                    "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
                windows: &[
                    "%APPDATA%/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &[
                    "$XDG_CONFIG_HOME/Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
                macos: &[
                    "~/Library/Application Support/Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
                windows: &[
                    "%APPDATA%/Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
            },
        ],
        folder: &["$CLINE_DIR", "~/.cline"],
        connection: Connection::Http(HttpEntry {
            before: &[Member {
                key: "type",
                value: Constant::Text("streamableHttp"),
            }],
            after: &[Member {
                key: "disabled",
                value: Constant::False,
            }],
            ..PLAIN_URL
        }),
        reference: VariableReference::EnvBraces,
        dialect: Dialect {
            references: &[ReferenceSyntax::EnvBraces],
            untyped_url: UntypedUrl::Sse,
            ..LITERAL
        },
        next_steps: &[],
        ..TESTED
    },
    Client {
        id: "opencode",
        title: "opencode",
        files: &[
            current(&[
                "$OPENCODE_CONFIG",
                "$OPENCODE_CONFIG_DIR/opencode.jsonc",
                "$XDG_CONFIG_HOME/opencode/opencode.jsonc",
            ]),
            current(&[
                "$OPENCODE_CONFIG",
                "$OPENCODE_CONFIG_DIR/opencode.json",
                "$XDG_CONFIG_HOME/opencode/opencode.json",
            ]),
        ],
        project_files: &["opencode.jsonc", "opencode.json"],
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
        own_command: Some("opencode mcp add"),
        ..TESTED
    },
    Client {
        id: "copilot-cli",
        title: "Copilot CLI",
        files: &[current(&[
            "$COPILOT_HOME/mcp-config.json",
            "~/.copilot/mcp-config.json",
        ])],
        project_files: &[".mcp.json", ".github/mcp.json"],
        connection: Connection::Http(HttpEntry {
            before: &[Member {
                key: "type",
                value: Constant::Text("http"),
            }],
            after: &[Member {
                key: "tools",
                value: Constant::Everything,
            }],
            ..PLAIN_URL
        }),
        reference: VariableReference::Braces,
        dialect: SHELL_DIALECT,
        own_command: Some("copilot mcp add"),
        ..TESTED
    },
    Client {
        id: "goose",
        title: "Goose",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["~/.config/goose/config.yaml"],
            macos: &["~/.config/goose/config.yaml"],
            windows: &["%APPDATA%/Block/goose/config/config.yaml"],
        }],
        format: DocumentFormat::Yaml,
        map: map("extensions"),
        connection: Connection::Http(HttpEntry {
            before: &[
                Member {
                    key: "type",
                    value: Constant::Text("streamable_http"),
                },
                Member {
                    key: "name",
                    value: Constant::Name,
                },
                Member {
                    key: "description",
                    value: Constant::Text(""),
                },
            ],
            address_key: "uri",
            headers: HeaderPlace::RequiredHeaders,
            after: &[
                Member {
                    key: "envs",
                    value: Constant::EmptyMap,
                },
                Member {
                    key: "env_keys",
                    value: Constant::KeyVariables,
                },
                Member {
                    key: "enabled",
                    value: Constant::True,
                },
                Member {
                    key: "timeout",
                    value: Constant::Number(300),
                },
            ],
        }),
        reference: VariableReference::Braces,
        dialect: SHELL_DIALECT,
        own_command: Some("goose configure"),
        ..TESTED
    },
];
