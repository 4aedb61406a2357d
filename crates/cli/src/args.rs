//! The command line.

mod eval;
mod experiment;
mod model;
mod moment;
mod observed;
mod overrides;
mod replay;
mod tune;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use riglm_adapters_http::ControlAddress;
use riglm_adapters_prediction::Strategy;
use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::listing::ListPolicyName;

pub use model::{ModelCommand, ModelPullArgs, ModelRemoveArgs, ModelVerifyArgs, Origin};

use crate::config::{Downstream, Overrides, UpstreamChoice, address};
use crate::demo::DemoServer;

pub use eval::{
    EvalCommand, EvalRecommendArgs, EvalSearchArgs, EvalSessionsArgs, ExpansionChoice,
    FusionChoice, HistoryChoice,
};
pub use experiment::{ExperimentCommand, ExperimentStatusArgs, ExperimentStopArgs};
pub use moment::Moment;
pub use observed::{CallsArgs, Sorting, StateChoice, ToolsArgs, UpstreamsArgs};
pub use overrides::{OverrideAddArgs, OverrideCommand, OverrideRemoveArgs, ScopeArgs};
pub use replay::{ReplayArgs, ReplayInput};
pub use tune::TuneArgs;

/// A transparent MCP proxy that records tool calls.
#[derive(Debug, Parser)]
#[command(name = "riglm", version, about, long_about = None)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Checks what the options of a command line cannot say of each other.
    ///
    /// # Errors
    ///
    /// Returns the wrong usage: `--name` without exactly one upstream.
    pub fn checked(self) -> Result<Self, clap::Error> {
        let Command::Serve(serve) = &self.command else {
            return Ok(self);
        };
        let n_upstreams = serve.upstream.len() + usize::from(!serve.command.is_empty());
        if serve.name.is_none() || n_upstreams == 1 {
            return Ok(self);
        }
        let text = "--name names the one upstream of the command line: give one --upstream URL or \
                    -- COMMAND with it";
        Err(Self::command().error(ErrorKind::ArgumentConflict, text))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Proxy an MCP server and record what clients call
    Serve(ServeArgs),
    /// List recorded sessions, newest last
    Sessions(SessionsArgs),
    /// Show what lists of tools cost and saved
    Lists(ListsArgs),
    /// Recommend tools for what is to be done, of those that were listed before
    Recommend(RecommendArgs),
    /// List recorded tool calls, newest last
    Calls(CallsArgs),
    /// List the tools that upstreams listed, with what became of their calls
    Tools(ToolsArgs),
    /// List the upstreams, and whether a running proxy reaches them
    Upstreams(UpstreamsArgs),
    /// Log in to an upstream that wants OAuth, in a browser
    Login(LoginArgs),
    /// Show the proxy at work between a built-in client and built-in servers
    Demo,
    /// Measure how good the search is
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Measure what predictors and list policies would have done on calls that were made
    Replay(ReplayArgs),
    /// Have the weights of recommendations follow what people choose
    Tune(TuneArgs),
    /// Look at what is tried out on a part of the clients
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Decide which tools lists show, hide or forbid, or see what was decided
    #[command(subcommand)]
    Override(OverrideCommand),
    /// Look after the database
    #[command(subcommand)]
    Db(DbCommand),
    /// Hand out or remove what is stored of a client
    #[command(subcommand)]
    Data(DataCommand),
    /// Look after the models that compare texts
    #[command(subcommand)]
    Model(ModelCommand),
    /// Check and show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// End the process groups that are named on standard input, when it ends.
    #[command(name = "__guard", hide = true)]
    Guard,
    /// Serve one of the servers of the demonstration over standard input and output.
    #[command(name = "__demo-server", hide = true)]
    DemoServer {
        /// Which one.
        #[arg(value_parser = PossibleValuesParser::new(DemoServer::ALL.map(DemoServer::name))
            .try_map(|name| DemoServer::parse(&name).ok_or("unknown server")))]
        server: DemoServer,
    },
}

/// Where configuration and data lie.
#[derive(Clone, Debug, Default, Args)]
pub struct Places {
    /// Configuration file; otherwise that of the variable `RIGLM_CONFIG`, `./riglm.toml`,
    /// `./riglm.yaml`, `./riglm.yml`, or one of these names in the user's configuration directory
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the database and all other files that riglm writes
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl Places {
    /// Returns what the options say about the configuration.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            file: self.config.clone(),
            data_dir: self.data_dir.clone(),
            ..Overrides::default()
        }
    }
}

/// Options of `serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// Address of the MCP server [default: 127.0.0.1:8642]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Serve one client over standard input and output instead
    #[arg(long, conflicts_with = "listen")]
    pub stdio: bool,
    /// The profile of that client, one of section profiles
    #[arg(long, value_name = "NAME", requires = "stdio")]
    pub profile: Option<String>,
    /// Address of the control server, or off [default: 127.0.0.1:8643]
    #[arg(long, value_name = "ADDR|off", value_parser = control_address)]
    pub control: Option<ControlAddress>,
    /// An MCP server to proxy, by its URL; may be given several times
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// The name of the upstream of this command line; otherwise it is made of its program or host
    #[arg(long, value_name = "NAME", value_parser = upstream_name)]
    pub name: Option<String>,
    /// How the tools are chosen that a list shows
    #[arg(long, value_name = "STRATEGY",
        value_parser = PossibleValuesParser::new(Strategy::ALL.map(Strategy::as_str))
            .try_map(|name| Strategy::parse(&name).ok_or("unknown strategy")))]
    pub strategy: Option<Strategy>,
    /// When the lists of strategy prediction change
    #[arg(long, value_name = "POLICY",
        value_parser = PossibleValuesParser::new(
            ListPolicyName::EACH.map(ListPolicyName::as_str).into_iter().chain(["auto"])))]
    pub policy: Option<String>,
    /// The MCP server to proxy, as a program that speaks MCP over standard input and output
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "upstream")]
    pub command: Vec<String>,
}

/// Returns the address of the control server that a text names.
fn control_address(text: &str) -> Result<ControlAddress, String> {
    match text {
        "off" => Ok(ControlAddress::Off),
        text => address(text).map(ControlAddress::At),
    }
}

/// Checks the name of an upstream.
fn upstream_name(text: &str) -> Result<String, String> {
    let name = UpstreamName::parse(text).map_err(|error| error.to_string())?;
    Ok(name.into())
}

impl ServeArgs {
    /// Returns what the options say about the configuration.
    pub fn overrides(&self) -> Overrides {
        let upstream = if !self.command.is_empty() {
            Some(UpstreamChoice::Command(self.command.clone()))
        } else if !self.upstream.is_empty() {
            Some(UpstreamChoice::Urls(self.upstream.clone()))
        } else {
            None
        };
        Overrides {
            downstream: if self.stdio {
                Downstream::Stdio
            } else {
                Downstream::Http
            },
            listen: self.listen,
            control: self.control,
            strategy: self.strategy,
            policy: self.policy.clone(),
            profile: self.profile.clone(),
            upstream,
            name: self.name.clone(),
            ..self.places.overrides()
        }
    }
}

/// Options of `sessions`.
#[derive(Clone, Debug, Args)]
pub struct SessionsArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
    /// Show what the lists of tools cost and saved, which JSON always does
    #[arg(long)]
    pub lists: bool,
    /// The most sessions to list; the newest ones are listed
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// Options of `recommend`.
#[derive(Clone, Debug, Args)]
pub struct RecommendArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// What is to be done, in words
    #[arg(value_name = "TEXT")]
    pub query: String,
    /// The most tools [default: that of the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub limit: Option<u32>,
    /// Who it is for: what they did before counts
    #[arg(long, value_name = "NAME", default_value = "local")]
    pub principal: String,
    /// A language or another word for the project; tools for other projects are left out
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
}

/// Options of `lists`.
#[derive(Clone, Debug, Args)]
pub struct ListsArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Show each list that this session was shown, and how it was chosen, instead
    #[arg(long, value_name = "ID", conflicts_with = "days")]
    pub session: Option<SessionId>,
    /// Only sessions that started in the last so many days
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// The most sessions to look at, or lists of one; the newest ones are
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// Options of `login`.
#[derive(Clone, Debug, Args)]
pub struct LoginArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// Name of the upstream; that of section upstream is default
    #[arg(value_name = "NAME")]
    pub upstream: String,
    /// Print the address on standard error, and open no browser
    #[arg(long)]
    pub no_browser: bool,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// What to do with the database.
#[derive(Clone, Debug, Subcommand)]
pub enum DbCommand {
    /// Create the database where it is missing and bring its schema up to date
    Migrate(StoreArgs),
    /// Show where the database is and what it has, and change nothing
    Status(StoreArgs),
    /// Look for damage
    Check(StoreArgs),
    /// Make the counts anew from the calls
    Rebuild(StoreArgs),
    /// Remove old sessions and calls now
    Purge(PurgeArgs),
}

/// Where the store is, and in which form results are printed.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `db purge`.
#[derive(Clone, Debug, Args)]
pub struct PurgeArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// How old what is removed must be, in days [default: `recording.retention_days`]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub older_than: Option<u32>,
}

/// What to do with what is stored of a client.
#[derive(Clone, Debug, Subcommand)]
pub enum DataCommand {
    /// Write all rows of a client as JSON, one object a line
    Export(ExportArgs),
    /// Remove all rows of a client
    Delete(DeleteArgs),
}

/// Options of `data export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The client: its `client_id` in `riglm sessions --json`, or the name that it gave itself
    #[arg(long, value_name = "ID")]
    pub client: String,
    /// The file to write, which must not exist; otherwise standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Options of `data delete`.
#[derive(Clone, Debug, Args)]
pub struct DeleteArgs {
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The client: its `client_id` in `riglm sessions --json`, or the name that it gave itself
    #[arg(long, value_name = "ID")]
    pub client: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// What to do with the configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Load and check the configuration, and print ok
    Check(ConfigCheckArgs),
    /// Print every key with its value and where that comes from, without secrets
    Show(ConfigShowArgs),
    /// Read a key for auth.keys from standard input and print its sha256: form
    HashKey,
}

/// Options of `config check`.
#[derive(Clone, Debug, Args)]
pub struct ConfigCheckArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `config show`.
#[derive(Clone, Debug, Args)]
pub struct ConfigShowArgs {
    /// Where configuration and data lie.
    #[command(flatten)]
    pub places: Places,
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(arguments: &[&str]) -> Result<Overrides, clap::Error> {
        let all = ["riglm", "serve"].iter().chain(arguments);
        match Cli::try_parse_from(all)?.checked()?.command {
            Command::Serve(arguments) => Ok(arguments.overrides()),
            other => panic!("not serve: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_takes_urls_or_a_command() {
        let urls = serve(&["--upstream", "http://a/mcp", "--upstream", "http://b/mcp"]).unwrap();
        assert_eq!(
            urls.upstream,
            Some(UpstreamChoice::Urls(vec![
                "http://a/mcp".into(),
                "http://b/mcp".into()
            ]))
        );
        let command = serve(&["--stdio", "--control", "off", "--", "prog", "--flag"]).unwrap();
        assert_eq!(
            command.upstream,
            Some(UpstreamChoice::Command(vec![
                "prog".into(),
                "--flag".into()
            ]))
        );
        assert_eq!(command.downstream, Downstream::Stdio);
        assert_eq!(command.control, Some(ControlAddress::Off));
    }

    #[test]
    fn wrong_usage_is_refused_with_exit_code_2() {
        for wrong in [
            vec!["--strategy", "magic"],
            vec!["--listen", "8642"],
            vec!["--control", "on"],
            vec!["--stdio", "--listen", "127.0.0.1:1"],
            vec!["--upstream", "http://a/mcp", "--", "prog"],
            vec!["--name", "a"],
            vec!["--name", "a b", "--", "prog"],
            vec![
                "--name",
                "a",
                "--upstream",
                "http://a/mcp",
                "--upstream",
                "http://b/mcp",
            ],
        ] {
            let error = serve(&wrong).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
        for wrong in [
            &["--rollback", "0"][..],
            &["--rollback", "--history"],
            &["--dry-run", "--rollback"],
        ] {
            let all = ["riglm", "tune"].iter().chain(wrong);
            let error = Cli::try_parse_from(all).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
        let error = Cli::try_parse_from(["riglm", "calls", "--session", "x"]).unwrap_err();
        assert!(error.to_string().contains("not a UUID"), "{error}");
    }
}
