//! Turns at work: however much one principal asks for, what others ask for is done as well.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use riglm_domain::principal::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The pieces of work that may be done at once, of which each principal may have a part only.
///
/// A piece waits for one of its own principal to end before it waits for any other: in the line of
/// all, a principal has no more pieces than its part.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    total: usize,
    of_one: AtomicUsize,
    /// Those of principals that have a turn now or wait for one.
    own: Mutex<HashMap<Principal, Weak<Semaphore>>>,
}

/// A turn, over when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_one: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    /// Returns so many turns, all of which one principal may have.
    pub(crate) fn new(n_turns: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(n_turns)),
            total: n_turns,
            of_one: AtomicUsize::new(n_turns),
            own: Mutex::default(),
        }
    }

    /// Lets one principal have as many turns as `of_one` says of their number, from the next on
    /// for which none of its own is waited for.
    pub(crate) fn share(&self, of_one: impl FnOnce(usize) -> usize) {
        let of_one = of_one(self.total).clamp(1, self.total);
        self.of_one.store(of_one, Ordering::Relaxed);
    }

    /// Waits for a turn of this principal.
    pub(crate) async fn take(&self, principal: &Principal) -> Turn {
        let acquire = async |places: Arc<Semaphore>| {
            let place = places.acquire_owned().await;
            place.expect("turns are never closed")
        };
        Turn {
            _of_one: acquire(self.own(principal)).await,
            _of_all: acquire(Arc::clone(&self.all)).await,
        }
    }

    fn own(&self, principal: &Principal) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = own.get(principal).and_then(Weak::upgrade) {
            return known;
        }
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
    async fn who_searches_much_waits_for_itself_and_others_do_not() {
        let turns = Turns::new(8);
        turns.share(|n| n / 2);
        let [one, other, third] = ["one", "other", "third"].map(Principal::named);
        let mut held: Vec<Turn> = Vec::new();
        for _ in 0..4 {
            held.push(turns.take(&one).await);
        }
        let waiting: Vec<_> = (0..1_000).map(|_| turns.take(&one).boxed()).collect();
        let mut waiting = futures_util::future::join_all(waiting).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        for _ in 0..4 {
            held.push(turns.take(&other).now_or_never().expect("half are left"));
        }
        // All are taken: the next one comes when any of them ends, whoever waits before it.
        let mut last = turns.take(&third).boxed();
        assert!((&mut last).now_or_never().is_none());
        drop(held.pop());
        let last = last.now_or_never().expect("one has ended");
        drop((held, last));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_who_does_not_search() {
        let turns = Turns::new(2);
        for n in 0..100 {
            drop(turns.take(&Principal::named(&format!("p{n}"))).await);
        }
        assert_eq!(turns.own.lock().unwrap().len(), 1);
        // A share holds from then on.
        turns.share(|_| 0);
        let one = Principal::named("one");
        let held = turns.take(&one).await;
        assert!(turns.take(&one).now_or_never().is_none());
        drop(held);
        assert!(turns.take(&one).now_or_never().is_some());
    }
}
