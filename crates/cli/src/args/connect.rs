//! The command lines of commands that connect riglm with clients and with the system.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};
use clap_complete::Shell;
use url::Url;

use super::{HomeArgs, LocationArgs, OutputFormat, StoreArgs};
use crate::config::address;

/// Options of `connect`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  riglm connect                    For a client that starts programs only: use this as its command
  riglm connect --profile review   The same, with profile review of the configuration

The key for the proxy, if it needs one, is RIGLM_KEY in the environment or in secrets.env.")]
pub struct ConnectArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// URL of the running proxy [default: the address in section listen]
    #[arg(long, value_name = "URL")]
    pub url: Option<Url>,
    /// Profile of the client, from section profiles of the running proxy
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    pub profile: Option<String>,
}

/// Options of `health`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Exit codes: 0 every proxy is ready, 1 no proxy answers or one is not ready, 2 wrong usage.")]
pub struct HealthArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Control address of the proxy [default: the proxies of the data directory]
    #[arg(long, value_name = "ADDR")]
    pub control: Option<SocketAddr>,
}

/// Options of `open`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The address has a code that logs in once, within a minute. The token of the control port is never in
it. Without a display, and if the output is no terminal, the address is only printed.

Examples:
  riglm open                            The page of the running proxy
  riglm open --print                    Only print the address
  riglm open --control 127.0.0.1:8644   The page of another proxy

Exit codes: 0 done, 1 no proxy runs or it has no page, 2 wrong usage.")]
pub struct OpenArgs {
    /// The location of the token, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Control address of the proxy [default: the first proxy of the data directory]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub control: Option<SocketAddr>,
    /// Print the address instead of opening a browser
    #[arg(long)]
    pub print: bool,
}

/// Options of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Checks the configuration, secrets, upstreams, data, database, models, ports, clock, client
files and the service, and names the cure of each problem. Changes nothing, starts no server.

Exit codes: 0 no problem, 1 problems, 2 wrong usage.")]
pub struct DoctorArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The user whose clients are meant.
    #[command(flatten)]
    pub home: HomeArgs,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  riglm completions bash > ~/.local/share/bash-completion/completions/riglm
  riglm completions zsh > ~/.zfunc/_riglm
  riglm completions fish > ~/.config/fish/completions/riglm.fish
  riglm completions powershell >> $PROFILE")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Options of `man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  riglm man ~/.local/share/man/man1   Then: man riglm, man riglm-serve
  riglm man | man -l -                Show the page of riglm")]
pub struct ManArgs {
    /// Directory for one page of each command [default: the page of riglm on standard output]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Options of `init`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  riglm init                                    A file with comments, to edit
  riglm init --upstream https://example.com/mcp
  riglm init -- npx -y @modelcontextprotocol/server-filesystem /srv
  riglm init --config ./riglm.toml              In this directory")]
pub struct InitArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// URL of an MCP server; may be given several times
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
    /// Command of an MCP server
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "upstream")]
    pub command: Vec<String>,
}

/// A command of `riglm service`.
#[derive(Clone, Debug, Subcommand)]
pub enum ServiceCommand {
    /// Install riglm serve as a service of this user, and start it
    Install(ServiceInstallArgs),
    /// Stop the service and remove it
    Uninstall(ServiceArgs),
    /// Show whether the service is installed and runs
    Status(ServiceArgs),
}

/// Options of `service install`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
On Linux this is a systemd user unit, on macOS a launchd agent. It starts at login; on Linux,
`loginctl enable-linger` starts it at boot. Put secrets of the configuration into secrets.env in the
data directory: a service has no environment of a shell. Its PATH is the one of this command.")]
pub struct ServiceInstallArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// The service manager and the output.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of all commands of `service`.
#[derive(Clone, Debug, Args)]
pub struct ServiceArgs {
    /// Only print the file and the commands of the service manager
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation, as elsewhere; these commands ask nothing
    #[arg(long)]
    pub yes: bool,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}
