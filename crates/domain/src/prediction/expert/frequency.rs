//! The experts for the frequency of tools, in all calls and in first calls. The distributions are
//! computed once for a prediction, because other experts need them.

use super::Expert;
use crate::prediction::counts::{ContextKind, context};
use crate::prediction::view::View;
use crate::prediction::vocabulary::ToolIx;

pub(super) fn evidence(expert: Expert, view: &View<'_>, slot: ToolIx) -> Option<String> {
    let (kind, verb) = match expert {
        Expert::FirstCall => (ContextKind::First, "was first in"),
        _ => (ContextKind::Call, "was"),
    };
    let (n, total) = view.count_and_total(context(kind, &[]), slot)?;
    let of = if kind == ContextKind::First {
        "sessions"
    } else {
        "calls"
    };
    Some(format!("{verb} {n:.0} of {total:.0} {of}"))
}
