//! The overhead of one hop: the same requests sent directly, through a minimal relay, and through
//! riglm with recording on, in one run.
//!
//! `cargo bench -p riglm-tests --bench proxy_overhead [-- --rounds N] [--only TEXT] [--riglm PATH]
//! [--cpu N]`
//!
//! The case `operators` compares calls during requests to the control port with calls of the same
//! client without such requests.
//!
//! The case `safeguards` compares calls through a proxy with all safeguards with calls through one
//! without. With `--cpu N` these proxies run on that core only (Linux: `taskset`). Run this program
//! on another core, so that the difference does not depend on the scheduler.
//!
//! The case `filtered` compares lists that hide most tools with a call of 1 kB through the relay.
//! The proxy answers such lists without the server.
//!
//! The relay and riglm are separate processes. Their CPU time is the time that the operating system
//! counted for them. Rounds of the three targets alternate, so that a slow moment of the machine
//! affects all of them. On a shared machine only the ratios are meaningful, not the absolute times.

mod control;
mod lists;
mod load;
mod process;
mod relay;
mod report;
mod safeguards;
mod upstream;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use load::{Case, Target};
use process::{Process, riglm_program};

/// The number of rounds for each target and case, unless `--rounds` is given.
const ROUNDS: usize = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if let Some(upstream) = value_of("--relay") {
        relay::run(upstream.parse().expect("an address"));
        return;
    }
    let rounds = value_of("--rounds").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let upstream = upstream::start(100);
    let relay = start_relay(upstream);
    let data = tempfile::tempdir().expect("a temporary directory");
    let program = value_of("--riglm").map_or_else(riglm_program, PathBuf::from);
    let riglm = Process::start(&mut process::serve_command(
        &program,
        upstream,
        data.path(),
        "none",
    ));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut targets = [
            Target::connect("direct", upstream, None).await,
            Target::connect("relay", relay.address, Some(relay.child.id())).await,
            Target::connect("riglm", riglm.address, Some(riglm.child.id())).await,
        ];
        let mut results = Vec::new();
        let only = value_of("--only").unwrap_or_default();
        for case in Case::ALL
            .into_iter()
            .filter(|case| case.name().contains(&only))
        {
            for target in &mut targets {
                target.run(case, case.requests() / 4).await; // Warms up.
            }
            let mut samples = [const { Vec::new() }; 3];
            for _ in 0..rounds {
                for (target, samples) in targets.iter_mut().zip(&mut samples) {
                    samples.push(target.run(case, case.requests()).await);
                }
            }
            results.push((case, samples.map(|samples| load::merge(&samples))));
        }
        if !results.is_empty() {
            report::print(&results);
        }
        if "filtered".contains(&only) {
            let relay = &mut targets[1];
            report::print_lists(&lists::measure(&program, relay, rounds).await);
        }
        if "operators".contains(&only) {
            report::print_control(&control::measure(&program, upstream, rounds).await);
        }
        if "safeguards".contains(&only) {
            let cpu = value_of("--cpu");
            let figures = safeguards::measure(&program, upstream, cpu.as_deref(), rounds);
            report::print_guarded(&figures.await);
        }
    });
}

fn start_relay(upstream: std::net::SocketAddr) -> Process {
    let program = std::env::current_exe().expect("the path of this program");
    Process::start(
        Command::new(program)
            .args(["--relay", &upstream.to_string()])
            .stderr(Stdio::piped()),
    )
}
