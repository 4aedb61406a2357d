//! A server that a client is configured with, in neutral terms.
//!
//! All texts are in the notation of riglm: `${NAME}` and `${NAME:-default}` are references to
//! variables, and a literal `${` is written `$${`. Values may be secrets, so they are not shown by
//! `Debug`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A server of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredServer {
    /// The name in the file.
    pub name: String,
    /// The folder of the project that the server belongs to, if it is not for all.
    pub project: Option<String>,
    /// The connection.
    pub transport: ConfiguredTransport,
    /// Whether the client has switched it off.
    pub is_disabled: bool,
    /// The tools that the client uses.
    pub tools: ToolSelection,
    /// The time limits of the client.
    pub timeouts: ServerTimeouts,
    /// The kind of server.
    pub nature: ServerNature,
    /// Facts that somebody should know before it is imported.
    pub notes: Vec<ServerNote>,
}

/// The connection to a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfiguredTransport {
    /// A program.
    Command(ConfiguredCommand),
    /// An address.
    Url(ConfiguredUrl),
    /// None that riglm can use.
    Unusable(UnusableServer),
}

/// A program that speaks over its standard input and output.
#[derive(Clone, Default, PartialEq)]
pub struct ConfiguredCommand {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The variables that are added to its environment.
    pub env: BTreeMap<String, String>,
    /// A file with more variables.
    pub env_file: Option<String>,
    /// The working directory.
    pub cwd: Option<String>,
}

/// A server at an address.
#[derive(Clone, Default, PartialEq)]
pub struct ConfiguredUrl {
    /// The address, `http://` or `https://`.
    pub url: String,
    /// Whether the client uses HTTP with SSE.
    pub is_sse: bool,
    /// The headers, without a bearer token.
    pub headers: BTreeMap<String, String>,
    /// The token of the header `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// The shell command that prints headers as a JSON object.
    pub credentials_command: Option<String>,
    /// The registration for OAuth.
    pub oauth: Option<ConfiguredOauth>,
}

/// A registration for OAuth.
#[derive(Clone, Default, PartialEq)]
pub struct ConfiguredOauth {
    /// The client identifier.
    pub client_id: Option<String>,
    /// The client secret.
    pub client_secret: Option<String>,
    /// The scopes.
    pub scopes: Vec<String>,
}

impl fmt::Debug for ConfiguredCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredCommand")
            .field("program", &self.program)
            .field("n_args", &self.args.len())
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConfiguredUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredUrl")
            .field("is_sse", &self.is_sse)
            .field("headers", &self.headers.keys())
            .field("has_bearer", &self.bearer.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConfiguredOauth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredOauth")
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// The tools that a client uses of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSelection {
    /// The only tools that are used, if there is such a list.
    pub allowed: Option<Vec<String>>,
    /// The tools that are not used.
    pub denied: Vec<String>,
}

/// The time limits of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// The time for starting or connecting.
    pub startup: Option<Duration>,
    /// The time for one call.
    pub call: Option<Duration>,
}

/// The kind of server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNature {
    /// A server.
    Server,
    /// Riglm itself.
    Riglm,
    /// Another gateway, with its name. The servers behind it should be imported in its place.
    Gateway(&'static str),
}

/// The reason why riglm cannot use a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableServer {
    /// The entry is a text, a number or a list.
    #[error("it is not an object")]
    NotAnObject,
    /// A member has a wrong value, which is not shown because it may be a secret.
    #[error("the value of {member:?} is malformed")]
    Malformed {
        /// The key of the member.
        member: String,
    },
    /// The entry has neither a program nor an address.
    #[error("it has neither a command nor an address")]
    NoTransport,
    /// The entry only switches off a server of another file.
    #[error("it only switches a server on or off that is configured elsewhere")]
    OnlySwitch,
    /// The client knows a transport that riglm does not.
    #[error("its transport {kind:?} is unknown")]
    UnknownTransport {
        /// The transport.
        kind: String,
    },
    /// The address is of another kind.
    #[error("its address has the scheme {scheme:?}, which is not supported")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The entry is a part of the client, and no MCP server.
    #[error("it is a part of the client, and not an MCP server")]
    PartOfClient,
}

/// A fact about a server that somebody should know before it is imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerNote {
    /// A reference depends on the open project.
    #[error("{reference} stands for a folder of the open project: the server is for one project")]
    PerProject {
        /// The reference.
        reference: String,
    },
    /// A value contains the output of a program.
    #[error("the value of {member:?} runs a command, which is not carried over")]
    Substitution {
        /// The key of the member.
        member: String,
    },
    /// A value is read from a file.
    #[error("the value of {member:?} is read from a file, which is not carried over")]
    FileReference {
        /// The key of the member.
        member: String,
    },
    /// The client asks for a value and keeps it.
    #[error("the client asks for {id:?}: set {variable}")]
    Prompt {
        /// The identifier of the input.
        id: String,
        /// The variable in its place.
        variable: String,
    },
    /// The value is in the keyring of the operating system.
    #[error("the client keeps {variable} in a keyring: set it as a variable")]
    Keyring {
        /// The variable.
        variable: String,
    },
    /// The value is a secret of the client.
    #[error("the client reads {variable} from its own secrets: set it as a variable")]
    ClientSecret {
        /// The variable.
        variable: String,
    },
    /// Headers are made by a program.
    #[error("the headers are printed by a program")]
    CredentialsCommand,
    /// More variables are in a file.
    #[error("more variables are in the file of {member:?}")]
    EnvFile {
        /// The key of the member.
        member: String,
    },
    /// Tokens of OAuth cannot be moved.
    #[error("its login is kept by the client: log in again")]
    LoginNeeded,
    /// The client skips the entry.
    #[error("the client skips it, because an address needs a type there")]
    SkippedByClient,
    /// The entry is a bridge to an address.
    #[error("{bridge} is left out, because riglm connects to addresses itself")]
    BridgeReplaced {
        /// The name of the bridge.
        bridge: &'static str,
    },
    /// Consent that was given to the client.
    #[error("{member:?} is consent that was given to this client, and is not carried over")]
    Consent {
        /// The key of the member.
        member: String,
    },
    /// The server is behind the proxy of a gateway, which runs it.
    #[error("{gateway} runs it, and must run it for riglm, too: {command}")]
    RunByGateway {
        /// The name of the gateway.
        gateway: &'static str,
        /// The command that starts the server there.
        command: String,
    },
    /// The proxy of a gateway lets nobody in without a token.
    #[error("{gateway} asks for a token at its address: set credentials of the upstream")]
    TokenNeeded {
        /// The name of the gateway.
        gateway: &'static str,
    },
    /// The value is a secret that a gateway keeps under a name.
    #[error("{gateway} keeps the secret {secret:?}: set {variable} to its value")]
    GatewaySecret {
        /// The name of the gateway.
        gateway: &'static str,
        /// The name of the secret there.
        secret: String,
        /// The variable in its place.
        variable: String,
    },
    /// A number or a truth value was taken as text.
    #[error("the value of {member:?} is not a text, and was taken as one")]
    TakenAsText {
        /// The key of the member.
        member: String,
    },
}
