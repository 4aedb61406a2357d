//! One client, connected over one transport session, and its ways to the upstreams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use jiff::Timestamp;
use riglm_domain::edit;
use riglm_domain::excerpt::excerpt;
use riglm_domain::id::UpstreamName;
use riglm_domain::intent::IntentSource;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_domain::protocol::{Revision, Transport};
use riglm_domain::request_hints::taken_out;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::observer::Event;
use riglm_ports::upstream::Exchange;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::caller::Caller;
use super::escape::{Unescaping, inner, taken_in};
use super::member::{Member, MemberLink};
use super::places::{Presence, Room};
use super::relay::{Relay, session_ended};
use super::shared::Shared;
use super::traces::{Traces, Tracing};
use super::united::United;
use super::united::waiting::Waiting;
use super::upstream_set::{UpstreamEntry, UpstreamSet};
use super::visitor::Visitor;

/// The session of one client.
///
/// The downstream adapter hands it each message of the client and tells it when the client is
/// gone; everything for the client goes out through the [`ClientLink`] that it was made with.
///
/// With one upstream messages pass as they are; with several the session presents them as one
/// server (`united`).
#[derive(Debug)]
pub struct ClientSession {
    pub(super) shared: Arc<Shared>,
    pub(super) caller: Arc<Caller>,
    pub(super) client: Arc<dyn ClientLink>,
    members: ArcSwap<Vec<Arc<Member>>>,
    /// Members that were taken out of the configuration and whose requests are ending.
    retiring: Mutex<Vec<Arc<Member>>>,
    next_member: AtomicU64,
    /// There is or was more than one upstream.
    is_united: AtomicBool,
    pub(super) united: United,
    /// The spans of its requests, where traces are wanted.
    traces: Option<Arc<Traces>>,
    itself: Weak<Self>,
    changing: Mutex<()>,
    is_closed: AtomicBool,
    /// The identifier that its transport gave it.
    transport_id: OnceLock<Box<str>>,
    /// Cancelled when the session begins to end.
    pub(super) closing: CancellationToken,
    ended: CancellationToken,
}

/// The longest name of a member that is repeated, in characters.
const MAX_MEMBER_CHARS: usize = 40;
/// The time that requests which were cut off have to end.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

impl ClientSession {
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: Transport,
        visitor: Visitor,
        client: Arc<dyn ClientLink>,
    ) -> Arc<Self> {
        let started_at = shared.recorder.now();
        let set = shared.upstreams.load_full();
        let caller = Arc::new(Caller::new(transport, visitor, started_at));
        let traces = Traces::of(&shared, &caller);
        let client = Tracing::link(Arc::new(Unescaping::new(client)), traces.as_ref());
        let session = Arc::new_cyclic(|itself| Self {
            caller,
            shared,
            client,
            traces,
            members: ArcSwap::default(),
            retiring: Mutex::default(),
            next_member: AtomicU64::new(0),
            is_united: AtomicBool::new(false),
            united: United::default(),
            itself: Weak::clone(itself),
            changing: Mutex::new(()),
            is_closed: AtomicBool::new(false),
            transport_id: OnceLock::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        session.take_over(&set);
        session
    }

    /// Returns who is calling.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.caller.principal
    }

    /// Returns whether it is this visitor's: of the same principal, under the same profile.
    #[must_use]
    pub fn is_of(&self, visitor: &Visitor) -> bool {
        self.caller.principal == visitor.principal && self.caller.profile == visitor.profile
    }

    /// Notes the identifier that its transport gave it, by which operators may ask for it. The first
    /// one counts.
    pub fn named_by_transport(&self, id: &str) {
        // The error says that there is one.
        let _ = self.transport_id.set(id.into());
    }

    pub(super) fn transport_id(&self) -> Option<&str> {
        self.transport_id.get().map(|id| &**id)
    }

    /// Returns the revision that was agreed on, or asked for while that is not known.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        self.caller.revision()
    }

    /// Returns whether a handshake was completed.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.caller.is_initialized()
    }

    /// Returns whether the session has ended or is ending.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Notes that the client is there: a message came, or a stream to it is open.
    pub fn touch(&self) {
        self.caller.touch();
    }

    /// Notes whether the client waits for the answers to these requests. Those whose client is gone
    /// go on, for it may come back; they keep neither others nor the end of the proxy waiting.
    pub fn note_presence(&self, requests: &[RequestId], presence: Presence) {
        let members = self.all_members();
        for id in requests {
            let id = inner(id);
            let background = || self.shared.background_place(&self.caller.principal);
            let parts = self.united.note_presence(&id, presence, background);
            for member in &members {
                for id in parts.iter().chain([&id]) {
                    member.relay.note_presence(id, presence);
                }
            }
        }
    }

    /// Takes room in memory for a message of so many bytes that waits for the client.
    ///
    /// # Errors
    ///
    /// Returns the error that takes the place of an answer for which there is no room.
    pub fn room_for(&self, n_bytes: usize) -> Result<Room, RpcError> {
        self.shared.room_for(&self.caller.principal, n_bytes)
    }

    /// Returns the upstreams in their order.
    pub(super) fn members(&self) -> Arc<Vec<Arc<Member>>> {
        self.members.load_full()
    }

    /// Returns the upstreams, and those that were taken out and whose requests are ending.
    pub(super) fn all_members(&self) -> Vec<Arc<Member>> {
        let retiring = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        let members = self.members.load();
        members.iter().chain(retiring.iter()).cloned().collect()
    }

    /// Forgets a member that has ended.
    pub(super) fn retired(&self, gone: &Arc<Member>) {
        let mut retiring = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        retiring.retain(|member| !Arc::ptr_eq(member, gone));
    }

    /// Returns whether the session presents several upstreams as one server, or did.
    pub(super) fn is_united(&self) -> bool {
        self.is_united.load(Ordering::Acquire)
    }

    /// Takes a message of the client: opens the rows that it needs and forwards its bytes.
    ///
    /// Requests are always answered through the [`ClientLink`], with an error if need be. Returns
    /// when the message was handed to the upstream, or the exchange that does so: the caller must
    /// drive it to its end.
    ///
    /// Not cancellation safe: run it on a task of its own where the caller may go away.
    ///
    /// # Errors
    ///
    /// Returns why a message without requests could not be passed on.
    pub async fn receive(self: &Arc<Self>, message: Message) -> Result<Option<Exchange>, RpcError> {
        self.touch();
        let unacceptable = self.too_deep(&message).or_else(|| self.ambiguous(&message));
        let message = match unacceptable {
            None => message,
            Some(error) => match in_place_of_answer(&message, &error) {
                Some(refusal) => refusal,
                None => return self.refuse(&message, error).await.map(|()| None),
            },
        };
        let Some(message) = self.not_for_itself(message) else {
            return Ok(None);
        };
        let message = taken_out(message);
        let ignored = &message.hints().ignored;
        if !ignored.is_empty() {
            tracing::debug!("hints of a request are ignored, for their form or size: {ignored:?}");
        }
        self.note_hints(&message);
        let message = match taken_in(message) {
            Ok(message) => message,
            Err(message) => {
                let text = "ids that begin with riglm: cannot stand in a batch";
                let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
                return self.refuse(&message, error).await.map(|()| None);
            }
        };
        if has_call_without_id(&message) {
            let text = "tools/call is a request and needs an id";
            let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
            return self.refuse(&message, error).await.map(|()| None);
        }
        let message = match &self.traces {
            Some(traces) => traces.begin(message),
            None => message,
        };
        self.note_hint(&message).await;
        if self.is_united() {
            return self.receive_united(message).await;
        }
        let members = self.members.load();
        match members.first() {
            Some(only) => only.relay.receive(message).await,
            None => self.receive_united(message).await,
        }
    }

    /// Returns the error for a message of the client that is nested too deep for the parsers of
    /// servers.
    fn too_deep(&self, message: &Message) -> Option<RpcError> {
        let limit = self.shared.limits().message_depth;
        message.is_deeper_than(limit).then(|| {
            let text =
                format!("the message is nested deeper than {limit} levels (limits.message_depth)");
            RpcError::new(RpcErrorCode::InvalidRequest, text)
        })
    }

    /// Returns the error for a message that servers may read otherwise than it is judged here, while
    /// calls of some tools are forbidden.
    fn ambiguous(&self, message: &Message) -> Option<RpcError> {
        self.shared.filter.forbidden()?;
        let member = message.ambiguous_member()?;
        let text = format!(
            "the member {:?} stands twice or differs from another only by case: servers may read \
             such requests in different ways, and the operator forbids calls of some tools",
            excerpt(&member, MAX_MEMBER_CHARS)
        );
        Some(RpcError::new(RpcErrorCode::InvalidRequest, text))
    }

    /// Hands an answer of the client to who asked, where that was the proxy itself; returns any other
    /// message.
    fn not_for_itself(&self, message: Message) -> Option<Message> {
        match self.caller.known_row() {
            Some(row) => self.caller.sampling.answered(row, message),
            // Who was never searched for anything was not asked either.
            None => Some(message),
        }
    }

    /// Notes what a message says of what is being done, where the client knows of the proxy. Of requests
    /// that belong to a work session that is noted when that is found ([`Caller::work_session`]).
    async fn note_hint(&self, message: &Message) {
        let Some(text) = &message.hints().context else {
            return;
        };
        let method = message.single().and_then(|part| part.method());
        let is_of_work = matches!(method, Some("tools/call" | "tools/list"));
        let source = IntentSource::Request;
        let intents = self.shared.intents.as_ref();
        let is_heard = intents.is_some_and(|intents| intents.listens_to(source));
        if !is_heard || is_of_work && self.shared.work_sessions.is_some() {
            return;
        }
        let row = self.caller.row(&self.shared).await;
        let (together, now) = (self.caller.together(row), self.shared.recorder.now());
        self.shared.note_intent(together, source, text, now);
    }

    /// Notes what a message says of the work of the client as a whole: a handshake with a key, and
    /// the roots that the client names.
    fn note_hints(&self, message: &Message) {
        let Some(part) = message.single() else {
            return;
        };
        if part.method() == Some("initialize") {
            self.caller.hinted(message.hints());
        }
        // No other result of a client has this member.
        let roots = message
            .result(part)
            .filter(|result| memchr::memmem::find(result.as_bytes(), b"\"roots\"").is_some());
        if let Some(roots) = roots.and_then(root_uris) {
            self.caller.rooted(self.shared.recorder.hash_text(&roots));
        }
    }

    /// Answers the requests of a message with an error.
    ///
    /// # Errors
    ///
    /// Returns the error itself when there are none.
    pub(super) async fn refuse(&self, message: &Message, error: RpcError) -> Result<(), RpcError> {
        let mut requests = message.request_ids().peekable();
        if requests.peek().is_none() {
            return Err(error);
        }
        for id in requests {
            self.answer(id, error.to_json(Some(id))).await;
        }
        Ok(())
    }

    /// Sends the client an answer that the proxy itself wrote.
    pub(super) async fn answer(&self, id: &RequestId, text: String) {
        match Message::from_text(text) {
            Ok(message) => {
                let route = Route::Related(id.clone());
                self.client.deliver(message, route).await;
            }
            Err(source) => tracing::error!("the proxy's own answer is no message: {source}"),
        }
    }

    /// Ends the stream of a request that will not be answered.
    pub(super) async fn finish(&self, request: &RequestId) {
        self.united.forget(request);
        self.client.finish(request).await;
    }

    /// Returns whether nothing was heard of the client for longer than the limit, and nothing is
    /// in flight. A client over standard input is there as long as the input is open.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.is_idle_for(self.shared.limits().idle_timeout, now)
    }

    /// Returns for how long nothing was heard of the client; `None` over standard input.
    pub(super) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.caller.silent_for(now)
    }

    /// Returns whether nothing was heard of the client for so long, and nothing is in flight.
    pub(super) fn is_idle_for(&self, limit: Duration, now: Instant) -> bool {
        self.silent_for(now).is_some_and(|for_| for_ >= limit)
            && self.united.is_quiet()
            && self
                .members
                .load()
                .iter()
                .all(|member| member.relay.is_quiet())
    }

    /// Answers requests whose deadline has passed, and closes connections that a silent client
    /// does not use.
    pub(super) fn sweep(&self, now: Instant) {
        let silent_for = self.caller.silent_for(now);
        for member in self.members.load().iter() {
            let relay = &member.relay;
            let expired = relay.take_expired(now);
            if !expired.is_empty() {
                let relay = Arc::clone(relay);
                tokio::spawn(async move { relay.time_out(expired).await });
            }
            let idle_timeout = relay.entry.upstream.options.idle_timeout;
            if silent_for.is_some_and(|for_| for_ >= idle_timeout) && self.caller.is_set_up() {
                relay.reap(now);
            }
        }
    }

    /// Tells the client that its list of tools is another one, where the operator decided something
    /// since it was shown or its time is over.
    pub(super) fn tell_of_other_list(self: &Arc<Self>, revision: u64, now: Timestamp) {
        if self.is_closed() || !self.caller.is_due_again(revision, now) {
            return;
        }
        if self.is_united() {
            return self.tools_changed();
        }
        if let Some(only) = self.members.load().first() {
            let relay = Arc::clone(&only.relay);
            tokio::spawn(async move { relay.tell_of_other_list().await });
        }
    }

    /// Has the client told that lists go by other names now, where it was promised to be told of
    /// changes.
    pub(super) fn tell_of_other_choice(self: &Arc<Self>) {
        if self.is_closed() {
            return;
        }
        if self.is_united() {
            return self.tools_changed();
        }
        if let Some(only) = self.members.load().first()
            && only.relay.tells_of_changes()
        {
            let relay = Arc::clone(&only.relay);
            tokio::spawn(async move { relay.tell_of_other_list().await });
        }
    }

    /// Has the client told that its list of tools is another one, where something else was forbidden to
    /// it when it was shown that.
    pub(super) fn tell_of_other_rules(self: &Arc<Self>) {
        let revision = self.shared.filter.forbid_revision();
        let rules = || self.shared.forbidden_to(&self.caller);
        if self.is_closed() || !self.caller.has_other_rules(revision, rules) {
            return;
        }
        if self.is_united() {
            return self.tools_changed();
        }
        if let Some(only) = self.members.load().first()
            && (only.relay.tells_of_changes() || self.shared.filter.lists().is_some())
        {
            let relay = Arc::clone(&only.relay);
            tokio::spawn(async move { relay.tell_of_other_list().await });
        }
    }

    /// Has the client told that its list is another one, after changes of an upstream's tools were
    /// approved.
    pub(super) fn tell_of_approval(self: &Arc<Self>, upstream: &UpstreamName) {
        let members = self.members.load();
        let member = members.iter().find(|member| member.name() == upstream);
        let Some(member) = member.filter(|_| !self.is_closed()) else {
            return;
        };
        self.caller.search.forget_offer();
        if self.is_united() {
            return self.tools_changed_at(member);
        }
        if let Some(only) = members.first()
            && (only.relay.tells_of_changes() || self.shared.filter.lists().is_some())
        {
            let relay = Arc::clone(&only.relay);
            tokio::spawn(async move { relay.tell_of_other_list().await });
        }
    }

    /// Waits until no request is in flight that ends by itself, at most `limit`.
    pub async fn drain(&self, limit: Duration) {
        let members = self.all_members();
        let relays = join_all(members.iter().map(|member| member.relay.drain(limit)));
        tokio::join!(relays, self.united.drain(limit));
    }

    /// Ends the session: closes the rows of what is in flight as cancelled, ends the upstream
    /// connections and the transport. Returns when that is done, also when another call does it.
    pub async fn close(self: &Arc<Self>) {
        self.close_within(Duration::MAX).await;
    }

    /// Does the same, but does not wait longer than `limit` for the ends of upstream connections, which
    /// go on.
    pub async fn close_within(self: &Arc<Self>, limit: Duration) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            self.ended.cancelled().await;
            return;
        }
        self.closing.cancel();
        let members = {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let members = self.all_members();
            self.members.store(Arc::default());
            members
        };
        let ends = members.iter().map(|member| {
            let relay = Arc::clone(&member.relay);
            tokio::spawn(async move { relay.close(&session_ended()).await })
        });
        if tokio::time::timeout(limit, join_all(ends)).await.is_err() {
            tracing::warn!("connections to upstreams were not closed in time");
        }
        self.united.drain(LAST_REQUESTS.min(limit)).await;
        let transport = self.caller.transport;
        let event = Event::SessionClosed { transport };
        self.shared.observe_from(&event, &self.caller.origin());
        self.caller.close_row(&self.shared).await;
        self.client.close().await;
        self.ended.cancel();
    }

    /// Takes over a set of upstreams: makes members of new ones, ends those that are gone, and
    /// leaves the rest alone. Returns the members that are new and those that are gone.
    pub(super) fn take_over(&self, set: &UpstreamSet) -> (Vec<Arc<Member>>, Vec<Arc<Member>>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed() {
            return Default::default();
        }
        let old = self.members.load_full();
        if set.entries.len() > 1 {
            self.is_united.store(true, Ordering::Release);
        }
        let mut new = Vec::new();
        let members: Vec<Arc<Member>> = set
            .entries
            .iter()
            .map(|entry| {
                let same = old
                    .iter()
                    .find(|member| Arc::ptr_eq(&member.relay.entry, entry));
                same.map_or_else(
                    || {
                        let member = self.member(entry);
                        new.push(Arc::clone(&member));
                        member
                    },
                    Arc::clone,
                )
            })
            .collect();
        let is_gone =
            |member: &&Arc<Member>| !members.iter().any(|kept| Arc::ptr_eq(kept, *member));
        let gone: Vec<Arc<Member>> = old.iter().filter(is_gone).cloned().collect();
        let is_changed = !new.is_empty() || !gone.is_empty();
        if is_changed && !old.is_empty() {
            // The names may change, even with one upstream left: it is presented as before.
            self.is_united.store(true, Ordering::Release);
        }
        for member in &members {
            member.relay.show_all(self.is_united());
        }
        self.retiring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(gone.iter().cloned());
        self.members.store(Arc::new(members));
        (new, gone)
    }

    fn member(&self, entry: &Arc<UpstreamEntry>) -> Arc<Member> {
        let number = self.next_member.fetch_add(1, Ordering::Relaxed);
        let link = Arc::new(MemberLink::new(Weak::clone(&self.itself), number));
        let relay = Relay::new(
            Arc::clone(&self.shared),
            Arc::clone(entry),
            Arc::clone(&self.caller),
            link,
        );
        Arc::new(Member {
            number,
            relay,
            waiting: Waiting::default(),
        })
    }
}

/// Returns the URIs of the roots in a result, in an order that does not depend on that of the
/// roots; `None` if it has none.
fn root_uris(result: &str) -> Option<String> {
    let roots: Vec<Root> = serde_json::from_str(edit::member(result, "roots")?).ok()?;
    let mut uris: Vec<String> = roots.into_iter().map(|root| root.uri).collect();
    uris.sort_unstable();
    (!uris.is_empty()).then(|| uris.join("\n"))
}

#[derive(Deserialize)]
struct Root {
    uri: String,
}

/// Returns an error in place of an answer of the client, for which a server waits; `None` of any other
/// message.
fn in_place_of_answer(message: &Message, error: &RpcError) -> Option<Message> {
    let answer = message.single().filter(|part| part.is_response())?;
    Message::from_text(error.to_json(answer.id())).ok()
}

/// Returns whether a message calls a tool as a notification: there would be no row of such a call, and
/// no rule that it has to pass.
fn has_call_without_id(message: &Message) -> bool {
    let mut parts = message.envelopes().iter();
    parts.any(|part| part.kind() == Kind::Notification && part.method() == Some("tools/call"))
}
