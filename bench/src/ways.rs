//! The ways to a server that are measured: directly, through the relay, riglm and other proxies.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tempfile::TempDir;

use crate::affinity::{Cores, Placement};
use crate::client::Endpoint;
use crate::command_line::{Placeholders, ProxyCommand};
use crate::message::Era;
use crate::process::{Process, free_address};
use crate::riglm::{self, Behind, Riglm, RiglmArgs};
use crate::usage::{CpuTime, Memory, settled_since};

const PROXY_HELP: &str = "Another proxy, as NAME=COMMAND LINE with {port}, {path}, {data} and \
    {upstream}, {upstream_port} or {stdio}; may be given several times";

/// Options for the ways that are measured.
#[derive(Clone, Debug, Args)]
pub(crate) struct WayArgs {
    /// The program riglm.
    #[command(flatten)]
    riglm: RiglmArgs,
    /// Another proxy; may be given several times
    #[arg(long = "proxy", value_name = "NAME=COMMAND LINE", help = PROXY_HELP)]
    proxies: Vec<ProxyCommand>,
    /// Path of the endpoint of a proxy, as NAME=PATH [default: /mcp]
    #[arg(long = "proxy-path", value_name = "NAME=PATH", value_parser = proxy_path)]
    proxy_paths: Vec<(String, String)>,
    /// Cores of both sides, such as client=0,hop=1
    #[arg(long, value_name = "CORES")]
    cpus: Option<Placement>,
    /// Only these ways: direct, relay, riglm and the names of proxies
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Without these ways
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    without: Vec<String>,
}

/// The transport between a proxy and its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    /// Streamable HTTP.
    Http,
    /// Standard input and output.
    Stdio,
}

/// The upstream of some cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) transport: Transport,
    pub(crate) era: Era,
    pub(crate) n_tools: usize,
}

/// A way to the server, with the process on it, if there is one.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) endpoint: Endpoint,
    pub(crate) process: Option<Process>,
    /// The transport between this way and the server.
    pub(crate) transport: Transport,
}

/// An upstream with the ways to it.
#[derive(Debug)]
pub(crate) struct Scene {
    /// The ways, which end before the upstream.
    pub(crate) ways: Vec<Way>,
    _upstream: Process,
}

/// The options and programs for starting the selected ways.
#[derive(Debug)]
pub(crate) struct Launcher {
    options: WayArgs,
    riglm: Option<Riglm>,
}

impl WayArgs {
    /// Checks the options, builds riglm if necessary, and moves this program to its cores.
    pub(crate) fn prepare(self) -> anyhow::Result<Launcher> {
        self.check()?;
        let riglm = if self.includes("riglm") {
            Some(self.riglm.program()?)
        } else {
            None
        };
        if let Some(cpus) = self.cpus {
            cpus.client.pin_thread()?;
        }
        Ok(Launcher {
            options: self,
            riglm,
        })
    }

    fn includes(&self, name: &str) -> bool {
        let is_selected = self.only.is_empty() || self.only.iter().any(|it| it == name);
        is_selected && !self.without.iter().any(|it| it == name)
    }

    /// Checks that all names are those of ways.
    fn check(&self) -> anyhow::Result<()> {
        let proxies = self.proxies.iter().map(|proxy| proxy.name.as_str());
        let known: Vec<&str> = ["direct", "relay", "riglm"]
            .into_iter()
            .chain(proxies)
            .collect();
        let paths = self.proxy_paths.iter().map(|(name, _)| name);
        for name in self.only.iter().chain(&self.without).chain(paths) {
            if !known.contains(&name.as_str()) {
                bail!("`{name}` is none of {}", known.join(", "));
            }
        }
        for (at, name) in known.iter().enumerate() {
            if known[..at].contains(name) {
                bail!("two proxies are named {name}");
            }
        }
        if !known.iter().any(|name| self.includes(name)) {
            bail!("no way is left to measure");
        }
        Ok(())
    }
}

impl Launcher {
    /// Returns the cores of both sides.
    pub(crate) fn placement(&self) -> Option<Placement> {
        self.options.cpus
    }

    fn cores(&self) -> Option<Cores> {
        self.options.cpus.map(|cpus| cpus.hop)
    }

    /// Changes the settings of riglm, if it is measured.
    pub(crate) fn set_up_riglm(&mut self, change: impl FnOnce(Riglm) -> Riglm) {
        self.riglm = self.riglm.take().map(change);
    }

    /// Starts an upstream and everything in front of it.
    pub(crate) fn start(&self, setting: Setting) -> anyhow::Result<Scene> {
        let transport = setting.transport;
        let server = start_upstream(setting, self.options.cpus.map(|cpus| cpus.client))?;
        let upstream = server.address;
        let behind = match transport {
            Transport::Http => Behind::Http(upstream),
            Transport::Stdio => Behind::Stdio(stdio_upstream(setting, self.options.cpus)?),
        };
        let (options, cores) = (&self.options, self.cores());
        let mut ways = Vec::new();
        if options.includes("direct") {
            ways.push(Way {
                endpoint: riglm::endpoint("direct", upstream),
                process: None,
                transport: Transport::Http,
            });
        }
        if options.includes("relay") {
            let relay = start_relay(upstream, cores)?;
            ways.push(Way {
                endpoint: riglm::endpoint("relay", relay.address),
                process: Some(relay),
                transport: Transport::Http,
            });
        }
        if let Some(riglm) = &self.riglm {
            let process = riglm.start("riglm", &behind, cores)?;
            ways.push(Way {
                endpoint: riglm::endpoint("riglm", process.address),
                process: Some(process),
                transport,
            });
        }
        for proxy in options
            .proxies
            .iter()
            .filter(|it| options.includes(&it.name))
        {
            if proxy.has("{stdio}") == (transport == Transport::Stdio) {
                ways.push(self.start_proxy(proxy, &behind)?);
            }
        }
        Ok(Scene {
            ways,
            _upstream: server,
        })
    }

    fn start_proxy(&self, proxy: &ProxyCommand, behind: &Behind) -> anyhow::Result<Way> {
        let name = &proxy.name;
        let path = self.options.proxy_paths.iter().find(|(of, _)| of == name);
        let path = path.map_or("/mcp", |(_, path)| path.as_str()).to_owned();
        let data = TempDir::with_prefix("riglm-bench-")?;
        let address = free_address()?;
        let mut values = Placeholders {
            port: address.port().to_string(),
            path: path.clone(),
            data: data.path().display().to_string(),
            ..Placeholders::default()
        };
        let transport = match behind {
            Behind::Http(upstream) => {
                values.upstream = format!("http://{upstream}/mcp");
                values.upstream_port = upstream.port().to_string();
                Transport::Http
            }
            Behind::Stdio(words) => {
                values.stdio.clone_from(words);
                Transport::Stdio
            }
            Behind::Configured => {
                bail!("{name} does not know which servers riglm is configured for")
            }
        };
        let words = proxy.resolve(&values);
        let (program, arguments) = words
            .split_first()
            .with_context(|| format!("the command line of {name} is empty"))?;
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        let process = Process::start(name, command, address, data, self.cores())?;
        Ok(Way {
            endpoint: Endpoint {
                name: name.clone(),
                address,
                path,
            },
            process: Some(process),
            transport,
        })
    }
}

impl Way {
    /// Returns the memory of the process.
    pub(crate) fn memory(&self) -> Option<Memory> {
        let process = self.process.as_ref()?;
        Some(Memory::of_tree(process.id()))
    }

    /// Returns the processor time of the process.
    pub(crate) fn cpu(&self) -> Option<CpuTime> {
        let process = self.process.as_ref()?;
        Some(CpuTime::of_tree(process.id()))
    }

    /// Adds the end of the process to an error, if it has ended, and prints it.
    pub(crate) fn explain(&mut self, mut error: anyhow::Error) -> anyhow::Error {
        if let Some(process) = &mut self.process
            && let Err(ended) = process.check()
        {
            error = error.context(ended.to_string());
        }
        eprintln!("{error:#}");
        error
    }

    /// Waits until the process is quiet and returns its processor time since `before`.
    pub(crate) async fn settle(&self, before: Option<CpuTime>) -> Option<Duration> {
        let process = self.process.as_ref()?;
        Some(settled_since(process.id(), &before?).await)
    }
}

impl Transport {
    /// Returns the name in a report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Stdio => "stdio",
        }
    }
}

/// Starts an upstream over HTTP, which is this program.
fn start_upstream(setting: Setting, cores: Option<Cores>) -> anyhow::Result<Process> {
    let address = free_address()?;
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .args(["upstream", "--port", &address.port().to_string()])
        .args(["--tools", &setting.n_tools.to_string()])
        .args(["--era", &setting.era.to_string()]);
    let data = TempDir::with_prefix("riglm-bench-")?;
    Process::start("upstream", command, address, data, cores)
}

/// Starts the relay, which is this program.
pub(crate) fn start_relay(upstream: SocketAddr, cores: Option<Cores>) -> anyhow::Result<Process> {
    let address = free_address()?;
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .args(["relay", "--port", &address.port().to_string()])
        .args(["--upstream", &upstream.to_string()]);
    let data = TempDir::with_prefix("riglm-bench-")?;
    Process::start("relay", command, address, data, cores)
}

/// Returns the command of an upstream over standard input and output, which is this program.
fn stdio_upstream(setting: Setting, cpus: Option<Placement>) -> anyhow::Result<Vec<String>> {
    let program = std::env::current_exe()?;
    let program = program.to_str().context("the path of this program")?;
    let mut words: Vec<String> = vec![program.into(), "upstream".into(), "--stdio".into()];
    words.extend(["--tools".into(), setting.n_tools.to_string()]);
    words.extend(["--era".into(), setting.era.to_string()]);
    if let Some(cpus) = cpus {
        words.extend(["--cores".into(), cpus.client.to_string()]);
    }
    Ok(words)
}

fn proxy_path(text: &str) -> anyhow::Result<(String, String)> {
    let (name, path) = text
        .split_once('=')
        .context("a path is written as NAME=/PATH")?;
    if !path.starts_with('/') {
        bail!("the path of {name} does not start with a slash");
    }
    Ok((name.to_owned(), path.to_owned()))
}
