//! `riglm tune`: recommendation weights from user feedback.

use std::sync::Arc;

use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_discovery::weight_tuning::{
    RankingWeights, RunOutcome, TuningError, TuningRun, TuningStores, WeightHistory, WeightSource,
    WeightTuning,
};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::Factor;
use riglm_domain::recommendation::tuning::{CandidateWeights, Gain};
use serde_json::{Map, Value, json};

use super::db::show;
use super::table::{Column, foreign_cell, table, time_cell};
use crate::args::TuneArgs;
use crate::config::Config;
use crate::exit::WrongUsage;

pub(super) async fn run(config: &Config, arguments: &TuneArgs) -> anyhow::Result<()> {
    if !config.prediction.shared_learning && !arguments.history {
        let reason = "weights are not tuned with prediction.shared_learning = false: they would \
                      follow from the feedback of all principals";
        return Err(WrongUsage(reason.into()).into());
    }
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let source = Arc::new(WeightSource::new(config.recommend.weights));
    let stores = TuningStores::of(&Arc::new(store.clone()));
    let tuning = WeightTuning::new(stores, source, Arc::new(SystemClock));
    let done = execute(&tuning, config, arguments).await;
    store.close().await;
    let (json, text) = done?;
    show(arguments.store.format, &json, &text)
}

/// Returns the JSON output for an unused database.
pub(super) fn empty(arguments: &TuneArgs) -> Value {
    if arguments.history {
        return history_as_json(&WeightHistory::default());
    }
    json!({
        "outcome": "too_few",
        "reason": "nothing is recorded yet",
        "present": null,
        "examples": 0,
        "version": null,
        "candidate": null,
    })
}

/// Runs the command, and returns its output as JSON and as text.
async fn execute(
    tuning: &WeightTuning,
    config: &Config,
    arguments: &TuneArgs,
) -> anyhow::Result<(Value, String)> {
    let actor = Principal::local();
    if arguments.history {
        let history = tuning.history().await?;
        return Ok((history_as_json(&history), history_as_table(&history)));
    }
    if let Some(to) = arguments.rollback {
        let used = tuning.roll_back(to, &actor).await.map_err(usage_error)?;
        let version = used
            .version
            .map_or("none".into(), |version| version.to_string());
        return Ok((
            weights_as_json(&used),
            format!("weights version {version} is now in use"),
        ));
    }
    let tuned = &config.recommend.tuning;
    let run = if arguments.dry_run {
        tuning.preview(tuned).await
    } else {
        tuning.tune(tuned, &actor).await
    };
    let run = run.map_err(usage_error)?;
    Ok((run_as_json(&run), run.to_string()))
}

/// Turns errors of usage into [`WrongUsage`], which has its own exit code.
fn usage_error(error: TuningError) -> anyhow::Error {
    match error {
        TuningError::Configured | TuningError::NoEarlier | TuningError::NoVersion(_) => {
            WrongUsage(error.to_string()).into()
        }
        TuningError::Unusable(_) | TuningError::CutOff | TuningError::Store(_) => error.into(),
    }
}

fn weights_as_json(weights: &RankingWeights) -> Value {
    json!({"version": weights.version, "weights": weights.weights.by_name()})
}

fn run_as_json(run: &TuningRun) -> Value {
    let (outcome, trial, version) = match &run.outcome {
        RunOutcome::TooFew(_) => ("too_few", None, None),
        RunOutcome::Settled => ("settled", None, None),
        RunOutcome::NotBetter(trial) => ("not_better", Some(trial), None),
        RunOutcome::Better(trial) => ("better", Some(trial), None),
        RunOutcome::Adopted { version, trial } => ("adopted", Some(trial), Some(*version)),
        RunOutcome::Overtaken(trial) => ("overtaken", Some(trial), None),
    };
    json!({
        "outcome": outcome,
        "reason": run.to_string(),
        "present": weights_as_json(&run.present),
        "examples": run.n_examples,
        "version": version,
        "candidate": trial.map(trial_as_json),
    })
}

fn trial_as_json(trial: &CandidateWeights) -> Value {
    json!({
        "weights": trial.candidate.by_name(),
        "training": trial.n_training,
        "judging": trial.n_judging,
        "position_bias": trial.position_bias,
        "gain": gain_as_json(&trial.gain),
        "plain_gain": trial.plain_gain,
    })
}

fn gain_as_json(gain: &Gain) -> Value {
    json!({
        "before": gain.before,
        "after": gain.after,
        "difference": gain.difference(),
        "low": gain.low,
        "high": gain.high,
    })
}

fn history_as_json(history: &WeightHistory) -> Value {
    let versions: Vec<Value> = (history.versions.iter())
        .map(|version| {
            json!({
                "version": version.version,
                "weights": version.weights,
                "reason": version.reason,
                "created_at": version.created_at,
            })
        })
        .collect();
    Value::Object(Map::from_iter([
        ("used".into(), json!(history.used)),
        ("configured".into(), json!(history.is_configured)),
        ("versions".into(), json!(versions)),
    ]))
}

fn history_as_table(history: &WeightHistory) -> String {
    if history.versions.is_empty() {
        return "no tuned weights".into();
    }
    let columns = [
        Column::Text(""),
        Column::Number("VERSION"),
        Column::Text("MADE"),
        Column::Number("RELEVANCE"),
        Column::Number("SUCCESS"),
        Column::Number("POPULARITY"),
        Column::Number("PERFORMANCE"),
        Column::Number("RATING"),
        Column::Text("WHY"),
    ];
    let rows = history.versions.iter().map(|version| {
        let is_used = history.used == Some(version.version) && !history.is_configured;
        let mark = if is_used { "*" } else { "" };
        let weights = Factor::ALL.iter().map(|factor| {
            let weight = version.weights.get(factor.as_str());
            weight.map_or("-".into(), |weight| format!("{weight:.4}"))
        });
        let before = [
            mark.to_owned(),
            version.version.to_string(),
            time_cell(version.created_at),
        ];
        let cells = before.into_iter().chain(weights);
        cells.chain([foreign_cell(&version.reason)]).collect()
    });
    let shown = table(&columns, rows.collect());
    if history.is_configured {
        return format!(
            "{shown}\n\nNo version is in use, because recommend.weights is configured."
        );
    }
    shown
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_domain::recommendation::FactorWeights;
    use riglm_domain::recommendation::tuning::InsufficientData;
    use riglm_domain::recommendation::weights::WeightVersion;

    use super::*;

    fn history() -> WeightHistory {
        let version = |version| WeightVersion {
            ranking: "recommend".into(),
            version,
            weights: FactorWeights::default().by_name(),
            reason: "a\u{1b}[2J reason".into(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        WeightHistory {
            versions: vec![version(1), version(2)],
            used: Some(2),
            is_configured: false,
        }
    }

    fn present() -> RankingWeights {
        RankingWeights {
            weights: FactorWeights::default(),
            version: Some(2),
        }
    }

    #[test]
    fn the_history_marks_the_version_in_use() {
        let mut history = history();
        let shown = history_as_table(&history);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[1].starts_with(' ') && lines[1].contains("0.3500"),
            "{shown}"
        );
        assert!(lines[2].starts_with('*'), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        history.is_configured = true;
        let shown = history_as_table(&history);
        assert!(
            !shown.contains('*') && shown.contains("recommend.weights"),
            "{shown}"
        );
        assert_eq!(history_as_json(&history)["versions"][1]["version"], 2);
    }

    #[test]
    fn json_has_the_outcome_the_gain_and_the_reason() {
        let gain = Gain {
            before: 0.25,
            after: 0.5,
            low: 0.125,
            high: 0.375,
        };
        let trial = CandidateWeights {
            candidate: FactorWeights::default(),
            n_training: 7,
            n_judging: 3,
            position_bias: 1.0,
            gain,
            plain_gain: 0.25,
        };
        let adopted = run_as_json(&TuningRun {
            present: present(),
            n_examples: 10,
            outcome: RunOutcome::Adopted { version: 3, trial },
        });
        assert_eq!(adopted["outcome"], "adopted");
        assert_eq!(
            (&adopted["version"], &adopted["examples"]),
            (&json!(3), &json!(10))
        );
        assert_eq!(adopted["candidate"]["gain"]["difference"], 0.25);
        assert_eq!(adopted["present"]["weights"]["relevance"], 0.35);
        let shortage = InsufficientData::Examples {
            found: 1,
            needed: 200,
        };
        let few = run_as_json(&TuningRun {
            present: present(),
            n_examples: 1,
            outcome: RunOutcome::TooFew(shortage),
        });
        assert_eq!(
            (&few["outcome"], &few["candidate"]),
            (&json!("too_few"), &Value::Null)
        );
        assert!(few["reason"].as_str().unwrap().contains("200 are needed"));
    }

    #[test]
    fn usage_errors_are_distinguished_from_failures() {
        assert!(usage_error(TuningError::NoVersion(3)).is::<WrongUsage>());
        assert!(usage_error(TuningError::Configured).is::<WrongUsage>());
        assert!(!usage_error(TuningError::CutOff).is::<WrongUsage>());
    }
}
