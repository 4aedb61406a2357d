//! Fair scheduling: one principal cannot use all permits for expensive work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for work in parallel, with a limit for each principal.
///
/// A piece of work waits first for another piece of its own principal. So in the common queue, a
/// principal has no more pieces than its limit.
#[derive(Debug)]
pub struct FairPermits {
    all: Arc<Semaphore>,
    total: usize,
    of_one: AtomicUsize,
    /// The semaphores of principals that have a permit or wait for one.
    own: Mutex<HashMap<Principal, Weak<Semaphore>>>,
}

/// A permit, returned on drop.
#[derive(Debug)]
pub struct FairPermit {
    _of_one: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl FairPermits {
    /// Creates `n_turns` permits; at first one principal may have all of them.
    pub fn new(n_turns: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(n_turns)),
            total: n_turns,
            of_one: AtomicUsize::new(n_turns),
            own: Mutex::default(),
        }
    }

    /// Sets the limit for one principal; `of_one` maps the total to it. It applies to a principal
    /// as soon as it has no permit and waits for none.
    pub fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        let of_one = of_one(self.total).clamp(1, self.total);
        self.of_one.store(of_one, Ordering::Relaxed);
    }

    /// Waits for a permit of this principal.
    ///
    /// # Panics
    ///
    /// Never: the semaphores are never closed.
    pub async fn take(&self, principal: &Principal) -> FairPermit {
        let acquire = async |places: Arc<Semaphore>| {
            let place = places.acquire_owned().await;
            place.expect("permits are never closed")
        };
        FairPermit {
            _of_one: acquire(self.own(principal)).await,
            _of_all: acquire(Arc::clone(&self.all)).await,
        }
    }

    fn own(&self, principal: &Principal) -> Arc<Semaphore> {
        let mut own = self.own.lock();
        if let Some(known) = own.get(principal).and_then(Weak::upgrade) {
            return known;
        }
        // Principals without a permit are dropped here, which bounds the map.
        own.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.of_one.load(Ordering::Relaxed)));
        own.insert(principal.clone(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn many_searches_of_one_principal_do_not_delay_others() {
        let turns = FairPermits::new(8);
        turns.share(|n| n / 2);
        let [one, other, third] = ["one", "other", "third"].map(Principal::from_name);
        let mut held: Vec<FairPermit> = Vec::new();
        for _ in 0..4 {
            held.push(turns.take(&one).await);
        }
        let waiting: Vec<_> = (0..1_000).map(|_| turns.take(&one).boxed()).collect();
        let mut waiting = futures_util::future::join_all(waiting).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        for _ in 0..4 {
            held.push(turns.take(&other).now_or_never().expect("half are left"));
        }
        // All permits are in use: the next one is free when any of them ends, in the order of
        // waiting.
        let mut last = turns.take(&third).boxed();
        assert!((&mut last).now_or_never().is_none());
        drop(held.pop());
        let last = last.now_or_never().expect("one has ended");
        drop((held, last));
    }

    #[tokio::test]
    async fn idle_principals_are_not_kept() {
        let turns = FairPermits::new(2);
        for n in 0..100 {
            drop(turns.take(&Principal::from_name(&format!("p{n}"))).await);
        }
        assert_eq!(turns.own.lock().len(), 1);
        // A changed limit applies from now on.
        turns.share(|_| 0);
        let one = Principal::from_name("one");
        let held = turns.take(&one).await;
        assert!(turns.take(&one).now_or_never().is_none());
        drop(held);
        assert!(turns.take(&one).now_or_never().is_some());
    }
}
