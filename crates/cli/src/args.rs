//! The command line.

mod audit;
mod clients;
mod connect;
mod eval;
mod experiment;
mod model;
mod moment;
mod overrides;
mod pause;
mod records;
mod replay;
mod tune;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{BoolValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use riglm_adapters_http::ControlAddress;
use riglm_app::selection::Strategy;
use riglm_domain::id::{IdError, SessionId, UpstreamName};
use riglm_domain::selection::ListPolicyName;
use url::Url;

pub use model::{ModelCommand, ModelPullArgs, ModelRemoveArgs, ModelVerifyArgs, Origin};

use crate::config::{AddressError, Downstream, Overrides, UpstreamChoice, address};
use crate::demo::DemoServer;

pub use audit::AuditArgs;
pub use clients::{
    ChangeArgs, ClientsArgs, Duplicates, HomeArgs, ImportArgs, ImportScope, InstallArgs, SetupArgs,
    UninstallArgs,
};
pub use connect::{
    CompletionsArgs, ConnectArgs, DoctorArgs, HealthArgs, InitArgs, ManArgs, OpenArgs, ServiceArgs,
    ServiceCommand, ServiceInstallArgs,
};
pub use eval::{
    ClusterChoice, EvalCommand, EvalPoliciesArgs, EvalRecommendArgs, EvalSearchArgs,
    EvalSessionsArgs, ExpansionChoice, FusionChoice, HistoryChoice, MeasureChoice,
};
pub use experiment::{ExperimentCommand, ExperimentStatusArgs, ExperimentStopArgs};
pub use moment::Moment;
pub use overrides::{OverrideAddArgs, OverrideCommand, OverrideRemoveArgs, ScopeArgs};
pub use pause::{PauseArgs, ResumeArgs, RunningArgs};
pub use records::{CallsArgs, Sorting, StateChoice, ToolsArgs, UpstreamsArgs};
pub use replay::{PredictorToReplay, ReplayArgs, ReplayInput};
pub use tune::TuneArgs;

/// The exit codes of all commands.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
Results go to standard output, notes and errors to standard error.";

/// A proxy for MCP servers that learns which tools an agent needs.
#[derive(Debug, Parser)]
#[command(name = "riglm", version, about, long_about = None, after_help = EXIT_CODES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Checks conditions between options that clap cannot express.
    ///
    /// # Errors
    ///
    /// Returns the usage error: `--name` without exactly one upstream.
    pub fn validate(self) -> Result<Self, clap::Error> {
        let Command::Serve(serve) = &self.command else {
            return Ok(self);
        };
        let n_upstreams = serve.upstream.len() + usize::from(!serve.command.is_empty());
        if serve.name.is_none() || n_upstreams == 1 {
            return Ok(self);
        }
        let text = "--name needs exactly one upstream on the command line: one --upstream URL, or \
                    -- COMMAND";
        Err(Self::command().error(ErrorKind::ArgumentConflict, text))
    }
}

/// A command of `riglm`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Import servers, add riglm to the clients, and wait for their first requests
    Setup(SetupArgs),
    /// Show what the tools of your MCP clients cost, and which are used
    Audit(AuditArgs),
    /// Demonstrate the proxy with built-in servers and recorded agent sessions
    Demo(DemoArgs),
    /// Proxy MCP servers and record the calls of clients
    #[command(alias = "start")]
    Serve(ServeArgs),
    /// Connect a client that only starts programs to the running proxy
    Connect(ConnectArgs),
    /// Install riglm serve as a service of this user
    #[command(subcommand)]
    Service(ServiceCommand),
    /// List the MCP clients of this user
    Clients(ClientsArgs),
    /// Add the servers of MCP clients, or of a file, to the configuration
    Import(ImportArgs),
    /// Add riglm to MCP clients
    Install(InstallArgs),
    /// Remove riglm from MCP clients, and restore their files
    Uninstall(UninstallArgs),
    /// Create a configuration file
    Init(InitArgs),
    /// Find out what is wrong with a set-up, with the cure
    Doctor(DoctorArgs),
    /// Show whether running proxies are ready
    #[command(alias = "status")]
    Health(HealthArgs),
    /// Open the page of a running proxy in the browser
    Open(OpenArgs),
    /// Watch a running proxy in the terminal: its sessions, its tools and what it saves
    Top(TopArgs),
    /// List recorded sessions, newest last
    Sessions(SessionsArgs),
    /// List recorded tool calls, newest last
    Calls(CallsArgs),
    /// List tools with statistics of their calls
    Tools(ToolsArgs),
    /// Show the cost and savings of tool lists
    Lists(ListsArgs),
    /// List upstreams and their state in a running proxy
    Upstreams(UpstreamsArgs),
    /// Recommend tools for a task, from the tools riglm has seen
    Recommend(RecommendArgs),
    /// Show every tool and switch safeguards off in a running proxy, until it is resumed
    Pause(PauseArgs),
    /// End the pause of a running proxy
    Resume(ResumeArgs),
    /// Log in to an upstream that needs OAuth, in a browser
    Login(LoginArgs),
    /// Manage embedding models
    #[command(subcommand)]
    Model(ModelCommand),
    /// Check and show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List, add and remove overrides of tools
    #[command(subcommand)]
    Override(OverrideCommand),
    /// Show and stop experiments
    #[command(subcommand)]
    Experiment(ExperimentCommand),
    /// Tune recommendation weights from user feedback
    Tune(TuneArgs),
    /// Evaluate predictors and list policies on recorded calls
    Replay(ReplayArgs),
    /// Measure the quality of search, recommendations, work sessions and list sizes
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Test external predictors
    #[command(subcommand)]
    Predictor(PredictorCommand),
    /// Maintain the database
    #[command(subcommand)]
    Db(DbCommand),
    /// Export or delete the data of a client
    #[command(subcommand)]
    Data(DataCommand),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Print manual pages
    Man(ManArgs),
    /// Print the version
    #[command(hide = true)]
    Version,
    /// End the process groups named on standard input when it closes
    #[command(name = "__guard", hide = true)]
    Guard,
    /// Run a server of the demonstration over standard input and output
    #[command(name = "__demo-server", hide = true)]
    DemoServer {
        /// The server
        #[arg(value_parser = PossibleValuesParser::new(DemoServer::ALL.iter().map(|it| it.name()))
            .try_map(|name| name.parse::<DemoServer>()))]
        server: DemoServer,
    },
}

/// Arguments of `riglm demo`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArgs {
    /// Keep the proxy and its servers running afterwards, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object with all figures
    #[arg(long)]
    pub json: bool,
}

/// A command of `riglm predictor`.
#[derive(Clone, Debug, Subcommand)]
pub enum PredictorCommand {
    /// Test whether a program or a server works as an external predictor
    Check(PredictorCheckArgs),
}

/// Gateways whose servers can be imported.
#[derive(Clone, Debug, Subcommand)]
pub enum ImportCommand {
    /// The servers in an export of `MetaMCP`
    #[command(about = "Print the servers in an export of MetaMCP")]
    Metamcp(MetaMcpImportArgs),
}

/// Options of `import metamcp`.
#[derive(Clone, Debug, Args)]
pub struct MetaMcpImportArgs {
    /// The file mcp-servers-export.json, or - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print all values, also of secrets, not references to variables
    #[arg(long)]
    pub with_secrets: bool,
}

/// Options of `predictor check`.
#[derive(Clone, Debug, Args)]
pub struct PredictorCheckArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// URL of a server [default: the predictor of the configuration]
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<Url>,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
    /// Program with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The format of the output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text for people.
    Text,
    /// JSON, for programs.
    Json,
}

impl OutputFormat {
    /// Returns the parser of the flag `--json`.
    fn parser() -> impl TypedValueParser<Value = Self> {
        BoolValueParser::new().map(|is_json| if is_json { Self::Json } else { Self::Text })
    }

    /// Returns whether the output is JSON.
    pub fn is_json(self) -> bool {
        self == Self::Json
    }
}

/// The locations of configuration and data.
#[derive(Clone, Debug, Default, Args)]
pub struct LocationArgs {
    /// Configuration file [default: the file in `RIGLM_CONFIG`, `./riglm.toml`, `./riglm.yaml`,
    /// `./riglm.yml`, or one of these names in the user's configuration directory]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory of the database and all other files that riglm writes
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

impl LocationArgs {
    /// Returns the configuration overrides of these options.
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
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Address of the MCP server [default: 127.0.0.1:8642]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Serve one client over standard input and output instead
    #[arg(long, conflicts_with = "listen")]
    pub stdio: bool,
    /// Profile of that client, from section profiles
    #[arg(long, value_name = "NAME", requires = "stdio")]
    pub profile: Option<String>,
    /// Address of the control port, or off [default: 127.0.0.1:8643]
    #[arg(long, value_name = "ADDR|off", value_parser = control_address)]
    pub control: Option<ControlAddress>,
    /// URL of an MCP server to proxy; may be given several times
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// Name of the upstream on this command line [default: derived from its program or host]
    #[arg(long, value_name = "NAME", value_parser = upstream_name)]
    pub name: Option<String>,
    /// Strategy that selects the tools of a list
    #[arg(long, value_name = "STRATEGY",
        value_parser = PossibleValuesParser::new(Strategy::ALL.iter().map(|it| it.as_str()))
            .try_map(|name| name.parse::<Strategy>()))]
    pub strategy: Option<Strategy>,
    /// List policy, for strategy prediction
    #[arg(long, value_name = "POLICY",
        value_parser = PossibleValuesParser::new(
            ListPolicyName::EACH.iter().map(|it| it.as_str()).chain(["auto"])))]
    pub policy: Option<String>,
    /// Command of an MCP server to proxy, over standard input and output
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "upstream")]
    pub command: Vec<String>,
}

fn control_address(text: &str) -> Result<ControlAddress, AddressError> {
    match text {
        "off" => Ok(ControlAddress::Off),
        text => address(text).map(ControlAddress::At),
    }
}

fn upstream_name(text: &str) -> Result<String, IdError> {
    UpstreamName::parse(text).map(String::from)
}

impl ServeArgs {
    /// Returns the configuration overrides of these options.
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
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Print a JSON array
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
    /// Show the cost and savings of tool lists; JSON always includes them
    #[arg(long)]
    pub lists: bool,
    /// Maximum number of sessions to list, the newest ones
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// Options of `top`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Keys: 1 2 3 views, j k select, Enter open, Esc close, s sort, / filter, ? help, q quit.

Exit codes: 0 done, 1 no proxy answers or no terminal, 2 wrong usage.")]
pub struct TopArgs {
    /// The location of the token, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Control address of the proxy [default: the first proxy of the data directory]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub control: Option<SocketAddr>,
    /// Maximum age of the data, in seconds; it is read earlier when something happens
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub interval: u32,
    /// Print the first screen as text of 80 x 24 characters, and exit
    #[arg(long, conflicts_with = "format")]
    pub once: bool,
    /// Use only bold and reversed text [default: if `NO_COLOR` is set]
    #[arg(long)]
    pub no_color: bool,
}

/// Options of `recommend`.
#[derive(Clone, Debug, Args)]
pub struct RecommendArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Task in words
    #[arg(value_name = "TEXT")]
    pub query: String,
    /// Maximum number of tools [default: from the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub limit: Option<u32>,
    /// User whose history is used for the ranking
    #[arg(long, value_name = "NAME", default_value = "local")]
    pub principal: String,
    /// Language or other tag of the project; tools for other projects are left out
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
}

/// Options of `lists`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Columns, for the sessions of a policy or of a client:
  SESSIONS      Sessions that had a list
  LIST SIZE     Tools in the newest list, on average
  SHOWN %       Tools in the newest lists, as a share of all tools
  MISSES        Tools that were hidden at their first call, for each session
  SEARCHES      Searches for tools, for each session
  CHANGES       Changes of the list, for each session
  TOKENS SAVED  Tokens of hidden tools, summed over all calls
  COST AVOIDED  Price of showing all tools minus the price that was paid, in tokens that no prompt
                cache has; below 0, the shorter lists cost more
  AT A LOSS %   Share of sessions whose shorter lists cost more
  LOOK %        Share of sessions with hidden tools in which the client looked for some

Examples:
  riglm lists                        The sessions of the last 7 days
  riglm lists --session ID           Each list of a session, with the reason for it")]
pub struct ListsArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Show each list of this session and how it was selected, instead of the summary
    #[arg(long, value_name = "ID", conflicts_with = "days")]
    pub session: Option<SessionId>,
    /// Only sessions that started in the last DAYS days
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Maximum number of sessions, or of lists of one session; the newest ones
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// Options of `login`.
#[derive(Clone, Debug, Args)]
pub struct LoginArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Name of the upstream; `default` for section upstream
    #[arg(value_name = "NAME")]
    pub upstream: String,
    /// Print the address on standard error instead of opening a browser
    #[arg(long)]
    pub no_browser: bool,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// A command of `riglm db`.
#[derive(Clone, Debug, Subcommand)]
pub enum DbCommand {
    /// Create the database if it is missing, and update its schema
    Migrate(StoreArgs),
    /// Show the location and contents of the database, without changing it
    Status(StoreArgs),
    /// Check the database for damage
    Check(StoreArgs),
    /// Recompute the statistics from the recorded calls
    Rebuild(StoreArgs),
    /// Delete old sessions and calls now
    Purge(PurgeArgs),
}

/// The location of the store, and the output format.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Print JSON
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `db purge`.
#[derive(Clone, Debug, Args)]
pub struct PurgeArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Minimum age of deleted rows, in days [default: `recording.retention_days`]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub older_than: Option<u32>,
}

/// A command of `riglm data`.
#[derive(Clone, Debug, Subcommand)]
pub enum DataCommand {
    /// Write all rows of a client as JSON, one object per line
    Export(ExportArgs),
    /// Delete all rows of a client
    Delete(DeleteArgs),
}

/// Options of `data export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Client: its `client_id` in `riglm sessions --json`, or the name that it declares
    #[arg(long, value_name = "ID")]
    pub client: String,
    /// File to write, which must not exist [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Options of `data delete`.
#[derive(Clone, Debug, Args)]
pub struct DeleteArgs {
    /// The location of the store, and the output format.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Client: its `client_id` in `riglm sessions --json`, or the name that it declares
    #[arg(long, value_name = "ID")]
    pub client: String,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

/// A command of `riglm config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration, and print ok
    Check(ConfigCheckArgs),
    /// Print every key with its value and its source, without secrets
    Show(ConfigShowArgs),
    /// Read a key for auth.keys from standard input and print its sha256: form
    HashKey,
}

/// Options of `config check`.
#[derive(Clone, Debug, Args)]
pub struct ConfigCheckArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Print a JSON object
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

/// Options of `config show`.
#[derive(Clone, Debug, Args)]
pub struct ConfigShowArgs {
    /// The locations of configuration and data.
    #[command(flatten)]
    pub places: LocationArgs,
    /// Print a JSON array
    #[arg(long = "json", action = ArgAction::SetTrue, value_parser = OutputFormat::parser())]
    pub format: OutputFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(arguments: &[&str]) -> Result<Overrides, clap::Error> {
        let all = ["riglm", "serve"].iter().chain(arguments);
        match Cli::try_parse_from(all)?.validate()?.command {
            Command::Serve(arguments) => Ok(arguments.overrides()),
            other => panic!("not serve: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_format_of_the_output_is_a_flag_without_a_value() {
        let format = |arguments: &[&str]| {
            let all = ["riglm", "sessions"].iter().chain(arguments);
            match Cli::try_parse_from(all).unwrap().command {
                Command::Sessions(arguments) => arguments.format,
                other => panic!("not sessions: {other:?}"),
            }
        };
        assert_eq!(format(&[]), OutputFormat::Text);
        assert_eq!(format(&["--json"]), OutputFormat::Json);
        let mut command = Cli::command();
        let sessions = command.find_subcommand_mut("sessions").unwrap();
        let help = sessions.render_help().to_string();
        let line = help.lines().find(|line| line.contains("--json")).unwrap();
        assert!(line.ends_with(" Print a JSON array"), "{line}");
        let both = ["riglm", "calls", "--json", "--follow"];
        assert!(Cli::try_parse_from(both).is_ok());
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
