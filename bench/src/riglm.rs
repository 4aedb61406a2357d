//! The command of a measured riglm.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;
use tempfile::TempDir;

use crate::affinity::{Cores, Placement};
use crate::client::Endpoint;
use crate::process::{self, Process, free_address};

/// The program that is measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct RiglmArgs {
    /// Path of riglm [default: it is built with cargo, in profile dist]
    #[arg(long = "riglm", value_name = "PATH")]
    program: Option<PathBuf>,
    /// Further argument of `riglm serve`, with absolute paths; may be given several times
    #[arg(long = "riglm-arg", value_name = "ARG", allow_hyphen_values = true)]
    arguments: Vec<OsString>,
    /// Environment variable of riglm, as NAME=VALUE; may be given several times
    #[arg(long = "riglm-env", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
}

/// Options of the measurements of one property of riglm.
#[derive(Clone, Debug, Args)]
pub(crate) struct CaseArgs {
    /// The program riglm.
    #[command(flatten)]
    riglm: RiglmArgs,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Cores of both sides, such as client=0,hop=1
    #[arg(long, value_name = "CORES")]
    cpus: Option<Placement>,
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Riglm {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    control: Option<SocketAddr>,
}

/// The server behind a proxy.
#[derive(Clone, Debug)]
pub(crate) enum Behind {
    /// A server over HTTP.
    Http(SocketAddr),
    /// A program over standard input and output, with its arguments.
    Stdio(Vec<String>),
    /// The servers that the variables name.
    Configured,
}

impl RiglmArgs {
    /// Returns the program, which is built if none is named.
    pub(crate) fn program(&self) -> anyhow::Result<Riglm> {
        let program = match &self.program {
            Some(program) => program
                .canonicalize()
                .with_context(|| format!("--riglm {}", program.display()))?,
            None => process::build_riglm()?,
        };
        Ok(Riglm {
            program,
            arguments: self.arguments.clone(),
            variables: self.variables.clone(),
            control: None,
        })
    }
}

impl CaseArgs {
    /// Returns the program, and moves this program to its cores.
    pub(crate) fn prepare(&self) -> anyhow::Result<Riglm> {
        let riglm = self.riglm.program()?;
        if let Some(cpus) = self.cpus {
            cpus.client.pin_thread()?;
        }
        Ok(riglm)
    }

    /// Returns the cores of the proxies.
    pub(crate) fn cores(&self) -> Option<Cores> {
        self.cpus.map(|cpus| cpus.hop)
    }

    /// Returns the number of rounds.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }
}

impl Riglm {
    /// Adds arguments of `riglm serve`.
    pub(crate) fn with_arguments<T: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = T>,
    ) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        // Later ones win, so those of the user stay.
        self.variables.insert(0, (name.into(), value.into()));
        self
    }

    /// Returns whether an argument sets the strategy.
    fn has_strategy(&self) -> bool {
        let is_strategy = |it: &OsString| it.to_string_lossy().starts_with("--strategy");
        self.arguments.iter().any(is_strategy)
    }

    /// Adds a control port.
    pub(crate) fn with_control(mut self, control: SocketAddr) -> Self {
        self.control = Some(control);
        self
    }

    /// Starts the proxy in a data folder of its own, so that it finds no configuration of the user's
    /// project, and with strategy `none` unless an argument names another.
    pub(crate) fn start(
        &self,
        name: &str,
        behind: &Behind,
        cores: Option<Cores>,
    ) -> anyhow::Result<Process> {
        let data = TempDir::with_prefix("riglm-bench-")?;
        let address = free_address()?;
        let command = self.command(address, behind, data.path());
        Process::start(name, command, address, data, cores)
    }

    fn command(&self, listen: SocketAddr, behind: &Behind, data: &Path) -> Command {
        let control = self.control.map_or("off".into(), |it| it.to_string());
        let mut command = Command::new(&self.program);
        command
            .args(["serve", "--listen", &listen.to_string()])
            .args(["--control", &control])
            .arg("--data-dir")
            .arg(data);
        if !self.has_strategy() {
            command.args(["--strategy", "none"]);
        }
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(data);
        match behind {
            Behind::Http(upstream) => {
                command.args(["--upstream", &format!("http://{upstream}/mcp")]);
            }
            Behind::Stdio(words) => {
                command.arg("--").args(words);
            }
            Behind::Configured => {}
        }
        command
    }
}

/// Returns the endpoint of a proxy or a server with the usual path.
pub(crate) fn endpoint(name: &str, address: SocketAddr) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        address,
        path: "/mcp".to_owned(),
    }
}

fn variable(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .context("a variable is written as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
