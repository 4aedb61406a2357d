//! Calls of 1 kB through a proxy with all safeguards, held against the same calls through one with none.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::load::{Case, Figures, Sample, Target, merge};
use crate::process::{self, Process};

/// None of the safeguards, also not those that are on by default.
const NO_SAFEGUARDS: &str = "
[safeguards.budget]
enabled = false

[safeguards.searches]
enabled = false
";
/// All safeguards, so wide that none holds a call back or says anything.
const SAFEGUARDS: &str = r#"
[safeguards.result_cache]
enabled = true
tools = ["other"]

[safeguards.budget]
tokens = 1000000000000

[safeguards.searches]
tools = ["*search*"]

[safeguards.limits]
max_concurrent = 100

[[safeguards.limits.rules]]
tools = ["ech*"]
calls = 1000
per = "1s"
max_concurrent = 100

[[safeguards.limits.rules]]
tools = ["*search*"]
calls = 5
per = "1m"
"#;
/// How many calls are made one right after the other: the largest limit that there is allows 1,000 in a
/// second.
const N_CALLS: usize = 900;
/// How long it then takes until as many may be made again, and until a proxy rests.
const WINDOW: Duration = Duration::from_millis(1_100);

/// What calls took without safeguards, and with them.
pub(crate) struct GuardedFigures {
    pub(crate) plain: Figures,
    pub(crate) guarded: Figures,
}

/// How many rounds are measured with the same two processes: how fast one is depends on where its
/// memory happens to lie.
const ROUNDS_OF_A_PAIR: usize = 4;

/// Measures calls of 1 kB through both proxies by turns.
pub(crate) async fn measure(program: &Path, upstream: SocketAddr, rounds: usize) -> GuardedFigures {
    let mut samples = [const { Vec::new() }; 2];
    for pair in 0..rounds.div_ceil(ROUNDS_OF_A_PAIR) {
        let n_rounds = ROUNDS_OF_A_PAIR.min(rounds - pair * ROUNDS_OF_A_PAIR);
        measure_pair(program, upstream, n_rounds, &mut samples).await;
    }
    let [plain, guarded] = samples.map(|samples| merge(&samples));
    GuardedFigures { plain, guarded }
}

/// Measures calls through two new processes, and adds what they took.
async fn measure_pair(
    program: &Path,
    upstream: SocketAddr,
    rounds: usize,
    samples: &mut [Vec<Sample>; 2],
) {
    let data = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let mut processes = Vec::new();
    for (data, safeguards) in data.iter().zip([NO_SAFEGUARDS, SAFEGUARDS]) {
        let file = data.path().join("safeguards.toml");
        std::fs::write(&file, safeguards).expect("a file");
        let mut riglm = process::serve(program, upstream, data.path(), "none");
        processes.push(Process::start(riglm.arg("--config").arg(&file)));
    }
    let mut clients = Vec::new();
    for riglm in &processes {
        let child = Some(riglm.child.id());
        clients.push(Target::connect("riglm", riglm.address, child).await);
    }
    let case = Case::Call(1_000);
    for client in &mut clients {
        client.run(case, N_CALLS).await; // Warms up.
    }
    for round in 0..rounds {
        // Neither is always the second, and what a proxy does after its calls, which is to count and
        // to store, is over before the other one is measured.
        for turn in 0..2 {
            let which = (round + turn) % 2;
            tokio::time::sleep(WINDOW).await;
            samples[which].push(clients[which].run(case, N_CALLS).await);
        }
    }
}
