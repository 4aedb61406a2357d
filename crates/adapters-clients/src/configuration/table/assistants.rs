//! Programs for terminals and desktops. They use the same code as the tested clients with other
//! facts.

use super::{
    GEMINI_DIALECT, LISTED, LITERAL, PLAIN_URL, SHELL_DIALECT, TYPED_URL, current, list, map,
    variant,
};
use crate::configuration::client::{
    Client, Connection, Constant, Dialect, FilePlace, FileRole, HttpEntry, Member, NextStep,
    ReferenceSyntax, TimeoutUnit, VariableReference,
};
use crate::configuration::document::DocumentFormat;

/// The rows.
pub(super) static CLIENTS: &[Client] = &[
    Client {
        id: "qwen",
        title: "Qwen Code",
        files: &[current(&["~/.qwen/settings.json"])],
        project_files: &[".qwen/settings.json"],
        format: DocumentFormat::JsonWithComments,
        connection: Connection::Http(HttpEntry {
            address_key: "httpUrl",
            ..PLAIN_URL
        }),
        reference: VariableReference::Dollar,
        dialect: GEMINI_DIALECT,
        own_command: Some("qwen mcp add"),
        ..LISTED
    },
    Client {
        id: "crush",
        title: "Crush",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &[
                "$CRUSH_GLOBAL_CONFIG/crush.json",
                "$XDG_CONFIG_HOME/crush/crush.json",
            ],
            macos: &[
                "$CRUSH_GLOBAL_CONFIG/crush.json",
                "~/.config/crush/crush.json",
            ],
            windows: &[
                "$CRUSH_GLOBAL_CONFIG/crush.json",
                "%LOCALAPPDATA%/crush/crush.json",
            ],
        }],
        project_files: &[".crush.json", "crush.json"],
        map: map("mcp"),
        connection: Connection::Http(TYPED_URL),
        reference: VariableReference::Dollar,
        dialect: Dialect {
            references: &[
                ReferenceSyntax::Substitution,
                ReferenceSyntax::Braces,
                ReferenceSyntax::Dollar,
            ],
            ..LITERAL
        },
        ..LISTED
    },
    Client {
        id: "amp",
        title: "Amp",
        files: &[
            FilePlace {
                role: FileRole::Current,
                linux: &["~/.config/amp/settings.json"],
                macos: &["~/.config/amp/settings.json"],
                windows: &["%APPDATA%/amp/settings.json"],
            },
            FilePlace {
                role: FileRole::Variant,
                linux: &["~/.config/amp/settings.jsonc"],
                macos: &["~/.config/amp/settings.jsonc"],
                windows: &["%APPDATA%/amp/settings.jsonc"],
            },
        ],
        project_files: &[".amp/settings.json", ".amp/settings.jsonc"],
        format: DocumentFormat::JsonWithComments,
        map: map("amp.mcpServers"),
        reference: VariableReference::Braces,
        dialect: SHELL_DIALECT,
        own_command: Some("amp mcp add"),
        ..LISTED
    },
    Client {
        id: "kiro",
        title: "Kiro",
        files: &[current(&["~/.kiro/settings/mcp.json"])],
        project_files: &[".kiro/settings/mcp.json"],
        reference: VariableReference::Braces,
        dialect: Dialect {
            references: &[ReferenceSyntax::Braces],
            timeout_unit: TimeoutUnit::Milliseconds,
            ..LITERAL
        },
        next_steps: &[NextStep::Approve],
        own_command: Some("kiro-cli mcp add"),
        ..LISTED
    },
    Client {
        id: "warp",
        title: "Warp",
        files: &[current(&["~/.warp/.mcp.json"])],
        project_files: &[".warp/.mcp.json"],
        next_steps: &[NextStep::Approve],
        ..LISTED
    },
    Client {
        id: "lm-studio",
        title: "LM Studio",
        files: &[
            current(&["~/.lmstudio/mcp.json"]),
            variant(&["~/.cache/lm-studio/mcp.json"]),
        ],
        next_steps: &[],
        ..LISTED
    },
    Client {
        id: "factory",
        title: "Factory Droid",
        files: &[current(&["~/.factory/mcp.json"])],
        project_files: &[".factory/mcp.json"],
        connection: Connection::Http(TYPED_URL),
        own_command: Some("droid mcp add"),
        ..LISTED
    },
    Client {
        id: "kimi",
        title: "Kimi Code",
        files: &[
            current(&["$KIMI_CODE_HOME/mcp.json", "~/.kimi-code/mcp.json"]),
            variant(&["~/.kimi/mcp.json"]),
        ],
        project_files: &[".kimi-code/mcp.json"],
        ..LISTED
    },
    Client {
        id: "vibe",
        title: "Mistral Vibe",
        files: &[current(&["~/.vibe/config.toml"])],
        format: DocumentFormat::Toml,
        map: list("mcp_servers"),
        connection: Connection::Http(HttpEntry {
            before: &[
                Member {
                    key: "name",
                    value: Constant::Name,
                },
                Member {
                    key: "transport",
                    value: Constant::Text("streamable-http"),
                },
            ],
            ..PLAIN_URL
        }),
        own_command: Some("vibe mcp add"),
        ..LISTED
    },
    Client {
        id: "rovo",
        title: "Rovo Dev",
        files: &[current(&["~/.rovodev/mcp.json"])],
        project_files: &[".rovodev/mcp.json"],
        connection: Connection::Http(HttpEntry {
            before: &[Member {
                key: "transport",
                value: Constant::Text("http"),
            }],
            ..PLAIN_URL
        }),
        ..LISTED
    },
    Client {
        id: "hermes",
        title: "Hermes",
        files: &[current(&["~/.hermes/config.yaml"])],
        format: DocumentFormat::Yaml,
        map: map("mcp_servers"),
        own_command: Some("hermes mcp add"),
        ..LISTED
    },
    Client {
        id: "5ire",
        title: "5ire",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["$XDG_CONFIG_HOME/5ire/mcp.json"],
            macos: &["~/Library/Application Support/5ire/mcp.json"],
            windows: &["%APPDATA%/5ire/mcp.json"],
        }],
        connection: Connection::Bridge,
        next_steps: &[NextStep::Restart],
        ..LISTED
    },
    Client {
        id: "sema4",
        title: "Sema4.ai Studio",
        files: &[FilePlace {
            role: FileRole::Current,
            linux: &["~/.sema4ai/sema4ai-studio/mcp_servers.json"],
            macos: &["~/.sema4ai/sema4ai-studio/mcp_servers.json"],
            windows: &["%LOCALAPPDATA%/sema4ai/sema4ai-studio/mcp_servers.json"],
        }],
        connection: Connection::Bridge,
        next_steps: &[NextStep::Restart],
        ..LISTED
    },
    Client {
        id: "mcporter",
        title: "mcporter",
        files: &[
            current(&["~/.mcporter/mcporter.json"]),
            variant(&["~/.mcporter/mcporter.jsonc"]),
        ],
        project_files: &["config/mcporter.json"],
        format: DocumentFormat::JsonWithComments,
        reference: VariableReference::Braces,
        dialect: Dialect {
            references: &[ReferenceSyntax::Braces, ReferenceSyntax::EnvBraces],
            ..LITERAL
        },
        next_steps: &[],
        ..LISTED
    },
];
