//! The facts about one MCP client: its files, and its notation of servers.
//!
//! A client is a row of the table that [`clients`](super::clients) returns. No code knows a client
//! by name, so that another one needs a row and nothing else.

use super::document::DocumentFormat;
use super::entry::EntryKey;

/// A row of the table of clients.
#[derive(Debug)]
pub struct Client {
    /// The identifier on the command line, such as `claude-code`.
    pub id: &'static str,
    /// The name that people know it by.
    pub title: &'static str,
    /// The amount of testing.
    pub tier: Tier,
    /// The files with the servers of a user. An earlier one wins.
    pub files: &'static [FilePlace],
    /// The templates of a folder that exists where the client is installed, in addition to the
    /// folders of its files. The first one counts whose variable is set.
    pub folder: &'static [&'static str],
    /// The files with the servers of a project, relative to its folder.
    pub project_files: &'static [&'static str],
    /// The files of an administrator that shut out all other servers. They are never changed.
    pub managed_files: &'static [FilePlace],
    /// The format of the files.
    pub format: DocumentFormat,
    /// The place of the servers in a file.
    pub map: ServerMap,
    /// The entry for riglm.
    pub connection: Connection,
    /// The notation of a reference to a variable, in the entry for riglm.
    pub reference: VariableReference,
    /// The meaning of entries.
    pub dialect: Dialect,
    /// The steps that the client needs after the installation.
    pub next_steps: &'static [NextStep],
    /// A command of the client that adds a server, without its arguments.
    pub own_command: Option<&'static str>,
}

impl Client {
    /// Returns the steps that the client needs after an installation with a key.
    pub fn steps_after(&self, key: &EntryKey) -> Vec<NextStep> {
        let mut steps = Vec::new();
        match (key, self.reference) {
            (EntryKey::Variable(_), VariableReference::Input) => steps.push(NextStep::EnterKey),
            (EntryKey::Variable(_), _) if matches!(self.connection, Connection::Http(_)) => {
                steps.push(NextStep::SetVariable);
            }
            _ => {}
        }
        steps.extend(self.next_steps);
        steps
    }
}

/// The amount of testing of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Each byte that is written is tested on all systems.
    Tested,
    /// The row is used by the same code, and not tested by itself.
    Listed,
}

/// The place of a file on each operating system.
///
/// A place is a list of templates, of which the first one counts whose variable is set. A template
/// begins with `~` for the home directory, `$NAME` for a variable, `%APPDATA%` or `%LOCALAPPDATA%`.
/// A folder may contain `*`. A place without templates does not exist on that system.
#[derive(Debug)]
pub struct FilePlace {
    /// The use of the file.
    pub role: FileRole,
    /// The templates on Linux.
    pub linux: &'static [&'static str],
    /// The templates on macOS.
    pub macos: &'static [&'static str],
    /// The templates on Windows.
    pub windows: &'static [&'static str],
}

/// The use of a file of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileRole {
    /// The file that the client reads today. It may be created.
    Current,
    /// A file of an older version or of a variant. It is changed if it exists, and never created.
    Variant,
}

/// The place of the servers in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerMap {
    /// The key at the top of the document. It may contain a dot.
    pub key: &'static str,
    /// The kind of collection.
    pub shape: MapShape,
}

/// The kind of collection that holds the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapShape {
    /// An object with the names of the servers as keys.
    Map,
    /// A list of objects, each with a member `name`.
    List,
}

/// The connection of a client to riglm.
#[derive(Debug)]
pub enum Connection {
    /// The client connects to the address.
    Http(HttpEntry),
    /// The client starts `riglm connect`, because it knows no addresses in its file.
    Bridge,
}

/// The members of an entry with an address, in the order in which they are written.
#[derive(Debug)]
pub struct HttpEntry {
    /// The members before the address.
    pub before: &'static [Member],
    /// The key of the address.
    pub address_key: &'static str,
    /// The place of the header with the key.
    pub headers: HeaderPlace,
    /// The members after the headers.
    pub after: &'static [Member],
}

/// A member with a constant value.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The key.
    pub key: &'static str,
    /// The value.
    pub value: Constant,
}

/// A constant value of an entry.
#[derive(Clone, Copy, Debug)]
pub enum Constant {
    /// The name of the entry.
    Name,
    /// A text.
    Text(&'static str),
    /// A number.
    Number(u32),
    /// True.
    True,
    /// False.
    False,
    /// The list `["*"]`.
    Everything,
    /// A list with the variable of the key, if there is one.
    KeyVariables,
    /// An empty object.
    EmptyMap,
}

/// The place of the header with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderPlace {
    /// The member `headers`.
    Headers,
    /// The member `headers`, which is written even if it is empty.
    RequiredHeaders,
    /// The member `headers` of `requestInit`.
    RequestInit,
    /// The member `headers` of `requestOptions`.
    RequestOptions,
    /// The member `bearer_token_env_var`, with the name of a variable.
    TokenVariable,
}

/// The notation of a reference to a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableReference {
    /// `${NAME}`.
    Braces,
    /// `$NAME`.
    Dollar,
    /// `${env:NAME}`.
    EnvBraces,
    /// `{env:NAME}`.
    EnvOnly,
    /// `${{ secrets.NAME }}`.
    Secrets,
    /// `${input:riglm-key}`, with an entry that asks for the value.
    Input,
    /// The bare name of a variable.
    Name,
    /// The client replaces nothing.
    None,
}

/// The meaning of the entries of a client.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The references that the client replaces.
    pub references: &'static [ReferenceSyntax],
    /// The transport of an entry with `url` and without a type.
    pub untyped_url: UntypedUrl,
    /// The unit of `timeout`.
    pub timeout_unit: TimeoutUnit,
}

/// A kind of reference that a client replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceSyntax {
    /// `${NAME}` and `${NAME:-default}`.
    Braces,
    /// `$NAME`.
    Dollar,
    /// `${env:NAME}` and `$env:NAME`.
    EnvBraces,
    /// `{env:NAME}` and `{file:PATH}`.
    EnvOnly,
    /// `%NAME%`.
    Percent,
    /// `${{ secrets.NAME }}`.
    Secrets,
    /// `${input:ID}`.
    Input,
    /// `${workspaceFolder}`, `${userHome}` and their like.
    Workspace,
    /// `$(command)`, which is never run.
    Substitution,
}

/// The transport of an entry with `url` and without a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntypedUrl {
    /// Streamable HTTP.
    Http,
    /// HTTP with SSE.
    Sse,
    /// The client skips the entry.
    Refused,
}

/// The unit of a number of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutUnit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// A step that a client needs after the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Quit it and start it again.
    Restart,
    /// Reload its window.
    ReloadWindow,
    /// Start a new session.
    NewSession,
    /// Approve the server when it asks.
    Approve,
    /// Start the server in its list of servers.
    StartServer,
    /// Enter the key when it asks.
    EnterKey,
    /// Set the variable with the key in the environment that it is started from.
    SetVariable,
}

impl NextStep {
    /// Returns the step as an instruction.
    pub fn text(self) -> &'static str {
        match self {
            Self::Restart => "quit it completely and start it again",
            Self::ReloadWindow => "reload its window",
            Self::NewSession => "start a new session",
            Self::Approve => "approve the server when it asks",
            Self::StartServer => "start the server in its list of MCP servers",
            Self::EnterKey => "enter the key when it asks",
            Self::SetVariable => "set the variable with the key in its environment",
        }
    }
}
