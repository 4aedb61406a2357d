//! The way of a message from a member to the client.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::edit;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::meta::{PROGRESS_TOKEN, RequestMeta, SUBSCRIPTION_ID};
use riglm_ports::downstream::Route;

use super::list_kind::ChangeKind;
use super::{FromMember, is_own};
use crate::proxy::relay::params::{IdMember, id_member};
use crate::proxy::session::ClientSession;

impl ClientSession {
    /// Passes on what a member says.
    pub(in crate::proxy) async fn from_member(
        self: &Arc<Self>,
        number: u64,
        message: Message,
        route: Route,
    ) {
        let Some(envelope) = message.single().cloned() else {
            return self.client.deliver(message, route).await;
        };
        match envelope.kind() {
            Kind::Success | Kind::Failure => self.answered(message, &envelope, route).await,
            Kind::Request => self.asked(number, message, &envelope, route).await,
            Kind::Notification => self.told(number, message, &envelope, route).await,
        }
    }

    async fn answered(&self, message: Message, envelope: &Envelope, route: Route) {
        let id = match (envelope.id(), &route) {
            (Some(id), _) | (None, Route::Related(id)) => id.clone(),
            (None, Route::Standalone) => return self.client.deliver(message, route).await,
        };
        let ask = self.united.state().asks.remove(&id);
        if let Some(ask) = ask {
            // Who asked may have given up.
            let _ = ask.answer.send(message);
            return;
        }
        if is_own(&id) {
            tracing::debug!("an answer that nobody waits for any more is dropped");
            return;
        }
        self.settled(&id, &message);
        self.client.deliver(message, Route::Related(id)).await;
    }

    /// Passes a request of a member on, under an id that no other member uses.
    async fn asked(&self, number: u64, message: Message, envelope: &Envelope, route: Route) {
        let Some(id) = envelope.id() else {
            return;
        };
        let meta = RequestMeta::read(message.params(envelope));
        let progress_token = meta.progress_token.and_then(RequestId::from_json);
        let own = self.united.own_id();
        let mut message = message.with_id(&own);
        if progress_token.is_some() {
            // Two members may choose the same token as well.
            let part = message.single();
            if let Some(params) = part.and_then(|part| message.params(part)) {
                let params = edit::with_meta(params, &[(PROGRESS_TOKEN, &own.to_json())]);
                message = message.with_params(&params);
            }
        }
        let asked = FromMember {
            number,
            id: id.clone(),
            progress_token,
            asked: Instant::now(),
        };
        self.united.state().note_from_member(own, asked);
        let route = self.client_route(route);
        self.client.deliver(message, route).await;
    }

    async fn told(
        self: &Arc<Self>,
        number: u64,
        message: Message,
        envelope: &Envelope,
        route: Route,
    ) {
        let method = envelope.method().unwrap_or_default();
        if let Some(kind) = ChangeKind::of_method(method) {
            return self.changed_by(kind, number);
        }
        let listen = match &route {
            Route::Related(id) => {
                let state = self.united.state();
                state.asks.get(id).and_then(|ask| ask.listen.clone())
            }
            Route::Standalone => None,
        };
        if let Some(listen) = listen {
            return self.heard(&listen, number, message, envelope).await;
        }
        let params = message.params(envelope);
        let is_over = |id: &RequestId| is_own(id) && !self.united.state().asks.contains_key(id);
        let is_of_request = method == "notifications/progress"
            || params.is_some_and(|params| edit::meta(params, SUBSCRIPTION_ID).is_some());
        if is_of_request && matches!(&route, Route::Related(id) if is_over(id)) {
            return; // Its request was the session's own, and the client knows nothing of it.
        }
        let cancelled = (method == "notifications/cancelled")
            .then(|| id_member(params, IdMember::RequestId))
            .flatten();
        let message = match cancelled {
            Some(id) => self.taken_back(number, message, &id),
            None => message,
        };
        let route = self.client_route(route);
        self.client.deliver(message, route).await;
    }

    /// Returns the message by which a member takes its request back, under the id that the client
    /// knows it by.
    fn taken_back(&self, number: u64, message: Message, id: &RequestId) -> Message {
        let own = {
            let mut state = self.united.state();
            let mut all = state.from_members.iter();
            let own = all
                .find(|(_, asked)| asked.number == number && asked.id == *id)
                .map(|(own, _)| own.clone());
            if let Some(own) = &own {
                state.from_members.remove(own);
            }
            own
        };
        let params = message.single().and_then(|part| message.params(part));
        match (own, params) {
            (Some(own), Some(params)) => {
                message.with_params(&edit::with_member(params, "requestId", &own.to_json()))
            }
            _ => message,
        }
    }

    /// Returns where something belongs at the client that a member said about a request.
    fn client_route(&self, route: Route) -> Route {
        let Route::Related(id) = route else {
            return route;
        };
        let state = self.united.state();
        match state.asks.get(&id) {
            Some(ask) => {
                let behalf = ask.behalf.clone();
                behalf.map_or(Route::Standalone, Route::Related)
            }
            None if is_own(&id) => Route::Standalone,
            None => Route::Related(id),
        }
    }
}
