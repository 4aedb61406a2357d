//! `riglm recommend`: tools for a task, from the tools that upstreams listed before.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::bail;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_app::control::name_lookup::quote;
use riglm_app::selection::{FilteringConfig, ForbidRules};
use riglm_discovery::recommend::{Exclusions, Project, RecommendRequest, stored_catalog};
use riglm_discovery::search::{Catalog, CatalogTool};
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::nearest_names;
use riglm_ports::analytics::{OverrideRepository as _, ToolDefinitionRepository as _};
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

use crate::args::RecommendArgs;
use crate::compose::recommender_over;
use crate::config::Config;
use crate::output::{note, print, printable};

/// Prints recommendations, without recording them.
pub(super) async fn run(config: &Config, arguments: &RecommendArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let store = Arc::new(store);
    let definitions = store.tool_definitions(None).await?;
    let listed: BTreeSet<UpstreamName> = (definitions.into_iter())
        .map(|definition| definition.upstream)
        .collect();
    // Only tools of configured upstreams can be called. Without configured upstreams, all are
    // candidates.
    let configured: Vec<UpstreamName> = match config.upstreams() {
        Ok(upstreams) => upstreams.iter().map(|one| one.name.clone()).collect(),
        Err(_) => listed.into_iter().collect(),
    };
    let catalog = stored_catalog(&*store, &configured, config.naming).await?;
    if catalog.tools().is_empty() {
        bail!("no tools are recorded yet: start `riglm serve`, and connect a client");
    }
    let mut overrides = store.overrides(SystemClock.now()).await?;
    // The other scopes belong to sessions, clients and profiles, and there are none here.
    overrides.retain(|one| one.scope == OverrideScope::Global);
    let catalog = Arc::new(without_forbidden(&config.filtering, &overrides, &catalog));
    for remark in unknown_tags(&arguments.tags, config.recommend.tags.values().flatten()) {
        note(&printable(&remark));
    }
    let (search, recommender) = recommender_over(config, &store).await?;
    search.index_catalog(&catalog);
    search.wait_until_idle().await;
    let call = RecommendRequest {
        session: None,
        session_key: None,
        is_of_session: false,
        principal: Principal::from_name(&arguments.principal),
        query: arguments.query.clone(),
        limit: arguments.limit.map(|limit| limit as usize),
        catalog: Arc::clone(&catalog),
        project: Project::new(&arguments.tags),
        exclusions: configured_exclusions(&config.filtering, overrides, &catalog),
    };
    // The first run loads the history of the principal in the background, and does not wait long
    // for it.
    recommender.recommend(call.clone()).await?;
    search.wait_until_idle().await;
    let reply = recommender.recommend(call).await?;
    if arguments.store.format.is_json() {
        print(&reply.json().to_string())?;
    } else {
        print(&reply.text())?;
    }
    Ok(())
}

/// Returns a remark about each wanted tag that the configuration gives to no tool, with the nearest
/// one that it has.
fn unknown_tags<'a>(wanted: &[String], known: impl Iterator<Item = &'a String>) -> Vec<String> {
    let known: BTreeSet<String> = known.map(|tag| tag.to_lowercase()).collect();
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let unknown = wanted.iter().filter(|tag| {
        let tag = tag.trim().to_lowercase();
        !known.contains(&tag)
    });
    let remarks = unknown.map(|tag| {
        let nearest = nearest_names(tag, &names, 1);
        let hint = match nearest.first() {
            Some(at) => format!("; the nearest tag is {}", names[*at]),
            None if names.is_empty() => "; recommend.tags is empty".to_owned(),
            None => String::new(),
        };
        format!(
            "no tool is only for projects with the tag {}{hint}",
            quote(tag)
        )
    });
    remarks.collect()
}

/// Returns the JSON output for an unused database.
pub(super) fn empty() -> Value {
    json!({"tools": [], "left_out": [], "notes": ["nothing is recorded yet"]})
}

/// Returns the catalog without the tools that are forbidden to everybody. A tool is forbidden if
/// any rule forbids it; no other override lifts that.
fn without_forbidden(
    config: &FilteringConfig,
    overrides: &[ToolOverride],
    catalog: &Catalog,
) -> Catalog {
    let rules = ForbidRules::new(config.forbid.clone(), overrides);
    let is_permitted = |at: usize| {
        let tool = &catalog.tools()[at];
        let (upstream, own) = (&tool.tool.upstream, &tool.tool.tool);
        rules.forbids(upstream, own, Some(&tool.name)).is_none()
    };
    catalog.filter(is_permitted)
}

/// Returns the tools that the operator hides from everybody. The newest override decides; without
/// one, the bans of the configuration do. Only a running proxy knows which upstreams are available.
fn configured_exclusions(
    config: &FilteringConfig,
    mut overrides: Vec<ToolOverride>,
    catalog: &Catalog,
) -> Exclusions {
    overrides.retain(|one| one.action != OverrideAction::Forbid);
    overrides.sort_by_key(|one| (one.created_at, one.id));
    let is_hidden = |tool: &&CatalogTool| {
        let names = tool.names();
        let is_banned = || {
            let mut names = names.iter();
            names.any(|name| config.bans.iter().any(|pattern| pattern.matches(name)))
        };
        let mut decided = overrides.iter().rev();
        let last = decided.find(|one| names.iter().any(|name| name.as_str() == one.tool));
        last.map_or_else(is_banned, |one| one.action == OverrideAction::Exclude)
    };
    let hidden = catalog.tools().iter().filter(is_hidden);
    Exclusions {
        excluded: hidden.map(|tool| tool.tool.clone()).collect(),
        ..Exclusions::default()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_domain::catalog::tool::ToolRef;
    use riglm_domain::id::OverrideId;
    use riglm_domain::prediction::NamePattern;

    use super::*;

    fn tool(own: &str, shown: &str) -> CatalogTool {
        CatalogTool {
            name: shown.into(),
            tool: ToolRef {
                upstream: UpstreamName::parse("files").unwrap(),
                tool: own.into(),
            },
            definition: format!(r#"{{"name":"{shown}"}}"#).into(),
            is_hidden: false,
        }
    }

    #[test]
    fn unknown_tags_are_named_with_the_nearest_one() {
        let tags = ["Python", "rust"].map(str::to_owned);
        let remarks = |wanted: &str| unknown_tags(&[wanted.to_owned()], tags.iter());
        assert_eq!(remarks(" python "), [""; 0]);
        assert_eq!(
            remarks("pyton"),
            ["no tool is only for projects with the tag \"pyton\"; the nearest tag is python"]
        );
        assert_eq!(
            remarks("go"),
            ["no tool is only for projects with the tag \"go\""]
        );
        let none = unknown_tags(&["go".to_owned()], std::iter::empty());
        assert!(none[0].ends_with("; recommend.tags is empty"), "{none:?}");
    }

    fn override_at(tool: &str, action: OverrideAction, second: i64) -> ToolOverride {
        let at = Timestamp::from_second(1_800_000_000 + second).unwrap();
        ToolOverride {
            id: OverrideId::new(at, [3; 10]),
            tool: tool.into(),
            action,
            scope: OverrideScope::Global,
            expires_at: None,
            reason: None,
            created_by: Principal::local(),
            created_at: at,
        }
    }

    #[test]
    fn forbidden_tools_are_omitted_despite_newer_overrides() {
        let config = FilteringConfig {
            forbid: vec![NamePattern::new("files__rm")],
            bans: vec![NamePattern::new("files__old")],
            ..FilteringConfig::default()
        };
        let names = ["rm", "wipe", "old", "fs.move", "read"];
        let catalog = Catalog::new(names.map(|name| tool(name, name)).into(), Vec::new());
        let overrides = vec![
            override_at("files__wipe", OverrideAction::Forbid, 0),
            override_at("wipe", OverrideAction::Include, 1),
            override_at("rm", OverrideAction::Include, 2),
            override_at("files__fs.move", OverrideAction::Exclude, 3),
        ];
        let catalog = without_forbidden(&config, &overrides, &catalog);
        let left: Vec<&str> = catalog.tools().iter().map(|tool| &*tool.name).collect();
        assert_eq!(left, ["old", "fs.move", "read"]);
        let hidden = configured_exclusions(&config, overrides, &catalog).excluded;
        let is_hidden = |own: &str| hidden.contains(&tool(own, own).tool);
        assert_eq!(
            ["old", "fs.move", "read"].map(is_hidden),
            [true, true, false]
        );
    }
}
