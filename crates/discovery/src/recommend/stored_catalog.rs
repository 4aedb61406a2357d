//! The catalog from recorded tool definitions, for requests without a session.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use riglm_domain::catalog::naming::{NamespacePolicy, shown_names};
use riglm_domain::catalog::tool::{ToolDefinition, ToolRef};
use riglm_domain::id::UpstreamName;
use riglm_ports::analytics::{StoreError, ToolDefinitionRepository};

use crate::search::{Catalog, CatalogTool, ServerText};

/// A tool counts as removed if it was last seen this long before the last listing of its server.
const REMOVED_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Returns the last recorded tools of these upstreams, with the names by which clients call them.
/// If a tool has several definitions, the last seen one counts. A tool is left out if it was last
/// seen a month before the last listing of its server.
///
/// # Errors
///
/// Returns the error of the store.
pub async fn stored_catalog(
    store: &dyn ToolDefinitionRepository,
    upstreams: &[UpstreamName],
    naming: NamespacePolicy,
) -> Result<Catalog, StoreError> {
    let mut newest: BTreeMap<UpstreamName, BTreeMap<String, ToolDefinition>> = BTreeMap::new();
    for definition in store.tool_definitions(None).await? {
        if !upstreams.contains(&definition.upstream) {
            continue;
        }
        let tools = newest.entry(definition.upstream.clone()).or_default();
        let name = definition.sighting.name.as_str();
        let is_newer = tools
            .get(name)
            .is_none_or(|known| known.last_seen <= definition.last_seen);
        if is_newer {
            tools.insert(name.to_owned(), definition);
        }
    }
    for tools in newest.values_mut() {
        let last = tools.values().map(|tool| tool.last_seen).max();
        tools.retain(|_, tool| {
            last.is_none_or(|last| last.duration_since(tool.last_seen) < REMOVED_AFTER)
        });
    }
    let owned: Vec<(&UpstreamName, Vec<&str>)> = (newest.iter())
        .map(|(upstream, tools)| (upstream, tools.keys().map(String::as_str).collect()))
        .collect();
    // With a single upstream, names have no namespace.
    let names = (upstreams.len() > 1).then(|| shown_names(naming, &owned).into_iter().flatten());
    let names: Vec<Option<String>> = names.map_or_else(Vec::new, Iterator::collect);
    let mut names = names.into_iter();
    let tools = newest.into_values().flat_map(BTreeMap::into_values);
    let tools = tools.map(|definition| {
        let own = definition.sighting.name.as_str().to_owned();
        CatalogTool {
            name: names.next().flatten().unwrap_or(own),
            tool: ToolRef {
                upstream: definition.upstream,
                tool: definition.sighting.name,
            },
            definition: definition.sighting.definition.into(),
            is_hidden: false,
        }
    });
    let tools: Vec<CatalogTool> = tools.collect();
    let servers = upstreams.iter().map(|upstream| {
        let text = ServerText {
            name: upstream.as_str().to_owned(),
            ..ServerText::default()
        };
        (upstream.clone(), text)
    });
    Ok(Catalog::new(tools, servers.collect()))
}
