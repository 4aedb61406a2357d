//! `riglm predictor`: tests of external predictors.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use riglm_adapters_prediction::external::{
    ExternalConfig, ExternalSource, external_predictor_from,
};
use riglm_domain::prediction::ToolCounts;
use riglm_ports::external_predictor::conformance::Clause;
use riglm_ports::external_predictor::{
    ExternalPredictor, SCHEMA, ScoreRequest, SessionSoFar, ToolToScore,
};
use serde::Serialize;

use crate::args::{PredictorCheckArgs, PredictorCommand};
use crate::config::Config;
use crate::output::{print, printable, with_causes};

/// Number of requests whose time is measured.
const N_TIMED: usize = 21;
/// Number of tools in each of them.
const N_TOOLS: usize = 500;

/// The results of the test of a predictor.
#[derive(Debug, Serialize)]
struct CheckReport {
    predictor: String,
    clauses: Vec<ClauseResult>,
    /// The median time of a request with 500 tools.
    median_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
struct ClauseResult {
    clause: &'static str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the command.
///
/// # Errors
///
/// Returns the error of a predictor that cannot be used, or that does not keep a promise.
pub(super) async fn run(config: &Config, command: &PredictorCommand) -> anyhow::Result<()> {
    let PredictorCommand::Check(arguments) = command;
    let configured = external(config, arguments)?;
    let with_time = ExternalConfig {
        // A test must not fail because the machine is slow.
        deadline: ExternalConfig::MAX_DEADLINE,
        ..configured.clone()
    };
    let predictor = external_predictor_from(&with_time)?;
    let mut clauses = Vec::new();
    for &clause in Clause::ALL {
        let result = clause.check(&*predictor).await;
        let error = result.err().map(|error| printable(&with_causes(&error)));
        clauses.push(ClauseResult {
            clause: clause.as_str(),
            ok: error.is_none(),
            error,
        });
    }
    let report = CheckReport {
        predictor: printable(predictor.name()),
        median_ms: median_time(&*predictor)
            .await
            .map(|time| time.as_secs_f64() * 1e3),
        clauses,
    };
    if arguments.format.is_json() {
        print(&serde_json::to_string(&report)?)?;
    } else {
        print(&text(&report, configured.deadline))?;
    }
    let n_failed = report.clauses.iter().filter(|result| !result.ok).count();
    if n_failed > 0 {
        bail!("{n_failed} of {} tests failed", report.clauses.len());
    }
    Ok(())
}

/// Returns the external predictor of the arguments, else of the configuration.
fn external(config: &Config, arguments: &PredictorCheckArgs) -> anyhow::Result<ExternalConfig> {
    let of_config = config.prediction.predictor.external();
    let template = of_config.cloned();
    let source = if let Some(url) = &arguments.url {
        ExternalSource::Url {
            url: url.clone(),
            api_key: None,
        }
    } else if arguments.command.is_empty() {
        return template.context(
            "prediction.predictor names no external predictor; give --url URL or -- COMMAND",
        );
    } else {
        ExternalSource::Command(arguments.command.clone())
    };
    let template = template.unwrap_or_else(|| ExternalConfig::of_command(Vec::new()));
    Ok(ExternalConfig { source, ..template })
}

/// Returns the median time of a request; `None` if one fails.
async fn median_time(predictor: &dyn ExternalPredictor) -> Option<Duration> {
    let mut times = Vec::with_capacity(N_TIMED);
    for id in 0..N_TIMED as u64 {
        let tool = |n: usize| ToolToScore {
            upstream: format!("server_{}", n % 20),
            name: format!("tool_{n}"),
            callable: true,
            counts: ToolCounts::default(),
        };
        let request = ScoreRequest {
            schema: SCHEMA.into(),
            id,
            session: SessionSoFar::default(),
            tools: (0..N_TOOLS).map(tool).collect(),
        };
        let started = Instant::now();
        predictor.score(&request).await.ok()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(N_TIMED / 2).copied()
}

fn text(report: &CheckReport, deadline: Duration) -> String {
    let mut lines: Vec<String> = (report.clauses.iter())
        .map(|result| match &result.error {
            None => format!("ok      {}", result.clause),
            Some(error) => format!("failed  {}: {error}", result.clause),
        })
        .collect();
    if let Some(median) = report.median_ms {
        let deadline = deadline.as_millis();
        lines.push(format!(
            "A request with {N_TOOLS} tools takes {median:.1} ms (median of {N_TIMED}); the deadline \
             is {deadline} ms."
        ));
    }
    lines.join("\n")
}
