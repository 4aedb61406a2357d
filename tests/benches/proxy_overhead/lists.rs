//! Lists of a proxy that has learned which few of many tools are used.

use std::path::Path;
use std::time::Duration;

use crate::load::{Case, Figures, Target, merge};
use crate::process::{self, Process};
use crate::upstream;

/// Numbers of tools in the catalog.
const SIZES: [usize; 2] = [100, 1_000];
/// The number of tools that are used.
const N_USED: usize = 20;
/// The number of sessions before the measurement.
const N_SESSIONS: usize = 12;
/// The deadline for learning from the recorded calls.
const LEARNING_DEADLINE: Duration = Duration::from_mins(2);

/// Latencies of lists of one catalog.
pub(crate) struct ListFigures {
    pub(crate) n_tools: usize,
    pub(crate) n_shown: usize,
    pub(crate) list: Figures,
    /// The complete list, directly from the server.
    pub(crate) direct: Figures,
    /// A call of 1 kB through the relay.
    pub(crate) relay: Figures,
}

/// Measures lists through a proxy with learned predictions, alternating with calls through the
/// relay.
pub(crate) async fn measure(program: &Path, relay: &mut Target, rounds: usize) -> Vec<ListFigures> {
    let mut all = Vec::new();
    for n_tools in SIZES {
        let upstream = upstream::start(n_tools);
        let data = tempfile::tempdir().expect("a temporary directory");
        let mut serve = process::serve_command(program, upstream, data.path(), "prediction");
        serve.env("RIGLM__FILTERING__MIN_TOOLS", N_USED.to_string());
        let riglm = Process::start(&mut serve);
        run_sessions(&riglm, n_tools).await;
        let (mut client, n_shown) = connect_after_learning(&riglm, n_tools).await;
        let mut direct = Target::connect("direct", upstream, None).await;
        let mut samples = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            samples[0].push(client.run(Case::Whole, Case::Whole.requests()).await);
            samples[1].push(direct.run(Case::List(n_tools), 100).await);
            let call = Case::Call(1_000);
            samples[2].push(relay.run(call, call.requests()).await);
        }
        let [list, direct, relay] = samples.map(|samples| merge(&samples));
        all.push(ListFigures {
            n_tools,
            n_shown,
            list,
            direct,
            relay,
        });
    }
    all
}

/// Runs sessions that all call the same few tools.
async fn run_sessions(riglm: &Process, n_tools: usize) {
    for session in 0..N_SESSIONS {
        let process = Some(riglm.child.id());
        let work = Some(format!("work {session}"));
        let mut client = Target::connect_for("riglm", riglm.address, process, work).await;
        for used in 0..N_USED {
            let number = used * n_tools / N_USED;
            client.call(&format!("tool_{number}")).await;
        }
    }
}

/// Returns a client whose list hides most tools, and the number of tools in its list.
async fn connect_after_learning(riglm: &Process, n_tools: usize) -> (Target, usize) {
    let deadline = std::time::Instant::now() + LEARNING_DEADLINE;
    for attempt in 0.. {
        let process = Some(riglm.child.id());
        let work = Some(format!("measured {attempt}"));
        let mut client = Target::connect_for("riglm", riglm.address, process, work).await;
        let n_listed = client.n_listed().await;
        if n_listed < n_tools / 2 {
            return (client, n_listed);
        }
        assert!(
            std::time::Instant::now() < deadline,
            "{n_listed} of {n_tools} tools are listed after {LEARNING_DEADLINE:?}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    unreachable!("attempts do not end")
}
