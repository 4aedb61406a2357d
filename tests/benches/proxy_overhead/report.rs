//! Tables of the results.

use crate::control::ControlFigures;
use crate::lists::ListFigures;
use crate::load::{Case, Figures};
use crate::safeguards::{GuardedFigures, MedianInterval};

/// Prints the overhead of both hops over the direct connection, and the ratio between them.
#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
pub(crate) fn print(results: &[(Case, [Figures; 3])]) {
    println!(
        "| case | direct p50 us | relay: added p50 / p99 / CPU us | riglm: added p50 / p99 / CPU us | ratio p50 / p99 / CPU |"
    );
    println!("|---|---|---|---|---|");
    for (case, [direct, relay, riglm]) in results {
        let added = |hop: &Figures| [hop.p50 - direct.p50, hop.p99 - direct.p99, hop.cpu];
        let (relay, riglm) = (added(relay), added(riglm));
        let cell = |values: [f64; 3]| values.map(|value| format!("{value:.0}")).join(" / ");
        let ratio = [0, 1, 2]
            .map(|at| format!("{:.2}", riglm[at] / relay[at]))
            .join(" / ");
        println!(
            "| {} | {:.0} | {} | {} | {ratio} |",
            case.name(),
            direct.p50,
            cell(relay),
            cell(riglm)
        );
    }
}

/// Prints the latencies of filtered lists, and the ratio to a call through the relay.
#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
pub(crate) fn print_lists(all: &[ListFigures]) {
    println!();
    println!(
        "| list | p50 / p99 / CPU us | relay, call of 1 kB: p50 / p99 / CPU us | ratio of CPU | direct, all tools: p50 us |"
    );
    println!("|---|---|---|---|---|");
    for figures in all {
        let cell = |of: &Figures| format!("{:.0} / {:.0} / {:.1}", of.p50, of.p99, of.cpu);
        println!(
            "| {} of {} tools | {} | {} | {:.2} | {:.0} |",
            figures.n_shown,
            figures.n_tools,
            cell(&figures.list),
            cell(&figures.relay),
            figures.list.cpu / figures.relay.cpu,
            figures.direct.p50
        );
    }
}

/// Prints the latencies of calls with and without requests to the control port, and their ratio.
#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
pub(crate) fn print_control(figures: &ControlFigures) {
    let ControlFigures {
        alone,
        asked,
        n_answered,
    } = figures;
    println!();
    println!(
        "| call of 1 kB: p50 / p99 / CPU us | while operators ask ({n_answered} answers) | ratio p50 / p99 / CPU |"
    );
    println!("|---|---|---|");
    let cell = |of: &Figures| format!("{:.0} / {:.0} / {:.1}", of.p50, of.p99, of.cpu);
    println!(
        "| {} | {} | {:.3} / {:.3} / {:.3} |",
        cell(alone),
        cell(asked),
        asked.p50 / alone.p50,
        asked.p99 / alone.p99,
        asked.cpu / alone.cpu
    );
}

/// Prints the latencies of calls without safeguards, for two processes, and with safeguards, and
/// the difference.
#[expect(clippy::print_stdout, reason = "the table is what the bench is for")]
pub(crate) fn print_guarded(figures: &GuardedFigures) {
    let GuardedFigures {
        plain,
        again,
        guarded,
        added,
        noise,
    } = figures;
    println!();
    println!(
        "| call of 1 kB: p50 / p99 / CPU us | the same again | with all safeguards | added p50 us (95 %) | noise p50 us (95 %) | added CPU us |"
    );
    println!("|---|---|---|---|---|---|");
    let cell = |of: &Figures| format!("{:.0} / {:.0} / {:.1}", of.p50, of.p99, of.cpu);
    let middle =
        |of: &MedianInterval| format!("{:.1} ({:.1} to {:.1})", of.median, of.low, of.high);
    println!(
        "| {} | {} | {} | {} | {} | {:.1} |",
        cell(plain),
        cell(again),
        cell(guarded),
        middle(added),
        middle(noise),
        guarded.cpu - plain.cpu.midpoint(again.cpu)
    );
}
