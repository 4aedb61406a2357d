//! Which server is called next, and which of its tools.

use crate::prediction::tables::after_server;
use crate::prediction::view::{View, fold, normalise};
use crate::prediction::vocabulary::Slot;

/// How many calls what is expected of a server counts, before any is known.
const SMOOTHING: f64 = 2.0;

/// Returns `p(server | last server) p(tool | server)`: servers by what followed the last one,
/// tools inside of them by how often they are called.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let server_of = view.vocabulary.server_of();
    let mut all = vec![0.0; view.vocabulary.n_servers()];
    for (frequency, server) in view.frequency.iter().zip(server_of) {
        all[*server as usize] += frequency;
    }
    let mut next = all.clone();
    for node in view.nodes(after_server(view.trail, view.vocabulary)) {
        fold(node, SMOOTHING, &mut next);
    }
    let mut p: Vec<f64> = (view.frequency.iter().zip(server_of))
        .map(|(frequency, server)| next[*server as usize] * frequency / all[*server as usize])
        .collect();
    normalise(&mut p);
    p
}

pub(super) fn evidence(view: &View<'_>, slot: Slot) -> Option<String> {
    let server = view.vocabulary.server(slot)?;
    let name = view.vocabulary.tool(slot)?.upstream.clone();
    let mut used = view.trail.used();
    if used.any(|used| view.vocabulary.server(used) == Some(server)) {
        return Some(format!("server `{name}` in use"));
    }
    let scope = view.scopes.last()?;
    let node = scope.node(after_server(view.trail, view.vocabulary))?;
    let (n, total) = (node.count(server), node.total());
    (n >= 0.5).then(|| format!("server `{name}` came next in {n:.0} of {total:.0} cases"))
}
