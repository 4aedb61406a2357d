//! `GET /upstreams`: the state of each upstream, and its tools.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_app::control::approvals::HeldChange;
use riglm_app::proxy::{Proxy, UpstreamState};
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::TokenErrors;
use crate::state::ControlParts;

/// All upstreams.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UpstreamList {
    /// Upstreams, in the order of presentation.
    upstreams: Vec<UpstreamView>,
}

/// An upstream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UpstreamView {
    /// Name of the upstream.
    name: String,
    /// State: `available`, `unavailable` after a failed attempt to reach it, `starting` during its
    /// first start, `unused` before the first attempt.
    state: &'static str,
    /// Reason for being unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Number of open connections.
    connections: u64,
    /// Number of waiters for a connection.
    waiting: u64,
    /// Number of lists that were shown without the tools of this upstream, because it was starting
    /// or down.
    left_out: u64,
    /// The tools that it listed last; `null` until a complete list was seen.
    tool_set: Option<ToolSetView>,
    /// Numbers of tools by the revision of the client, if they are other tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools_by_era: Option<ToolsByEra>,
    /// Changes of its tools that wait for approval, by tool name. Empty if changes need no
    /// approval.
    held: Vec<HeldView>,
}

/// A change of a tool that waits for approval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldChange)]
pub(crate) struct HeldView {
    /// Name of the tool at the upstream.
    tool: String,
    /// `changed`: the approved definition is still shown. `new`: the tool is not shown.
    kind: &'static str,
    /// Hash of the held definition.
    hash: String,
    /// Hash of the approved definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_hash: Option<String>,
    /// Time when this process first saw it.
    seen_at: Timestamp,
}

impl From<HeldChange> for HeldView {
    fn from(held: HeldChange) -> Self {
        Self {
            tool: held.tool.as_str().into(),
            kind: held.kind.as_str(),
            hash: held.hash,
            approved_hash: held.approved_hash,
            seen_at: held.seen_at,
        }
    }
}

/// The tools that an upstream listed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolSetView {
    /// Hash of the list of tools and their definitions.
    hash: String,
    /// Number of tools.
    tools: u64,
    /// Time when this process first saw the list in this form.
    since: Timestamp,
    /// Number of changes since the start.
    changes: u64,
}

/// The tools of an upstream that shows clients of one era other tools than those of the other.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolsByEra {
    /// Number of tools for clients of revisions up to 2025-11-25.
    legacy: u64,
    /// Number of tools for clients of revision 2026-07-28.
    modern: u64,
}

/// List the upstreams with their state.
#[utoipa::path(
    get, path = "/upstreams", operation_id = "listUpstreams", tag = "observing", security(("token" = ["read"])),
    responses((status = OK, description = "The upstreams.", body = UpstreamList), TokenErrors)
)]
pub(crate) async fn list(State(parts): State<ControlParts>) -> Json<UpstreamList> {
    Json(UpstreamList {
        upstreams: views(&parts.proxy),
    })
}

/// Returns the state of each upstream.
pub(crate) fn views(proxy: &Proxy) -> Vec<UpstreamView> {
    proxy.upstream_states().into_iter().map(view).collect()
}

fn view(state: UpstreamState) -> UpstreamView {
    UpstreamView {
        name: state.name.as_str().into(),
        state: match (state.is_available, state.was_used) {
            (false, _) => "unavailable",
            (true, true) => "available",
            (true, false) if state.is_starting => "starting",
            (true, false) => "unused",
        },
        reason: state.reason,
        connections: state.n_connections as u64,
        waiting: state.n_waiting as u64,
        left_out: state.n_left_out,
        tool_set: state.tool_set.map(|seen| ToolSetView {
            hash: seen.hash,
            tools: seen.n_tools as u64,
            since: seen.since,
            changes: seen.n_changes,
        }),
        tools_by_era: (state.tools_by_era).map(|(legacy, modern)| ToolsByEra {
            legacy: legacy as u64,
            modern: modern as u64,
        }),
        held: state.held.into_iter().map(Into::into).collect(),
    }
}
