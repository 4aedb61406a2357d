//! `riglm override`: overrides of tools. They are written to the store, where a running proxy reads
//! them.

use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use riglm_adapters_storage::{RecordingMode, Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::control::name_lookup::quote;
use riglm_app::control::overrides::{Decision, DecisionError, Overrides};
use riglm_domain::catalog::tool_override::{OverrideScope, ToolOverride};
use riglm_domain::id::OverrideId;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use super::table::{Column, foreign_cell, table, time_cell};
use crate::args::{OutputFormat, OverrideAddArgs, OverrideCommand, StoreArgs};
use crate::compose::overrides_over;
use crate::config::Config;
use crate::exit::WrongUsage;
use crate::output::{note, print, printable};

impl OverrideCommand {
    pub(super) fn store(&self) -> &StoreArgs {
        match self {
            Self::List(store) => store,
            Self::Add(arguments) => &arguments.store,
            Self::Remove(arguments) => &arguments.store,
        }
    }
}

pub(super) async fn run(config: &Config, command: &OverrideCommand) -> anyhow::Result<()> {
    if config.recording.mode == RecordingMode::Off {
        bail!("no stored data: recording.mode is off");
    }
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let store: Arc<Store> = Arc::new(store);
    let service = overrides_over(config, &store);
    let format = command.store().format;
    let done = match command {
        OverrideCommand::List(_) => list(&service, format).await,
        OverrideCommand::Add(arguments) => {
            let decision = decision(arguments, SystemClock.now());
            add(&service, decision, format).await
        }
        OverrideCommand::Remove(arguments) => remove(&service, &arguments.id, format).await,
    };
    store.close().await;
    done
}

fn decision(arguments: &OverrideAddArgs, now: Timestamp) -> Decision {
    Decision {
        tool: arguments.tool.clone(),
        action: arguments.action,
        scope: arguments.scope.scope(),
        expires_at: arguments.expires.map(|end| end.from_now(now)),
        reason: arguments.reason.clone(),
        allows_unknown: arguments.allow_unknown,
    }
}

async fn add(service: &Overrides, decision: Decision, format: OutputFormat) -> anyhow::Result<()> {
    let decided = match service.decide(decision, &Principal::local()).await {
        Ok(decided) => decided,
        Err(DecisionError::Store(error)) => {
            return Err(error).context("failed to store the override");
        }
        Err(DecisionError::Over(end)) => {
            return Err(WrongUsage(format!("--expires is in the past: {end}")).into());
        }
        Err(DecisionError::Tool(unknown)) => {
            bail!("{unknown}; use --allow-unknown for a tool that no upstream has listed yet")
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(text) = service.note(decided.action) {
        note(text);
    }
    if format.is_json() {
        return Ok(print(&as_json(&decided).to_string())?);
    }
    let text = format!(
        "override {}: {} {} for {}{}",
        decided.id,
        decided.action.as_str(),
        printable(&decided.tool),
        scope_text(&decided.scope),
        decided
            .expires_at
            .map_or_else(String::new, |end| format!(" until {} UTC", time_cell(end)))
    );
    Ok(print(&text)?)
}

async fn remove(service: &Overrides, id: &str, format: OutputFormat) -> anyhow::Result<()> {
    let unknown = || anyhow!("unknown override {}", printable(&quote(id)));
    let parsed: OverrideId = id.parse().map_err(|_| unknown())?;
    let removed = service.remove(parsed, &Principal::local()).await;
    if !removed.context("failed to remove the override")? {
        return Err(unknown());
    }
    let text = match format {
        OutputFormat::Json => json!({ "removed": parsed.to_string() }).to_string(),
        OutputFormat::Text => format!("removed override {parsed}"),
    };
    Ok(print(&text)?)
}

async fn list(service: &Overrides, format: OutputFormat) -> anyhow::Result<()> {
    let holding = service
        .active_overrides()
        .await
        .context("failed to read overrides")?;
    if format.is_json() {
        let all: Vec<Value> = holding.iter().map(as_json).collect();
        return Ok(print(&Value::from(all).to_string())?);
    }
    if holding.is_empty() {
        return Ok(print("no overrides are in effect")?);
    }
    let columns = [
        Column::Text("ID"),
        Column::Text("ACTION"),
        Column::Text("TOOL"),
        Column::Text("FOR"),
        Column::Text("UNTIL (UTC)"),
        Column::Text("BY"),
        Column::Text("REASON"),
    ];
    let rows = holding.iter().map(|one| {
        vec![
            one.id.to_string(),
            one.action.as_str().into(),
            foreign_cell(&one.tool),
            scope_text(&one.scope),
            one.expires_at.map_or_else(|| "-".into(), time_cell),
            foreign_cell(one.created_by.as_str()),
            one.reason
                .as_deref()
                .map_or_else(|| "-".into(), foreign_cell),
        ]
    });
    Ok(print(&table(&columns, rows.collect()))?)
}

/// Returns the scope of an override as text for people.
fn scope_text(scope: &OverrideScope) -> String {
    match scope {
        OverrideScope::Global => "all clients".into(),
        other => format!("{} {}", other.kind(), foreign_cell(other.id())),
    }
}

/// Returns an override in the JSON format of the control API.
fn as_json(one: &ToolOverride) -> Value {
    json!({
        "id": one.id.to_string(),
        "tool": one.tool,
        "action": one.action.as_str(),
        "scope": one.scope,
        "expires_at": one.expires_at,
        "reason": one.reason,
        "created_by": one.created_by.as_str(),
        "created_at": one.created_at,
    })
}
