//! The admission of requests: permits, memory and limits, for all sessions together and for the share
//! of each principal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use riglm_domain::mcp::message::RequestId;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::observer::{Event, EventOrigin, ResourceLimit};

use super::client_context::ClientContext;
use super::client_requests::{Handler, NotAdded};
use super::request_permits::{
    PermitLimits, PermitRefusal, PrincipalPermit, PrincipalPermits, RequestPermit, ReservedMemory,
};
use super::shared_state::SharedState;

/// A request of the client that is to be registered as in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRequest<'a> {
    pub(super) id: &'a RequestId,
    pub(super) method: &'a str,
    /// The size of its message in bytes.
    pub(super) n_bytes: usize,
    /// The number of cancelled requests of the session whose late answer may still arrive. They
    /// count towards the limit of the session.
    pub(super) n_unanswered: usize,
}

/// The permits of requests in flight. Each kind has as many permits as the limits allow requests.
#[derive(Debug, Default)]
pub(super) struct RequestPermits {
    calls: Arc<PrincipalPermits>,
    /// Requests that start a session or check whether the server responds.
    greetings: Arc<PrincipalPermits>,
    /// Requests whose client is gone.
    background: Arc<PrincipalPermits>,
    /// The bytes of requests in flight, including those in the background.
    call_bytes: Arc<PrincipalPermits>,
    /// The bytes of requests that count as `greetings`.
    greeting_bytes: Arc<PrincipalPermits>,
    /// The bytes of messages that wait for their clients.
    waiting: Arc<PrincipalPermits>,
}

impl RequestPermits {
    /// Returns the number of requests whose client waits for the answer.
    pub(super) fn n_awaited(&self) -> usize {
        self.calls.n_taken() + self.greetings.n_taken()
    }
}

impl SharedState {
    pub(super) fn bounds(&self, total: usize) -> PermitLimits {
        let is_shared = self.has_several_principals.load(Ordering::Relaxed);
        PermitLimits {
            total,
            of_one: if is_shared {
                self.limits().share_of(total)
            } else {
                total
            },
        }
    }

    /// Registers a request of a client as in flight.
    ///
    /// # Errors
    ///
    /// Returns the reason for a refusal: the proxy is shutting down, the id is in flight, or a limit
    /// is reached.
    pub(super) fn admit(
        &self,
        client_context: &ClientContext,
        request: &NewRequest<'_>,
        handler: Handler,
    ) -> Result<(), RpcError> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let limit = self.limits().in_flight_per_session;
        let is_stream = request.method == "subscriptions/listen";
        let added = (client_context.requests).add(request.id, handler, is_stream, |count| {
            let is_full = || count.reaches(limit, || request.n_unanswered);
            if !is_handshake_method(request.method) && is_full() {
                return Err(self.session_is_full(&client_context.origin()));
            }
            self.take_permit(&client_context.principal, request.method, request.n_bytes)
        });
        let invalid = |text: &str| RpcError::new(RpcErrorCode::InvalidRequest, text);
        added.map_err(|refused| match refused {
            NotAdded::Duplicate => duplicate_id(),
            NotAdded::Cancelled => invalid("the request was cancelled"),
            NotAdded::NoPermit(error) => error,
        })
    }

    /// Takes a permit for a request in flight and reserves `n_bytes` of memory for its message.
    /// Handshakes have separate permits, so that new clients are admitted under any load of calls.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`], which names the limit that was reached.
    fn take_permit(
        &self,
        principal: &Principal,
        method: &str,
        n_bytes: usize,
    ) -> Result<RequestPermit, RpcError> {
        let bounds = self.bounds(self.limits().in_flight);
        let (places, memory) = if is_handshake_method(method) {
            (
                &self.request_permits.greetings,
                &self.request_permits.greeting_bytes,
            )
        } else {
            (
                &self.request_permits.calls,
                &self.request_permits.call_bytes,
            )
        };
        let origin = EventOrigin::of_principal(principal);
        let place = places.take(principal, bounds).map_err(|lack| {
            let of_one = bounds.of_one;
            self.too_many(&origin, match lack {
                PermitRefusal::Total => TOO_MANY.into(),
                PermitRefusal::Share => format!(
                    "too many requests of this principal are in flight: the limit is {of_one} at \
                     once (limits.principal_share); try again when some have ended"
                ),
            })
        })?;
        let bounds = self.bounds_of_bytes();
        let room = memory
            .take_many(principal, n_bytes, bounds)
            .map_err(|lack| {
                let of_one = bounds.of_one;
                self.too_many(&origin, match lack {
                PermitRefusal::Total => "requests in flight use too much memory \
                                         (limits.in_flight_bytes); try again when some have ended"
                    .into(),
                PermitRefusal::Share => format!(
                    "requests in flight of this principal use too much memory: the limit is \
                     {of_one} bytes (limits.in_flight_bytes, limits.principal_share); try \
                     again when some have ended"
                ),
            })
            })?;
        Ok(RequestPermit::new(place, ReservedMemory::new(room)))
    }

    /// Returns the limits in bytes for requests in flight. Each principal may at least send one
    /// request of the maximum size.
    fn bounds_of_bytes(&self) -> PermitLimits {
        let limits = self.limits();
        let largest = limits.request_body_bytes;
        let bounds = self.bounds(limits.in_flight_bytes.max(largest));
        PermitLimits {
            of_one: bounds.of_one.max(largest),
            ..bounds
        }
    }

    /// Returns the error of a session that reached its limit of requests in flight.
    fn session_is_full(&self, origin: &EventOrigin<'_>) -> RpcError {
        self.too_many(origin, TOO_MANY.into())
    }

    fn too_many(&self, origin: &EventOrigin<'_>, text: String) -> RpcError {
        self.observe_from(&Event::LimitReached(ResourceLimit::InFlight), origin);
        RpcError::new(RpcErrorCode::LimitReached, text)
    }

    /// Takes a permit for a request whose client is gone. Returns `None` if none is free. The
    /// request then keeps its present permit.
    pub(super) fn background_permit(&self, principal: &Principal) -> Option<PrincipalPermit> {
        let bounds = self.bounds(self.limits().in_flight);
        self.request_permits.background.take(principal, bounds).ok()
    }

    /// Reserves memory for a message of `n_bytes` that waits for a client.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`], which names the limit that was reached.
    pub(super) fn reserve_memory(
        &self,
        principal: &Principal,
        n_bytes: usize,
    ) -> Result<ReservedMemory, RpcError> {
        let bounds = self.bounds(self.limits().waiting_bytes);
        let taken = (self.request_permits.waiting).take_many(principal, n_bytes, bounds);
        taken.map(ReservedMemory::new).map_err(|lack| {
            let whose = match lack {
                PermitRefusal::Total => "clients",
                PermitRefusal::Share => "the clients of this principal",
            };
            let text =
                format!("answer dropped: too many unread bytes of {whose} (limits.waiting_bytes)");
            RpcError::new(RpcErrorCode::LimitReached, text)
        })
    }
}

/// The error text for too many requests in flight.
const TOO_MANY: &str = "too many requests are in flight; try again when some have ended";

/// Returns whether a request starts a session or checks whether the server responds.
fn is_handshake_method(method: &str) -> bool {
    matches!(method, "initialize" | "server/discover" | "ping")
}

/// Returns the error for requests after the shutdown began.
pub(crate) fn stopping() -> RpcError {
    RpcError::new(RpcErrorCode::LimitReached, "the proxy is shutting down")
}

/// Returns the error for a request whose id is in use.
pub(super) fn duplicate_id() -> RpcError {
    RpcError::new(
        RpcErrorCode::InvalidRequest,
        "a request with this id is already in flight",
    )
}
