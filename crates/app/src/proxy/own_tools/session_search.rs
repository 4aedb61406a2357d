//! The search state of a session: its catalog and the tools that searches found.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::ContextId;
use riglm_domain::usage::invocation::SessionKey;

use super::call_hints::Length;
use super::skill_search::KnownSkills;
use crate::selection::ForbidRules;
use riglm_discovery::search::Catalog;

/// The time for which a search counts as the context of the calls after it.
const CONTEXT_FOR: Duration = Duration::from_mins(10);
/// The maximum number of found tools. Beyond it the set is cleared.
const MAX_FOUND: usize = 5_000;
/// The maximum number of work sessions of one connection with a search state.
const MAX_WORK_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);
/// The maximum number of hints that are remembered as shown. Beyond it the set is cleared.
const MAX_SAID: usize = 1_000;

#[derive(Debug, Default)]
pub(in crate::proxy) struct SessionSearch(Mutex<SearchState>);

#[derive(Debug)]
struct SearchState {
    catalog: Option<Arc<Catalog>>,
    /// The last catalog, which may be outdated.
    last: Option<Arc<Catalog>>,
    /// A catalog, the forbid rules of its last use, and the catalog without the forbidden tools.
    permitted: Option<(Arc<Catalog>, ForbidRules, Arc<Catalog>)>,
    /// The number of times that the catalog was dropped.
    epoch: u64,
    /// The skills that were listed for the last search.
    skills: Option<KnownSkills>,
    /// The id of the last catalog that was published to the search.
    learned: Option<[u8; 32]>,
    /// The hashes of the hints that were shown at full length.
    said: HashSet<u64>,
    /// The tools that searches found, per work session. Another work session is another
    /// conversation, to which these tools are unknown.
    told: LruCache<SessionKey, FoundTools>,
}

/// The search results of one work session.
#[derive(Debug, Default)]
struct FoundTools {
    found: HashSet<ToolRef>,
    context: Option<(ContextId, Instant)>,
}

impl Default for SearchState {
    fn default() -> Self {
        Self {
            catalog: None,
            last: None,
            permitted: None,
            epoch: 0,
            skills: None,
            learned: None,
            said: HashSet::new(),
            told: LruCache::new(MAX_WORK_SESSIONS),
        }
    }
}

impl SessionSearch {
    /// Returns the catalog of the session, including forbidden tools, if it is known and unchanged.
    /// [`SharedState::catalog_of`] returns it without the forbidden tools.
    ///
    /// [`SharedState::catalog_of`]: crate::proxy::shared_state::SharedState::catalog_of
    pub(in crate::proxy) fn complete_catalog(&self) -> Option<Arc<Catalog>> {
        self.0.lock().catalog.clone()
    }

    /// Returns the catalog of the last list, including forbidden tools. It may be outdated, but it
    /// is what the client has seen.
    pub(in crate::proxy) fn last_complete_catalog(&self) -> Option<Arc<Catalog>> {
        self.0.lock().last.clone()
    }

    /// Returns a catalog without the tools that these rules forbid. Creates it with `make` unless
    /// it is equal to the last one.
    pub(in crate::proxy) fn permitted_catalog(
        &self,
        whole: &Arc<Catalog>,
        rules: ForbidRules,
        make: impl FnOnce(&ForbidRules) -> Arc<Catalog>,
    ) -> Arc<Catalog> {
        if let Some((of, known, permitted)) = &self.0.lock().permitted
            && Arc::ptr_eq(of, whole)
            && *known == rules
        {
            return Arc::clone(permitted);
        }
        let permitted = make(&rules);
        self.0.lock().permitted = Some((Arc::clone(whole), rules, Arc::clone(&permitted)));
        permitted
    }

    /// Returns the epoch to pass to [`Self::note_catalog`] for a catalog whose lists are fetched from
    /// now on.
    pub(in crate::proxy) fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// Stores a catalog as the last one. It becomes the current one only if `epoch` is still
    /// current. Otherwise its lists may be older than a change.
    pub(in crate::proxy) fn note_catalog(&self, catalog: &Arc<Catalog>, epoch: u64) {
        let mut state = self.0.lock();
        state.last = Some(Arc::clone(catalog));
        if state.epoch == epoch {
            state.catalog = Some(Arc::clone(catalog));
        }
    }

    /// Returns whether a catalog differs from the last one. Stores it.
    pub(in crate::proxy) fn is_news(&self, catalog: &Catalog) -> bool {
        let id = Some(catalog.id());
        std::mem::replace(&mut self.0.lock().learned, id) != id
    }

    /// Drops the current catalog, because it may have changed.
    pub(in crate::proxy) fn forget_catalog(&self) {
        let mut state = self.0.lock();
        state.catalog = None;
        state.epoch += 1;
    }

    /// Returns the skills that were listed for the last search.
    pub(super) fn skills(&self) -> Option<KnownSkills> {
        self.0.lock().skills.clone()
    }

    /// Stores the skills that were listed for a search.
    pub(super) fn note_skills(&self, skills: KnownSkills) {
        self.0.lock().skills = Some(skills);
    }

    /// Stores the tools that the answer to a search named.
    pub(super) fn note_found<'a>(
        &self,
        session: SessionKey,
        tools: impl IntoIterator<Item = &'a ToolRef>,
        context: Option<ContextId>,
        now: Instant,
    ) {
        let mut state = self.0.lock();
        let told = state.told.get_or_insert_mut(session, FoundTools::default);
        for tool in tools {
            if told.found.len() >= MAX_FOUND {
                told.found.clear();
            }
            told.found.insert(tool.clone());
        }
        told.context = context.map(|context| (context, now)).or(told.context);
    }

    /// Returns the tools that searches of a work session named.
    pub(super) fn found_tools(&self, session: SessionKey) -> HashSet<ToolRef> {
        let state = self.0.lock();
        let told = state.told.peek(&session);
        told.map_or_else(HashSet::new, |told| told.found.clone())
    }

    /// Returns whether a search of a work session named the tool.
    pub(in crate::proxy) fn has_found(&self, session: SessionKey, tool: &ToolRef) -> bool {
        let state = self.0.lock();
        let told = state.told.peek(&session);
        told.is_some_and(|told| told.found.contains(tool))
    }

    /// Returns the length for a hint: full length the first time.
    pub(in crate::proxy) fn length_for(&self, what: &impl Hash) -> Length {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let mut state = self.0.lock();
        if state.said.len() >= MAX_SAID {
            state.said.clear();
        }
        if state.said.insert(hasher.finish()) {
            Length::Full
        } else {
            Length::Short
        }
    }

    /// Returns the id of the last search of a work session if it still counts as context.
    pub(in crate::proxy) fn context(&self, session: SessionKey, now: Instant) -> Option<ContextId> {
        let (context, given) = self.0.lock().told.peek(&session)?.context?;
        (now.saturating_duration_since(given) < CONTEXT_FOR).then_some(context)
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
        let catalog = Arc::new(Catalog::new(Vec::new(), Vec::new()));
        let epoch = search.epoch();
        search.forget_catalog();
        search.note_catalog(&catalog, epoch);
        assert!(search.complete_catalog().is_none());
        assert!(
            search.last_complete_catalog().is_some(),
            "the client was shown it"
        );
        search.note_catalog(&catalog, search.epoch());
        assert!(search.complete_catalog().is_some());
        search.forget_catalog();
        assert!(search.complete_catalog().is_none() && search.last_complete_catalog().is_some());
        assert!(search.is_news(&catalog));
        assert!(!search.is_news(&catalog));
    }

    fn over(n: u8) -> SessionKey {
        SessionKey::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [n; 10]))
    }

    #[test]
    fn found_tools_are_known_only_to_their_work_session() {
        let search = SessionSearch::default();
        let tool = ToolRef {
            upstream: UpstreamName::parse("notes").unwrap(),
            tool: "find".into(),
        };
        let [session, other] = [1, 2].map(over);
        search.note_found(session, [&tool], None, Instant::now());
        assert!(search.has_found(session, &tool) && !search.has_found(other, &tool));
        assert_eq!(search.found_tools(session).len(), 1);
        assert!(search.found_tools(other).is_empty());
        // After many other sessions the entry is evicted, so the memory is bounded.
        for n in 3..40 {
            search.note_found(over(n), [&tool], None, Instant::now());
        }
        assert!(!search.has_found(session, &tool) && search.has_found(over(39), &tool));
    }

    #[test]
    fn repeated_hints_are_shortened() {
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
        search.note_found(session, [], Some(context), start);
        search.note_found(session, [], None, start + CONTEXT_FOR);
        let at = |after| search.context(session, start + after);
        assert_eq!(search.context(other, start), None);
        assert_eq!(at(Duration::from_secs(599)), Some(context));
        assert_eq!(at(CONTEXT_FOR), None);
    }
}
