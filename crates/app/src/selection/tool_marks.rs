//! Decisions about tools that precede any prediction: pins, bans, overrides and write gating.

use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::{OverrideId, SessionId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::prediction::NamePattern;
use riglm_domain::selection::{ListPolicyName, ReadOnlyHint};
use riglm_domain::usage::invocation::SessionKey;

use super::config::FilteringConfig;
use super::list_request::ListRequest;
use riglm_discovery::search::CatalogTool;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolMark {
    #[default]
    None,
    Include,
    /// Shown before all others.
    Pin,
    Exclude,
}

/// Returns the decision about each tool: first by the configuration, then by the active overrides
/// for this client. A narrower override decides over a wider one.
pub(super) fn marks(
    options: &FilteringConfig,
    is_gated: bool,
    overrides: &[ToolOverride],
    request: &ListRequest<'_>,
    tools: &[CatalogTool],
) -> Vec<ToolMark> {
    let mut holding: Vec<&ToolOverride> = (overrides.iter())
        .filter(|one| one.is_active(request.now) && holds_for(&one.scope, request))
        .collect();
    // Later overrides win: narrow scopes after wide ones, new ones after old ones.
    holding.sort_by_key(|one| (width(&one.scope), one.created_at, one.id));
    let mark_of = |tool: &CatalogTool| {
        let may_write = || ReadOnlyHint::of_definition(&tool.definition) != ReadOnlyHint::Yes;
        let mut mark = if fits_any(&options.bans, tool) {
            ToolMark::Exclude
        } else if fits_any(&options.pins, tool) {
            ToolMark::Pin
        } else if is_gated && may_write() {
            ToolMark::Exclude
        } else {
            ToolMark::None
        };
        let is_it = |one: &&&ToolOverride| tool.name == one.tool || tool.tool.is_named(&one.tool);
        for one in holding.iter().filter(is_it) {
            mark = match one.action {
                OverrideAction::Include => ToolMark::Include,
                OverrideAction::Exclude | OverrideAction::Forbid => ToolMark::Exclude,
                OverrideAction::Pin => ToolMark::Pin,
            };
        }
        mark
    };
    tools.iter().map(mark_of).collect()
}

/// Returns the positions of the tools that are hidden from a client in any case: by the decision of
/// the operator, or by the names of the policies `allowlist` and `denylist`.
pub(super) fn hidden_positions(
    options: &FilteringConfig,
    policy: ListPolicyName,
    marks: &[ToolMark],
    tools: &[CatalogTool],
) -> Vec<usize> {
    let is_left_out = |tool: &CatalogTool| match policy {
        ListPolicyName::Allowlist => !fits_any(&options.allow, tool),
        ListPolicyName::Denylist => fits_any(&options.deny, tool),
        _ => false,
    };
    let all = marks.iter().zip(tools).enumerate();
    all.filter(|(_, (mark, tool))| match mark {
        ToolMark::Exclude => true,
        ToolMark::None => is_left_out(tool),
        ToolMark::Include | ToolMark::Pin => false,
    })
    .map(|(at, _)| at)
    .collect()
}

/// Returns whether any of the names of a tool matches one of the patterns.
pub(super) fn fits_any(patterns: &[NamePattern], tool: &CatalogTool) -> bool {
    if patterns.is_empty() {
        return false;
    }
    let names = tool.names();
    let fits = |pattern: &NamePattern| names.iter().any(|name| pattern.matches(name));
    patterns.iter().any(fits)
}

fn holds_for(scope: &OverrideScope, request: &ListRequest<'_>) -> bool {
    match scope {
        OverrideScope::Global => true,
        OverrideScope::Profile(profile) => request.profile == Some(profile),
        OverrideScope::Client(client) => request
            .client_hash
            .is_some_and(|hash| hash.to_string() == *client),
        // The list of a modern client must not depend on sessions.
        OverrideScope::Session(_) if request.era == Era::Modern => false,
        OverrideScope::Session(session) => {
            let is_connection = |id: SessionId| id.to_string() == *session;
            request.connection.is_some_and(is_connection)
                || match request.session {
                    SessionKey::Work(id) => id.to_string() == *session,
                    SessionKey::Connection(id) => is_connection(id),
                }
        }
    }
}

/// Returns the active overrides for this client or session, which may not apply to all clients that
/// share the list.
pub(super) fn narrow_overrides(
    overrides: &[ToolOverride],
    request: &ListRequest<'_>,
) -> Vec<OverrideId> {
    let is_narrow = |scope: &OverrideScope| {
        matches!(scope, OverrideScope::Client(_) | OverrideScope::Session(_))
    };
    (overrides.iter())
        .filter(|one| {
            is_narrow(&one.scope) && one.is_active(request.now) && holds_for(&one.scope, request)
        })
        .map(|one| one.id)
        .collect()
}

fn width(scope: &OverrideScope) -> u8 {
    match scope {
        OverrideScope::Global => 0,
        OverrideScope::Profile(_) => 1,
        OverrideScope::Client(_) => 2,
        OverrideScope::Session(_) => 3,
    }
}
