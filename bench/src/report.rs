//! The report of a comparison: tables in Markdown, and JSON.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::affinity::Placement;
use crate::machine::Machine;
use crate::message::Era;
use crate::statistics::{Comparison, Figures, Measured};
use crate::usage::Memory;
use crate::ways::Transport;

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    placement: Option<String>,
    rows: Vec<Row>,
}

/// The results of one case through one way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The transport of the upstream in this part of the run.
    pub(crate) upstream: Transport,
    /// The transport between this way and the upstream: baselines always use HTTP.
    pub(crate) upstream_of_way: Transport,
    /// The era of clients and upstream.
    pub(crate) era: Era,
    /// The name of the case.
    pub(crate) case: String,
    /// The number of concurrent sessions.
    pub(crate) sessions: usize,
    /// The name of the way.
    pub(crate) way: String,
    /// The measured values.
    pub(crate) measured: Measured,
    /// The comparison with the baselines; none for the direct way.
    pub(crate) compared: Option<Comparison>,
    /// Memory before these sessions were opened.
    pub(crate) memory_before: Option<Memory>,
    /// Memory after the last round.
    pub(crate) memory_after: Option<Memory>,
    /// The error that ended the measurement, if any.
    pub(crate) error: Option<String>,
}

impl Report {
    /// Returns an empty report of this machine.
    pub(crate) fn new(placement: Option<Placement>) -> Self {
        Self {
            machine: Machine::this(),
            placement: placement.map(|placement| placement.to_string()),
            rows: Vec::new(),
        }
    }

    /// Adds rows.
    pub(crate) fn add(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }

    /// Returns the number of failed measurements.
    pub(crate) fn n_failed(&self) -> usize {
        self.rows.iter().filter(|row| row.error.is_some()).count()
    }

    /// Returns the cases in which riglm took more than `limit` times the processor time of the relay in
    /// every round, with the smallest ratio.
    pub(crate) fn cases_above(&self, limit: f64) -> String {
        let of_riglm = self.rows.iter().filter(|row| row.way == "riglm");
        let above = of_riglm.filter_map(|row| {
            let (least, _) = row.compared.as_ref()?.cpu_ratio_range?;
            let case = format!("{} with {} sessions: {least:.1}", row.case, row.sessions);
            (least > limit).then_some(case)
        });
        above.collect::<Vec<_>>().join(", ")
    }

    /// Prints the report as Markdown.
    #[expect(clippy::print_stdout, reason = "the report is what the program is for")]
    pub(crate) fn print(&self) {
        println!("{}", self.markdown());
    }

    fn markdown(&self) -> String {
        let mut text = self.machine.to_string();
        // Writing to a string cannot fail.
        let mut add = |arguments: fmt::Arguments<'_>| {
            let _ = fmt::Write::write_fmt(&mut text, arguments);
        };
        if let Some(placement) = &self.placement {
            add(format_args!("; {placement}"));
        }
        add(format_args!("\n"));
        let mut group = None;
        for row in &self.rows {
            if group != Some((row.upstream, row.era)) {
                group = Some((row.upstream, row.era));
                add(format_args!(
                    "\n{} upstream, clients of {}:\n\n{HEAD}\n",
                    row.upstream.name(),
                    row.era.revision()
                ));
            }
            add(format_args!("{}\n", row.markdown()));
        }
        text
    }
}

const HEAD: &str = "\
| case | sessions | way | p50 / p90 / p99 us | calls/s | CPU us/call | of direct | added p50 / p99 us \
| of relay: CPU (rounds) / added p50 / p99 | RSS (anonymous) MB before, after |
|---|---|---|---|---|---|---|---|---|---|";

impl Row {
    fn markdown(&self) -> String {
        let Self {
            case,
            sessions,
            measured: Measured { all: figures, .. },
            ..
        } = self;
        let way = if self.upstream_of_way == self.upstream {
            self.way.clone()
        } else {
            format!("{} ({})", self.way, self.upstream_of_way.name())
        };
        let start = format!("| {case} | {sessions} | {way} |");
        if let Some(error) = &self.error {
            // The whole text is in the JSON, and was printed when it came.
            let error = error.lines().next().unwrap_or_default().replace('|', "\\|");
            return format!("{start} failed: {error} |{}", " |".repeat(6));
        }
        let compared = self.compared.as_ref();
        let cell =
            |of: fn(&Comparison) -> Option<f64>, digits| number(compared.and_then(of), digits);
        let memory = match (self.memory_before, self.memory_after) {
            (Some(before), Some(after)) => format!("{}, {}", megabytes(before), megabytes(after)),
            _ => String::new(),
        };
        let share = compared.and_then(|it| it.share_of_direct);
        format!(
            "{start} {:.0} / {:.0} / {:.0} | {:.0} | {} | {} | {} / {} | {} / {} / {} | {memory} |",
            figures.p50_us,
            figures.p90_us,
            figures.p99_us,
            figures.per_second,
            number(figures.cpu_us, 1),
            share.map_or("-".into(), |share| format!("{:.0} %", 100.0 * share)),
            cell(|it| it.added_p50_us, 0),
            cell(|it| it.added_p99_us, 0),
            cpu_ratio(compared),
            cell(|it| it.added_p50_ratio, 2),
            cell(|it| it.added_p99_ratio, 2),
        )
    }
}

/// Prints the latencies and processor time of calls of 1 kB, those of the same calls under `other`
/// conditions, and their ratios.
pub(crate) fn print_ratios(other: &str, alone: &Figures, with: &Figures) {
    let head = format!(
        "| call of 1 kB: p50 / p99 / CPU us | {other} | ratio p50 / p99 / CPU |\n|---|---|---|"
    );
    let cpu = |of: &Figures| of.cpu_us.unwrap_or_default();
    let cell = |of: &Figures| format!("{:.0} / {:.0} / {:.1}", of.p50_us, of.p99_us, cpu(of));
    let row = format!(
        "| {} | {} | {:.3} / {:.3} / {:.3} |",
        cell(alone),
        cell(with),
        with.p50_us / alone.p50_us,
        with.p99_us / alone.p99_us,
        cpu(with) / cpu(alone)
    );
    print_table(&head, &[row]);
}

/// Prints a table in Markdown, below the description of this machine.
#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
pub(crate) fn print_table(head: &str, rows: &[String]) {
    println!("{}\n\n{head}", Machine::this());
    for row in rows {
        println!("{row}");
    }
}

/// A file for results as JSON, which is created before the measurement.
#[derive(Debug)]
pub(crate) struct ResultFile(Option<File>);

impl ResultFile {
    /// Creates the file, if there is a path.
    pub(crate) fn create(path: Option<&Path>) -> anyhow::Result<Self> {
        let create = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        Ok(Self(path.map(create).transpose()?))
    }

    /// Writes the results.
    pub(crate) fn write(self, results: &impl Serialize) -> anyhow::Result<()> {
        let Some(mut file) = self.0 else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(results)?;
        writeln!(file, "{text}").context("the results cannot be written")
    }
}

/// Returns the ratio of processor time, with the range of all rounds if there are several.
fn cpu_ratio(compared: Option<&Comparison>) -> String {
    let ratio = number(compared.and_then(|it| it.cpu_ratio), 2);
    match compared.and_then(|it| it.cpu_ratio_range) {
        Some((least, greatest)) if least < greatest => {
            format!("{ratio} ({least:.2} to {greatest:.2})")
        }
        _ => ratio,
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

/// Returns resident memory and its anonymous part in MB.
pub(crate) fn megabytes(memory: Memory) -> String {
    format!(
        "{:.1} ({:.1})",
        memory.megabytes(),
        memory.anonymous_megabytes()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Figures;

    fn row(way: &str, error: Option<&str>) -> Row {
        let figures = Figures {
            n_requests: 10,
            p50_us: 100.4,
            p90_us: 200.0,
            p99_us: 300.0,
            per_second: 5_000.0,
            cpu_us: Some(40.25),
        };
        let measured = Measured {
            rounds: vec![figures.clone()],
            all: figures,
        };
        Row {
            upstream: Transport::Stdio,
            upstream_of_way: Transport::Stdio,
            era: Era::Modern,
            case: "call-1kb".into(),
            sessions: 10,
            way: way.into(),
            compared: Some(Comparison::of(&measured, None, Some(&measured))),
            measured,
            memory_before: None,
            memory_after: None,
            error: error.map(Into::into),
        }
    }

    #[test]
    fn rows_have_the_columns_of_the_head() {
        let n_columns = |line: &str| line.matches('|').count() - line.matches("\\|").count();
        let n_head = n_columns(HEAD.lines().last().unwrap());
        assert_eq!(n_columns(HEAD.lines().next().unwrap()), n_head);
        for row in [row("x", None), row("x", Some("a|b\nc"))] {
            let line = row.markdown();
            assert_eq!(n_columns(&line), n_head, "{line}");
            assert_eq!(line.lines().count(), 1);
        }
    }

    #[test]
    fn figures_without_baseline_are_dashes() {
        let line = row("p", None).markdown();
        assert_eq!(
            line,
            "| call-1kb | 10 | p | 100 / 200 / 300 | 5000 | 40.2 | - | - / - | 1.00 / - / - |  |"
        );
    }

    #[test]
    fn cases_above_the_limit_are_named() {
        let mut report = Report::new(None);
        report.add([row("riglm", None), row("other", None)]);
        assert_eq!(report.cases_above(1.0), "");
        let case = "call-1kb with 10 sessions: 1.0";
        assert_eq!(report.cases_above(0.9), case);
    }

    #[test]
    fn baselines_of_other_transports_are_marked() {
        let mut relay = row("relay", None);
        relay.upstream_of_way = Transport::Http;
        assert!(relay.markdown().contains("| relay (HTTP) |"));
        let mut report = Report::new(None);
        report.add([relay, row("p", Some("gone"))]);
        assert_eq!(report.n_failed(), 1);
        let text = report.markdown();
        assert_eq!(
            text.matches("stdio upstream, clients of 2026-07-28:")
                .count(),
            1
        );
        assert!(
            serde_json::to_string(&report)
                .unwrap()
                .contains("\"upstream_of_way\":\"http\"")
        );
    }
}
