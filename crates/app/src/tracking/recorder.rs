//! Writes what happens to the journal, before the reply that it belongs to leaves.

mod recommendations;
mod searches;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::canonical::{CanonicalError, KeyedHash, KeyedHasher};
use riglm_domain::exchange::Exchange;
use riglm_domain::feedback::Feedback;
use riglm_domain::id::{
    ContextId, ExchangeId, FeedbackId, InvocationId, ProfileName, RunId, SessionId, ToolName,
    UpstreamName, WorkSessionId,
};
use riglm_domain::invocation::{Invocation, InvocationEnd, Outcome, ToolSource};
use riglm_domain::list_shown::ListShown;
use riglm_domain::principal::Principal;
use riglm_domain::protocol::{Revision, Transport};
use riglm_domain::record::Record;
use riglm_domain::redaction::redacted;
use riglm_domain::session::{ClientInfo, Session};
use riglm_domain::tool::ToolListing;
use riglm_ports::analytics::Journal;
use riglm_ports::clock::Clock;
use riglm_ports::token_counter::TokenCounter;

use super::counting_budget::CountingBudget;
use super::entropy::EntropySource;
use super::known_sessions::KnownSessions;
use super::token_meter::{Text, TokenMeter};
use super::watched_journal::WatchedJournal;
use crate::long_work::LongWork;

pub use recommendations::RecommendationDetails;
pub use searches::SearchDetails;

/// The longest arguments or result that is stored when storing them is switched on, in bytes.
const MAX_STORED_BYTES: usize = 64 << 10;
/// Longer arguments are hashed beside the request workers.
const MAX_QUICK_BYTES: usize = 64 << 10;

/// What is recorded beyond the rows themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderOptions {
    /// Whether calls are recorded, and what becomes of one that cannot be.
    pub policy: RecordingPolicy,
    /// Store arguments with secrets removed.
    pub include_arguments: bool,
    /// Store results with secrets removed.
    pub include_results: bool,
}

/// Whether calls are recorded, and what becomes of one that cannot be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingPolicy {
    /// The journal keeps nothing, so that records of calls are not even made.
    Off,
    /// It is forwarded.
    #[default]
    BestEffort,
    /// It is refused.
    Required,
}

/// A call could not be recorded, and recording is required.
#[derive(Debug, thiserror::Error)]
#[error("the call cannot be recorded")]
pub struct RecordingRefused;

/// What a session row is made of.
#[derive(Debug)]
pub struct SessionDetails<'a> {
    /// Who is calling.
    pub principal: &'a Principal,
    /// What the client says of itself.
    pub client_info: &'a ClientInfo,
    /// What else it says of itself, by name.
    pub metadata: &'a BTreeMap<String, String>,
    /// The revision that was agreed on.
    pub protocol: &'a Revision,
    /// How the client is connected.
    pub transport: Transport,
    /// When the session started.
    pub started_at: Timestamp,
    /// The profile under which the client is connected.
    pub profile: Option<&'a ProfileName>,
}

/// How long a call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// From its receipt until the upstream had it: mostly for a connection to be made. All of the time,
    /// where the upstream never had it.
    pub wait: Duration,
    /// From then on until its answer came, or it was given up.
    pub duration: Duration,
}

/// What the row of a call is made of.
#[derive(Debug)]
pub struct CallDetails<'a> {
    /// The session that makes it.
    pub session: SessionId,
    /// Who is calling.
    pub principal: &'a Principal,
    /// The upstream that it goes to.
    pub upstream: &'a UpstreamName,
    /// The tool.
    pub tool: ToolName,
    /// The JSON text of the arguments.
    pub arguments: Option<&'a str>,
    /// When it was received.
    pub started_at: Timestamp,
    /// Position among the calls of its session, from 1.
    pub sequence: u64,
    /// The first call of the logical call of which it is a further round.
    pub continues: Option<InvocationId>,
    /// How the client came to know the tool.
    pub source: ToolSource,
    /// What the client was known to be doing.
    pub context: Option<ContextId>,
    /// The work session that it belongs to.
    pub work_session: Option<WorkSessionId>,
    /// The epoch of the list that the client saw, where lists are chosen as a whole.
    pub list_epoch: Option<u64>,
    /// Size of the request message in bytes.
    pub request_bytes: usize,
}

/// Records sessions, calls and other requests of one run of the proxy.
#[derive(Debug)]
pub struct Recorder {
    journal: Arc<WatchedJournal>,
    hasher: KeyedHasher,
    clock: Arc<dyn Clock>,
    run: RunId,
    options: RecorderOptions,
    entropy: EntropySource,
    meter: Option<TokenMeter>,
    known: Arc<KnownSessions>,
    long_work: LongWork,
}

impl Recorder {
    /// Returns a recorder that writes to `journal`.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        hasher: KeyedHasher,
        clock: Arc<dyn Clock>,
        run: RunId,
        options: RecorderOptions,
    ) -> Self {
        Self {
            journal: Arc::new(WatchedJournal::new(journal)),
            hasher,
            clock,
            run,
            options,
            entropy: EntropySource::new(),
            meter: None,
            known: Arc::default(),
            long_work: LongWork::default(),
        }
    }

    /// Returns the recorder with the texts of calls counted by `counter`, on a thread of its own.
    /// The counts are recorded after the calls.
    ///
    /// # Errors
    ///
    /// Returns that there is no thread to be had, or that this is called outside of a runtime.
    pub fn with_token_counter(mut self, counter: Arc<dyn TokenCounter>) -> io::Result<Self> {
        let budget = CountingBudget::new(Instant::now());
        let journal = Arc::clone(&self.journal);
        self.meter = Some(TokenMeter::start(journal, counter, budget)?);
        Ok(self)
    }

    /// Waits until texts that are still to be counted are, for a second at most. Later ones are
    /// not counted. To be called before the journal is closed.
    pub async fn close(&self) {
        if let Some(meter) = &self.meter {
            meter.close().await;
        }
    }

    /// Returns whether anything is recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.options.policy != RecordingPolicy::Off
    }

    /// Lets one principal have as many of its long texts worked on at once as `of_one` says of their
    /// number.
    pub(crate) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        self.long_work.share(of_one);
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns how many records the journal refused since the start.
    #[must_use]
    pub fn n_lost(&self) -> u64 {
        self.journal.n_lost()
    }

    /// Returns who is behind the sessions that are open.
    #[must_use]
    pub fn known_sessions(&self) -> Arc<KnownSessions> {
        Arc::clone(&self.known)
    }

    /// Notes the work session to which the last request of a connection belongs.
    pub(crate) fn works(&self, connection: SessionId, work: WorkSessionId) {
        self.known.works(connection, work);
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
        self.known.opened(&session);
        self.append(&Record::SessionOpened(session)).await;
        id
    }

    /// Returns the keyed hash by which a client is known.
    pub(crate) fn client_hash(&self, principal: &Principal, info: &ClientInfo) -> KeyedHash {
        let identity = format!("{principal}\0{}\0{}", info.name, info.version);
        self.hasher.hash_text(&identity)
    }

    /// Returns the keyed hash of a text.
    pub(crate) fn hash_text(&self, text: &str) -> KeyedHash {
        self.hasher.hash_text(text)
    }

    /// Records the end of a session.
    pub async fn session_closed(&self, session: SessionId) {
        self.known.closed(session);
        let ended_at = self.clock.now();
        self.append(&Record::SessionClosed { session, ended_at })
            .await;
    }

    /// Records the tools of a page that is seen for the first time in this run.
    pub async fn tools_seen(&self, listing: ToolListing) {
        let seen_at = self.clock.now();
        self.append(&Record::ToolsSeen { listing, seen_at }).await;
    }

    /// Records that a page was listed to a session.
    pub async fn tools_listed(&self, session: SessionId, listing: &str) {
        let record = Record::ToolsListed {
            session,
            listing: listing.into(),
            listed_at: self.clock.now(),
        };
        self.append(&record).await;
    }

    /// Records that a session is shown a list that was chosen.
    pub async fn list_shown(&self, list: ListShown) {
        self.append(&Record::ListShown(list)).await;
    }

    /// Opens the row of a call that is about to be forwarded.
    ///
    /// # Errors
    ///
    /// Returns [`RecordingRefused`] when recording is required and the journal refuses the record or
    /// is behind; in the latter case nothing is appended.
    pub async fn call_opened(
        &self,
        details: CallDetails<'_>,
    ) -> Result<InvocationId, RecordingRefused> {
        let is_required = self.options.policy == RecordingPolicy::Required;
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
                .map(|arguments| redacted(arguments, MAX_STORED_BYTES)),
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
        self.measure(id, Text::Arguments(details.arguments.unwrap_or_default()));
        Ok(id)
    }

    /// Closes the row of a call, which took so long. `response` is the size of the answer and the JSON text of its
    /// result, when there is one.
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
                .map(|result| redacted(result, MAX_STORED_BYTES)),
        };
        self.append(&Record::CallClosed(end)).await;
        if let Some(result) = result {
            self.measure(id, Text::Result(result));
        }
    }

    /// Records a request other than a call, at its end.
    pub async fn exchanged(&self, exchange: Exchange) {
        self.append(&Record::Exchanged(exchange)).await;
    }

    /// Records what somebody says of a tool, as `feedback` makes it of an identifier and the moment.
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

    /// Returns a new identifier for an exchange that started at that moment.
    #[must_use]
    pub fn exchange_id(&self, started_at: Timestamp) -> ExchangeId {
        ExchangeId::new(started_at, self.entropy.next())
    }

    /// Hashes arguments. What has no canonical form (nested too deeply) is hashed as written.
    async fn hash(&self, principal: &Principal, arguments: Option<&str>) -> KeyedHash {
        if let Some(long) = arguments.filter(|arguments| arguments.len() > MAX_QUICK_BYTES) {
            let turn = self.long_work.turn(principal).await;
            let (hasher, long) = (self.hasher.clone(), long.to_owned());
            let hash = turn.done(move || hashed(&hasher, Some(&long)));
            if let Some(hash) = hash.await {
                return hash;
            }
        }
        hashed(&self.hasher, arguments)
    }

    fn measure(&self, call: InvocationId, text: Text<'_>) {
        if let Some(meter) = &self.meter {
            meter.offer(call, text);
        }
    }

    /// Appends a record and returns whether the journal took it.
    async fn append(&self, record: &Record) -> bool {
        self.journal.append(record).await
    }
}

fn hashed(hasher: &KeyedHasher, arguments: Option<&str>) -> KeyedHash {
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
