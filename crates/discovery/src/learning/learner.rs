//! A predictor in training, with its open sessions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ContextId, InvocationId};
use riglm_domain::prediction::{
    ClientKey, LearningScope, SessionHistory, SnapshotError, TextEvidence, ToolIx,
};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::selection::{
    HiddenNeed, SessionTrial, SessionUse, SizeHistory, rank_for_session,
};
use riglm_domain::usage::invocation::{Outcome, PastCall, SessionKey};
use riglm_ports::predictor::{self, Predictor};
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::external_advice::{AdviceRequest, NamedScores};

// A longer pause begins another session. Of the fixed gaps tried, this one separates the calls of a
// real proxy best.
const IDLE_GAP: SignedDuration = SignedDuration::from_mins(10);

// A work session ends when its next request comes, so its end may be unknown here. After this pause
// it counts as ended; later calls are learned as another session.
const WORK_GAP: SignedDuration = SignedDuration::from_hours(1);

/// Returns the pause after which another session begins.
#[must_use]
pub fn idle_gap(session: &SessionKey) -> SignedDuration {
    match session {
        SessionKey::Work(_) => WORK_GAP,
        SessionKey::Connection(_) => IDLE_GAP,
    }
}

/// The delay with which a call may arrive after later ones and still be learned from.
pub(super) const MAX_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// The most open sessions; beyond it the one with the longest pause counts as ended.
const MAX_OPEN: usize = 10_000;

// The format of the learner's part of a snapshot, without the predictor's.
const FORMAT: u32 = 3;

// The number of most likely tools that a search may return from. Lists of the tracked sizes and the
// answers of a session have fewer.
const N_LIKELY: usize = 300;

/// The most ended sessions that wait for the lookup of their lists.
const MAX_ENDED: usize = 1_000;

/// The text before a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct PrecedingText<'a> {
    pub(super) vector: &'a Embedding,
    /// Whether the text is a declared context instead of a query.
    pub(super) is_context: bool,
}

/// An ended session; the lookup of its lists is still to come.
#[derive(Clone, Debug)]
pub(super) struct EndedSession {
    pub(super) session: SessionKey,
    pub(super) last_call: Timestamp,
    /// Whether the client declared its context in a recorded text.
    pub(super) has_context: bool,
    party: ClientKey,
    trial: SessionTrial<ToolIx>,
}

/// A session that may have further calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OpenSession {
    history: SessionHistory,
    last_call: Timestamp,
    /// The last text that described the task.
    context: Option<ContextId>,
    party: ClientKey,
    /// Its simulated lists of each size.
    trial: SessionTrial<ToolIx>,
    /// Whether the client had declared a context when the session began.
    has_context: bool,
}

impl OpenSession {
    /// Returns the time until which a call belongs to the session.
    fn over_at(&self, session: &SessionKey) -> Timestamp {
        let gap = idle_gap(session);
        self.last_call.saturating_add(gap).unwrap_or(Timestamp::MAX)
    }
}

/// The start of the learned data, and the number of erasures at that time: removals of clients and
/// imports of past calls. Data from before an erasure must be discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) begun_at: Timestamp,
    pub(super) n_erasures: u64,
}

/// The reason why a snapshot is not restored.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreError {
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Clients were removed or past calls were imported since the snapshot began.
    #[error("clients were removed or past calls were imported since then")]
    Forgotten,
}

#[derive(Serialize, Deserialize)]
struct LearnerState {
    open: Vec<(SessionKey, OpenSession)>,
    origin: Origin,
    read_to: Option<InvocationId>,
    recent: Vec<(InvocationId, Timestamp)>,
    sizes: SizeHistory,
    session_use: SessionUse,
    predictor: Vec<u8>,
}

/// Trains a predictor with the calls of all sessions, in the order of reading: with each call once,
/// and with each session as a whole when it has ended.
///
/// Failed calls count too, because they show a need. But a tool name that no upstream ever listed
/// counts only if a call of it succeeded, and further rounds of a call are no calls of their own.
/// If a principal makes very many calls, only a part of them is used.
#[derive(Debug)]
pub(super) struct Learner {
    predictor: Box<dyn predictor::Learner>,
    /// The tools that were ever listed or called with success, ascending and unique.
    known: Vec<ToolIx>,
    open: BTreeMap<SessionKey, OpenSession>,
    /// The open sessions by the time at which they end without another call.
    by_silence: BTreeSet<(Timestamp, SessionKey)>,
    /// Calls up to this one are not read again.
    read_to: Option<InvocationId>,
    /// The later calls that were already read, with their time of receipt.
    recent: BTreeMap<InvocationId, Timestamp>,
    /// The history of the list sizes that sessions needed.
    sizes: SizeHistory,
    /// The number of sessions that used each tool.
    session_use: SessionUse,
    /// The newest ended sessions, until they are taken.
    ended: VecDeque<EndedSession>,
    allowance: Allowance,
    /// The only principal whose calls are learned; `None` for all.
    only: Option<Principal>,
    /// Counted since this learner was created or restored.
    n_learned: u64,
    has_learned: bool,
    origin: Origin,
}

impl Learner {
    /// Creates a learner whose predictor has learned nothing yet.
    pub(super) fn new(predictor: Box<dyn predictor::Learner>, origin: Origin) -> Self {
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
            only: None,
            n_learned: 0,
        }
    }

    /// Makes the learner skip the calls of all other principals.
    pub(super) fn only_of(self, principal: Principal) -> Self {
        Self {
            only: Some(principal),
            ..self
        }
    }

    pub(super) fn predictor(&self) -> &dyn Predictor {
        &*self.predictor
    }

    /// Returns the history of a session that has not ended.
    pub(super) fn history(&self, session: &SessionKey, now: Timestamp) -> Option<&SessionHistory> {
        let open = self.open.get(session)?;
        (now.duration_since(open.last_call) <= idle_gap(session)).then_some(&open.history)
    }

    pub(super) fn sizes(&self) -> &SizeHistory {
        &self.sizes
    }

    pub(super) fn session_use(&self) -> &SessionUse {
        &self.session_use
    }

    /// Takes the sessions that ended since the last call of this function, the oldest first.
    pub(super) fn take_ended(&mut self) -> Vec<EndedSession> {
        std::mem::take(&mut self.ended).into()
    }

    /// Learns whether an ended session declared a context.
    pub(super) fn learn_context(&mut self, has_context: bool) {
        self.sizes.add_context(has_context);
    }

    /// Learns whether the client of a session searched for tools outside its list of `n_listed`
    /// tools.
    pub(super) fn learn_hidden_need(
        &mut self,
        ended: &EndedSession,
        n_listed: usize,
        sought: bool,
    ) {
        let need = HiddenNeed {
            expected: ended.trial.predicted_needs(n_listed),
            sought: f64::from(u8::from(sought)),
        };
        self.sizes.add_need(ended.party, need);
    }

    /// Returns the number of calls learned from since this learner was created or restored.
    pub(super) fn n_learned(&self) -> u64 {
        self.n_learned
    }

    pub(super) fn has_learned(&self) -> bool {
        self.has_learned
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the newest call that was read.
    pub(super) fn learned_to(&self) -> Option<InvocationId> {
        let newest = self.recent.last_key_value().map(|(id, _)| *id);
        newest.max(self.read_to)
    }

    /// Returns the call after which to read: some later calls were read already, others may have
    /// come late.
    pub(super) fn read_to(&self) -> Option<InvocationId> {
        self.read_to
    }

    /// Skips all calls up to this one.
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

    /// Adds listed tools to the known ones.
    pub(super) fn add_known_tools(&mut self, tools: &[ToolRef]) {
        let slots = tools.iter().filter_map(|tool| self.predictor.intern(tool));
        self.known.extend(slots);
        self.known.sort_unstable();
        self.known.dedup();
    }

    /// Adds tools to the vocabulary of the predictor.
    pub(super) fn add_tools(&mut self, tools: &[ToolRef]) {
        for tool in tools {
            self.predictor.intern(tool);
        }
    }

    /// Returns the request for the advice of an external predictor before a call that is new and
    /// will be learned.
    pub(super) fn advice_request(&self, call: &PastCall, now: Timestamp) -> Option<AdviceRequest> {
        let is_learned = self.is_new(call) && call.continues.is_none();
        if !is_learned || !self.is_known(&call.tool_ref()) {
            return None;
        }
        let at = call.started_at.min(now);
        let history = self.history(&call.session_key(), at).cloned();
        let mut history = history.unwrap_or_else(|| SessionHistory::new(client_key(call)));
        history.set_time(at);
        let vocabulary = self.predictor.vocabulary();
        let known = self.known.iter().filter_map(|slot| vocabulary.tool(*slot));
        let known: Vec<ToolRef> = known.cloned().collect();
        let client = call.client.as_deref().unwrap_or_default();
        Some(AdviceRequest::new(
            &*self.predictor,
            &history,
            &known,
            client,
        ))
    }

    /// Learns from a call, unless it was read before. `said` is the text before the call, if there
    /// is one. A call with a time in the future counts as one of now.
    pub(super) fn learn_call(
        &mut self,
        call: &PastCall,
        said: Option<PrecedingText<'_>>,
        now: Timestamp,
    ) {
        self.learn_advised_call(call, said, None, now);
    }

    /// Learns like [`Self::learn_call`]. `advice` has the scores that an external predictor gave
    /// before the call.
    pub(super) fn learn_advised_call(
        &mut self,
        call: &PastCall,
        said: Option<PrecedingText<'_>>,
        advice: Option<&NamedScores>,
        now: Timestamp,
    ) {
        if !self.is_new(call) {
            return;
        }
        if (self.only.as_ref()).is_some_and(|principal| *principal != call.principal) {
            self.recent.insert(call.id, call.started_at);
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
            self.add_known_tools(std::slice::from_ref(&tool));
        }
        let Some(slot) = self.predictor.vocabulary().slot(&tool) else {
            return;
        };
        if !self.allowance.admits(&call.principal, at) {
            return;
        }
        let session = call.session_key();
        let known = self.take(session);
        let is_first = known.is_none();
        let mut open = known.unwrap_or_else(|| OpenSession {
            history: SessionHistory::new(client_key(call)),
            last_call: at,
            context: None,
            party: client_key(call),
            trial: SessionTrial::new([]),
            has_context: said.is_some_and(|said| said.is_context),
        });
        if let Some(PrecedingText { vector, .. }) = said
            && open.context != call.context
        {
            // The list was predicted for this call before the text was known, so that prediction is
            // evaluated as well. Otherwise only calls of listed tools would train the expectation
            // for sessions without a text.
            let mut before = open.history.clone();
            before.set_time(at);
            let judged = LearningScope::Weights;
            (self.predictor).learn(&mut before, &self.known, slot, judged);
            open.history
                .set_text(TextEvidence::of_vector(vector.clone()));
            open.context = call.context;
        }
        open.last_call = open.last_call.max(at);
        open.history.set_time(at);
        let advice = advice.and_then(|scores| scores.advice(self.predictor.vocabulary()));
        open.history.set_advice(advice);
        self.try_lists(&mut open, slot, is_first);
        (self.predictor).learn(
            &mut open.history,
            &self.known,
            slot,
            LearningScope::Everything,
        );
        self.n_learned += 1;
        self.has_learned = true;
        self.by_silence.insert((open.over_at(&session), session));
        self.open.insert(session, open);
        while self.open.len() > MAX_OPEN {
            self.end_most_silent();
        }
    }

    /// Simulates lists of each size for a call, before learning from it.
    fn try_lists(&self, open: &mut OpenSession, called: ToolIx, is_first: bool) {
        let OpenSession {
            history,
            trial,
            party,
            ..
        } = open;
        if !is_first && trial.used_tools().contains(&called) {
            // Only the first call of a tool is compared with predictions.
            trial.call(called, Vec::new, Vec::new);
            return;
        }
        let forecast = self.predictor.predict(history, &self.known);
        let ranked = forecast.ranking();
        if is_first {
            let later = (self.predictor).predict_later(history, &self.known, &forecast);
            let marked = if history.text().is_none() {
                let shares = self.session_use.shares(*party);
                let share = |slot| shares.get(&slot).copied().unwrap_or(0.0);
                rank_for_session(ranked, share)
            } else {
                ranked.to_vec()
            };
            *trial = SessionTrial::new(later.ranking().iter().map(|(slot, _)| *slot))
                .with_marked(marked.into_iter().map(|(slot, _)| slot));
        }
        let likely = || ranked.iter().take(N_LIKELY).copied();
        trial.call(called, likely, || self.answer_tools(history, called));
    }

    /// Returns the tools that the answer of a search for a tool may have in addition, the best
    /// first.
    fn answer_tools(&self, history: &SessionHistory, found: ToolIx) -> Vec<ToolIx> {
        let history = history.with_assumed_call(found);
        let next = self.predictor.predict(&history, &self.known);
        let later = (self.predictor).predict_later(&history, &self.known, &next);
        let likely = later.above_mean().take(N_LIKELY);
        likely.map(|(slot, _)| slot).collect()
    }

    fn take(&mut self, session: SessionKey) -> Option<OpenSession> {
        let open = self.open.remove(&session)?;
        self.by_silence.remove(&(open.over_at(&session), session));
        Some(open)
    }

    /// Ends the sessions whose pause is too long.
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
        self.predictor.end_session(&open.history);
        self.sizes.add(open.party, &open.trial.outcome());
        self.session_use.add(open.party, open.trial.used_tools());
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(EndedSession {
            session,
            last_call: open.last_call,
            has_context: open.has_context,
            party: open.party,
            trial: open.trial,
        });
    }

    /// Ages the learned data until `now`.
    pub(super) fn age(&mut self, now: Timestamp) {
        self.end_silent(now);
        self.predictor.maintain(now);
    }

    /// Marks all calls as read that are so much older than the newest one, and than now, that no
    /// late call can come before them. A call with a time in the future, by the clock of another
    /// machine, does not hide calls made until then.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let Some((_, newest)) = self.recent.last_key_value() else {
            return;
        };
        let until = (*newest).min(now).checked_sub(MAX_DELAY);
        let until = InvocationId::new(until.unwrap_or(Timestamp::UNIX_EPOCH), [0; 10]);
        if Some(until) > self.read_to {
            self.read_to = Some(until);
            self.recent = self.recent.split_off(&until);
        }
    }

    pub(super) fn format(&self) -> u32 {
        // A change of either format must invalidate old snapshots.
        FORMAT * 10_000 + self.predictor.format()
    }

    /// Returns the learned data and the open sessions as bytes.
    pub(super) fn snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        let saved = LearnerState {
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
        postcard::to_allocvec(&saved).map_err(|error| SnapshotError::Unwritable(error.into()))
    }

    /// Restores a snapshot, unless clients were removed since it began. After an error the learned
    /// data is unchanged.
    pub(super) fn restore(&mut self, format: u32, bytes: &[u8]) -> Result<(), RestoreError> {
        if format != self.format() {
            return Err(RestoreError::Snapshot(SnapshotError::Format {
                expected: self.format(),
                found: format,
            }));
        }
        let saved: LearnerState =
            postcard::from_bytes(bytes).map_err(|error| SnapshotError::Damaged(error.into()))?;
        if saved.origin.n_erasures != self.origin.n_erasures {
            return Err(RestoreError::Forgotten);
        }
        self.predictor
            .restore(self.predictor.format(), &saved.predictor)?;
        let vocabulary = self.predictor.vocabulary();
        let sessions = saved.open.into_iter();
        self.open = sessions
            .filter(|(_, open)| open.history.is_over(vocabulary))
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
        // The task reads the listed tools from the store after restoring.
        self.known.clear();
        Ok(())
    }
}

fn client_key(call: &PastCall) -> ClientKey {
    ClientKey::new(&call.principal, call.client.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
