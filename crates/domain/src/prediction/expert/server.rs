//! The expert for servers: the server of the next call, and its tools.

use crate::prediction::tables::server_context_key;
use crate::prediction::view::{View, normalise, smooth};
use crate::prediction::vocabulary::ToolIx;

/// Weight of the prior for a server, in calls.
const SMOOTHING: f64 = 2.0;

/// Returns `p(server | last server) p(tool | server)`: servers by the counts after the last server,
/// tools within them by frequency.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let server_of = view.vocabulary.server_of();
    let mut all = vec![0.0; view.vocabulary.n_servers()];
    for (frequency, server) in view.frequency.iter().zip(server_of) {
        all[*server as usize] += frequency;
    }
    let mut next = all.clone();
    for node in view.nodes(server_context_key(view.history, view.vocabulary)) {
        smooth(node, SMOOTHING, &mut next);
    }
    let mut p: Vec<f64> = (view.frequency.iter().zip(server_of))
        .map(|(frequency, server)| next[*server as usize] * frequency / all[*server as usize])
        .collect();
    normalise(&mut p);
    p
}

pub(super) fn evidence(view: &View<'_>, slot: ToolIx) -> Option<String> {
    let server = view.vocabulary.server(slot)?;
    let name = view.vocabulary.tool(slot)?.upstream.clone();
    let mut used = view.history.used_tools();
    if used.any(|used| view.vocabulary.server(used) == Some(server)) {
        return Some(format!("server `{name}` in use"));
    }
    let scope = view.scopes.last()?;
    let node = scope.node(server_context_key(view.history, view.vocabulary))?;
    let (n, total) = (node.count(server), node.total());
    (n >= 0.5).then(|| format!("server `{name}` came next in {n:.0} of {total:.0} cases"))
}
