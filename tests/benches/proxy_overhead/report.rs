//! The table.

use crate::load::{Case, Figures};

/// Prints what the hops add to the direct way, and the ratio between them.
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
