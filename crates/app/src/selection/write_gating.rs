//! Write gating: whether a client only reads, by its declared context or by its queries. Tools that
//! may change data are then hidden from it, if the operator enabled this.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::intent::StatedIntent;
use riglm_domain::recommendation::{IntentAnalysis, Lexicon};
use riglm_domain::selection::{Access, ReadOnlyHint, intended_access};

use super::config::FilteringConfig;
use super::list_request::ListRequest;
use super::tool_marks::{ToolMark, marks};
use riglm_discovery::search::CatalogTool;

/// Returns whether tools that may change data are hidden for this request.
pub(super) fn is_gated(
    options: &FilteringConfig,
    request: &ListRequest<'_>,
    lexicon: &Lexicon,
) -> bool {
    let stated = request.stated.filter(|_| options.gate_writes);
    stated.is_some_and(|stated| access(stated, lexicon) == Some(Access::Read))
}

/// Returns whether a gated call is refused, because the tool may change data. A tool without a
/// definition counts as one that may. A pin or an override that shows a tool permits the call.
pub(super) fn refuses(
    options: &FilteringConfig,
    overrides: &[ToolOverride],
    request: &ListRequest<'_>,
    tool: &ToolRef,
    offered: Option<&CatalogTool>,
) -> bool {
    let unknown = || CatalogTool {
        name: tool.tool.as_str().to_owned(),
        tool: tool.clone(),
        definition: Arc::default(),
        is_hidden: false,
    };
    let offered = [offered.cloned().unwrap_or_else(unknown)];
    if ReadOnlyHint::of_definition(&offered[0].definition) == ReadOnlyHint::Yes {
        return false;
    }
    let marks = marks(options, true, overrides, request, &offered);
    !matches!(marks.first(), Some(ToolMark::Pin | ToolMark::Include))
}

/// Returns the access that a client asks for: by its declared context, or else by its queries.
/// Arguments and results of calls are ignored, because a third party may have written them; their
/// text must not unlock writing.
fn access(stated: &StatedIntent, lexicon: &Lexicon) -> Option<Access> {
    let of = |text: &str| intended_access(text, &IntentAnalysis::of(text, lexicon));
    let declared = stated.declared.as_deref().and_then(of);
    declared.or_else(|| of(&stated.sought))
}
