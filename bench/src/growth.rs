//! Growth of processor time and memory with the number of tools, sessions and upstreams: tables, and
//! plots for Markdown.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::client::Session;
use crate::load::Sessions;
use crate::message::{Case, Era, Request};
use crate::process::{Process, raise_file_limit};
use crate::report::print_table;
use crate::riglm::{Behind, CaseArgs, Riglm, endpoint};
use crate::statistics::{Figures, Sample, ratio};
use crate::upstream::Upstream;
use crate::usage::{CpuTime, Memory, settled_since};
use crate::ways::start_relay;

/// The measured call.
const CALL: Case = Case::Call(1_000);
/// The tools of a server, where their number does not grow.
const N_TOOLS: usize = 20;
/// The sessions, where their number does not grow.
const N_SESSIONS: usize = 10;
/// The time of a round.
const ROUND: Duration = Duration::from_secs(1);
/// The time after which learned tools and written records no longer change the memory.
const PAUSE: Duration = Duration::from_secs(3);

/// A quantity that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dimension {
    /// The tools of one server.
    Tools,
    /// Concurrent sessions, each with a connection of its own.
    Sessions,
    /// Servers with 20 tools each.
    Upstreams,
}

/// Options of `growth`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrowthArgs {
    /// Quantity that grows
    dimension: Dimension,
    /// Its values [default: 10 to 5000 tools, 1 to 1000 sessions, 1 to 50 upstreams]
    #[arg(long, value_name = "N", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    values: Vec<u32>,
    /// The measured program.
    #[command(flatten)]
    case: CaseArgs,
}

/// The figures of riglm and of the relay in one scene.
#[derive(Debug)]
struct Point {
    value: usize,
    call: Figures,
    list: Figures,
    relay_call: Figures,
    relay_list: Figures,
    idle: Memory,
    loaded: Memory,
}

/// A figure of a point.
type Value = fn(&Point) -> f64;

/// riglm and the relay in front of the same servers.
struct Scene {
    riglm: Process,
    relay: Process,
    n_sessions: usize,
}

impl GrowthArgs {
    /// Measures each value and prints a table and plots.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        raise_file_limit();
        let program = self.case.prepare()?;
        let mut points = Vec::new();
        // If a value cannot be measured, the results so far are printed, too.
        let result = self.measure_all(&program, &mut points).await;
        let rows: Vec<String> = points.iter().map(Point::row).collect();
        print_table(&head(self.dimension), &rows);
        print_plots(self.dimension, &points);
        result
    }

    async fn measure_all(&self, program: &Riglm, points: &mut Vec<Point>) -> anyhow::Result<()> {
        for value in self.values() {
            eprintln!("{value} {}", self.dimension.plural());
            let scene = self.start(program, value)?;
            points.push(scene.measure(value, self.case.rounds()).await?);
        }
        Ok(())
    }

    fn values(&self) -> Vec<usize> {
        let given = self.values.iter().map(|value| *value as usize);
        let given: Vec<usize> = given.collect();
        if !given.is_empty() {
            return given;
        }
        match self.dimension {
            Dimension::Tools => vec![10, 100, 1_000, 5_000],
            Dimension::Sessions => vec![1, 10, 100, 1_000],
            Dimension::Upstreams => vec![1, 5, 10, 20, 50],
        }
    }

    fn start(&self, program: &Riglm, value: usize) -> anyhow::Result<Scene> {
        let n_tools = match self.dimension {
            Dimension::Tools => value,
            Dimension::Sessions | Dimension::Upstreams => N_TOOLS,
        };
        let n_sessions = match self.dimension {
            Dimension::Sessions => value,
            Dimension::Tools | Dimension::Upstreams => N_SESSIONS,
        };
        let first = Upstream::new(Era::Legacy, n_tools).start()?;
        let relay = start_relay(first, self.case.cores())?;
        // More sessions than the limits of a configuration without changes allow.
        let limit = (2 * n_sessions + 1_000).max(16_384).to_string();
        let mut program = program.clone();
        for name in ["SESSIONS", "SESSIONS_PER_PRINCIPAL", "CONNECTIONS"] {
            program = program.with_variable(&format!("RIGLM__LIMITS__{name}"), &limit);
        }
        let behind = if self.dimension == Dimension::Upstreams {
            for number in 1..=value {
                let server = match number {
                    1 => first,
                    _ => Upstream::new(Era::Legacy, n_tools).start()?,
                };
                let name = format!("RIGLM__UPSTREAMS__U{number}__URL");
                program = program.with_variable(&name, &format!("http://{server}/mcp"));
            }
            Behind::Configured
        } else {
            Behind::Http(first)
        };
        Ok(Scene {
            riglm: program.start("riglm", &behind, self.case.cores())?,
            relay,
            n_sessions,
        })
    }
}

impl Scene {
    async fn measure(&self, value: usize, n_rounds: u32) -> anyhow::Result<Point> {
        tokio::time::sleep(PAUSE).await;
        let idle = Memory::of_tree(self.riglm.id());
        let mut riglm = self.open(&self.riglm).await?;
        let mut relay = self.open(&self.relay).await?;
        let tool = self.echo().await?;
        let call = Arc::new(CALL.request_to(Era::Legacy, &tool));
        let (plain_call, list) = (
            Arc::new(CALL.request(Era::Legacy)),
            Arc::new(Request::list(Era::Legacy)),
        );
        let mut samples = [const { Vec::new() }; 4];
        for _ in 0..n_rounds {
            samples[0].push(sample(&self.riglm, &mut riglm, &call).await?);
            samples[1].push(sample(&self.relay, &mut relay, &plain_call).await?);
            samples[2].push(sample(&self.riglm, &mut riglm, &list).await?);
            samples[3].push(sample(&self.relay, &mut relay, &list).await?);
        }
        tokio::time::sleep(PAUSE).await;
        let loaded = Memory::of_tree(self.riglm.id());
        riglm.close().await?;
        relay.close().await?;
        let [call, relay_call, list, relay_list] = samples.map(|samples| Figures::of(&samples));
        Ok(Point {
            value,
            call,
            list,
            relay_call,
            relay_list,
            idle,
            loaded,
        })
    }

    async fn open(&self, process: &Process) -> anyhow::Result<Sessions> {
        let endpoint = endpoint("hop", process.address);
        Sessions::open(&endpoint, Era::Legacy, self.n_sessions).await
    }

    /// Returns the name of an echo tool in the list of riglm: with several servers it has a prefix.
    async fn echo(&self) -> anyhow::Result<String> {
        let endpoint = endpoint("riglm", self.riglm.address);
        let mut session = Session::open(&endpoint, Era::Legacy).await?;
        let tool = session.tool_ending_with("echo").await?;
        session.close().await?;
        Ok(tool)
    }
}

/// Sends requests in all sessions for the time of a round.
async fn sample(
    process: &Process,
    sessions: &mut Sessions,
    request: &Arc<Request>,
) -> anyhow::Result<Sample> {
    sessions.wake().await?;
    let before = CpuTime::of_tree(process.id());
    let load = sessions.run(request, ROUND).await?;
    let cpu = settled_since(process.id(), &before).await;
    Ok(Sample {
        load,
        cpu: Some(cpu),
    })
}

impl Dimension {
    fn plural(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Sessions => "sessions",
            Self::Upstreams => "upstreams",
        }
    }
}

impl Point {
    fn row(&self) -> String {
        let cpu = |of: &Figures| of.cpu_us.unwrap_or_default();
        let cell = |of: &Figures, relay: &Figures| {
            format!(
                "{:.0} / {:.0} / {:.0} ({:.1})",
                of.p50_us,
                of.p99_us,
                cpu(of),
                ratio(cpu(of), cpu(relay))
            )
        };
        format!(
            "| {} | {} | {} | {:.0}, {:.0} |",
            self.value,
            cell(&self.call, &self.relay_call),
            cell(&self.list, &self.relay_list),
            self.idle.megabytes(),
            self.loaded.megabytes()
        )
    }
}

fn head(dimension: Dimension) -> String {
    let call = "call of 1 kB: p50 / p99 / CPU us (of the relay's)";
    let list = "list: p50 / p99 / CPU us (of the relay's)";
    let plural = dimension.plural();
    format!("| {plural} | {call} | {list} | RSS MB idle, loaded |\n|---|---|---|---|")
}

/// Prints plots of the processor time and of the memory, for readers of Markdown with Mermaid.
#[expect(clippy::print_stdout, reason = "the plots are what the program is for")]
fn print_plots(dimension: Dimension, points: &[Point]) {
    let plots: [(&str, &str, Value); 3] = [
        ("CPU of a call", "us", |it| {
            it.call.cpu_us.unwrap_or_default()
        }),
        ("CPU of a list", "us", |it| {
            it.list.cpu_us.unwrap_or_default()
        }),
        ("Resident memory under load", "MB", |it| {
            it.loaded.megabytes()
        }),
    ];
    for (title, unit, value) in plots {
        println!("\n{}", plot(title, unit, dimension, points, value));
    }
}

fn plot(title: &str, unit: &str, dimension: Dimension, points: &[Point], value: Value) -> String {
    let joined = |texts: Vec<String>| texts.join(", ");
    let names = joined(points.iter().map(|point| point.value.to_string()).collect());
    let bars = joined(
        points
            .iter()
            .map(|it| format!("{:.1}", value(it)))
            .collect(),
    );
    let mut text = String::from("```mermaid\nxychart-beta\n");
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "    title \"{title}\"\n    x-axis \"{}\" [{names}]\n    y-axis \"{unit}\"\n    bar [{bars}]\n```",
        dimension.plural()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: usize, cpu_us: f64) -> Point {
        let figures = |cpu_us| Figures {
            n_requests: 1,
            p50_us: 10.0,
            p90_us: 20.0,
            p99_us: 30.0,
            per_second: 100.0,
            cpu_us: Some(cpu_us),
        };
        let memory = |rss_kib| Memory {
            rss_kib,
            anonymous_kib: 0,
        };
        Point {
            value,
            call: figures(cpu_us),
            list: figures(2.0 * cpu_us),
            relay_call: figures(10.0),
            relay_list: figures(10.0),
            idle: memory(20_000),
            loaded: memory(30_000),
        }
    }

    #[test]
    fn a_row_has_the_ratios_to_the_relay() {
        let row = point(100, 25.0).row();
        assert_eq!(
            row,
            "| 100 | 10 / 30 / 25 (2.5) | 10 / 30 / 50 (5.0) | 20, 31 |"
        );
        let head = head(Dimension::Tools);
        let n_columns = |line: &str| line.matches('|').count();
        assert!(head.lines().all(|line| n_columns(line) == n_columns(&row)));
    }

    #[test]
    fn a_plot_has_a_bar_for_each_value() {
        let points = [point(1, 5.0), point(10, 7.25)];
        let text = plot("CPU", "us", Dimension::Sessions, &points, |it| {
            it.call.cpu_us.unwrap_or_default()
        });
        assert_eq!(
            text,
            "```mermaid\nxychart-beta\n    title \"CPU\"\n    x-axis \"sessions\" [1, 10]\n    \
             y-axis \"us\"\n    bar [5.0, 7.2]\n```"
        );
    }
}
