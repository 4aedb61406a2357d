//! What the sessions of a proxy have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use arc_swap::{ArcSwap, Guard};
use riglm_domain::naming::Naming;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::observer::{Event, Observer};
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
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) filter: ListFilter,
    /// The limits that hold; they may change at any time.
    pub(super) limits: ArcSwap<Limits>,
    /// The tool for searching, where there is one.
    pub(super) search_tool: Option<Arc<SearchTool>>,
    /// What sessions are doing, where that is of use.
    pub(super) intents: Option<Arc<Intents>>,
    /// Told of each call, where calls are learned from.
    pub(super) next_tools: Option<Arc<NextTools>>,
    /// Finds the work session of each request, where they are derived.
    pub(super) work_sessions: Option<Arc<WorkSessions>>,
    /// Records spans, where traces are wanted.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    pub(super) lists: ListMemory,
    /// What sessions could call, made once for all to which the same is listed.
    pub(super) offers: Offers,
    pub(super) directories: Directories,
    /// Is told what happens.
    pub(crate) observer: std::sync::Arc<dyn Observer>,
    /// Requests in flight in all sessions.
    pub(crate) n_in_flight: AtomicUsize,
    /// The proxy is going to end: requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

impl Shared {
    /// Tells who looks on that something happened.
    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// Returns the limits that hold now. What is returned is held for a moment only: not over an
    /// await.
    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }
}

/// Returns the error for what comes after the proxy began to stop.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}
