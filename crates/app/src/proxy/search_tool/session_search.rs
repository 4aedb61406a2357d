//! What a session remembers of its searches, and what it could call.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riglm_domain::id::ContextId;
use riglm_domain::tool::ToolRef;

use super::help::Length;
use crate::search::Offer;

/// How long a search says what the calls after it are about.
const CONTEXT_FOR: Duration = Duration::from_mins(10);
/// The most tools that are remembered as found; beyond it the session begins anew.
const MAX_FOUND: usize = 5_000;
/// The most things of which it is remembered that they were said; likewise.
const MAX_SAID: usize = 1_000;

/// The searches of one session.
#[derive(Debug, Default)]
pub(in crate::proxy) struct SessionSearch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    offer: Option<Arc<Offer>>,
    /// Counts how often the offer was forgotten.
    epoch: u64,
    /// The offer that was made known last.
    learned: Option<[u8; 32]>,
    found: HashSet<ToolRef>,
    context: Option<(ContextId, Instant)>,
    /// What was said at full length, by hash.
    said: HashSet<u64>,
}

impl SessionSearch {
    /// Returns what the session could call, as far as that is known and did not change.
    pub(in crate::proxy) fn offer(&self) -> Option<Arc<Offer>> {
        self.state().offer.clone()
    }

    /// Returns what [`Self::note_offer`] has to be given of an offer whose lists are asked for from
    /// now on.
    pub(in crate::proxy) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Notes an offer, unless it was forgotten that there is one since its lists were asked for: then
    /// they may be from before a change.
    pub(in crate::proxy) fn note_offer(&self, offer: &Arc<Offer>, epoch: u64) {
        let mut state = self.state();
        if state.epoch == epoch {
            state.offer = Some(Arc::clone(offer));
        }
    }

    /// Returns whether an offer is another one than the last that was asked about.
    pub(in crate::proxy) fn is_news(&self, offer: &Offer) -> bool {
        let id = Some(offer.id());
        std::mem::replace(&mut self.state().learned, id) != id
    }

    /// Forgets what could be called, since it may have changed.
    pub(in crate::proxy) fn forget_offer(&self) {
        let mut state = self.state();
        state.offer = None;
        state.epoch += 1;
    }

    /// Notes the tools that the answer to a search named.
    pub(super) fn found<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolRef>,
        context: Option<ContextId>,
        now: Instant,
    ) {
        let mut state = self.state();
        for tool in tools {
            if state.found.len() >= MAX_FOUND {
                state.found.clear();
            }
            state.found.insert(tool.clone());
        }
        state.context = context.map(|context| (context, now)).or(state.context);
    }

    /// Returns the tools that searches named.
    pub(super) fn told(&self) -> HashSet<ToolRef> {
        self.state().found.clone()
    }

    /// Returns whether a search named the tool.
    pub(in crate::proxy) fn has_found(&self, tool: &ToolRef) -> bool {
        self.state().found.contains(tool)
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

    /// Returns what the last search says of what is done now.
    pub(in crate::proxy) fn context(&self, now: Instant) -> Option<ContextId> {
        let (context, given) = self.state().context?;
        (now.saturating_duration_since(given) < CONTEXT_FOR).then_some(context)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn an_offer_from_before_a_change_is_not_kept() {
        let search = SessionSearch::default();
        let offer = Arc::new(Offer::new(Vec::new(), Vec::new()));
        let epoch = search.epoch();
        search.forget_offer();
        search.note_offer(&offer, epoch);
        assert!(search.offer().is_none());
        search.note_offer(&offer, search.epoch());
        assert!(search.offer().is_some());
        assert!(search.is_news(&offer));
        assert!(!search.is_news(&offer));
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
        search.found([], Some(context), start);
        search.found([], None, start + CONTEXT_FOR);
        let at = |after| search.context(start + after);
        assert_eq!(at(Duration::from_secs(599)), Some(context));
        assert_eq!(at(CONTEXT_FOR), None);
    }
}
