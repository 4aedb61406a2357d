//! What the sessions of a proxy have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::UpstreamConnector;

use super::list_memory::ListMemory;
use crate::filtering::ListFilter;
use crate::limits::Limits;
use crate::tracking::Recorder;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) connector: Arc<dyn UpstreamConnector>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) filter: ListFilter,
    pub(crate) limits: Limits,
    pub(super) lists: ListMemory,
    /// Requests in flight in all sessions.
    pub(crate) n_in_flight: AtomicUsize,
    /// The proxy is going to end: requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

/// Returns the error for what comes after the proxy began to stop.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}
