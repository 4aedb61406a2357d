//! How often tools are called at all, and how often they are the first ones. The distributions are
//! made once for a prediction: others stand on them.

use super::Expert;
use crate::prediction::counts::{Kind, context};
use crate::prediction::view::View;
use crate::prediction::vocabulary::Slot;

pub(super) fn evidence(expert: Expert, view: &View<'_>, slot: Slot) -> Option<String> {
    let (kind, verb) = match expert {
        Expert::FirstCall => (Kind::First, "was first in"),
        _ => (Kind::Call, "was"),
    };
    let (n, total) = view.known(context(kind, &[]), slot)?;
    let of = if kind == Kind::First {
        "sessions"
    } else {
        "calls"
    };
    Some(format!("{verb} {n:.0} of {total:.0} {of}"))
}
