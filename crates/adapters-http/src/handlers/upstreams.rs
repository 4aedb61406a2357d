//! `GET /upstreams`: how each upstream is doing, and what it lists.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_app::approvals::HeldChange;
use riglm_app::proxy::UpstreamState;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Guarded;
use crate::router::ControlParts;

/// All upstreams.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UpstreamList {
    /// In the order in which they are presented.
    upstreams: Vec<UpstreamView>,
}

/// An upstream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UpstreamView {
    /// Its name.
    name: String,
    /// `available`, `unavailable` after a failed attempt to reach it, `unused` before the first.
    state: &'static str,
    /// Why it is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Open connections.
    connections: u64,
    /// Who waits for one.
    waiting: u64,
    /// How often a client was shown a list of tools without those of this upstream, because it was
    /// starting or down.
    left_out: u64,
    /// The tools that it listed last; `null` as long as no list of it was seen to its end.
    tool_set: Option<ToolSetView>,
    /// The changes of its tools that are held back until somebody approves them, by the name of the
    /// tool; none where changes pass.
    held: Vec<HeldView>,
}

/// A change of a tool that is held back.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldChange)]
pub(crate) struct HeldView {
    /// The tool, as the upstream names it.
    tool: String,
    /// `changed` for a tool that is shown as it was approved, `new` for one that is not shown.
    kind: &'static str,
    /// Identifies the definition that is held back.
    hash: String,
    /// Identifies the approved one.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_hash: Option<String>,
    /// When this process first saw it.
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
    /// Another hash is another list of tools, or other definitions of them.
    hash: String,
    /// How many there are.
    tools: u64,
    /// When the list was first seen so by this process.
    since: Timestamp,
    /// How often it changed since the start.
    changes: u64,
}

/// How each upstream is doing.
#[utoipa::path(
    get, path = "/upstreams", operation_id = "listUpstreams", tag = "observing", security(("token" = ["read"])),
    responses((status = OK, description = "The upstreams.", body = UpstreamList), Guarded)
)]
pub(crate) async fn list(State(parts): State<ControlParts>) -> Json<UpstreamList> {
    let states = parts.proxy.upstream_states().into_iter();
    Json(UpstreamList {
        upstreams: states.map(view).collect(),
    })
}

fn view(state: UpstreamState) -> UpstreamView {
    UpstreamView {
        name: state.name.as_str().into(),
        state: match (state.is_available, state.was_used) {
            (false, _) => "unavailable",
            (true, true) => "available",
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
        held: state.held.into_iter().map(Into::into).collect(),
    }
}
