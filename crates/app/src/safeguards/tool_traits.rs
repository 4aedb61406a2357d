//! Properties of tools for the safeguards. They are cached, because definitions are long and tools
//! are called again and again.

use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;

use super::GuardedCall;
use super::result_cache::ToolEffect;
use riglm_discovery::search::Catalog;

const MAX_KNOWN: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);

/// The properties of a tool, from the configuration and from its definition.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolTraits {
    /// The positions of the limits for its calls, ascending.
    pub(super) limits: Box<[usize]>,
    pub(super) effect: ToolEffect,
    pub(super) is_search: bool,
    /// Whether its results are never truncated.
    pub(super) is_never_cut: bool,
}

/// The properties of recently called tools.
#[derive(Debug)]
pub(super) struct TraitsCache(Mutex<LruCache<TraitsKey, CachedTraits>>);

/// A tool with the memory address of its catalog: the next catalog may have another definition of
/// the same name.
type TraitsKey = (ToolRef, usize);

#[derive(Debug)]
struct CachedTraits {
    traits: Arc<ToolTraits>,
    /// Keeps the allocation alive, so that no other catalog can get the same address.
    _offer: Option<Weak<Catalog>>,
}

impl TraitsCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(MAX_KNOWN)))
    }

    /// Returns the properties of the tool of a call, computed by `find` if they are not cached.
    pub(super) fn of(
        &self,
        call: &GuardedCall<'_>,
        find: impl FnOnce() -> ToolTraits,
    ) -> Arc<ToolTraits> {
        let Some(upstream) = call.upstream else {
            return Arc::new(find());
        };
        let tool = ToolRef {
            upstream: upstream.clone(),
            tool: call.tool.clone(),
        };
        let address = (call.catalog).map_or(0, |catalog| Arc::as_ptr(catalog).addr());
        let key = (tool, address);
        if let Some(known) = self.0.lock().get(&key) {
            return Arc::clone(&known.traits);
        }
        // Computed without the lock, because it takes time and must not delay calls of other tools.
        let traits = Arc::new(find());
        let known = CachedTraits {
            traits: Arc::clone(&traits),
            _offer: call.catalog.map(Arc::downgrade),
        };
        self.0.lock().put(key, known);
        traits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safeguards::testing::Scene;

    #[test]
    fn traits_are_determined_once_per_catalog() {
        let [first, second] = [0, 1].map(|_| Scene::new(&[("find", "{}")]));
        let known = TraitsCache::new();
        let tool = "find".into();
        let searches = |scene: &Scene, is_search| {
            let call = scene.call(&tool, "{}");
            let find = || ToolTraits {
                is_search,
                ..ToolTraits::default()
            };
            known.of(&call, find).is_search
        };
        assert!(searches(&first, true) && searches(&first, false));
        assert!(!searches(&second, false) && !searches(&second, true));
        assert!(searches(&first, false));
        let unlisted = GuardedCall {
            catalog: None,
            ..first.call(&tool, "{}")
        };
        assert!(!known.of(&unlisted, ToolTraits::default).is_search);
    }

    #[test]
    fn traits_of_dropped_catalogs_are_not_reused() {
        let known = TraitsCache::new();
        let tool = "find".into();
        for is_search in [true, false].repeat(100) {
            let scene = Scene::new(&[("find", "{}")]);
            let find = || ToolTraits {
                is_search,
                ..ToolTraits::default()
            };
            let found = known.of(&scene.call(&tool, "{}"), find);
            assert_eq!(found.is_search, is_search);
        }
    }
}
