//! `riglm health`: whether running proxies are ready, for probes and scripts.

use anyhow::Context as _;
use riglm_app::selection::Pause;
use serde_json::{Value, json};

use super::control_port::{Readiness, readiness};
use super::pause::end_in_words;
use crate::args::HealthArgs;
use crate::config::Config;
use crate::output::{print, printable};

/// Prints the readiness of the running proxies, and whether they are paused.
///
/// # Errors
///
/// Returns an error if no proxy answers, or if one is not ready.
pub(super) async fn run(config: &Config, arguments: &HealthArgs) -> anyhow::Result<()> {
    let all = match readiness(config, arguments.control).await {
        Ok(all) => all,
        Err(answer) => anyhow::bail!("no proxy answers: {}", answer.reason()),
    };
    let (mut rows, mut lines, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for Readiness { address, report } in all {
        let pause = report.as_ref().ok().map(|report| report.pause);
        let (state, body, cause) = match report {
            Ok(report) if report.is_ready => ("ready", report.body, None),
            Ok(report) => {
                let cause = report.causes();
                ("not ready", report.body, Some(cause))
            }
            Err(answer) => ("no answer", Value::Null, Some(answer.reason())),
        };
        let paused = pause.and_then(end_in_words);
        let paused = paused.map_or_else(String::new, |end| format!("; lists are paused {end}"));
        lines.push(format!("{address}  {state}{paused}"));
        rows.push(json!({
            "address": address.to_string(),
            "ready": state == "ready",
            "paused": pause.map(|pause| pause != Pause::Off),
            "paused_until": pause.and_then(Pause::end).map(|end| end.to_string()),
            "report": body,
        }));
        failures.extend(cause.map(|cause| format!("{address} is not ready: {cause}")));
    }
    let text = if arguments.store.format.is_json() {
        serde_json::to_string(&rows).context("failed to write the health as JSON")?
    } else {
        lines.join("\n")
    };
    print(&text)?;
    if failures.is_empty() {
        return Ok(());
    }
    anyhow::bail!("{}", printable(&failures.join("; ")))
}
