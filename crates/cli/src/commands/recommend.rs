//! `riglm recommend`: tools for what is to be done, of those that were listed before.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::bail;
use riglm_adapters_storage::{Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::recommend::{Hindrances, Project, RecommendCall, stored_offer};
use riglm_app::search::{Offer, OfferedTool};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::NamePattern;
use riglm_domain::principal::Principal;
use riglm_domain::tool_override::{OverrideAction, OverrideScope};
use riglm_ports::analytics::{OverrideRepository as _, ToolDefinitionRepository as _};
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use crate::args::RecommendArgs;
use crate::compose::recommender_over;
use crate::config::Config;
use crate::output::print;

/// Prints what is recommended. Nothing of it is recorded.
pub(super) async fn run(config: &Config, arguments: &RecommendArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let store = Arc::new(store);
    let definitions = store.tool_definitions(None).await?;
    let listed: BTreeSet<UpstreamName> = (definitions.into_iter())
        .map(|definition| definition.upstream)
        .collect();
    // What is configured is what can be called; without any, everything that was listed is shown.
    let configured: Vec<UpstreamName> = match config.upstreams() {
        Ok(upstreams) => upstreams.iter().map(|one| one.name.clone()).collect(),
        Err(_) => listed.into_iter().collect(),
    };
    let offer = Arc::new(stored_offer(&*store, &configured, config.naming).await?);
    if offer.tools().is_empty() {
        bail!("no tools were listed yet: start riglm serve, and have a client list its tools");
    }
    let (search, recommender) = recommender_over(config, &store).await?;
    search.learn_offer(&offer);
    search.settle().await;
    let call = RecommendCall {
        session: None,
        together: None,
        is_of_session: false,
        principal: Principal::named(&arguments.principal),
        query: arguments.query.clone(),
        limit: arguments.limit.map(|limit| limit as usize),
        offer: Arc::clone(&offer),
        project: Project::new(&arguments.tags),
        hindrances: hidden(config, &store, &offer).await?,
    };
    // The first one has what the principal did before read, and does not wait long for it.
    recommender.recommend(call.clone()).await?;
    search.settle().await;
    let reply = recommender.recommend(call).await?;
    if arguments.store.json {
        print(&reply.json().to_string())?;
    } else {
        print(&reply.text())?;
    }
    Ok(())
}

/// Returns what is printed as JSON where nothing is recorded yet.
pub(super) fn empty() -> Value {
    json!({"tools": [], "left_out": [], "notes": ["nothing is recorded yet"]})
}

/// Returns what the operator hides from everybody: by the configuration, or over the control port. Which
/// servers can be reached is known to a running proxy alone.
async fn hidden(config: &Config, store: &Store, offer: &Offer) -> anyhow::Result<Hindrances> {
    let patterns = |texts: &[String]| -> Vec<NamePattern> {
        texts.iter().map(|text| NamePattern::new(text)).collect()
    };
    let banned = patterns(&config.filtering.bans);
    let forbidden = patterns(&config.filtering.forbid);
    let mut overrides = store.overrides(SystemClock.now()).await?;
    overrides.retain(|one| one.scope == OverrideScope::Global);
    overrides.sort_by_key(|one| (one.created_at, one.id));
    let is_hidden = |tool: &&OfferedTool| {
        let names = [ToolName::from(tool.name.as_str()), tool.tool.tool.clone()];
        let fits = |patterns: &[NamePattern]| {
            let mut names = names.iter();
            names.any(|name| patterns.iter().any(|pattern| pattern.matches(name)))
        };
        let mut decided = overrides.iter().rev();
        let last = decided.find(|one| names.iter().any(|name| name.as_str() == one.tool));
        let is_excluded =
            |action| matches!(action, OverrideAction::Exclude | OverrideAction::Forbid);
        fits(&forbidden) || last.map_or_else(|| fits(&banned), |one| is_excluded(one.action))
    };
    let hidden = offer.tools().iter().filter(is_hidden);
    Ok(Hindrances {
        excluded: hidden.map(|tool| tool.tool.clone()).collect(),
        ..Hindrances::default()
    })
}
