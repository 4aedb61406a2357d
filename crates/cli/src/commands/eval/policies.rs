//! `riglm eval policies`: what sessions would cost under other rules for the size of lists,
//! estimated from sizes that were drawn at random.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_evaluation::counterfactual::{
    ChoiceLog, ClusterBy, Estimate, EstimateOptions, LogReport, LoggedChoice, PolicyEstimates,
    PolicyReport, Refusal, SessionOwner, SizePolicy, StoredChoices, StoredOptions,
    estimate_policies, stored_choices,
};
use riglm_ports::analytics::SessionRepository as _;
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use super::dataset::lines;
use crate::args::{ClusterChoice, EvalPoliciesArgs};
use crate::commands::data::create_private_file;
use crate::commands::lists::{note_limit, since};
use crate::commands::table::{Column, table};
use crate::compose::answer_size;
use crate::config::Config;
use crate::exit::WrongUsage;
use crate::output::{note, print, printable};

/// The most sessions that are read from a file.
const MAX_SESSIONS: u32 = 1_000_000;

pub(super) async fn run(config: &Config, arguments: &EvalPoliciesArgs) -> anyhow::Result<()> {
    let log = match &arguments.choices {
        Some(path) => of_file(path)?,
        None => of_store(config, arguments).await?,
    };
    if let Some(path) = &arguments.output {
        write(path, &log)?;
    }
    let options = EstimateOptions {
        clip: arguments.clip,
        ..EstimateOptions::default()
    };
    let report = report(&log, arguments, &options)?;
    let text = if arguments.format.is_json() {
        as_json(&report, arguments).to_string()
    } else {
        as_table(&report, arguments)
    };
    Ok(print(&text)?)
}

fn report(
    log: &ChoiceLog,
    arguments: &EvalPoliciesArgs,
    options: &EstimateOptions,
) -> anyhow::Result<LogReport> {
    let measure = arguments.measure.into();
    match estimate_policies(log, measure, &SizePolicy::candidates(), options) {
        Ok(report) => Ok(report),
        Err(Refusal::Option { name, range }) => {
            Err(WrongUsage(format!("--{name} must be {range}")).into())
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Returns the JSON output for an unused database.
pub(super) fn empty(arguments: &EvalPoliciesArgs) -> Value {
    let nothing = ChoiceLog::default();
    let report = report(&nothing, arguments, &EstimateOptions::default());
    report.map_or(Value::Null, |report| as_json(&report, arguments))
}

/// Reads the choices of a file that `--output` wrote.
fn of_file(path: &Path) -> anyhow::Result<ChoiceLog> {
    let mut log = ChoiceLog::default();
    let choices = lines::<LoggedChoice>(path, Some(MAX_SESSIONS))?;
    for (session, number) in choices.into_iter().zip(1_u64..) {
        let failed = || format!("{}: session {number} is invalid", path.display());
        log.push(session).with_context(failed)?;
    }
    Ok(log)
}

async fn of_store(config: &Config, arguments: &EvalPoliciesArgs) -> anyhow::Result<ChoiceLog> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let owners: BTreeMap<_, _> = (store.sessions(arguments.limit).await?.into_iter())
        .map(|summary| {
            let owner = SessionOwner {
                principal: summary.session.principal,
                client: summary.session.client_info.name,
            };
            (summary.session.id, owner)
        })
        .collect();
    let prices = config.filtering.prices(answer_size(&config.search));
    let options = StoredOptions {
        since: since(arguments.days),
        limit: arguments.limit,
        now: SystemClock.now(),
        prices: &prices,
        cluster: match arguments.cluster {
            ClusterChoice::Draw => ClusterBy::Draw,
            ClusterChoice::Principal => ClusterBy::Principal,
        },
    };
    let stored = stored_choices(&store, &owners, &options).await?;
    if stored.is_cut {
        note_limit(arguments.limit);
    }
    for text in [left_out(&stored), unusual(&stored)].into_iter().flatten() {
        note(&text);
    }
    if stored.choices.is_empty() && config.filtering.exploration.share().is_off() {
        note("no list size was drawn at random: filtering.exploration.share is 0");
    }
    let mut log = ChoiceLog::default();
    for session in stored.choices {
        log.push(session).context("a stored list size is invalid")?;
    }
    Ok(log)
}

/// Returns a sentence about the sessions that were left out; `None` if there are none.
fn left_out(stored: &StoredChoices) -> Option<String> {
    let reasons = [
        (stored.n_unexplored, "without a drawn list size"),
        (stored.n_running, "not over yet"),
        (stored.n_uncounted, "without token counts"),
        (stored.n_parts, "as parts of others"),
    ];
    counts(&reasons).map(|counts| format!("sessions left out: {counts}"))
}

/// Returns a sentence about the sessions that count although their size had no effect, or not all of
/// the time; `None` if there are none.
fn unusual(stored: &StoredChoices) -> Option<String> {
    let kinds = [
        (stored.n_idle, "without calls"),
        (stored.n_mixed, "with lists of several draws"),
    ];
    let counts = counts(&kinds)?;
    Some(format!(
        "sessions that count under their first draw: {counts}"
    ))
}

/// Returns the numbers above 0, each with its text; `None` if there are none.
fn counts(all: &[(usize, &str)]) -> Option<String> {
    let counts: Vec<String> = (all.iter())
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// Writes the choices, one JSON object per line, into a new file that only its owner can read.
fn write(path: &Path, log: &ChoiceLog) -> anyhow::Result<()> {
    let shown = printable(&path.display().to_string());
    let failed = || format!("failed to write {shown}");
    let mut file = BufWriter::new(create_private_file(path)?);
    for session in log.choices() {
        serde_json::to_writer(&mut file, session).with_context(failed)?;
        file.write_all(b"\n").with_context(failed)?;
    }
    file.flush().with_context(failed)?;
    note(&format!(
        "wrote {} sessions to {shown}",
        log.choices().len()
    ));
    Ok(())
}

fn as_json(report: &LogReport, arguments: &EvalPoliciesArgs) -> Value {
    let policies = report.policies.iter().map(policy_as_json);
    json!({
        "measure": arguments.measure.as_str(),
        "sessions": report.n_sessions,
        "explored_sessions": report.n_explored,
        "clusters": report.n_clusters,
        "logged": report.logged.as_ref().map(estimate_as_json),
        "policies": policies.collect::<Vec<_>>(),
    })
}

fn policy_as_json(report: &PolicyReport) -> Value {
    let estimates = report.estimates.as_ref().ok();
    let of = |kind: fn(&PolicyEstimates) -> &Estimate| {
        estimates.map(|estimates| estimate_as_json(kind(estimates)))
    };
    json!({
        "policy": report.policy.to_string(),
        "sessions": report.plain.map_or(0, |plain| plain.n_sessions),
        "plain_mean": report.plain.map(|plain| plain.value),
        "effective_sample": report.effective_sample,
        "ips": of(|estimates| &estimates.ips),
        "clipped_ips": of(|estimates| &estimates.clipped),
        "snips": of(|estimates| &estimates.snips),
        "doubly_robust": of(|estimates| &estimates.doubly_robust),
        "refusal": report.estimates.as_ref().err().map(ToString::to_string),
    })
}

fn estimate_as_json(estimate: &Estimate) -> Value {
    json!({
        "value": estimate.value,
        "std_error": estimate.std_error,
        "low": estimate.low(),
        "high": estimate.high(),
    })
}

fn as_table(report: &LogReport, arguments: &EvalPoliciesArgs) -> String {
    if report.n_sessions == 0 {
        return "no session has a list size that was drawn at random".into();
    }
    let n_decimals = arguments.measure.n_decimals();
    let number = |value: f64| format!("{value:.n_decimals$}");
    let interval = |estimate: &Estimate| {
        let (low, high) = (number(estimate.low()), number(estimate.high()));
        format!("{} ({low} to {high})", number(estimate.value))
    };
    let columns = [
        Column::Text("POLICY"),
        Column::Number("SESSIONS"),
        Column::Number("PLAIN MEAN"),
        Column::Number("IPS"),
        Column::Number("CLIPPED IPS"),
        Column::Number("SNIPS"),
        Column::Number("DOUBLY ROBUST"),
        Column::Number("ESS"),
    ];
    let unknown = || "-".to_owned();
    let rows = report.policies.iter().map(|policy| {
        let estimates = policy.estimates.as_ref().ok();
        let of = |kind: fn(&PolicyEstimates) -> &Estimate| {
            estimates.map_or_else(unknown, |estimates| interval(kind(estimates)))
        };
        vec![
            policy.policy.to_string(),
            policy.plain.map_or(0, |plain| plain.n_sessions).to_string(),
            policy
                .plain
                .map_or_else(unknown, |plain| number(plain.value)),
            of(|estimates| &estimates.ips),
            of(|estimates| &estimates.clipped),
            of(|estimates| &estimates.snips),
            of(|estimates| &estimates.doubly_robust),
            format!("{:.1}", policy.effective_sample),
        ]
    });
    let mut text = table(&columns, rows.collect());
    let refused = report.policies.iter().filter_map(|policy| {
        let refusal = policy.estimates.as_ref().err()?;
        Some(format!("\n{}: no estimate: {refusal}", policy.policy))
    });
    let refused: String = refused.collect();
    if !refused.is_empty() {
        text = format!("{text}\n{refused}");
    }
    let logged = report.logged.as_ref().map_or_else(unknown, interval);
    format!(
        "{text}\n\nMean {} of {} sessions as they were: {logged}. {} of them had a random list size; there \
         are {} independent draws. In brackets are intervals of 95 %.",
        arguments.measure.as_str(),
        report.n_sessions,
        report.n_explored,
        report.n_clusters
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use riglm_domain::selection::{ExplorationShare, ListSize, SizeChoice, SizeDraw};
    use riglm_evaluation::counterfactual::SessionOutcome;

    use super::*;
    use crate::args::{Cli, Command, EvalCommand};

    fn arguments(more: &[&str]) -> EvalPoliciesArgs {
        let words = ["riglm", "eval", "policies"].iter().chain(more);
        let Command::Eval(EvalCommand::Policies(arguments)) =
            Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command");
        };
        arguments
    }

    fn log(n: u32) -> ChoiceLog {
        let mut log = ChoiceLog::default();
        for n in 0..n {
            let candidates = [5, 10, 20].map(ListSize::Tools).into();
            let share = ExplorationShare::try_from(0.9).unwrap();
            let draw = SizeDraw::of_unit(1, &n.to_string());
            let choice = SizeChoice::new(ListSize::Tools(10), candidates, share, draw);
            let outcome = SessionOutcome {
                cost: f64::from(100 + n % 7),
                searches: f64::from(n % 3),
                coverage: 0.5,
            };
            let session = LoggedChoice {
                cluster: n.to_string(),
                choice,
                n_tools: 50,
                features: vec![f64::from(n % 5)],
                outcome,
            };
            log.push(session).unwrap();
        }
        log
    }

    fn report_of(n: u32, more: &[&str]) -> (LogReport, EvalPoliciesArgs) {
        let arguments = arguments(more);
        let options = EstimateOptions::default();
        (report(&log(n), &arguments, &options).unwrap(), arguments)
    }

    #[test]
    fn each_policy_has_estimates_or_a_refusal() {
        let (report, arguments) = report_of(300, &[]);
        let json = as_json(&report, &arguments);
        assert_eq!(
            (&json["measure"], &json["sessions"]),
            (&json!("cost"), &json!(300))
        );
        let policies = json["policies"].as_array().unwrap();
        let names: Vec<&str> = policies
            .iter()
            .map(|it| it["policy"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["greedy", "5", "10", "20", "40", "80", "all"]);
        for kind in ["ips", "clipped_ips", "snips", "doubly_robust"] {
            let value = policies[1][kind]["value"].as_f64().unwrap();
            assert!((80.0..125.0).contains(&value), "{kind}: {value}");
            assert_eq!(policies[5][kind], Value::Null);
        }
        assert_eq!(policies[1]["refusal"], Value::Null);
        assert!(
            policies[6]["refusal"]
                .as_str()
                .unwrap()
                .starts_with("no overlap")
        );
        let shown = as_table(&report, &arguments);
        assert!(
            shown.contains("\nall: no estimate: no overlap: in 300 of 300 sessions"),
            "{shown}"
        );
        assert!(
            shown.contains("Mean cost of 300 sessions as they were: 10"),
            "{shown}"
        );
    }

    #[test]
    fn a_log_without_sessions_is_no_error() {
        let (report, arguments) = report_of(0, &["--measure", "coverage"]);
        assert!(as_table(&report, &arguments).starts_with("no session has a list size"));
        let json = empty(&arguments);
        assert_eq!(
            (&json["measure"], &json["sessions"]),
            (&json!("coverage"), &json!(0))
        );
        assert_eq!(json["logged"], Value::Null);
    }

    #[test]
    fn written_choices_are_read_again_and_wrong_ones_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("choices.jsonl");
        write(&path, &log(40)).unwrap();
        assert_eq!(of_file(&path).unwrap(), log(40));
        assert!(
            write(&path, &log(1)).is_err(),
            "an existing file is not replaced"
        );
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("\"cost\":102", "\"cost\":-1", 1)).unwrap();
        let error = format!("{:#}", of_file(&path).unwrap_err());
        assert!(
            error.contains("session 3 is invalid: cost must be"),
            "{error}"
        );
        std::fs::write(&path, "{\"cluster\":7}").unwrap();
        let error = format!("{:#}", of_file(&path).unwrap_err());
        assert!(error.contains("line 1 is invalid"), "{error}");
        let options = EstimateOptions {
            clip: Some(0.0),
            ..EstimateOptions::default()
        };
        let refused = report(&log(1), &arguments(&[]), &options).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "--clip must be a finite number above 0"
        );
    }
}
