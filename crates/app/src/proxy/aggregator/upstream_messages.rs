//! The path of a message from an upstream session to the client.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::mcp::edit;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::{PROGRESS_TOKEN, RequestMeta, SUBSCRIPTION_ID};
use riglm_ports::downstream::Route;

use super::server_requests::RoutedRequest;
use crate::proxy::aggregator::changes::note_reported_change;
use crate::proxy::aggregator::listen::on_stream_notification;
use crate::proxy::list_kind::ListChange;
use crate::proxy::request_params::{IdMember, id_member};
use crate::proxy::session::ClientSession;

/// Forwards a message of an upstream.
pub(in crate::proxy) async fn pass_to_client(
    session: &Arc<ClientSession>,
    number: u64,
    message: Message,
    route: Route,
) {
    let Some(envelope) = message.single().cloned() else {
        return session.client.deliver(message, route).await;
    };
    match envelope.kind() {
        MessageKind::Success | MessageKind::Failure => {
            on_answer(session, number, message, &envelope, route).await;
        }
        MessageKind::Request => on_request(session, number, message, &envelope, route).await,
        MessageKind::Notification => {
            on_notification(session, number, message, &envelope, route).await;
        }
    }
}

async fn on_answer(
    session: &ClientSession,
    number: u64,
    message: Message,
    envelope: &Envelope,
    route: Route,
) {
    let id = match (envelope.id(), &route) {
        (Some(id), _) | (None, Route::Related(id)) => id.clone(),
        (None, Route::Standalone) => return session.client.deliver(message, route).await,
    };
    if let Some(result) = message.result(envelope) {
        session.aggregator.tasks.note_result(result, number);
    }
    if let Some(request) = session.aggregator.fan_outs.take(&id) {
        // The receiver may have given up.
        let _ = request.answer.send(message);
        return;
    }
    if InternalRequest::FanOut.has(&id) {
        tracing::debug!("dropped a late answer: its request has already ended");
        return;
    }
    session.client.deliver(message, Route::Related(id)).await;
}

/// Forwards a request of an upstream under an id that is unique in the session.
async fn on_request(
    session: &ClientSession,
    number: u64,
    message: Message,
    envelope: &Envelope,
    route: Route,
) {
    let Some(id) = envelope.id() else {
        return;
    };
    let meta = RequestMeta::read(message.params(envelope));
    let progress_token = meta.progress_token.and_then(RequestId::from_json);
    let own = session.aggregator.own_id();
    let mut message = message.with_id(&own);
    if progress_token.is_some() {
        // Two upstreams may also choose the same progress token.
        let part = message.single();
        if let Some(params) = part.and_then(|part| message.params(part)) {
            let params = edit::with_meta(params, &[(PROGRESS_TOKEN, &own.to_json())]);
            message = message.with_params(&params);
        }
    }
    let request = RoutedRequest {
        number,
        id: id.clone(),
        progress_token,
        asked: Instant::now(),
    };
    session.aggregator.server_requests.add(own, request);
    let route = client_route(session, route);
    session.client.deliver(message, route).await;
}

async fn on_notification(
    session: &Arc<ClientSession>,
    number: u64,
    message: Message,
    envelope: &Envelope,
    route: Route,
) {
    let method = envelope.method().unwrap_or_default();
    if let Some(kind) = ListChange::of_method(method) {
        return note_reported_change(session, kind, number);
    }
    let listen = match &route {
        Route::Related(id) => {
            let behalf = session.aggregator.fan_outs.behalf(id);
            behalf.and_then(|behalf| behalf.listen)
        }
        Route::Standalone => None,
    };
    if let Some(listen) = listen {
        return on_stream_notification(session, &listen, number, message, envelope).await;
    }
    let params = message.params(envelope);
    let is_over = |id: &RequestId| {
        InternalRequest::FanOut.has(id) && !session.aggregator.fan_outs.is_open(id)
    };
    let is_of_request = method == "notifications/progress"
        || params.is_some_and(|params| edit::meta(params, SUBSCRIPTION_ID).is_some());
    if is_of_request && matches!(&route, Route::Related(id) if is_over(id)) {
        return; // Its request was the session's own, and the client knows nothing of it.
    }
    let cancelled = (method == "notifications/cancelled")
        .then(|| id_member(params, IdMember::RequestId))
        .flatten();
    let message = match cancelled {
        Some(id) => with_client_id(session, number, message, &id),
        None => message,
    };
    let route = client_route(session, route);
    session.client.deliver(message, route).await;
}

/// Returns the cancellation of an upstream's request, under the id that the client knows.
fn with_client_id(
    session: &ClientSession,
    number: u64,
    message: Message,
    id: &RequestId,
) -> Message {
    let own = (session.aggregator.server_requests).take_cancelled(number, id);
    let params = message.single().and_then(|part| message.params(part));
    match (own, params) {
        (Some(own), Some(params)) => {
            message.with_params(&edit::with_member(params, "requestId", &own.to_json()))
        }
        _ => message,
    }
}

/// Returns the route to the client for a message about a request.
fn client_route(session: &ClientSession, route: Route) -> Route {
    let Route::Related(id) = route else {
        return route;
    };
    match session.aggregator.fan_outs.behalf(&id) {
        Some(behalf) => behalf.request.map_or(Route::Standalone, Route::Related),
        None if InternalRequest::FanOut.has(&id) => Route::Standalone,
        None => Route::Related(id),
    }
}
