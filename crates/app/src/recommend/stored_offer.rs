//! What could be called, as far as it was recorded: for who asks without a session.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use riglm_domain::id::UpstreamName;
use riglm_domain::naming::{Naming, shown};
use riglm_domain::tool::{ToolDefinition, ToolRef};
use riglm_ports::analytics::{StoreError, ToolDefinitionRepository};

use crate::search::{Offer, OfferedTool, ServerText};

/// A tool that was not seen for so long before its server was listed last is gone.
const GONE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Returns the tools of these upstreams that were listed last, under the names by which clients call
/// them. Of a tool with several definitions the one that was seen last counts; one that was not seen
/// for a month before its server was listed last is gone.
///
/// # Errors
///
/// Returns what the store says.
pub async fn stored_offer(
    store: &dyn ToolDefinitionRepository,
    upstreams: &[UpstreamName],
    naming: Naming,
) -> Result<Offer, StoreError> {
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
        tools.retain(|_, tool| last.is_none_or(|last| last.duration_since(tool.last_seen) < GONE));
    }
    let owned: Vec<(&UpstreamName, Vec<&str>)> = (newest.iter())
        .map(|(upstream, tools)| (upstream, tools.keys().map(String::as_str).collect()))
        .collect();
    // One upstream keeps its names.
    let names = (upstreams.len() > 1).then(|| shown(naming, &owned).into_iter().flatten());
    let names: Vec<Option<String>> = names.map_or_else(Vec::new, Iterator::collect);
    let mut names = names.into_iter();
    let tools = newest.into_values().flat_map(BTreeMap::into_values);
    let tools = tools.map(|definition| {
        let own = definition.sighting.name.as_str().to_owned();
        OfferedTool {
            name: names.next().flatten().unwrap_or(own),
            tool: ToolRef {
                upstream: definition.upstream,
                tool: definition.sighting.name,
            },
            definition: definition.sighting.definition.into(),
            is_hidden: false,
        }
    });
    let tools: Vec<OfferedTool> = tools.collect();
    let servers = upstreams.iter().map(|upstream| {
        let text = ServerText {
            name: upstream.as_str().to_owned(),
            ..ServerText::default()
        };
        (upstream.clone(), text)
    });
    Ok(Offer::new(tools, servers.collect()))
}
