//! The comparison of ways to one server: directly, through the relay, and through proxies, in turn.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tempfile::TempDir;

use crate::affinity::{Cores, Placement};
use crate::client::Endpoint;
use crate::command_line::{Placeholders, ProxyCommand};
use crate::load::Sessions;
use crate::message::{Case, Era};
use crate::process::{Process, free_address};
use crate::report::{Report, Row};
use crate::riglm::{self, Behind, Riglm, RiglmArgs};
use crate::statistics::{Comparison, Figures, Sample};
use crate::upstream::Upstream;
use crate::usage::{CpuTime, Memory};

/// The least time after a round until the processor time is read. Work after a response, such as
/// writing records, belongs to its request.
const SETTLING: Duration = Duration::from_millis(300);
/// The greatest time until then.
const SETTLING_MAX: Duration = Duration::from_secs(3);
/// The interval in which a settled program uses less than `QUIET`.
const QUIET_INTERVAL: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_millis(1);

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// The program riglm.
    #[command(flatten)]
    riglm: RiglmArgs,
    /// Another proxy, as NAME=COMMAND LINE with {port}, {path}, {data} and {upstream},
    /// {upstream_port} or {stdio}; may be given several times
    #[arg(long = "proxy", value_name = "NAME=COMMAND LINE")]
    proxies: Vec<ProxyCommand>,
    /// Path of the endpoint of a proxy, as NAME=PATH [default: /mcp]
    #[arg(long = "proxy-path", value_name = "NAME=PATH", value_parser = proxy_path)]
    proxy_paths: Vec<(String, String)>,
    /// Cases: call-1kb, call-100kb, call-1mb, list-100, list-1000, or other sizes
    #[arg(long = "cases", value_name = "CASE", value_delimiter = ',', default_values_t = Case::ALL)]
    cases: Vec<Case>,
    /// Numbers of concurrent sessions
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10,100",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: Vec<u32>,
    /// Eras of the protocol
    #[arg(
        long = "era",
        value_name = "ERA",
        value_delimiter = ',',
        default_value = "legacy"
    )]
    eras: Vec<Era>,
    /// Transports of the upstream
    #[arg(
        long = "upstream",
        value_name = "TRANSPORT",
        value_delimiter = ',',
        default_value = "http"
    )]
    transports: Vec<Transport>,
    /// Rounds of each way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each round
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Cores of both sides, such as client=0,hop=1
    #[arg(long, value_name = "CORES")]
    cpus: Option<Placement>,
    /// Only these ways: direct, relay, riglm and the names of proxies
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Without these ways
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    without: Vec<String>,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
struct Setting {
    transport: Transport,
    era: Era,
    n_tools: usize,
}

/// A way to the server, with the process on it, if there is one.
#[derive(Debug)]
struct Way {
    endpoint: Endpoint,
    process: Option<Process>,
    /// The transport between this way and the server.
    transport: Transport,
}

/// Open sessions through a way, until something fails.
struct Measurement<'a> {
    way: &'a mut Way,
    memory_before: Option<Memory>,
    sessions: anyhow::Result<Sessions>,
}

impl CompareArgs {
    /// Measures all ways and prints the report.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        self.check()?;
        let riglm = if self.includes("riglm") {
            Some(self.riglm.program()?)
        } else {
            None
        };
        let cores = self.cpus.map(|cpus| cpus.hop);
        if let Some(cpus) = self.cpus {
            cpus.client.pin_thread()?;
        }
        let mut report = Report::new(self.cpus);
        for setting in self.settings() {
            let mut ways = self.start(setting, riglm.as_ref(), cores)?;
            for n_sessions in &self.sessions {
                self.measure(setting, &mut ways, *n_sessions as usize, &mut report)
                    .await?;
            }
        }
        report.print();
        if let Some(file) = &self.json {
            report.write(file)?;
        }
        let n_failed = report.n_failed();
        if n_failed > 0 {
            bail!("{n_failed} measurements have failed, see the report");
        }
        Ok(())
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

    /// Returns the upstreams that the cases need, each once.
    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for transport in &self.transports {
            for era in &self.eras {
                for case in &self.cases {
                    let setting = Setting {
                        transport: *transport,
                        era: *era,
                        n_tools: case.n_tools(),
                    };
                    if !settings.contains(&setting) {
                        settings.push(setting);
                    }
                }
            }
        }
        settings
    }

    /// Starts an upstream and everything in front of it.
    fn start(
        &self,
        setting: Setting,
        riglm: Option<&Riglm>,
        cores: Option<Cores>,
    ) -> anyhow::Result<Vec<Way>> {
        let Setting {
            transport,
            era,
            n_tools,
        } = setting;
        let upstream = Upstream::new(era, n_tools).start()?;
        let behind = match transport {
            Transport::Http => Behind::Http(upstream),
            Transport::Stdio => Behind::Stdio(stdio_upstream(setting, self.cpus)?),
        };
        let mut ways = Vec::new();
        if self.includes("direct") {
            ways.push(Way {
                endpoint: riglm::endpoint("direct", upstream),
                process: None,
                transport: Transport::Http,
            });
        }
        if self.includes("relay") {
            let relay = start_relay(upstream, cores)?;
            ways.push(Way {
                endpoint: riglm::endpoint("relay", relay.address),
                process: Some(relay),
                transport: Transport::Http,
            });
        }
        if let Some(riglm) = riglm {
            let process = riglm.start("riglm", &behind, cores)?;
            ways.push(Way {
                endpoint: riglm::endpoint("riglm", process.address),
                process: Some(process),
                transport,
            });
        }
        for proxy in self.proxies.iter().filter(|it| self.includes(&it.name)) {
            if proxy.has("{stdio}") == (transport == Transport::Stdio) {
                ways.push(self.start_proxy(proxy, &behind, cores)?);
            }
        }
        Ok(ways)
    }

    fn start_proxy(
        &self,
        proxy: &ProxyCommand,
        behind: &Behind,
        cores: Option<Cores>,
    ) -> anyhow::Result<Way> {
        let name = &proxy.name;
        let path = self.proxy_paths.iter().find(|(of, _)| of == name);
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
        };
        let words = proxy.resolve(&values);
        let (program, arguments) = words
            .split_first()
            .with_context(|| format!("the command line of {name} is empty"))?;
        let mut command = std::process::Command::new(program);
        command.args(arguments);
        let process = Process::start(name, command, address, data, cores)?;
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

    /// Measures all cases of a setting with a number of sessions.
    async fn measure(
        &self,
        setting: Setting,
        ways: &mut [Way],
        n_sessions: usize,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mut measurements = Vec::new();
        for way in ways {
            let memory_before = way.memory();
            let sessions = Sessions::open(&way.endpoint, setting.era, n_sessions).await;
            measurements.push(Measurement {
                way,
                memory_before,
                sessions,
            });
        }
        let cases = self
            .cases
            .iter()
            .filter(|case| case.n_tools() == setting.n_tools);
        for case in cases {
            eprintln!(
                "{} upstream, {} clients, {case}, {n_sessions} sessions",
                setting.transport.name(),
                setting.era
            );
            let rows = self.measure_case(setting, *case, &mut measurements).await;
            report.add(rows.into_iter().map(|mut row| {
                row.sessions = n_sessions;
                row
            }));
        }
        for measurement in measurements {
            if let Ok(sessions) = measurement.sessions {
                // A session that cannot be ended is no part of what was measured.
                if let Err(error) = sessions.close().await {
                    eprintln!("{error:#}");
                }
            }
        }
        Ok(())
    }

    /// Measures one case through all ways, round by round.
    async fn measure_case(
        &self,
        setting: Setting,
        case: Case,
        measurements: &mut [Measurement<'_>],
    ) -> Vec<Row> {
        let request = Arc::new(case.request(setting.era));
        for measurement in &mut *measurements {
            measurement.warm_up(case, &request, self.seconds / 4).await;
        }
        let mut samples: Vec<Vec<Sample>> = measurements.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds {
            for (measurement, samples) in measurements.iter_mut().zip(&mut samples) {
                samples.extend(measurement.round(&request, self.seconds).await);
            }
        }
        let figures: Vec<Figures> = samples.iter().map(|of| Figures::of(of)).collect();
        let of = |name: &str| {
            let at = measurements
                .iter()
                .position(|it| it.way.endpoint.name == name)?;
            measurements[at].sessions.is_ok().then(|| &figures[at])
        };
        let (direct, relay) = (of("direct"), of("relay"));
        let rows = measurements
            .iter()
            .zip(&figures)
            .map(|(measurement, figures)| {
                let way = &measurement.way;
                let error = measurement.sessions.as_ref().err();
                Row {
                    upstream: setting.transport,
                    upstream_of_way: way.transport,
                    era: setting.era,
                    case: case.to_string(),
                    sessions: 0,
                    way: way.endpoint.name.clone(),
                    figures: figures.clone(),
                    compared: (way.endpoint.name != "direct")
                        .then(|| Comparison::of(figures, direct, relay)),
                    memory_before: measurement.memory_before,
                    memory_after: way.memory(),
                    error: error.map(|error| format!("{error:#}")),
                }
            });
        rows.collect()
    }
}

impl Way {
    fn memory(&self) -> Option<Memory> {
        let process = self.process.as_ref()?;
        Some(Memory::of_tree(process.id()))
    }

    fn cpu(&self) -> Option<CpuTime> {
        let process = self.process.as_ref()?;
        Some(CpuTime::of_tree(process.id()))
    }

    /// Waits until the process is quiet and returns its processor time since `before`.
    async fn settle(&self, before: Option<CpuTime>) -> Option<Duration> {
        let before = before?;
        let mut time = self.cpu()?;
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(QUIET_INTERVAL).await;
            waited += QUIET_INTERVAL;
            let now = self.cpu()?;
            let is_quiet = now.since(&time) < QUIET;
            time = now;
            if waited >= SETTLING && is_quiet || waited >= SETTLING_MAX {
                return Some(time.since(&before));
            }
        }
    }
}

impl Measurement<'_> {
    /// Checks the responses and sends requests that are not counted.
    async fn warm_up(
        &mut self,
        case: Case,
        request: &Arc<crate::message::Request>,
        time: Duration,
    ) {
        let Ok(sessions) = &mut self.sessions else {
            return;
        };
        let result = match sessions.check(case).await {
            Ok(()) => sessions.run(request, time).await.map(drop),
            Err(error) => Err(error),
        };
        self.fail(result);
        let cpu = self.way.cpu();
        self.way.settle(cpu).await;
    }

    async fn round(
        &mut self,
        request: &Arc<crate::message::Request>,
        time: Duration,
    ) -> Option<Sample> {
        let sessions = self.sessions.as_mut().ok()?;
        let before = self.way.cpu();
        let load = sessions.run(request, time).await;
        let cpu = self.way.settle(before).await;
        match load {
            Ok(load) => Some(Sample { load, cpu }),
            Err(error) => {
                self.fail(Err(error));
                None
            }
        }
    }

    /// Keeps an error in place of the sessions, with the end of the process if that is the cause.
    fn fail(&mut self, result: anyhow::Result<()>) {
        let Err(mut error) = result else { return };
        if let Some(process) = &mut self.way.process
            && let Err(ended) = process.check()
        {
            error = error.context(ended.to_string());
        }
        eprintln!("{error:#}");
        self.sessions = Err(error);
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

/// Starts the relay, which is this program.
pub(crate) fn start_relay(upstream: SocketAddr, cores: Option<Cores>) -> anyhow::Result<Process> {
    let address = free_address()?;
    let mut command = std::process::Command::new(std::env::current_exe()?);
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

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.parse().context("a number of seconds")?;
    if !(0.01..=3_600.0).contains(&seconds) {
        bail!("0.01 to 3600 seconds are possible");
    }
    Ok(Duration::from_secs_f64(seconds))
}
