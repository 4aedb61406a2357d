//! What a session remembers of its searches, and what it could call.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use riglm_domain::id::ContextId;
use riglm_domain::invocation::CallSession;
use riglm_domain::tool::ToolRef;

use super::help::Length;
use crate::filtering::ForbidRules;
use crate::search::Offer;

/// How long a search says what the calls after it are about.
const CONTEXT_FOR: Duration = Duration::from_mins(10);
/// The most tools that are remembered as found; beyond it the session begins anew.
const MAX_FOUND: usize = 5_000;
/// The most work sessions of one connection whose searches are remembered.
const MAX_WORK_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// The most things of which it is remembered that they were said; likewise.
const MAX_SAID: usize = 1_000;

/// The searches of one session.
#[derive(Debug, Default)]
pub(in crate::proxy) struct SessionSearch(Mutex<State>);

#[derive(Debug)]
struct State {
    offer: Option<Arc<Offer>>,
    /// The offer that was noted last, whether or not it may have changed since.
    last: Option<Arc<Offer>>,
    /// An offer, what was forbidden when it was looked at last, and the offer without that.
    permitted: Option<(Arc<Offer>, ForbidRules, Arc<Offer>)>,
    /// Counts how often the offer was forgotten.
    epoch: u64,
    /// The offer that was made known last.
    learned: Option<[u8; 32]>,
    /// What was said at full length, by hash.
    said: HashSet<u64>,
    /// What searches named, for each work session: another one is another conversation, which was
    /// told nothing of it.
    told: LruCache<CallSession, Told>,
}

/// What the searches of one work session named.
#[derive(Debug, Default)]
struct Told {
    found: HashSet<ToolRef>,
    context: Option<(ContextId, Instant)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            offer: None,
            last: None,
            permitted: None,
            epoch: 0,
            learned: None,
            said: HashSet::new(),
            told: LruCache::new(MAX_WORK_SESSIONS),
        }
    }
}

impl SessionSearch {
    /// Returns what is offered to the session, as far as that is known and did not change, with the
    /// tools that are forbidden to it: [`Shared::offer_of`] returns what it could call.
    ///
    /// [`Shared::offer_of`]: crate::proxy::shared::Shared::offer_of
    pub(in crate::proxy) fn whole_offer(&self) -> Option<Arc<Offer>> {
        self.state().offer.clone()
    }

    /// Returns what was offered to the session when it was shown a list last, with the tools that are
    /// forbidden to it. That may have changed since: it is what the client knows.
    pub(in crate::proxy) fn last_whole_offer(&self) -> Option<Arc<Offer>> {
        self.state().last.clone()
    }

    /// Returns an offer without what these rules forbid, which `make` makes unless it is the offer that
    /// was asked for last.
    pub(in crate::proxy) fn permitted(
        &self,
        whole: &Arc<Offer>,
        rules: ForbidRules,
        make: impl FnOnce(&ForbidRules) -> Arc<Offer>,
    ) -> Arc<Offer> {
        if let Some((of, known, permitted)) = &self.state().permitted
            && Arc::ptr_eq(of, whole)
            && *known == rules
        {
            return Arc::clone(permitted);
        }
        let permitted = make(&rules);
        self.state().permitted = Some((Arc::clone(whole), rules, Arc::clone(&permitted)));
        permitted
    }

    /// Returns what [`Self::note_offer`] has to be given of an offer whose lists are asked for from
    /// now on.
    pub(in crate::proxy) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Notes an offer as the last one. It does not count as the present one where that was forgotten
    /// since its lists were asked for: then they may be from before a change.
    pub(in crate::proxy) fn note_offer(&self, offer: &Arc<Offer>, epoch: u64) {
        let mut state = self.state();
        state.last = Some(Arc::clone(offer));
        if state.epoch == epoch {
            state.offer = Some(Arc::clone(offer));
        }
    }

    /// Returns whether an offer is another one than the last that was asked about.
    pub(in crate::proxy) fn is_news(&self, offer: &Offer) -> bool {
        let id = Some(offer.id());
        std::mem::replace(&mut self.state().learned, id) != id
    }

    /// Forgets what can be called now, since it may have changed.
    pub(in crate::proxy) fn forget_offer(&self) {
        let mut state = self.state();
        state.offer = None;
        state.epoch += 1;
    }

    /// Notes the tools that the answer to a search named.
    pub(super) fn found<'a>(
        &self,
        session: CallSession,
        tools: impl IntoIterator<Item = &'a ToolRef>,
        context: Option<ContextId>,
        now: Instant,
    ) {
        let mut state = self.state();
        let told = state.told.get_or_insert_mut(session, Told::default);
        for tool in tools {
            if told.found.len() >= MAX_FOUND {
                told.found.clear();
            }
            told.found.insert(tool.clone());
        }
        told.context = context.map(|context| (context, now)).or(told.context);
    }

    /// Returns the tools that searches of a work session named.
    pub(super) fn told(&self, session: CallSession) -> HashSet<ToolRef> {
        let state = self.state();
        let told = state.told.peek(&session);
        told.map_or_else(HashSet::new, |told| told.found.clone())
    }

    /// Returns whether a search of a work session named the tool.
    pub(in crate::proxy) fn has_found(&self, session: CallSession, tool: &ToolRef) -> bool {
        let state = self.state();
        let told = state.told.peek(&session);
        told.is_some_and(|told| told.found.contains(tool))
    }

    /// Returns at which length something is said: in full the first time.
    pub(in crate::proxy) fn length_for(&self, what: &impl Hash) -> Length {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let mut state = self.state();
        if state.said.len() >= MAX_SAID {
            state.said.clear();
        }
        if state.said.insert(hasher.finish()) {
            Length::Full
        } else {
            Length::Short
        }
    }

    /// Returns what the last search of a work session says of what is done now.
    pub(in crate::proxy) fn context(
        &self,
        session: CallSession,
        now: Instant,
    ) -> Option<ContextId> {
        let (context, given) = self.state().told.peek(&session)?.context?;
        (now.saturating_duration_since(given) < CONTEXT_FOR).then_some(context)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_domain::id::{SessionId, UpstreamName};

    use super::*;

    #[test]
    fn an_offer_from_before_a_change_is_not_kept() {
        let search = SessionSearch::default();
        let offer = Arc::new(Offer::new(Vec::new(), Vec::new()));
        let epoch = search.epoch();
        search.forget_offer();
        search.note_offer(&offer, epoch);
        assert!(search.whole_offer().is_none());
        assert!(
            search.last_whole_offer().is_some(),
            "the client was shown it"
        );
        search.note_offer(&offer, search.epoch());
        assert!(search.whole_offer().is_some());
        search.forget_offer();
        assert!(search.whole_offer().is_none() && search.last_whole_offer().is_some());
        assert!(search.is_news(&offer));
        assert!(!search.is_news(&offer));
    }

    fn over(n: u8) -> CallSession {
        CallSession::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [n; 10]))
    }

    #[test]
    fn what_was_found_is_known_to_the_work_session_that_searched() {
        let search = SessionSearch::default();
        let tool = ToolRef {
            upstream: UpstreamName::parse("notes").unwrap(),
            tool: "find".into(),
        };
        let [session, other] = [1, 2].map(over);
        search.found(session, [&tool], None, Instant::now());
        assert!(search.has_found(session, &tool) && !search.has_found(other, &tool));
        assert_eq!(search.told(session).len(), 1);
        assert!(search.told(other).is_empty());
        // Many others make it forgotten, and nothing grows.
        for n in 3..40 {
            search.found(over(n), [&tool], None, Instant::now());
        }
        assert!(!search.has_found(session, &tool) && search.has_found(over(39), &tool));
    }

    #[test]
    fn something_is_said_in_full_once() {
        let search = SessionSearch::default();
        let lengths = ["a", "b", "a"].map(|what| search.length_for(&what));
        assert_eq!(lengths, [Length::Full, Length::Full, Length::Short]);
    }

    #[test]
    fn a_search_is_the_context_of_calls_for_a_while() {
        let search = SessionSearch::default();
        let start = Instant::now();
        let context = ContextId::new(Timestamp::UNIX_EPOCH, [1; 10]);
        let [session, other] = [1, 2].map(over);
        search.found(session, [], Some(context), start);
        search.found(session, [], None, start + CONTEXT_FOR);
        let at = |after| search.context(session, start + after);
        assert_eq!(search.context(other, start), None);
        assert_eq!(at(Duration::from_secs(599)), Some(context));
        assert_eq!(at(CONTEXT_FOR), None);
    }
}
