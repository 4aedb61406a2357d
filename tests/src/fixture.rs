//! The upstream servers of the tests, over each of the three transports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use url::Url;

use crate::answers::Answers;
use crate::client::RawClient;
use crate::process::{self, Process, free_port};

/// The deadline for the start of a server.
const START: Duration = Duration::from_secs(30);

/// A transport between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Standard input and output of a child process.
    Stdio,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE as of 2024-11-05.
    Legacy,
}

impl Transport {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Stdio, Self::Streamable, Self::Legacy];
}

/// A server program of the tests.
#[derive(Clone, Debug)]
pub enum Server {
    /// The unusual server of this crate, by the path of its program.
    Odd(PathBuf),
    /// The unusual server with more arguments, for example `["--era", "modern"]`.
    OddWith(PathBuf, Vec<String>),
    /// The npm package `@modelcontextprotocol/server-everything`.
    Everything,
}

/// An upstream that a client or the proxy can connect to. Its process ends when this value is
/// dropped.
#[derive(Debug)]
pub struct Upstream {
    /// The transport of the server.
    pub transport: Transport,
    /// The command of a server over stdio. Each client starts its own process.
    pub command: Vec<String>,
    /// The address of a server over HTTP.
    pub url: Option<Url>,
    process: Option<Process>,
}

impl Server {
    /// Starts the server over HTTP, or returns its command over stdio.
    pub async fn start(&self, transport: Transport) -> Upstream {
        match self {
            Self::Odd(program) => start_odd(program, &[], transport).await,
            Self::OddWith(program, arguments) => start_odd(program, arguments, transport).await,
            Self::Everything => start_everything(transport).await,
        }
    }
}

impl Upstream {
    /// Returns the upstream of a stdio command.
    pub fn of_command(command: Vec<String>) -> Self {
        Self {
            transport: Transport::Stdio,
            command,
            url: None,
            process: None,
        }
    }

    /// Returns an upstream without arguments, for upstreams in the configuration file.
    pub fn from_configuration() -> Self {
        Self::of_command(Vec::new())
    }

    /// Returns an upstream at the address of a server that runs already.
    pub fn at(transport: Transport, url: Url) -> Self {
        Self {
            transport,
            command: Vec::new(),
            url: Some(url),
            process: None,
        }
    }

    /// Returns a client that is connected directly to the server.
    pub async fn client(&self, answers: Answers) -> RawClient {
        match (&self.transport, &self.url) {
            (Transport::Stdio, _) => RawClient::stdio(self.command(), answers),
            (Transport::Streamable, Some(url)) => RawClient::streamable(url, answers),
            (Transport::Legacy, Some(url)) => RawClient::legacy(url, answers).await,
            (_, None) => panic!("a server over HTTP has an address"),
        }
    }

    /// Returns a client of revision 2026-07-28 that is connected directly to the server.
    pub fn modern_client(&self) -> RawClient {
        match &self.url {
            None => RawClient::stdio(self.command(), Answers::default()),
            Some(url) => RawClient::modern(url),
        }
    }

    /// Returns the process of a server over HTTP.
    pub fn process(&mut self) -> &mut Process {
        self.process
            .as_mut()
            .unwrap_or_else(|| panic!("only a server over HTTP has a process of its own"))
    }

    /// Returns the arguments of `riglm serve` for this upstream.
    pub fn as_arguments(&self) -> Vec<String> {
        match (&self.transport, &self.url) {
            (Transport::Stdio, _) if self.command.is_empty() => Vec::new(),
            (Transport::Stdio, _) => {
                let mut arguments = vec!["--".to_owned()];
                arguments.extend(self.command.iter().cloned());
                arguments
            }
            (Transport::Streamable, Some(url)) => vec!["--upstream".into(), url.to_string()],
            (Transport::Legacy, Some(url)) => {
                vec!["--upstream".into(), format!("sse+{url}")]
            }
            (_, None) => panic!("a server over HTTP has an address"),
        }
    }

    fn command(&self) -> Command {
        let (program, arguments) = self
            .command
            .split_first()
            .expect("a server over stdio has a command");
        process::command(program, arguments)
    }
}

async fn start_odd(program: &Path, arguments: &[String], transport: Transport) -> Upstream {
    let program = program.display().to_string();
    if transport == Transport::Stdio {
        let words = [&[program, "stdio".into()], arguments].concat();
        return Upstream::of_command(words);
    }
    let words = [&["http".to_owned()], arguments].concat();
    let process = Process::spawn(process::command(&program, &words));
    let base: Url = process
        .line(START, "the address", |line| {
            line.strip_prefix("listening on ")?.parse().ok()
        })
        .await;
    let url = match transport {
        Transport::Legacy => base.join("/sse"),
        _ => base.join("/mcp"),
    };
    Upstream {
        transport,
        command: Vec::new(),
        url: Some(url.expect("a path can be joined to a base address")),
        process: Some(process),
    }
}

async fn start_everything(transport: Transport) -> Upstream {
    let script = npm_package("@modelcontextprotocol/server-everything")
        .join("dist/index.js")
        .display()
        .to_string();
    if transport == Transport::Stdio {
        return Upstream::of_command(vec!["node".into(), script, "stdio".into()]);
    }
    let (mode, path) = match transport {
        Transport::Legacy => ("sse", "sse"),
        _ => ("streamableHttp", "mcp"),
    };
    let port = free_port();
    let mut command = process::command("node", &[&script, mode]);
    command.env("PORT", port.to_string());
    let process = Process::spawn(command);
    process
        .line(START, "the port", |line| {
            line.contains(&port.to_string()).then_some(())
        })
        .await;
    let url = format!("http://127.0.0.1:{port}/{path}");
    Upstream {
        transport,
        command: Vec::new(),
        url: Some(url.parse().expect("the address is a URL")),
        process: Some(process),
    }
}

/// Returns the folder of the pinned npm and pip packages of clients and servers.
///
/// The environment variable `RIGLM_TEST_CLIENTS` overrides the default `target/clients`.
pub fn clients_dir() -> PathBuf {
    std::env::var_os("RIGLM_TEST_CLIENTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients"),
        PathBuf::from,
    )
}

/// Returns the folder of an installed npm package.
pub fn npm_package(name: &str) -> PathBuf {
    let folder = clients_dir().join("node_modules").join(name);
    assert!(
        folder.is_dir(),
        "{} is missing: run .ci/prepare-clients first",
        folder.display()
    );
    folder
}
