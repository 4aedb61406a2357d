//! What the safeguards make of a tool, whoever calls it: found out once, since definitions are long and
//! tools are called again and again.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lru::LruCache;
use riglm_domain::tool::ToolRef;

use super::GuardedCall;
use super::repeated::Effect;
use crate::search::Offer;

/// Of how many tools of offers it is known at a time.
const MAX_KNOWN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);

/// What the safeguards make of a tool, by what the operator says and by what it says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// The positions of the limits that its calls have to pass, ascending.
    pub(super) limits: Box<[usize]>,
    /// What it does.
    pub(super) effect: Effect,
    /// It searches.
    pub(super) is_search: bool,
    /// Its results stay whole, however long they are.
    pub(super) is_never_cut: bool,
}

/// The traits of the tools that were called lately.
#[derive(Debug)]
pub(super) struct KnownTraits(Mutex<LruCache<Key, Known>>);

/// A tool, and the place in memory of the offer that it is one of: the same tool may be another one in
/// the next list.
type Key = (ToolRef, usize);

#[derive(Debug)]
struct Known {
    traits: Arc<Traits>,
    /// No other offer comes to the same place as long as this is there.
    _offer: Option<Weak<Offer>>,
}

impl KnownTraits {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_KNOWN)))
    }

    /// Returns the traits of the tool of a call, which `find` finds out.
    pub(super) fn of(&self, call: &GuardedCall<'_>, find: impl FnOnce() -> Traits) -> Arc<Traits> {
        let Some(upstream) = call.upstream else {
            return Arc::new(find());
        };
        let tool = ToolRef {
            upstream: upstream.clone(),
            tool: call.tool.clone(),
        };
        let key = (
            tool,
            call.offer.map_or(0, |offer| Arc::as_ptr(offer).addr()),
        );
        if let Some(known) = self.lock().get(&key) {
            return Arc::clone(&known.traits);
        }
        // It takes a while, and calls of other tools do not wait for it.
        let traits = Arc::new(find());
        let known = Known {
            traits: Arc::clone(&traits),
            _offer: call.offer.map(Arc::downgrade),
        };
        self.lock().put(key, known);
        traits
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safeguards::testing::Scene;

    #[test]
    fn what_is_known_of_a_tool_is_found_out_once_for_each_offer() {
        let [first, second] = [0, 1].map(|_| Scene::new(&[("find", "{}")]));
        let known = KnownTraits::new();
        let tool = "find".into();
        let searches = |scene: &Scene, is_search| {
            let call = scene.call(&tool, "{}");
            let find = || Traits {
                is_search,
                ..Traits::default()
            };
            known.of(&call, find).is_search
        };
        assert!(searches(&first, true) && searches(&first, false));
        assert!(!searches(&second, false) && !searches(&second, true));
        assert!(searches(&first, false));
        let unlisted = GuardedCall {
            offer: None,
            ..first.call(&tool, "{}")
        };
        assert!(!known.of(&unlisted, Traits::default).is_search);
    }

    #[test]
    fn a_new_offer_is_never_taken_for_one_that_is_gone() {
        let known = KnownTraits::new();
        let tool = "find".into();
        for is_search in [true, false].repeat(100) {
            let scene = Scene::new(&[("find", "{}")]);
            let find = || Traits {
                is_search,
                ..Traits::default()
            };
            let found = known.of(&scene.call(&tool, "{}"), find);
            assert_eq!(found.is_search, is_search);
        }
    }
}
