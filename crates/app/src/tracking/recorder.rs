//! Recorder: writes events to the journal before the reply to a request leaves.

mod recommendations;
mod searches;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolListing;
use riglm_domain::id::{
    ContextId, ExchangeId, FeedbackId, InvocationId, ProfileName, RunId, SessionId, ToolName,
    UpstreamName, WorkSessionId,
};
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::canonical::{CanonicalError, KeyedHash, KeyedHasher};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::privacy::redaction::redact_json;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_ports::analytics::Journal;
use riglm_ports::clock::Clock;
use riglm_ports::token_counter::TokenCounter;

use super::counting_budget::CountingBudget;
use super::known_sessions::OpenSessions;
use super::lossy_journal::LossyJournal;
use super::token_meter::{CallText, TokenMeter};
use crate::long_work::LongTextWork;
use riglm_discovery::entropy::EntropySource;

pub use searches::SearchDetails;

/// The longest arguments or result to store, in bytes, if storing them is enabled.
pub(super) const MAX_STORED_BYTES: usize = 64 << 10;
/// Longer arguments are hashed outside of the request workers.
const MAX_QUICK_BYTES: usize = 128 << 10;

/// Options for recording beyond the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderOptions {
    /// Whether calls are recorded, and how to treat a call that cannot be recorded.
    pub policy: RecordingPolicy,
    /// Whether to store arguments, with secrets removed.
    pub include_arguments: bool,
    /// Whether to store results, with secrets removed.
    pub include_results: bool,
}

/// Whether calls are recorded, and how to treat a call that cannot be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingPolicy {
    /// Nothing is recorded, so records of calls are not even created.
    Off,
    /// The call is forwarded.
    #[default]
    BestEffort,
    /// The call is refused.
    Required,
}

/// The error for a call that could not be recorded although recording is required.
#[derive(Debug, thiserror::Error)]
#[error("failed to record the call")]
pub struct RecordingRefused;

/// The data of a session row.
#[derive(Debug)]
pub struct SessionDetails<'a> {
    /// The principal of the client.
    pub principal: &'a Principal,
    /// The name and version that the client declares.
    pub client_info: &'a ClientInfo,
    /// Further declarations of the client, by name.
    pub metadata: &'a BTreeMap<String, String>,
    /// The negotiated protocol revision.
    pub protocol: &'a Revision,
    /// The transport of the client.
    pub transport: Transport,
    /// Start of the session.
    pub started_at: Timestamp,
    /// The profile under which the client is connected.
    pub profile: Option<&'a ProfileName>,
}

/// Times of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// Time from receipt to forwarding, mostly for connecting. It is the whole time if the upstream
    /// never got the call.
    pub wait: Duration,
    /// Time from forwarding to the answer, or to the end of the wait.
    pub duration: Duration,
}

/// The data of a call row.
#[derive(Debug)]
pub struct CallDetails<'a> {
    /// The session of the call.
    pub session: SessionId,
    /// The principal of the client.
    pub principal: &'a Principal,
    /// The upstream of the tool.
    pub upstream: &'a UpstreamName,
    /// The tool.
    pub tool: ToolName,
    /// The JSON text of the arguments.
    pub arguments: Option<&'a str>,
    /// The time of receipt.
    pub started_at: Timestamp,
    /// Position among the calls of its session, from 1.
    pub sequence: u64,
    /// The first call of a multi-round call, if this is a further round of it.
    pub continues: Option<InvocationId>,
    /// The way in which the client got to know the tool.
    pub source: ToolSource,
    /// The known context of the client.
    pub context: Option<ContextId>,
    /// The work session of the call.
    pub work_session: Option<WorkSessionId>,
    /// The epoch of the list that the client saw; only for learned lists.
    pub list_epoch: Option<u64>,
    /// Size of the request message in bytes.
    pub request_bytes: usize,
}

/// Records sessions, calls and other requests of one run of the proxy.
#[derive(Debug)]
pub struct Recorder {
    journal: Arc<LossyJournal>,
    hasher: KeyedHasher,
    clock: Arc<dyn Clock>,
    run: RunId,
    options: RecorderOptions,
    entropy: EntropySource,
    meter: Option<TokenMeter>,
    known: Arc<OpenSessions>,
    long_work: LongTextWork,
}

impl Recorder {
    /// Creates a recorder that writes to `journal`.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        hasher: KeyedHasher,
        clock: Arc<dyn Clock>,
        run: RunId,
        options: RecorderOptions,
    ) -> Self {
        Self {
            journal: Arc::new(LossyJournal::new(journal)),
            hasher,
            clock,
            run,
            options,
            entropy: EntropySource::new(),
            meter: None,
            known: Arc::default(),
            long_work: LongTextWork::default(),
        }
    }

    /// Adds `counter`, which counts the texts of calls on its own thread. The counts are recorded
    /// after the calls.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be started, or outside of a runtime.
    pub fn with_token_counter(mut self, counter: Arc<dyn TokenCounter>) -> io::Result<Self> {
        let budget = CountingBudget::new(Instant::now());
        let journal = Arc::clone(&self.journal);
        self.meter = Some(TokenMeter::start(journal, counter, budget)?);
        Ok(self)
    }

    /// Waits until the queued texts are counted, for a second at most. Later texts are not counted.
    /// Call it before the journal is closed.
    pub async fn close(&self) {
        if let Some(meter) = &self.meter {
            meter.close().await;
        }
    }

    /// Returns whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.options.policy != RecordingPolicy::Off
    }

    /// Sets the number of long texts of one principal that are processed in parallel; `of_one` maps
    /// the total to it.
    pub(crate) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        self.long_work.share(of_one);
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the number of records that the journal refused since the start.
    #[must_use]
    pub fn n_lost(&self) -> u64 {
        self.journal.n_lost()
    }

    /// Returns the identities of the open sessions.
    #[must_use]
    pub fn known_sessions(&self) -> Arc<OpenSessions> {
        Arc::clone(&self.known)
    }

    /// Records the work session of the last request of a connection.
    pub(crate) fn set_work_session(&self, connection: SessionId, work: WorkSessionId) {
        self.known.set_work_session(connection, work);
    }

    /// Records the start of a session and returns its identifier.
    pub async fn session_opened(&self, details: SessionDetails<'_>) -> SessionId {
        let info = details.client_info;
        let session = Session {
            id: SessionId::new(details.started_at, self.entropy.next()),
            run: self.run,
            principal: details.principal.clone(),
            client: self.client_hash(details.principal, info),
            client_info: info.clone(),
            protocol: details.protocol.clone(),
            transport: details.transport,
            started_at: details.started_at,
            profile: (details.profile).map(|profile| profile.as_str().into()),
            metadata: details.metadata.clone(),
        };
        let id = session.id;
        self.known.add_session(&session);
        self.append(&Record::SessionOpened(session)).await;
        id
    }

    pub(crate) fn client_hash(&self, principal: &Principal, info: &ClientInfo) -> KeyedHash {
        let identity = format!("{principal}\0{}\0{}", info.name, info.version);
        self.hasher.hash_text(&identity)
    }

    pub(crate) fn hash_text(&self, text: &str) -> KeyedHash {
        self.hasher.hash_text(text)
    }

    /// Records the end of a session.
    pub async fn session_closed(&self, session: SessionId) {
        self.known.remove_session(session);
        let ended_at = self.clock.now();
        self.append(&Record::SessionClosed { session, ended_at })
            .await;
    }

    /// Records the tools of a page that is seen for the first time in this run.
    pub async fn tools_seen(&self, listing: ToolListing) {
        let seen_at = self.clock.now();
        self.append(&Record::ToolsSeen { listing, seen_at }).await;
    }

    /// Records that a session got a page of tools.
    pub async fn tools_listed(&self, session: SessionId, listing: &str) {
        let record = Record::ToolsListed {
            session,
            listing: listing.into(),
            listed_at: self.clock.now(),
        };
        self.append(&record).await;
    }

    /// Records that a session got a selected list.
    pub async fn list_shown(&self, list: ListShown) {
        self.append(&Record::ListShown(list)).await;
    }

    /// Records a call that is about to be forwarded.
    ///
    /// # Errors
    ///
    /// Returns [`RecordingRefused`] if recording is required and the journal refuses the record or
    /// is behind; in the latter case nothing is appended.
    pub async fn call_opened(
        &self,
        details: CallDetails<'_>,
    ) -> Result<InvocationId, RecordingRefused> {
        let is_required = self.options.policy == RecordingPolicy::Required;
        // Checked before appending, so that a refused call leaves no open row.
        if is_required && !self.journal.is_sound() {
            return Err(RecordingRefused);
        }
        let id = InvocationId::new(details.started_at, self.entropy.next());
        if self.options.policy == RecordingPolicy::Off {
            return Ok(id);
        }
        let invocation = Invocation {
            id,
            session: details.session,
            principal: details.principal.clone(),
            upstream: details.upstream.clone(),
            tool: details.tool,
            arguments_hash: self.hash(details.principal, details.arguments).await,
            arguments: details
                .arguments
                .filter(|_| self.options.include_arguments)
                .map(|arguments| redact_json(arguments, MAX_STORED_BYTES)),
            started_at: details.started_at,
            sequence: details.sequence,
            source: details.source,
            request_bytes: details.request_bytes as u64,
            continues: details.continues,
            work_session: details.work_session,
            list_epoch: details.list_epoch,
            context: details.context,
        };
        if !self.append(&Record::CallOpened(invocation)).await && is_required {
            return Err(RecordingRefused);
        }
        // A call without arguments has a request of 0 tokens.
        self.measure(
            id,
            CallText::Arguments(details.arguments.unwrap_or_default()),
        );
        Ok(id)
    }

    /// Records the end of a call with its times. `response` is the size of the answer and the JSON
    /// text of its result, if there is one.
    pub async fn call_closed(
        &self,
        id: InvocationId,
        outcome: Outcome,
        times: CallTimes,
        response: (usize, Option<&str>),
    ) {
        let (response_bytes, result) = response;
        let end = InvocationEnd {
            id,
            outcome,
            duration_us: micros(times.duration),
            wait_us: micros(times.wait),
            response_bytes: response_bytes as u64,
            result: result
                .filter(|_| self.options.include_results)
                .map(|result| redact_json(result, MAX_STORED_BYTES)),
        };
        self.append(&Record::CallClosed(end)).await;
        if let Some(result) = result {
            self.measure(id, CallText::Result(result));
        }
    }

    /// Records a request other than a call, at its end.
    pub async fn record_exchange(&self, exchange: Exchange) {
        self.append(&Record::Exchanged(exchange)).await;
    }

    /// Records feedback about a tool; `feedback` creates it from an identifier and the time.
    /// Returns the identifier.
    pub async fn feedback_given(
        &self,
        feedback: impl FnOnce(FeedbackId, Timestamp) -> Feedback,
    ) -> FeedbackId {
        let now = self.clock.now();
        let id = FeedbackId::new(now, self.entropy.next());
        self.append(&Record::FeedbackGiven(feedback(id, now))).await;
        id
    }

    /// Returns a new identifier for an exchange that started at this time.
    #[must_use]
    pub fn exchange_id(&self, started_at: Timestamp) -> ExchangeId {
        ExchangeId::new(started_at, self.entropy.next())
    }

    /// Hashes arguments. Arguments without a canonical form (nested too deeply) are hashed as
    /// written.
    async fn hash(&self, principal: &Principal, arguments: Option<&str>) -> KeyedHash {
        if let Some(long) = arguments.filter(|arguments| arguments.len() > MAX_QUICK_BYTES) {
            let turn = self.long_work.turn(principal).await;
            let (hasher, long) = (self.hasher.clone(), long.to_owned());
            let hash = turn.run(move || hash_arguments(&hasher, Some(&long)));
            if let Some(hash) = hash.await {
                return hash;
            }
        }
        hash_arguments(&self.hasher, arguments)
    }

    fn measure(&self, call: InvocationId, text: CallText<'_>) {
        if let Some(meter) = &self.meter {
            meter.enqueue(call, text);
        }
    }

    /// Appends a record and returns whether the journal took it.
    async fn append(&self, record: &Record) -> bool {
        self.journal.append(record).await
    }
}

/// Returns the keyed hash of arguments, in canonical form if they have one.
pub(super) fn hash_arguments(hasher: &KeyedHasher, arguments: Option<&str>) -> KeyedHash {
    match hasher.hash_json(arguments) {
        Ok(hash) => hash,
        Err(CanonicalError::TooDeep | CanonicalError::NotJson) => {
            hasher.hash_text(arguments.unwrap_or_default())
        }
    }
}

/// Returns a duration in whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
