//! Memory of proxies: idle, with sessions that have listed and called tools, and after them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::client::Session;
use crate::message::{Case, Era};
use crate::report::{ResultFile, megabytes, print_table};
use crate::statistics::ratio;
use crate::usage::Memory;
use crate::ways::{Setting, Transport, Way, WayArgs};

/// The size of the calls in bytes.
const CALL: Case = Case::Call(1_000);

const HEAD: &str = "| way | tools | sessions, calls of each | RSS (anonymous) MB idle | sessions open | sessions ended | CPU ms/s idle |
|---|---|---|---|---|---|---|";

/// Options of `memory`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MemoryArgs {
    /// The measured ways.
    #[command(flatten)]
    ways: WayArgs,
    /// Numbers of tools of the upstream
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,1000",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tools: Vec<u32>,
    /// Number of sessions; each lists the tools once
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: u32,
    /// Calls of 1 kB of each session
    #[arg(long, value_name = "N", default_value_t = 10)]
    calls: u32,
    /// Era of the protocol
    #[arg(long, default_value = "legacy")]
    era: Era,
    /// Transport of the upstream
    #[arg(long, default_value = "http")]
    upstream: Transport,
    /// Seconds after the start and after the end of the sessions until memory is read
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u64,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The memory of one way.
#[derive(Debug, Serialize)]
struct Row {
    way: String,
    n_tools: usize,
    n_sessions: u32,
    n_calls: u32,
    idle: Option<Memory>,
    open: Option<Memory>,
    ended: Option<Memory>,
    /// Processor time in milliseconds per second while there is nothing to do, after the sessions.
    idle_cpu_ms_per_second: Option<f64>,
}

impl MemoryArgs {
    /// Measures all ways and prints the table.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let file = ResultFile::create(self.json.as_deref())?;
        let launcher = self.ways.clone().prepare()?;
        let mut rows = Vec::new();
        for n_tools in &self.tools {
            let setting = Setting {
                transport: self.upstream,
                era: self.era,
                n_tools: *n_tools as usize,
            };
            let scene = launcher.start(setting)?;
            for way in &scene.ways {
                if way.process.is_some() && way.transport == setting.transport {
                    eprintln!("{}: {n_tools} tools", way.endpoint.name);
                    rows.push(self.measure(way, setting).await?);
                }
            }
        }
        let lines: Vec<String> = rows.iter().map(Row::markdown).collect();
        print_table(HEAD, &lines);
        file.write(&rows)
    }

    async fn measure(&self, way: &Way, setting: Setting) -> anyhow::Result<Row> {
        let pause = Duration::from_secs(self.seconds);
        tokio::time::sleep(pause).await;
        let idle = way.memory();
        let list = Case::List(setting.n_tools).request(self.era);
        let call = CALL.request(self.era);
        let mut sessions = Vec::new();
        for _ in 0..self.sessions {
            let mut session = Session::open(&way.endpoint, self.era).await?;
            session.ask(&list).await?;
            for _ in 0..self.calls {
                session.ask(&call).await?;
            }
            sessions.push(session);
        }
        way.settle(way.cpu()).await;
        let open = way.memory();
        for mut session in sessions {
            session.reconnect().await?;
            session.close().await?;
        }
        way.settle(way.cpu()).await;
        let before = way.cpu();
        tokio::time::sleep(pause).await;
        let idle_cpu = before.and_then(|before| Some(way.cpu()?.since(&before)));
        Ok(Row {
            way: way.endpoint.name.clone(),
            n_tools: setting.n_tools,
            n_sessions: self.sessions,
            n_calls: self.calls,
            idle,
            open,
            ended: way.memory(),
            idle_cpu_ms_per_second: idle_cpu
                .map(|cpu| ratio(1e3 * cpu.as_secs_f64(), pause.as_secs_f64())),
        })
    }
}

impl Row {
    fn markdown(&self) -> String {
        let memory = |memory: Option<Memory>| memory.map_or("-".into(), megabytes);
        format!(
            "| {} | {} | {}, {} | {} | {} | {} | {} |",
            self.way,
            self.n_tools,
            self.n_sessions,
            self.n_calls,
            memory(self.idle),
            memory(self.open),
            memory(self.ended),
            self.idle_cpu_ms_per_second
                .map_or("-".into(), |cpu| format!("{cpu:.2}"))
        )
    }
}
