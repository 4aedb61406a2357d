//! Records of sessions that took place without the proxy, such as those in the transcripts of
//! clients.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::id::{
    Entropy, InvocationId, RunId, SessionId, ToolName, UpstreamName, WorkSessionId,
};
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::canonical::{KeyedHash, KeyedHasher};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::privacy::redaction::redact_json;
use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_domain::usage::work_session::{IdleGap, WorkSession, WorkSessionKey};

use super::recorder::{MAX_STORED_BYTES, hash_arguments, micros};

/// The metadata of sessions that took place without the proxy.
const ORIGIN: (&str, &str) = ("origin", "transcript");

/// Returns whether a recorded session took place without the proxy. Its protocol and its transport are
/// assumptions.
#[must_use]
pub fn is_imported(session: &Session) -> bool {
    let (key, value) = ORIGIN;
    session.metadata.get(key).is_some_and(|it| it == value)
}

/// A session that took place without the proxy.
#[derive(Clone, Debug)]
pub struct PastSession {
    /// The name that the client declares to servers.
    pub client: String,
    /// The identifier that the client gave it. It is unique for each client.
    pub id: String,
    /// The time of its first event, which may be earlier than its first call.
    pub started_at: Timestamp,
    /// The calls, in order of time.
    pub calls: Vec<PastSessionCall>,
}

/// A call of a session that took place without the proxy.
#[derive(Clone, Debug)]
pub struct PastSessionCall {
    /// A value that copies of the call in other sessions have in common, and no other call of the
    /// client has.
    pub identity: u64,
    /// The upstream that the server has in the configuration. Calls without one get no row, but
    /// have a position, so that the rows of the others do not depend on the servers of today.
    pub upstream: Option<UpstreamName>,
    /// The tool, by the name that the server knows.
    pub tool: ToolName,
    /// The time of the call.
    pub started_at: Timestamp,
    /// The time to the result; `None` if it is unknown.
    pub duration: Option<Duration>,
    /// The outcome.
    pub outcome: Outcome,
    /// The arguments.
    pub arguments: PastArguments,
}

/// Arguments in the form in which they are recorded.
#[derive(Clone, Debug)]
pub struct PastArguments {
    hash: KeyedHash,
    text: Option<String>,
    n_bytes: u64,
}

/// The rows of a past session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastSessionRows {
    /// The records of the session and its calls.
    pub records: Vec<Record>,
    /// The work sessions that the calls belong to.
    pub work_sessions: Vec<WorkSession>,
}

/// Makes records of past sessions, as the recorder of the proxy would have made them.
///
/// The identifiers depend on the sessions alone, so the records of a session that is imported again
/// are those of the first time. They describe a local client without a key.
#[derive(Debug)]
pub struct PastSessionRecorder {
    hasher: KeyedHasher,
    /// Whether arguments are stored, without secrets.
    include_arguments: bool,
    /// The pauses that end a work session; `None` if work sessions are not derived.
    idle_gap: Option<IdleGap>,
    /// Earlier calls are left out.
    since: Option<Timestamp>,
}

impl PastSessionRecorder {
    /// Creates a recorder that hashes with the key of the installation.
    #[must_use]
    pub fn new(hasher: KeyedHasher) -> Self {
        Self {
            hasher,
            include_arguments: false,
            idle_gap: None,
            since: None,
        }
    }

    /// Stores arguments, too, without secrets.
    #[must_use]
    pub fn with_arguments(self) -> Self {
        Self {
            include_arguments: true,
            ..self
        }
    }

    /// Derives work sessions that end after a pause.
    #[must_use]
    pub fn with_work_sessions(self, idle_gap: IdleGap) -> Self {
        Self {
            idle_gap: Some(idle_gap),
            ..self
        }
    }

    /// Leaves out earlier calls, which would be deleted at once.
    #[must_use]
    pub fn since(self, since: Timestamp) -> Self {
        Self {
            since: Some(since),
            ..self
        }
    }

    /// Returns arguments, given as JSON text, in the form in which they are recorded.
    #[must_use]
    pub fn arguments(&self, arguments: Option<&str>) -> PastArguments {
        let stored = arguments.filter(|_| self.include_arguments);
        PastArguments {
            hash: hash_arguments(&self.hasher, arguments),
            text: stored.map(|text| redact_json(text, MAX_STORED_BYTES)),
            n_bytes: arguments.map_or(0, str::len) as u64,
        }
    }

    /// Returns the rows of a session; none without a call that is recent enough and has an upstream.
    #[must_use]
    pub fn rows(&self, past: &PastSession) -> PastSessionRows {
        let is_recorded = |call: &PastSessionCall| {
            call.upstream.is_some() && self.since.is_none_or(|since| call.started_at >= since)
        };
        let Some(last) = past.calls.iter().rev().find(|call| is_recorded(call)) else {
            return PastSessionRows::default();
        };
        let session = self.session(past);
        let (work_sessions, of_calls) = self.work_sessions(past, &session);
        let mut records = vec![Record::SessionOpened(session.clone())];
        let mut used_work = BTreeSet::new();
        let (mut moment, mut n_at_moment) = (None, 0);
        for (position, call) in past.calls.iter().enumerate() {
            let millisecond = Some(call.started_at.as_millisecond());
            n_at_moment = if moment == millisecond {
                n_at_moment + 1
            } else {
                0
            };
            moment = millisecond;
            let Some(upstream) = call.upstream.as_ref().filter(|_| is_recorded(call)) else {
                continue;
            };
            let work_session = of_calls.get(position).copied();
            used_work.extend(work_session);
            let entropy = self.entropy(&["call", &past.client, &call.identity.to_string()]);
            let id = InvocationId::new(call.started_at, in_order(entropy, n_at_moment));
            records.push(Record::CallOpened(Invocation {
                id,
                session: session.id,
                principal: session.principal.clone(),
                upstream: upstream.clone(),
                tool: call.tool.clone(),
                arguments_hash: call.arguments.hash,
                arguments: call.arguments.text.clone(),
                started_at: call.started_at,
                sequence: position as u64 + 1,
                source: ToolSource::Shown,
                request_bytes: call.arguments.n_bytes,
                continues: None,
                work_session,
                list_epoch: None,
                context: None,
            }));
            records.push(Record::CallClosed(InvocationEnd {
                id,
                outcome: call.outcome,
                duration_us: call.duration.map_or(0, micros),
                wait_us: 0,
                response_bytes: 0,
                result: None,
            }));
        }
        records.push(Record::SessionClosed {
            session: session.id,
            ended_at: last.started_at,
        });
        let is_used = |work: &WorkSession| used_work.contains(&work.id);
        PastSessionRows {
            records,
            work_sessions: work_sessions.into_iter().filter(is_used).collect(),
        }
    }

    fn session(&self, past: &PastSession) -> Session {
        let (origin, transcript) = ORIGIN;
        let principal = Principal::local();
        let client_info = ClientInfo::new(&past.client, "");
        let identity = format!("{principal}\0{}\0{}", client_info.name, client_info.version);
        Session {
            id: SessionId::new(
                past.started_at,
                self.entropy(&["session", &past.client, &past.id]),
            ),
            // No run of the proxy has it, so none can lose it.
            run: RunId::new(Timestamp::UNIX_EPOCH, self.entropy(&["run"])),
            principal,
            client: self.hasher.hash_text(&identity),
            client_info,
            // Transcripts do not tell the revision.
            protocol: Revision::new(Revision::NEWEST_LEGACY),
            transport: Transport::Stdio,
            started_at: past.started_at,
            profile: None,
            metadata: [(origin.to_owned(), transcript.to_owned())].into(),
        }
    }

    /// Returns the work sessions of a session, and that of each call; none if they are off.
    fn work_sessions(
        &self,
        past: &PastSession,
        session: &Session,
    ) -> (Vec<WorkSession>, Vec<WorkSessionId>) {
        let mut all: Vec<WorkSession> = Vec::new();
        let mut of_calls = Vec::new();
        let Some(idle_gap) = self.idle_gap else {
            return (all, of_calls);
        };
        for call in &past.calls {
            let at = call.started_at;
            match all.last_mut() {
                Some(work) if work.continues_at(at, idle_gap) => {
                    work.last_active_at = work.last_active_at.max(at);
                }
                _ => {
                    let start = at.as_microsecond().to_string();
                    let parts = ["work session", &past.client, &past.id, &start];
                    all.push(WorkSession {
                        id: WorkSessionId::new(at, self.entropy(&parts)),
                        key: WorkSessionKey(self.hash(&parts)),
                        principal: session.principal.clone(),
                        client: session.client,
                        started_at: at,
                        last_active_at: at,
                    });
                }
            }
            of_calls.extend(all.last().map(|work| work.id));
        }
        (all, of_calls)
    }

    /// Returns the hash of parts, separated by their lengths.
    fn hash(&self, parts: &[&str]) -> KeyedHash {
        let parts = parts.iter().map(|part| format!("{}:{part}", part.len()));
        (self.hasher).hash_text(&format!("past {}", parts.collect::<String>()))
    }

    /// Returns the entropy of an identifier that is the same for the same parts.
    fn entropy(&self, parts: &[&str]) -> Entropy {
        let mut entropy = Entropy::default();
        let n_bytes = entropy.len();
        entropy.copy_from_slice(&self.hash(parts).as_bytes()[..n_bytes]);
        entropy
    }
}

/// Returns entropy that keeps the order of calls at one millisecond: the first twelve random bits of
/// an identifier are the position.
fn in_order(mut entropy: Entropy, position: usize) -> Entropy {
    let position = u16::try_from(position.min(0x0FFF)).unwrap_or_default();
    let [high, low] = position.to_be_bytes();
    entropy[0] = high;
    entropy[1] = low;
    entropy
}

#[cfg(test)]
mod tests;
