//! What the sessions of a proxy have in common.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use arc_swap::ArcSwap;
use riglm_domain::naming::Naming;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::tracer::Tracer;

use super::relay::list_memory::ListMemory;
use super::search_tool::{Offers, SearchTool};
use super::united::directory::Directories;
use super::upstream_set::UpstreamSet;
use crate::filtering::ListFilter;
use crate::intent::Intents;
use crate::learning::NextTools;
use crate::limits::Limits;
use crate::tracking::Recorder;
use crate::work_sessions::WorkSessions;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) upstreams: ArcSwap<UpstreamSet>,
    pub(super) naming: Naming,
    pub(crate) recorder: std::sync::Arc<Recorder>,
    pub(crate) filter: ListFilter,
    pub(crate) limits: Limits,
    /// The tool for searching, where there is one.
    pub(super) search_tool: Option<std::sync::Arc<SearchTool>>,
    /// What sessions are doing, where that is of use.
    pub(super) intents: Option<std::sync::Arc<Intents>>,
    /// Told of each call, where calls are learned from.
    pub(super) next_tools: Option<std::sync::Arc<NextTools>>,
    /// Finds the work session of each request, where they are derived.
    pub(super) work_sessions: Option<std::sync::Arc<WorkSessions>>,
    /// Records spans, where traces are wanted.
    pub(super) tracer: Option<std::sync::Arc<dyn Tracer>>,
    pub(super) lists: ListMemory,
    /// What sessions could call, made once for all to which the same is listed.
    pub(super) offers: Offers,
    pub(super) directories: Directories,
    /// Requests in flight in all sessions.
    pub(crate) n_in_flight: AtomicUsize,
    /// The proxy is going to end: requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

/// Returns the error for what comes after the proxy began to stop.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}
