//! `riglm eval sessions`: quality of the work sessions that are derived from calls.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use riglm_evaluation::{PairMetrics, TimedCall, evaluate_work_sessions};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::dataset::lines;
use super::{share, value_text};
use crate::args::EvalSessionsArgs;
use crate::commands::moment::moment;
use crate::commands::table::{Column, table};
use crate::config::Config;
use crate::output::print;

/// The fixed gaps to compare the rule with, in minutes.
const FIXED_GAPS: [u64; 4] = [5, 10, 30, 60];

#[derive(Debug, Deserialize)]
struct SessionLine {
    client: Option<String>,
    calls: Vec<CallEntry>,
}

#[derive(Debug, Deserialize)]
struct CallEntry {
    t: Option<String>,
}

/// Calls with times, and the number of calls without one.
#[derive(Debug, Default)]
struct TimedCalls {
    calls: Vec<TimedCall>,
    n_sessions: usize,
    n_without_time: usize,
}

pub(super) fn run(config: &Config, arguments: &EvalSessionsArgs) -> anyhow::Result<()> {
    let read = read(&arguments.sessions)?;
    if read.calls.is_empty() {
        let file = arguments.sessions.display();
        bail!("{file}: no call has a time (`t`)");
    }
    let measured = |gap| evaluate_work_sessions(&read.calls, gap);
    let mut summary = Map::new();
    summary.insert("n_calls".into(), json!(read.calls.len()));
    summary.insert("n_sessions".into(), json!(read.n_sessions));
    summary.insert("n_without_time".into(), json!(read.n_without_time));
    summary.extend(as_json(&measured(config.work_sessions.idle_gap())));
    for minutes in FIXED_GAPS {
        let metrics = measured(Duration::from_mins(minutes).into());
        let metrics = Value::Object(as_json(&metrics));
        summary.insert(format!("fixed_{minutes}_min"), metrics);
    }
    if arguments.format.is_json() {
        return Ok(print(&Value::Object(summary).to_string())?);
    }
    let columns = [Column::Text("MEASURE"), Column::Number("VALUE")];
    let rows = summary.iter().map(|(key, value)| {
        let value = value
            .get("f1")
            .map_or_else(|| value_text(value), |f1| format!("f1 {f1}"));
        vec![key.clone(), value]
    });
    Ok(print(&table(&columns, rows.collect()))?)
}

fn as_json(metrics: &PairMetrics) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("precision".into(), share(metrics.precision()));
    all.insert("recall".into(), share(metrics.recall()));
    all.insert("f1".into(), share(metrics.f1()));
    all.insert("n_derived".into(), json!(metrics.n_derived));
    all
}

fn read(path: &Path) -> anyhow::Result<TimedCalls> {
    let mut read = TimedCalls::default();
    let mut clients: HashMap<String, usize> = HashMap::new();
    for (session, line) in lines::<SessionLine>(path, None)?.into_iter().enumerate() {
        let number = clients.len();
        let client = *clients
            .entry(line.client.unwrap_or_default())
            .or_insert(number);
        let n_before = read.calls.len();
        for (place, call) in (1..).zip(line.calls) {
            let Some(t) = call.t else {
                read.n_without_time += 1;
                continue;
            };
            let at = moment(&t).with_context(|| {
                let (file, number) = (path.display(), session + 1);
                format!("{file}: session {number}: call {place}")
            })?;
            read.calls.push(TimedCall {
                at,
                session,
                client,
            });
        }
        read.n_sessions += usize::from(read.calls.len() > n_before);
    }
    Ok(read)
}
