//! Lists of a proxy that has learned which few of many tools are used.

use std::path::Path;
use std::time::Duration;

use crate::load::{Case, Figures, Target, merge};
use crate::process::{self, Process};
use crate::upstream;

/// How many tools the servers have.
const SIZES: [usize; 2] = [100, 1_000];
/// How many of them are used.
const N_USED: usize = 20;
/// In how many sessions they are used, before anything is measured.
const N_SESSIONS: usize = 12;
/// The longest that it may take until what was called is learned.
const LEARNED_WITHIN: Duration = Duration::from_mins(2);

/// What the lists of one catalog took.
pub(crate) struct ListFigures {
    pub(crate) n_tools: usize,
    pub(crate) n_shown: usize,
    pub(crate) list: Figures,
    /// The same list whole, from the server.
    pub(crate) direct: Figures,
    /// A call of 1 kB through the relay.
    pub(crate) relay: Figures,
}

/// Measures lists through a proxy that learned, in turn with calls through the relay.
pub(crate) async fn measure(program: &Path, relay: &mut Target, rounds: usize) -> Vec<ListFigures> {
    let mut all = Vec::new();
    for n_tools in SIZES {
        let upstream = upstream::start(n_tools);
        let data = tempfile::tempdir().expect("a temporary directory");
        let mut serve = process::serve(program, upstream, data.path(), "prediction");
        serve.env("RIGLM__FILTERING__MIN_TOOLS", N_USED.to_string());
        let riglm = Process::start(&mut serve);
        teach(&riglm, n_tools).await;
        let (mut client, n_shown) = shown(&riglm, n_tools).await;
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

/// Has clients call the same few tools of all, one after the other.
async fn teach(riglm: &Process, n_tools: usize) {
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

/// Returns a client whose list leaves out most tools, and how many it has.
async fn shown(riglm: &Process, n_tools: usize) -> (Target, usize) {
    let deadline = std::time::Instant::now() + LEARNED_WITHIN;
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
            "{n_listed} of {n_tools} tools are listed after {LEARNED_WITHIN:?}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    unreachable!("attempts do not end")
}
