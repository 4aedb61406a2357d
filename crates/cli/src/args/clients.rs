//! The command lines of commands that read and change the files of MCP clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{BoolValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use riglm_adapters_clients::configuration::{Client, Os, client, clients};

use super::{ImportCommand, LocationArgs, OutputFormat};
use crate::config::{Overrides, address};

/// The user whose clients are meant.
#[derive(Clone, Debug, Args)]
pub struct HomeArgs {
    /// Home directory with the files of the clients [default: that of this user]
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Operating system whose places are used [default: this one]
    #[arg(long, value_name = "OS", value_parser = PossibleValuesParser::new(["linux", "macos", "windows"])
        .map(|name| match name.as_str() {
            "macos" => Os::MacOs,
            "windows" => Os::Windows,
            _ => Os::Linux,
        }))]
    pub os: Option<Os>,
}

/// The confirmation of a change, and the output format.
#[derive(Clone, Debug, Args)]
pub struct ChangeArgs {
    /// Only show the changes
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// The servers that are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportScope {
    /// Those that the clients use everywhere.
    Usual,
    /// Also those that are switched off, that belong to one project, and gateways.
    All,
}

impl ImportScope {
    fn parser() -> impl TypedValueParser<Value = Self> {
        BoolValueParser::new().map(|all| if all { Self::All } else { Self::Usual })
    }
}

/// The handling of servers of a client that riglm has, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// They stay, so that the client has their tools twice.
    Leave,
    /// They are taken out of the file.
    Replace,
}

impl Duplicates {
    fn parser() -> impl TypedValueParser<Value = Self> {
        BoolValueParser::new().map(|replace| if replace { Self::Replace } else { Self::Leave })
    }
}

fn client_parser() -> impl TypedValueParser<Value = &'static Client> {
    PossibleValuesParser::new(clients().map(|client| client.id))
        .try_map(|id| client(&id).ok_or("unknown client"))
}

/// Options of `import`.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true,
    after_help = "\
Adds the servers of MCP clients, or of a file, to the configuration of riglm. Values that may be
secrets go to secrets.env in the data directory, and the configuration refers to them.

Examples:
  riglm import                       The servers of all installed clients
  riglm import --from cursor         Those of one client
  riglm import --from mcp.json       Those in a file of a client or of another gateway
  riglm import --from runconfigs/    Those in all files of a folder
  riglm import --dry-run             Show what would be added, change nothing"
)]
pub struct ImportArgs {
    /// The gateway whose export is printed as sections.
    #[command(subcommand)]
    pub gateway: Option<ImportCommand>,
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Client, file or folder; may be given several times [default: all installed clients and
    /// gateways]
    #[arg(long, value_name = "CLIENT|FILE|DIRECTORY")]
    pub from: Vec<String>,
    /// Also servers that are switched off, that belong to one project, or that are gateways
    #[arg(long = "all", action = ArgAction::SetTrue, value_parser = ImportScope::parser())]
    pub scope: ImportScope,
    /// The confirmation.
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// Options of `clients`.
#[derive(Clone, Debug, Args)]
pub struct ClientsArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Also clients that are not installed
    #[arg(long)]
    pub all: bool,
    /// Print a JSON array
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `install`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Adds riglm to the file of a client. Only the bytes of its entry change; a backup is kept beside the
file. riglm uninstall restores the file.

Examples:
  riglm install --client claude-code --client cursor
  riglm install                      All installed clients
  riglm install --dry-run            Show the changes as a diff")]
pub struct InstallArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Client; may be given several times [default: all installed clients]
    #[arg(long, value_name = "NAME", value_parser = client_parser())]
    pub client: Vec<&'static Client>,
    /// Profile for these clients, from section profiles
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Take the servers that riglm has, too, out of the files; riglm uninstall puts them back
    #[arg(long = "replace", action = ArgAction::SetTrue, value_parser = Duplicates::parser())]
    pub duplicates: Duplicates,
    /// Create the file of a client that is not installed
    #[arg(long, requires = "client")]
    pub create: bool,
    /// The confirmation.
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// Options of `uninstall`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Restores the very bytes of each file that riglm install changed. If a file has changed since, only
the entry of riglm is removed, and the servers that --replace took out are put back.")]
pub struct UninstallArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Client; may be given several times [default: all that riglm install changed]
    #[arg(long, value_name = "NAME", value_parser = client_parser())]
    pub client: Vec<&'static Client>,
    /// The confirmation.
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// Options of `setup`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Imports the servers of the installed clients, adds riglm to the clients, starts riglm as a service,
and waits for the first request of each client.

Examples:
  riglm setup                        With one confirmation
  riglm setup --client claude-code   Only for one client
  riglm setup --listen 127.0.0.1:9000  At another address, which is written to the configuration
  riglm setup --dry-run              Show all changes, make none")]
pub struct SetupArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Client; may be given several times [default: all installed clients]
    #[arg(long, value_name = "NAME", value_parser = client_parser())]
    pub client: Vec<&'static Client>,
    /// Take the servers that riglm has, too, out of the files, so that their tools are not listed
    /// twice; riglm uninstall puts them back
    #[arg(long = "replace", action = ArgAction::SetTrue, value_parser = Duplicates::parser())]
    pub duplicates: Duplicates,
    /// Address of the proxy, which is written to the configuration [default: the configured one]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Do not install the service
    #[arg(long)]
    pub no_service: bool,
    /// Seconds to wait for the first request of each client; 0 to end at once
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub wait: u64,
    /// The confirmation.
    #[command(flatten)]
    pub change: ChangeArgs,
}

impl SetupArgs {
    /// Returns the configuration overrides of these options.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            listen: self.listen,
            ..self.places.overrides()
        }
    }
}
