//! A predictor, and the sessions that it is being taught with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::embedding::Embedding;
use riglm_domain::id::{ContextId, InvocationId};
use riglm_domain::invocation::{CallSession, Outcome, PastCall};
use riglm_domain::listing::{HiddenNeed, SessionTrial, SessionUse, SizeHistory, rank_for_session};
use riglm_domain::prediction::{Lesson, Party, Slot, SnapshotError, TextEvidence, Trail};
use riglm_domain::tool::ToolRef;
use riglm_ports::predictor::Predictor;
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;

/// After so long a silence another session begins. Of the fixed gaps it is the one that parts calls
/// of a real proxy best.
const IDLE_GAP: SignedDuration = SignedDuration::from_mins(10);

/// The most that a work session, whose end is found when its requests come, may be silent before it
/// counts as over here. One that goes on after that is learned from as another one.
const WORK_GAP: SignedDuration = SignedDuration::from_hours(1);

/// Returns after how long a silence another session begins.
#[must_use]
pub fn idle_gap(session: &CallSession) -> SignedDuration {
    match session {
        CallSession::Work(_) => WORK_GAP,
        CallSession::Connection(_) => IDLE_GAP,
    }
}

/// How long a call may come after those that were received later, and still be learned from.
pub(super) const LATE: SignedDuration = SignedDuration::from_secs(10);

/// How many sessions are followed at a time. Beyond that the most silent one is taken to be over.
const MAX_OPEN: usize = 10_000;

/// The format of the bytes around those of the predictor.
const FORMAT: u32 = 2;

/// Number of the likeliest tools that the answer of a search is chosen from: lists of the followed
/// lengths, with the answers of a session, hold fewer.
const N_LIKELY: usize = 300;

/// Number of sessions that are over and are kept until their lists are looked up.
const MAX_ENDED: usize = 1_000;

/// The text that a call followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'a> {
    /// Its vector.
    pub(super) vector: &'a Embedding,
    /// Whether the client said by it what it does, in place of looking for a tool.
    pub(super) is_context: bool,
}

/// A session that is over, of which it is to be found out how it met what its list left out.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) session: CallSession,
    pub(super) last_call: Timestamp,
    /// Whether the client had said what it does, in a text that was recorded.
    pub(super) has_context: bool,
    party: Party,
    trial: SessionTrial<Slot>,
}

/// A session that may have further calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Open {
    trail: Trail,
    last_call: Timestamp,
    /// The text that said last what is being done.
    context: Option<ContextId>,
    party: Party,
    /// Its trial with lists of each length.
    trial: SessionTrial<Slot>,
    /// Whether the client had said what it does when the session began.
    has_context: bool,
}

impl Open {
    /// Returns the last moment of a call that belongs to it.
    fn over_at(&self, session: &CallSession) -> Timestamp {
        let gap = idle_gap(session);
        self.last_call.saturating_add(gap).unwrap_or(Timestamp::MAX)
    }
}

/// When what was learned was begun, and after how many removals of clients: what was learned before
/// a removal is to be forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) begun_at: Timestamp,
    pub(super) n_erasures: u64,
}

/// Why a snapshot is not gone on with.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreError {
    /// It cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Clients were removed that it was made from.
    #[error("clients were removed that it was learned from")]
    Forgotten,
}

/// What is saved of a learner.
#[derive(Serialize, Deserialize)]
struct Saved {
    open: Vec<(CallSession, Open)>,
    origin: Origin,
    read_to: Option<InvocationId>,
    recent: Vec<(InvocationId, Timestamp)>,
    sizes: SizeHistory,
    session_use: SessionUse,
    predictor: Vec<u8>,
}

/// Teaches a predictor with the calls of all sessions, in the order in which they are read: each
/// call once, and each session as a whole when it is over.
///
/// Calls that failed are learned from too: they show what was needed. But a name that no upstream
/// ever listed counts only if a call of it went well, and further rounds of a call are no calls of
/// their own. Of a principal that calls without end, a part of its calls is learned from.
#[derive(Debug)]
pub(super) struct Learner {
    predictor: Box<dyn Predictor>,
    /// The tools that were ever listed, or called with success, ascending and each once.
    known: Vec<Slot>,
    open: BTreeMap<CallSession, Open>,
    /// The open sessions by when they are over, if no call comes.
    by_silence: BTreeSet<(Timestamp, CallSession)>,
    /// Calls up to this one are not read again.
    read_to: Option<InvocationId>,
    /// The calls after that which were read, with when they were received.
    recent: BTreeMap<InvocationId, Timestamp>,
    /// The lengths that lists should have had.
    sizes: SizeHistory,
    /// In how many sessions tools were used.
    session_use: SessionUse,
    /// The newest sessions that are over, until they are taken.
    ended: VecDeque<Ended>,
    /// Says of how many calls of each principal is learned.
    allowance: Allowance,
    /// Since this one was made or restored.
    n_learned: u64,
    /// Whether anything was learned ever.
    has_learned: bool,
    origin: Origin,
}

impl Learner {
    /// Returns one whose predictor learned nothing yet.
    pub(super) fn new(predictor: Box<dyn Predictor>, origin: Origin) -> Self {
        Self {
            predictor,
            origin,
            has_learned: false,
            known: Vec::new(),
            open: BTreeMap::new(),
            by_silence: BTreeSet::new(),
            read_to: None,
            recent: BTreeMap::new(),
            sizes: SizeHistory::default(),
            session_use: SessionUse::default(),
            ended: VecDeque::new(),
            allowance: Allowance::default(),
            n_learned: 0,
        }
    }

    /// Returns the predictor.
    pub(super) fn predictor(&self) -> &dyn Predictor {
        &*self.predictor
    }

    /// Returns the calls so far of a session that is not over.
    pub(super) fn trail(&self, session: &CallSession, now: Timestamp) -> Option<&Trail> {
        let open = self.open.get(session)?;
        (now.duration_since(open.last_call) <= idle_gap(session)).then_some(&open.trail)
    }

    /// Returns the history of the lengths that lists should have had.
    pub(super) fn sizes(&self) -> &SizeHistory {
        &self.sizes
    }

    /// Returns in how many sessions tools were used.
    pub(super) fn session_use(&self) -> &SessionUse {
        &self.session_use
    }

    /// Returns the sessions that are over since this was asked last, the oldest first.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended).into()
    }

    /// Learns whether a session that is over said what it does.
    pub(super) fn said(&mut self, has_context: bool) {
        self.sizes.add_context(has_context);
    }

    /// Learns whether the client of a session looked for what its list of `n_listed` tools left out.
    pub(super) fn met(&mut self, ended: &Ended, n_listed: usize, sought: bool) {
        let need = HiddenNeed {
            expected: ended.trial.needed_beside(n_listed),
            sought: f64::from(u8::from(sought)),
        };
        self.sizes.add_need(ended.party, need);
    }

    /// Returns how many calls were learned from since this was made or restored.
    pub(super) fn n_learned(&self) -> u64 {
        self.n_learned
    }

    /// Returns whether anything was learned ever.
    pub(super) fn has_learned(&self) -> bool {
        self.has_learned
    }

    /// Returns when learning was begun, and after how many removals.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the newest call that was read.
    pub(super) fn learned_to(&self) -> Option<InvocationId> {
        let newest = self.recent.last_key_value().map(|(id, _)| *id);
        newest.max(self.read_to)
    }

    /// Returns the call after which others are to be read: some of them were read before, others
    /// may have come late.
    pub(super) fn read_to(&self) -> Option<InvocationId> {
        self.read_to
    }

    /// Leaves out all calls up to this one.
    pub(super) fn skip_to(&mut self, call: InvocationId) {
        self.read_to = self.read_to.max(Some(call));
    }

    /// Returns whether a call was not read before.
    pub(super) fn is_new(&self, call: &PastCall) -> bool {
        Some(call.id) > self.read_to && !self.recent.contains_key(&call.id)
    }

    /// Returns whether a tool was ever listed, or called with success.
    pub(super) fn is_known(&self, tool: &ToolRef) -> bool {
        let slot = self.predictor.vocabulary().slot(tool);
        slot.is_some_and(|slot| self.known.binary_search(&slot).is_ok())
    }

    /// Takes note of tools that were listed.
    pub(super) fn know(&mut self, tools: &[ToolRef]) {
        let slots = tools.iter().filter_map(|tool| self.predictor.intern(tool));
        self.known.extend(slots);
        self.known.sort_unstable();
        self.known.dedup();
    }

    /// Gives places to tools that were never seen.
    pub(super) fn meet(&mut self, tools: &[ToolRef]) {
        for tool in tools {
            self.predictor.intern(tool);
        }
    }

    /// Learns from a call, unless it was read before. `said` is the text which the call followed, where
    /// there is one. A call from the future counts as one of now.
    pub(super) fn follow(&mut self, call: &PastCall, said: Option<Said<'_>>, now: Timestamp) {
        if !self.is_new(call) {
            return;
        }
        let at = call.started_at.min(now);
        let tool = call.tool_ref();
        let is_known = self.is_known(&tool);
        if !is_known && call.outcome.is_none() {
            // It is read again until it has ended, or is too old.
            return;
        }
        self.recent.insert(call.id, call.started_at);
        self.end_silent(at);
        if call.continues.is_some() {
            return;
        }
        if !is_known {
            if !call.outcome.is_some_and(Outcome::is_success) {
                return;
            }
            self.know(std::slice::from_ref(&tool));
        }
        let Some(slot) = self.predictor.vocabulary().slot(&tool) else {
            return;
        };
        if !self.allowance.admits(&call.principal, at) {
            return;
        }
        let session = call.belongs_to();
        let known = self.take(session);
        let is_first = known.is_none();
        let mut open = known.unwrap_or_else(|| Open {
            trail: Trail::new(party(call)),
            last_call: at,
            context: None,
            party: party(call),
            trial: SessionTrial::new([]),
            has_context: said.is_some_and(|said| said.is_context),
        });
        if let Some(Said { vector, .. }) = said
            && open.context != call.context
        {
            // The call was predicted, for a list, before anybody said what it is for: that prediction
            // is judged as well. Otherwise only calls of listed tools would teach what to expect of
            // sessions that say nothing.
            let mut before = open.trail.clone();
            before.set_time(at);
            let judged = Lesson::Weights;
            (self.predictor).learn(&mut before, &self.known, slot, judged);
            open.trail.set_text(TextEvidence::of_vector(vector.clone()));
            open.context = call.context;
        }
        open.last_call = open.last_call.max(at);
        open.trail.set_time(at);
        self.try_lists(&mut open, slot, is_first);
        (self.predictor).learn(&mut open.trail, &self.known, slot, Lesson::Everything);
        self.n_learned += 1;
        self.has_learned = true;
        self.by_silence.insert((open.over_at(&session), session));
        self.open.insert(session, open);
        while self.open.len() > MAX_OPEN {
            self.end_most_silent();
        }
    }

    /// Notes what lists of each length would have meant for a call, before it is learned from.
    fn try_lists(&self, open: &mut Open, called: Slot, is_first: bool) {
        let Open {
            trail,
            trial,
            party,
            ..
        } = open;
        if !is_first && trial.used().contains(&called) {
            // Only the first call of a tool is compared with predictions.
            trial.call(called, Vec::new);
            return;
        }
        let forecast = self.predictor.predict(trail, &self.known);
        let ranked = forecast.ranked();
        if is_first {
            *trial = SessionTrial::new(ranked.iter().map(|(slot, _)| *slot));
            if trail.text().is_none() {
                let shares = self.session_use.shares(*party);
                let share = |slot| shares.get(&slot).copied().unwrap_or(0.0);
                let marked = rank_for_session(ranked, share).into_iter();
                *trial = std::mem::replace(trial, SessionTrial::new([]))
                    .with_marked(marked.map(|(slot, _)| slot));
            }
        }
        trial.call(called, || ranked.iter().take(N_LIKELY).copied());
    }

    fn take(&mut self, session: CallSession) -> Option<Open> {
        let open = self.open.remove(&session)?;
        self.by_silence.remove(&(open.over_at(&session), session));
        Some(open)
    }

    /// Takes sessions to be over that have been silent for long.
    pub(super) fn end_silent(&mut self, now: Timestamp) {
        while let Some((over_at, _)) = self.by_silence.first() {
            if now <= *over_at {
                break;
            }
            self.end_most_silent();
        }
    }

    fn end_most_silent(&mut self) {
        let Some((_, session)) = self.by_silence.pop_first() else {
            return;
        };
        let Some(open) = self.open.remove(&session) else {
            return;
        };
        self.predictor.end_session(&open.trail);
        self.sizes.add(open.party, &open.trial.outcome());
        self.session_use.add(open.party, open.trial.used());
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended {
            session,
            last_call: open.last_call,
            has_context: open.has_context,
            party: open.party,
            trial: open.trial,
        });
    }

    /// Lets what was learned age until now.
    pub(super) fn upkeep(&mut self, now: Timestamp) {
        self.end_silent(now);
        self.predictor.upkeep(now);
    }

    /// Takes all calls to be read that were received so long before the newest one, and before
    /// now, that none of them comes any more. A call from the future, by the clock of another
    /// machine, hides none that is made until then.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let Some((_, newest)) = self.recent.last_key_value() else {
            return;
        };
        let until = (*newest).min(now).checked_sub(LATE);
        let until = InvocationId::new(until.unwrap_or(Timestamp::UNIX_EPOCH), [0; 10]);
        if Some(until) > self.read_to {
            self.read_to = Some(until);
            self.recent = self.recent.split_off(&until);
        }
    }

    /// Returns the format of [`Self::snapshot`].
    pub(super) fn format(&self) -> u32 {
        FORMAT * 10_000 + self.predictor.format()
    }

    /// Returns what was learned, and where the sessions stand, as bytes.
    pub(super) fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        let saved = Saved {
            open: self
                .open
                .iter()
                .map(|(key, open)| (*key, open.clone()))
                .collect(),
            origin: self.origin,
            read_to: self.read_to,
            recent: self.recent.iter().map(|(id, at)| (*id, *at)).collect(),
            sizes: self.sizes.clone(),
            session_use: self.session_use.clone(),
            predictor: self.predictor.snapshot()?,
        };
        postcard::to_allocvec(&saved).map_err(SnapshotError::Unwritable)
    }

    /// Goes on from a snapshot, unless clients were removed since it was begun. What is refused
    /// leaves what was learned as it was.
    pub(super) fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), RestoreError> {
        if format != self.format() {
            return Err(RestoreError::Snapshot(SnapshotError::Format {
                expected: self.format(),
                found: format,
            }));
        }
        let saved: Saved = postcard::from_bytes(bytes).map_err(SnapshotError::Damaged)?;
        if saved.origin.n_erasures != self.origin.n_erasures {
            return Err(RestoreError::Forgotten);
        }
        self.predictor
            .restore(self.predictor.format(), &saved.predictor)?;
        let vocabulary = self.predictor.vocabulary();
        let sessions = saved.open.into_iter();
        self.open = sessions
            .filter(|(_, open)| open.trail.is_over(vocabulary))
            .collect();
        let open = self.open.iter();
        self.by_silence = open.map(|(key, open)| (open.over_at(key), *key)).collect();
        self.origin = saved.origin;
        self.has_learned = true;
        self.read_to = saved.read_to;
        self.recent = saved.recent.into_iter().collect();
        self.sizes = saved.sizes;
        self.session_use = saved.session_use;
        self.ended.clear();
        self.known.clear();
        Ok(())
    }
}

/// Returns whose call it is.
fn party(call: &PastCall) -> Party {
    Party::new(&call.principal, call.client.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
