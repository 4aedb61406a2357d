//! The expert for kinds of clients: calls of the same client program by any user.

use crate::prediction::counts::{ContextKind, context};
use crate::prediction::tables::context_keys;
use crate::prediction::view::{View, smooth};

/// Returns the distribution of calls of this kind of client, and of its calls after the last call.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let mut p = view.base().to_vec();
    let Some(scope) = view.client else {
        return p;
    };
    let all = context(ContextKind::Call, &[]);
    let last = context_keys(ContextKind::After, &view.history.last)
        .into_iter()
        .next();
    for key in std::iter::once(all).chain(last) {
        if let Some(node) = scope.node(key) {
            smooth(node, node.n_different(), &mut p);
        }
    }
    p
}
