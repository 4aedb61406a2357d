//! Load benchmark of MCP proxies: the same requests directly, through a bare relay, through riglm and
//! through other proxies, in one run.
//!
//! The client and the upstream are parts of this program. Each hop is a process of its own, and its
//! processor time is the time that the operating system counted for it and its descendants. On a
//! shared machine only the ratios are meaningful, not the absolute times.

mod affinity;
mod client;
mod command_line;
mod compare;
mod filtered;
mod growth;
mod load;
mod machine;
mod memory;
mod message;
mod operators;
mod pages;
mod process;
mod recording;
mod relay;
mod report;
mod riglm;
mod safeguards;
mod sequence;
mod sessions;
mod statistics;
mod upstream;
mod usage;
mod ways;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use affinity::Cores;
use message::Era;
use upstream::Upstream;

/// Measures what an MCP proxy costs: latency, throughput, processor time and memory.
#[derive(Debug, Parser)]
#[command(name = "riglm-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare ways to one server: directly, through a relay, riglm and other proxies
    Compare(Box<compare::CompareArgs>),
    /// Open many sessions and end or abandon them
    Sessions(Box<sessions::SessionsArgs>),
    /// Measure the memory of proxies: idle, with sessions, and after them
    Memory(Box<memory::MemoryArgs>),
    /// Measure processor time and memory with growing numbers of tools, sessions or upstreams
    Growth(growth::GrowthArgs),
    /// Measure lists that hide most tools, beside a call through the relay
    Filtered(riglm::CaseArgs),
    /// Compare calls without and with requests to the control port
    Operators(riglm::CaseArgs),
    /// Compare calls without and with open pages of the control port
    Pages(pages::PagesArgs),
    /// Compare calls without and with all safeguards
    Safeguards(riglm::CaseArgs),
    /// Compare calls without and with recording
    Recording(riglm::CaseArgs),
    /// Serve as the upstream, for measurements by hand
    Upstream {
        /// Port on which it listens
        #[arg(
            long,
            value_name = "PORT",
            default_value_t = 0,
            conflicts_with = "stdio"
        )]
        port: u16,
        /// Serve one client over standard input and output instead
        #[arg(long)]
        stdio: bool,
        /// Number of tools
        #[arg(long, value_name = "N", default_value_t = 100)]
        tools: usize,
        /// Era of the protocol
        #[arg(long, default_value = "legacy")]
        era: Era,
        /// Its core, or a range
        #[arg(long, value_name = "CORES")]
        cores: Option<Cores>,
    },
    /// Forward HTTP to a server, as the baseline of all hops
    #[command(hide = true)]
    Relay {
        #[arg(long)]
        port: u16,
        #[arg(long)]
        upstream: SocketAddr,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Relay { port, upstream } => relay::run(port, upstream),
        Command::Upstream {
            port,
            stdio,
            tools,
            era,
            cores,
        } => serve_upstream(Upstream::new(era, tools), (!stdio).then_some(port), cores),
        Command::Compare(arguments) => measure(arguments.run()),
        Command::Sessions(arguments) => measure(arguments.run()),
        Command::Memory(arguments) => measure(arguments.run()),
        Command::Growth(arguments) => measure(arguments.run()),
        Command::Filtered(arguments) => measure(filtered::run(arguments)),
        Command::Operators(arguments) => measure(operators::run(arguments)),
        Command::Pages(arguments) => measure(arguments.run()),
        Command::Safeguards(arguments) => measure(safeguards::run(arguments)),
        Command::Recording(arguments) => measure(recording::run(arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a measurement, and drops it with all its processes when this program is asked to end.
fn measure(measurement: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        tokio::select! {
            result = measurement => result,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

fn serve_upstream(
    upstream: Upstream,
    port: Option<u16>,
    cores: Option<Cores>,
) -> anyhow::Result<()> {
    if let Some(cores) = cores {
        cores.pin_thread()?;
    }
    let Some(port) = port else {
        return upstream.serve_stdio();
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("port {port} cannot be used"))?;
    eprintln!("http://{}/mcp", listener.local_addr()?);
    upstream.serve(listener)
}
