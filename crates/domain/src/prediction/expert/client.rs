//! What the same kind of client calls, whoever uses it.

use crate::prediction::counts::{Kind, context};
use crate::prediction::tables::after;
use crate::prediction::view::{View, fold};

/// Returns what clients of this kind call, and what they call after the last call.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let mut p = view.base().to_vec();
    let Some(scope) = view.client else {
        return p;
    };
    let all = context(Kind::Call, &[]);
    let last = after(Kind::After, &view.trail.last).into_iter().next();
    for key in std::iter::once(all).chain(last) {
        if let Some(node) = scope.node(key) {
            fold(node, node.n_different(), &mut p);
        }
    }
    p
}
