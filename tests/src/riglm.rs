//! The program under test as a process: `riglm serve` and the commands that read its store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use url::Url;

use crate::answers::Answers;
use crate::binary;
use crate::client::RawClient;
use crate::fixture::{Transport, Upstream};
use crate::process::{self, Process};

/// The deadline for the start of the proxy.
const START: Duration = Duration::from_secs(20);

/// The name of the configuration file in the data directory.
const CONFIGURATION: &str = "test.toml";

/// Options of a proxy, in addition to the defaults of all tests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Additional arguments of `riglm serve`, before the upstream.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// The text of a configuration file in TOML.
    pub configuration: Option<String>,
    /// Another program with the commands of riglm.
    pub program: Option<PathBuf>,
    /// Whether the configuration has the strategy of lists. Otherwise it is an argument.
    pub has_file_strategy: bool,
}

impl Options {
    /// Returns options with a configuration file in TOML.
    pub fn with_configuration(toml: &str) -> Self {
        Self {
            configuration: Some(toml.to_owned()),
            ..Self::default()
        }
    }

    /// Returns the arguments of a command that reads the store of a proxy with these options.
    pub fn read_arguments(&self, data_dir: &Path) -> Vec<String> {
        let file = data_dir.join(CONFIGURATION);
        match self.configuration {
            Some(_) => vec!["--config".into(), file.display().to_string()],
            None => Vec::new(),
        }
    }
}

/// A proxy with an HTTP listener. It is killed when dropped.
#[derive(Debug)]
pub struct Riglm {
    /// The process.
    pub process: Process,
    /// The address of its Streamable HTTP endpoint.
    pub url: Url,
}

impl Riglm {
    /// Starts the proxy in front of `upstream` with its store in `data_dir`.
    pub async fn serve(upstream: &Upstream, data_dir: &Path, options: &Options) -> Self {
        let command = serve_command(upstream, data_dir, options, &["--listen", "127.0.0.1:0"]);
        let process = Process::spawn(command);
        let url = listening_address(&process).await;
        Self { process, url }
    }

    /// Returns the address of another path on the same port.
    pub fn at(&self, path: &str) -> Url {
        self.url
            .join(path)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Returns a new client over Streamable HTTP.
    pub fn client(&self, answers: Answers) -> RawClient {
        RawClient::streamable(&self.url, answers)
    }

    /// Ends the proxy with SIGTERM and returns its exit code.
    pub async fn stop(&mut self) -> Option<i32> {
        self.process.signal(rustix::process::Signal::TERM);
        self.process
            .wait_for_end(Duration::from_secs(15))
            .await
            .code()
    }
}

/// Waits until a proxy listens, and returns the address of its Streamable HTTP endpoint.
pub async fn listening_address(process: &Process) -> Url {
    process
        .line(START, "the address", |line| {
            let at = line.find("listening on http://")?;
            let rest = &line[at + "listening on ".len()..];
            // In a JSON log the address stands in quotes.
            let end = |character: char| character.is_whitespace() || character == '"';
            let url: Url = rest.split(end).next()?.parse().ok()?;
            url.path().starts_with("/mcp").then_some(url)
        })
        .await
}

/// One client that is connected through the proxy to one upstream.
#[derive(Debug)]
pub struct ProxiedClient {
    /// The client.
    pub client: RawClient,
    /// The proxy, if it has an HTTP listener.
    pub riglm: Option<Riglm>,
    /// The data directory of the proxy.
    pub data_dir: TempDir,
}

impl ProxiedClient {
    /// Connects a client of revision 2026-07-28 through the proxy to `upstream`.
    pub async fn modern(downstream: Transport, upstream: &Upstream, options: &Options) -> Self {
        if downstream == Transport::Stdio {
            return Self::through(downstream, upstream, options, Answers::default()).await;
        }
        let data_dir = TempDir::new().expect("a temporary folder can be made");
        let riglm = Riglm::serve(upstream, data_dir.path(), options).await;
        Self {
            client: RawClient::modern(&riglm.url),
            riglm: Some(riglm),
            data_dir,
        }
    }

    /// Connects a client over `downstream` through the proxy to `upstream`.
    pub async fn through(
        downstream: Transport,
        upstream: &Upstream,
        options: &Options,
        answers: Answers,
    ) -> Self {
        let data_dir = TempDir::new().expect("a temporary folder can be made");
        if downstream == Transport::Stdio {
            let command = serve_command(upstream, data_dir.path(), options, &["--stdio"]);
            return Self {
                client: RawClient::stdio(command, answers),
                riglm: None,
                data_dir,
            };
        }
        let riglm = Riglm::serve(upstream, data_dir.path(), options).await;
        let client = match downstream {
            Transport::Legacy => RawClient::legacy(&riglm.at("/sse"), answers).await,
            _ => riglm.client(answers),
        };
        Self {
            client,
            riglm: Some(riglm),
            data_dir,
        }
    }
}

/// Returns the output of a command that reads the store, for example `["calls", "--json"]`.
pub async fn read_store(data_dir: &Path, arguments: &[&str]) -> String {
    let mut command = process::command(binary::riglm(), arguments);
    command.arg("--data-dir").arg(data_dir);
    let output = tokio::time::timeout(Duration::from_mins(2), command.output())
        .await
        .unwrap_or_else(|_| panic!("riglm {arguments:?} did not end"))
        .unwrap_or_else(|error| panic!("riglm {arguments:?}: {error}"));
    assert!(
        output.status.success(),
        "riglm {arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command of riglm for a user with this home directory, which is its working directory, too.
pub async fn run_at_home(home: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = process::command(binary::riglm(), arguments);
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "RIGLM_CONFIG",
        "RIGLM_KEY",
    ] {
        command.env_remove(variable);
    }
    command.env("HOME", home).current_dir(home);
    let output = tokio::time::timeout(Duration::from_mins(2), command.output())
        .await
        .unwrap_or_else(|_| panic!("riglm {arguments:?} did not end"))
        .unwrap_or_else(|error| panic!("riglm {arguments:?}: {error}"));
    CommandOutput::of(&output)
}

/// The output of a command that has ended.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The text on standard output.
    pub stdout: String,
    /// The text on standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Returns the output of a process.
    pub fn of(output: &std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns the output if the exit code is 0.
    ///
    /// # Panics
    ///
    /// If it is another one.
    #[expect(
        clippy::return_self_not_must_use,
        reason = "the check may be all that a test needs"
    )]
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self
    }

    /// Returns the JSON on standard output.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {} {}", self.stdout, self.stderr))
    }
}

/// Returns the rows that a command prints as a JSON array.
pub async fn rows(data_dir: &Path, arguments: &[&str]) -> Vec<serde_json::Value> {
    let text = read_store(data_dir, arguments).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Returns the command `riglm serve` with the arguments of a test.
pub fn serve_command(
    upstream: &Upstream,
    data_dir: &Path,
    options: &Options,
    mode: &[&str],
) -> tokio::process::Command {
    let program = options
        .program
        .as_deref()
        .unwrap_or_else(|| binary::riglm());
    let mut command = process::command(program, &["serve"]);
    command.args(mode);
    // Defaults of tests, for each option that a test does not pass itself.
    for default in [["--strategy", "none"], ["--control", "off"]] {
        let is_in_file = default[0] == "--strategy" && options.has_file_strategy;
        if !is_in_file && options.arguments.iter().all(|given| given != default[0]) {
            command.args(default);
        }
    }
    command.arg("--data-dir").arg(data_dir);
    if let Some(text) = &options.configuration {
        let file = data_dir.join(CONFIGURATION);
        std::fs::write(&file, text).expect("the configuration can be written");
        command.arg("--config").arg(file);
    }
    command.args(&options.arguments);
    command.args(upstream.as_arguments());
    // On a busy machine servers need longer than agents wait. Tests of the wait set it themselves.
    let sets_wait = |text: &String| text.contains("first_wait");
    if !options.configuration.as_ref().is_some_and(sets_wait) {
        command.env("RIGLM__LIMITS__FIRST_WAIT", "10s");
    }
    command.envs(
        options
            .environment
            .iter()
            .map(|(name, value)| (name, value)),
    );
    command
}
