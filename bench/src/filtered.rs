//! Lists of a proxy that has learned which few of many tools are used.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::message::{Case, Era, Request};
use crate::process::Process;
use crate::report::print_table;
use crate::riglm::{Behind, CaseArgs, Riglm, endpoint};
use crate::sequence::Sequence;
use crate::statistics::Figures;
use crate::upstream::Upstream;
use crate::ways::start_relay;

/// Numbers of tools in the catalog.
const SIZES: [usize; 2] = [100, 1_000];
/// The number of tools that are used.
const N_USED: usize = 20;
/// The number of sessions before the measurement.
const N_SESSIONS: usize = 12;
/// The deadline for learning from the recorded calls.
const LEARNING_DEADLINE: Duration = Duration::from_mins(2);
/// Lists of the proxy and calls through the relay in a round.
const N_REQUESTS: usize = 4_000;
/// Complete lists in a round.
const N_COMPLETE: usize = 100;
/// The header that names the work session of a request.
const WORK: &str = "x-riglm-session";

const HEAD: &str = "| list | p50 / p99 / CPU us | relay, call of 1 kB: p50 / p99 / CPU us | ratio of CPU | direct, all tools: p50 us |
|---|---|---|---|---|";

/// Latencies of lists of one catalog.
struct ListFigures {
    n_tools: usize,
    n_shown: usize,
    list: Figures,
    /// The complete list, directly from the server.
    direct: Figures,
    /// A call of 1 kB through the relay.
    relay: Figures,
}

/// Measures lists through a proxy with learned predictions, alternating with calls through the
/// relay, and prints the table.
pub(crate) async fn run(arguments: CaseArgs) -> anyhow::Result<()> {
    let riglm = arguments
        .prepare()?
        .with_arguments(["--strategy", "prediction"])
        .with_variable("RIGLM__FILTERING__MIN_TOOLS", &N_USED.to_string());
    let mut rows = Vec::new();
    for n_tools in SIZES {
        rows.push(measure(&arguments, &riglm, n_tools).await?.row());
    }
    print_table(HEAD, &rows);
    Ok(())
}

async fn measure(
    arguments: &CaseArgs,
    riglm: &Riglm,
    n_tools: usize,
) -> anyhow::Result<ListFigures> {
    let upstream = Upstream::new(Era::Legacy, n_tools).start()?;
    let process = riglm.start("riglm", &Behind::Http(upstream), arguments.cores())?;
    let relay_process = start_relay(upstream, arguments.cores())?;
    run_sessions(&process, n_tools).await?;
    let (mut list, n_shown) = open_after_learning(&process, n_tools).await?;
    let mut direct = Sequence::open_direct(&endpoint("direct", upstream)).await?;
    let mut relay = Sequence::open("relay", &relay_process).await?;
    let (list_request, call) = (
        Request::list(Era::Legacy),
        Case::Call(1_000).request(Era::Legacy),
    );
    relay.run(&call, N_REQUESTS / 4).await?; // Warms up.
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..arguments.rounds() {
        samples[0].push(list.run(&list_request, N_REQUESTS).await?);
        samples[1].push(direct.run(&list_request, N_COMPLETE).await?);
        samples[2].push(relay.run(&call, N_REQUESTS).await?);
    }
    let [list, direct, relay] = samples.map(|samples| Figures::of(&samples));
    Ok(ListFigures {
        n_tools,
        n_shown,
        list,
        direct,
        relay,
    })
}

/// Runs sessions that all call the same few tools.
async fn run_sessions(riglm: &Process, n_tools: usize) -> anyhow::Result<()> {
    for session in 0..N_SESSIONS {
        let work = [(WORK, format!("work {session}"))];
        let mut sequence = Sequence::open_with("riglm", riglm, &work).await?;
        for used in 0..N_USED {
            let tool = format!("tool_{}", 1 + used * (n_tools - 1) / N_USED);
            let call = Request::call(Era::Legacy, &tool, r#"{"field_0":"x"}"#);
            sequence.session().ask(&call).await?;
        }
    }
    Ok(())
}

/// Returns a session whose list hides most tools, and the number of tools in its list.
async fn open_after_learning(riglm: &Process, n_tools: usize) -> anyhow::Result<(Sequence, usize)> {
    let deadline = Instant::now() + LEARNING_DEADLINE;
    let mut attempt = 0_u32;
    loop {
        let work = [(WORK, format!("measured {attempt}"))];
        let mut sequence = Sequence::open_with("riglm", riglm, &work).await?;
        let n_listed = sequence.session().n_listed().await?;
        if n_listed < n_tools / 2 {
            return Ok((sequence, n_listed));
        }
        if Instant::now() > deadline {
            bail!("riglm: {n_listed} of {n_tools} tools are listed after 2 min of learning");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        attempt += 1;
    }
}

impl ListFigures {
    fn row(&self) -> String {
        let cpu = |of: &Figures| of.cpu_us.unwrap_or_default();
        let cell = |of: &Figures| format!("{:.0} / {:.0} / {:.1}", of.p50_us, of.p99_us, cpu(of));
        format!(
            "| {} of {} tools | {} | {} | {:.2} | {:.0} |",
            self.n_shown,
            self.n_tools,
            cell(&self.list),
            cell(&self.relay),
            cpu(&self.list) / cpu(&self.relay),
            self.direct.p50_us
        )
    }
}
