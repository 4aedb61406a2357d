//! The table of all clients.
//!
//! The rows are facts and no code. Documentation is made from them too.

mod assistants;
mod editors;
mod principal;

use super::client::{
    Client, Connection, Constant, Dialect, FilePlace, FileRole, HeaderPlace, HttpEntry, MapShape,
    Member, NextStep, ReferenceSyntax, ServerMap, Tier, TimeoutUnit, UntypedUrl, VariableReference,
};
use super::document::DocumentFormat;

/// Returns all clients that riglm knows, the tested ones first.
pub fn clients() -> impl Iterator<Item = &'static Client> {
    let others = editors::CLIENTS.iter().chain(assistants::CLIENTS);
    principal::CLIENTS.iter().chain(others)
}

/// Returns the client with an identifier.
pub fn client(id: &str) -> Option<&'static Client> {
    clients().find(|client| client.id == id)
}

/// The values that most rows of tested clients share.
const TESTED: Client = Client {
    id: "",
    title: "",
    tier: Tier::Tested,
    files: &[],
    folder: &[],
    project_files: &[],
    managed_files: &[],
    format: DocumentFormat::Json,
    map: map("mcpServers"),
    connection: Connection::Http(PLAIN_URL),
    reference: VariableReference::None,
    dialect: LITERAL,
    next_steps: &[NextStep::NewSession],
    own_command: None,
};

/// The values that most other rows share.
const LISTED: Client = Client {
    tier: Tier::Listed,
    ..TESTED
};

/// An entry with nothing but the address and the headers.
const PLAIN_URL: HttpEntry = HttpEntry {
    before: &[],
    address_key: "url",
    headers: HeaderPlace::Headers,
    after: &[],
};

/// An entry with the type `http`.
const TYPED_URL: HttpEntry = HttpEntry {
    before: &[Member {
        key: "type",
        value: Constant::Text("http"),
    }],
    ..PLAIN_URL
};

/// The meaning of entries in which nothing is replaced.
const LITERAL: Dialect = Dialect {
    references: &[],
    untyped_url: UntypedUrl::Http,
    timeout_unit: TimeoutUnit::Seconds,
};

/// The meaning of entries of Claude Code.
const CLAUDE_DIALECT: Dialect = Dialect {
    references: &[ReferenceSyntax::Braces, ReferenceSyntax::Workspace],
    untyped_url: UntypedUrl::Refused,
    timeout_unit: TimeoutUnit::Milliseconds,
};

/// The meaning of entries of VS Code.
const VSCODE_DIALECT: Dialect = Dialect {
    references: &[
        ReferenceSyntax::EnvBraces,
        ReferenceSyntax::Input,
        ReferenceSyntax::Workspace,
    ],
    ..LITERAL
};

/// The meaning of entries of Gemini CLI and its forks.
const GEMINI_DIALECT: Dialect = Dialect {
    references: &[
        ReferenceSyntax::Braces,
        ReferenceSyntax::Dollar,
        ReferenceSyntax::Percent,
    ],
    untyped_url: UntypedUrl::Sse,
    timeout_unit: TimeoutUnit::Milliseconds,
};

/// The meaning of entries of Devin Desktop and Windsurf.
const DEVIN_DIALECT: Dialect = Dialect {
    references: &[ReferenceSyntax::EnvBraces, ReferenceSyntax::EnvOnly],
    ..LITERAL
};

/// The meaning of entries of opencode and its forks.
const OPENCODE_DIALECT: Dialect = Dialect {
    references: &[ReferenceSyntax::EnvOnly],
    timeout_unit: TimeoutUnit::Milliseconds,
    ..LITERAL
};

/// The meaning of entries of clients with the notation of shells.
const SHELL_DIALECT: Dialect = Dialect {
    references: &[ReferenceSyntax::Braces, ReferenceSyntax::Dollar],
    ..LITERAL
};

/// Returns a file of today that has the same place on all systems.
const fn current(templates: &'static [&'static str]) -> FilePlace {
    FilePlace {
        role: FileRole::Current,
        linux: templates,
        macos: templates,
        windows: templates,
    }
}

/// Returns a file of another version that has the same place on all systems.
const fn variant(templates: &'static [&'static str]) -> FilePlace {
    FilePlace {
        role: FileRole::Variant,
        ..current(templates)
    }
}

/// Returns the place of servers in an object.
const fn map(key: &'static str) -> ServerMap {
    ServerMap {
        key,
        shape: MapShape::Map,
    }
}

/// Returns the place of servers in a list.
const fn list(key: &'static str) -> ServerMap {
    ServerMap {
        key,
        shape: MapShape::List,
    }
}
