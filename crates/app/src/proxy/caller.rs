//! Who is behind a session, and what its rows have in common whichever upstream they are about.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{ProfileName, SessionId, WorkSessionId};
use riglm_domain::intent::IntentSource;
use riglm_domain::invocation::CallSession;
use riglm_domain::message::Message;
use riglm_domain::meta::RequestMeta;
use riglm_domain::principal::Principal;
use riglm_domain::protocol::{Revision, Transport};
use riglm_domain::request_hints::RequestHints;
use riglm_ports::observer::{Event, EventOrigin};
use tokio::sync::OnceCell;

use super::client_description::ClientDescription;
use super::sampling::Sampling;
use super::search_tool::SessionSearch;
use super::shared::Shared;
use super::visitor::Visitor;
use crate::filtering::{ForbidRules, ListAsk, Lists, ShownList};
use crate::search::Offer;
use crate::tracking::{Recorder, SessionDetails};
use crate::work_sessions::{RequestKind, WorkRequest};

/// A client that asks for a list within this time after it was told of a change asks because of it.
const RELISTS_WITHIN: Duration = Duration::from_secs(10);

/// The client of one session.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) transport: Transport,
    pub(super) principal: Principal,
    /// The profile under which it is connected.
    pub(super) profile: Option<ProfileName>,
    /// What it searched for, and could call.
    pub(super) search: SessionSearch,
    /// What its model was asked.
    pub(super) sampling: Arc<Sampling>,
    started_at: Timestamp,
    row: OnceCell<SessionId>,
    n_calls: AtomicU64,
    introduction: Mutex<Introduction>,
    /// The work session that its last request belonged to.
    work: Mutex<Option<WorkSessionId>>,
    /// Its lists of tools.
    listing: ListingState,
    /// A request of a modern revision was seen.
    is_modern: AtomicBool,
    /// When something was last heard of the client.
    last_seen: Mutex<Instant>,
    /// Keyed hash of the roots that the client named last.
    roots: Mutex<Option<KeyedHash>>,
    /// The same at the first request for which it mattered: what was begun with it is not changed.
    workspace: OnceLock<Option<KeyedHash>>,
}

/// What is known of the lists of tools that the client was shown.
#[derive(Debug, Default)]
struct ListingState {
    /// The client is known to ask for the list again when it is told of a change.
    relists: AtomicBool,
    last: Mutex<LastList>,
}

#[derive(Debug, Default)]
struct LastList {
    /// What somebody is going to look at, whether its list changed.
    reviewed: HashSet<CallSession>,
    told_at: Option<Instant>,
    offer: Option<[u8; 32]>,
    shown: Option<Arc<ShownList>>,
    /// The list of which the client was told that it is over: what the operator had decided by then,
    /// and its epoch.
    told_of: Option<(u64, u64)>,
    /// What was forbidden when it was shown a list last, or told to ask for it again.
    rules: Option<(u64, ForbidRules)>,
}

impl ListingState {
    fn state(&self) -> MutexGuard<'_, LastList> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the client said of itself.
#[derive(Clone, Debug, Default)]
struct Introduction {
    client: ClientDescription,
    revision: Option<Revision>,
    /// The revision is the one that was agreed on, not just the one asked for.
    is_agreed: bool,
    handshake: Handshake,
    /// The key of its work that the client named in its handshake.
    work: Option<Box<str>>,
}

/// The messages by which the client set up its session, as it sent them.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshake {
    /// `initialize`, once it was answered with a result.
    pub(super) initialize: Option<Message>,
    /// `notifications/initialized`.
    pub(super) initialized: Option<Message>,
    /// The last `logging/setLevel`.
    pub(super) log_level: Option<Message>,
}

impl Caller {
    pub(super) fn new(transport: Transport, visitor: Visitor, started_at: Timestamp) -> Self {
        Self {
            transport,
            principal: visitor.principal,
            profile: visitor.profile,
            search: SessionSearch::default(),
            sampling: Arc::default(),
            started_at,
            row: OnceCell::new(),
            n_calls: AtomicU64::new(0),
            introduction: Mutex::default(),
            work: Mutex::default(),
            listing: ListingState::default(),
            is_modern: AtomicBool::new(false),
            last_seen: Mutex::new(Instant::now()),
            roots: Mutex::default(),
            workspace: OnceLock::new(),
        }
    }

    fn introduction(&self) -> MutexGuard<'_, Introduction> {
        self.introduction
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn profile_name(&self) -> Option<&str> {
        self.profile.as_ref().map(ProfileName::as_str)
    }

    /// Returns the revision that was agreed on, or asked for while that is not known.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.introduction().revision.clone()
    }

    /// Returns the name that the client gives itself; empty where it gives none.
    pub(super) fn client_name(&self) -> String {
        self.introduction().client.info.name.clone()
    }

    /// Returns whether the client offered its language model in its handshake.
    pub(super) fn offers_sampling(&self) -> bool {
        let introduction = self.introduction();
        let declared = introduction.client.metadata.get("capabilities");
        declared.is_some_and(|names| names.split(',').any(|name| name == "sampling"))
    }

    /// Notes what the client says in its `initialize`.
    pub(super) fn introduced(&self, client: ClientDescription, requested: Option<&str>) {
        let mut introduction = self.introduction();
        introduction.client = client;
        // Until the server answers; what was agreed on before holds until then.
        if introduction.revision.is_none() {
            introduction.revision = requested.map(Revision::new);
        }
    }

    /// Notes the revision that was agreed on.
    pub(super) fn agreed(&self, revision: &Revision) {
        let mut introduction = self.introduction();
        introduction.revision = Some(revision.clone());
        introduction.is_agreed = true;
    }

    /// Notes what a request of a modern revision says of the client. What the first one says goes
    /// into the row of the session.
    pub(super) fn presented(&self, meta: &RequestMeta<'_>) {
        if self.is_modern.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut introduction = self.introduction();
        if !introduction.is_agreed {
            introduction.client = ClientDescription::of_request(meta);
            introduction.revision = meta.revision();
        }
    }

    /// Returns whether the client sent a request of a modern revision.
    pub(super) fn is_modern(&self) -> bool {
        self.is_modern.load(Ordering::Acquire)
    }

    /// Returns whether a handshake was completed.
    pub(super) fn is_initialized(&self) -> bool {
        self.introduction().handshake.initialize.is_some()
    }

    /// Returns whether nothing has to be said before a message may be sent: a handshake was
    /// completed, or the client does without.
    pub(super) fn is_set_up(&self) -> bool {
        self.is_modern() || self.is_initialized()
    }

    /// Returns what has to be played back to an upstream that does not know the session.
    pub(super) fn handshake(&self) -> Handshake {
        self.introduction().handshake.clone()
    }

    /// Changes what has to be played back.
    pub(super) fn set_handshake(&self, change: impl FnOnce(&mut Handshake)) {
        let handshake = &mut self.introduction().handshake;
        change(handshake);
        // What is played back later is no part of the request that it was once.
        for said in [
            &mut handshake.initialize,
            &mut handshake.initialized,
            &mut handshake.log_level,
        ] {
            *said = said.take().map(|message| message.with_trace(None));
        }
    }

    /// Returns the position of the next call.
    pub(super) fn next_sequence(&self) -> u64 {
        self.n_calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that the client is there.
    pub(super) fn touch(&self) {
        *self
            .last_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns for how long nothing was heard of the client; `None` over standard input, where it
    /// is there as long as the input is open.
    pub(super) fn silent_for(&self, now: Instant) -> Option<std::time::Duration> {
        let last_seen = *self
            .last_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (self.transport != Transport::Stdio).then(|| now.saturating_duration_since(last_seen))
    }

    /// Returns who asks for a list, or calls a tool of one, as part of `session`. `client` is the
    /// name that the client gives itself.
    pub(super) fn list_ask<'a>(
        &'a self,
        client: &'a str,
        session: CallSession,
        is_modern: bool,
        now: Timestamp,
    ) -> ListAsk<'a> {
        ListAsk {
            principal: &self.principal,
            client,
            client_hash: None,
            profile: self.profile_name(),
            is_modern,
            relists: self.listing.relists.load(Ordering::Relaxed),
            session,
            connection: self.known_row(),
            intent: None,
            stated: None,
            now,
        }
    }

    /// Returns what the client does now, over a connection with this row, where no request says it:
    /// the work session that its last request belonged to, as far as those are derived.
    pub(super) fn together(&self, row: SessionId) -> CallSession {
        let work = *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        CallSession::of(work, row)
    }

    /// Returns the keyed hash by which rows name the client.
    pub(super) fn client_hash(&self, recorder: &Recorder) -> KeyedHash {
        recorder.client_hash(&self.principal, &self.introduction().client.info)
    }

    /// Notes that the client is told of a change of its list of tools.
    pub(super) fn note_told(&self, at: Instant) {
        self.listing.state().told_at = Some(at);
    }

    /// Notes that the client asks for its list: one that was told of a change shortly before asks
    /// because of that.
    pub(super) fn note_listing(&self, lists: &Lists) {
        let told_at = self.listing.state().told_at.take();
        let is_prompt = told_at.is_some_and(|at| at.elapsed() < RELISTS_WITHIN);
        if is_prompt && !self.is_modern() {
            lists.note_relisting(&self.client_name());
        }
        if lists.relists(&self.client_name()) {
            self.listing.relists.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether what is offered is another offer than the client was listed of last.
    pub(super) fn is_first_of(&self, offer: &Offer) -> bool {
        let mut listing = self.listing.state();
        let id = Some(offer.id());
        std::mem::replace(&mut listing.offer, id) != id
    }

    /// Returns whether a list is another one than the client was shown last.
    pub(super) fn is_news(&self, shown: &Arc<ShownList>) -> bool {
        let mut listing = self.listing.state();
        let is_same = (listing.shown.as_ref()).is_some_and(|last| last.is_same_as(shown));
        listing.shown = Some(Arc::clone(shown));
        !is_same
    }

    /// Returns whether the client is to be told to ask for its list again: the time of what it was
    /// shown last is over, or the operator decided something since. `revision` counts what the
    /// operator decided. True once for each such list.
    pub(super) fn is_due_again(&self, revision: u64, now: Timestamp) -> bool {
        let mut listing = self.listing.state();
        let Some(shown) = &listing.shown else {
            return false;
        };
        let is_over = shown.until.is_some_and(|until| now >= until);
        if !is_over && shown.revision() == revision {
            return false;
        }
        let this = Some((revision, shown.epoch));
        std::mem::replace(&mut listing.told_of, this) != this
    }

    /// Notes what is forbidden to the client while it is shown a list of tools. `revision` counts how
    /// often that changed for anybody.
    pub(super) fn note_rules(&self, revision: u64, rules: ForbidRules) {
        self.listing.state().rules = Some((revision, rules));
    }

    /// Returns whether the client was shown a list of tools while something else was forbidden to it
    /// than these rules say. True once for each change of that.
    pub(super) fn has_other_rules(
        &self,
        revision: u64,
        rules: impl FnOnce() -> ForbidRules,
    ) -> bool {
        let known = self.listing.state().rules.clone();
        let Some((_, known)) = known.filter(|(known, _)| *known != revision) else {
            return false;
        };
        let rules = rules();
        let is_other = known != rules;
        self.note_rules(revision, rules);
        is_other
    }

    /// Returns whether somebody looks already whether the list changed; if not, the caller does.
    pub(super) fn begin_review(&self, session: CallSession) -> bool {
        !self.listing.state().reviewed.insert(session)
    }

    /// Notes that calls from now on are to be looked at again.
    pub(super) fn end_review(&self, session: CallSession) {
        self.listing.state().reviewed.remove(&session);
    }

    /// Returns the identifier of the session's row, and makes the row first if there is none.
    pub(super) async fn row(&self, shared: &Shared) -> SessionId {
        *self
            .row
            .get_or_init(|| async {
                let introduction = self.introduction().clone();
                let details = SessionDetails {
                    principal: &self.principal,
                    client_info: &introduction.client.info,
                    metadata: &introduction.client.metadata,
                    protocol: &introduction
                        .revision
                        .unwrap_or_else(|| Revision::new("unknown")),
                    transport: self.transport,
                    started_at: self.started_at,
                    profile: self.profile.as_ref(),
                };
                let row = shared.recorder.session_opened(details).await;
                let event = Event::SessionIntroduced {
                    transport: self.transport,
                };
                let origin = EventOrigin::of_principal(&self.principal).over(row);
                shared.observe_from(&event, &origin);
                row
            })
            .await
    }

    /// Returns the origin of what happens in the session where no request says it.
    pub(super) fn origin(&self) -> EventOrigin<'_> {
        EventOrigin {
            principal: Some(&self.principal),
            connection: self.known_row(),
            work_session: self.known_work(),
        }
    }

    /// Returns the identifier of the session's row, if there is one.
    pub(super) fn known_row(&self) -> Option<SessionId> {
        self.row.get().copied()
    }

    /// Returns the work session that the last request belonged to, as far as those are derived.
    pub(super) fn known_work(&self) -> Option<WorkSessionId> {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the session's row if there is one.
    pub(super) async fn close_row(self: &Arc<Self>, shared: &Shared) {
        if let Some(row) = self.row.get() {
            if let Some(work_sessions) = &shared.work_sessions {
                work_sessions.disconnected(*row);
            }
            shared.recorder.session_closed(*row).await;
        }
    }

    /// Notes the hints that came with a handshake: they hold for what says nothing else.
    pub(super) fn hinted(&self, hints: &RequestHints) {
        self.introduction().work.clone_from(&hints.session);
    }

    /// Notes the keyed hash of the roots that the client named.
    pub(super) fn rooted(&self, roots: KeyedHash) {
        *self.roots.lock().unwrap_or_else(PoisonError::into_inner) = Some(roots);
    }

    /// Returns the work session that a request with these hints, received at that moment, belongs
    /// to; `None` where they are not derived. What the hints say of what is being done is said of it.
    pub(super) async fn work_session(
        &self,
        shared: &Shared,
        hints: &RequestHints,
        kind: RequestKind,
        now: Timestamp,
    ) -> Option<WorkSessionId> {
        let work_sessions = shared.work_sessions.as_ref()?;
        let connection = self.row(shared).await;
        let (info, work) = {
            let introduction = self.introduction();
            (introduction.client.info.clone(), introduction.work.clone())
        };
        let hints_of_all = work.filter(|_| hints.session.is_none()).map(|work| {
            let mut hints = hints.clone();
            hints.session = Some(work);
            hints
        });
        let roots = || *self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let request = WorkRequest {
            principal: &self.principal,
            client_name: &info.name,
            client: shared.recorder.client_hash(&self.principal, &info),
            profile: self.profile_name(),
            workspace: *self.workspace.get_or_init(roots),
            hints: hints_of_all.as_ref().unwrap_or(hints),
            connection,
            kind,
            now,
        };
        let work = work_sessions.resolve(&request).await;
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(work);
        shared.recorder.works(connection, work);
        if let Some(text) = &hints.context {
            let source = IntentSource::Request;
            shared.note_intent(CallSession::Work(work), source, text, now);
        }
        Some(work)
    }
}
