//! The places for connections to one upstream: who has one, who waits for one, and who makes place.
//!
//! A place that becomes free goes to the one who has waited longest of those who may have it. Where
//! somebody waits, the connection that nobody has used for longest is closed at once; one that is
//! in use never is.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use riglm_domain::principal::Principal;
use tokio::sync::oneshot;

use super::places::{Bounds, Lack};
use super::relay::Relay;

/// The places for connections to one upstream.
#[derive(Debug, Default)]
pub(super) struct Slots {
    state: Mutex<State>,
    /// How many wait for one, to be read without the lock.
    n_waiting: AtomicUsize,
    /// Held while connections are chosen that make place.
    choosing: Mutex<()>,
    /// Something changed since they were chosen last.
    is_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    taken: BTreeMap<u64, Taken>,
    /// The number of them that each principal has.
    by_principal: HashMap<Principal, usize>,
    /// In the order in which they came.
    waiting: VecDeque<Waiter>,
}

/// A place that is taken.
#[derive(Debug)]
struct Taken {
    principal: Principal,
    /// Who has it, once that is known.
    holder: Option<Weak<Relay>>,
    /// Its connection is being closed for somebody else.
    is_leaving: bool,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    principal: Principal,
    bounds: Bounds,
    handed: oneshot::Sender<Slot>,
}

/// A place that has to be made.
struct Wanted {
    /// Only a connection of this principal helps.
    of: Option<Principal>,
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn n_taken_by(&self, principal: &Principal) -> usize {
        self.by_principal.get(principal).copied().unwrap_or(0)
    }

    /// Returns why a principal can have no place; `None` if it can.
    fn lack(&self, principal: &Principal, bounds: Bounds) -> Option<Lack> {
        if bounds.is_shared() && self.n_taken_by(principal) >= bounds.of_one {
            return Some(Lack::Share);
        }
        (self.taken.len() >= bounds.total).then_some(Lack::Total)
    }

    /// Notes a place as taken and returns its number.
    fn take(&mut self, principal: &Principal) -> u64 {
        let number = self.next();
        let taken = Taken {
            principal: principal.clone(),
            holder: None,
            is_leaving: false,
        };
        self.taken.insert(number, taken);
        *self.by_principal.entry(principal.clone()).or_default() += 1;
        number
    }

    /// Notes a place as free.
    fn free(&mut self, number: u64) {
        let Some(taken) = self.taken.remove(&number) else {
            return;
        };
        if let Some(n_taken) = self.by_principal.get_mut(&taken.principal) {
            *n_taken = n_taken.saturating_sub(1);
            if *n_taken == 0 {
                self.by_principal.remove(&taken.principal);
            }
        }
    }

    /// Returns the places that have to be made, beyond those that are being made already.
    fn wanted(&self) -> Vec<Wanted> {
        let mut leaving = Leaving::of(self.taken.values());
        let mut wanted = Vec::new();
        for waiter in &self.waiting {
            let of = match self.lack(&waiter.principal, waiter.bounds) {
                None => continue,
                Some(Lack::Share) => Some(&waiter.principal),
                Some(Lack::Total) => None,
            };
            if !leaving.take(of) {
                wanted.push(Wanted { of: of.cloned() });
            }
        }
        wanted
    }
}

/// The places that are being made, counted so that no waiter looks through all of them.
struct Leaving<'a> {
    by_principal: HashMap<&'a Principal, usize>,
    /// In the order in which they were taken; some of them may be counted off already.
    all: Vec<&'a Principal>,
}

impl<'a> Leaving<'a> {
    fn of(taken: impl Iterator<Item = &'a Taken>) -> Self {
        let leaving = taken.filter(|taken| taken.is_leaving);
        let all: Vec<&Principal> = leaving.map(|taken| &taken.principal).collect();
        let mut by_principal: HashMap<&Principal, usize> = HashMap::new();
        for principal in &all {
            *by_principal.entry(principal).or_default() += 1;
        }
        Self { by_principal, all }
    }

    /// Counts one off, of this principal or of any. Returns whether there was one.
    fn take(&mut self, of: Option<&Principal>) -> bool {
        if let Some(of) = of {
            return self.count_off(of);
        }
        while let Some(last) = self.all.pop() {
            if self.count_off(last) {
                return true;
            }
        }
        false
    }

    fn count_off(&mut self, of: &Principal) -> bool {
        match self.by_principal.get_mut(of) {
            Some(n_left) if *n_left > 0 => {
                *n_left -= 1;
                true
            }
            _ => false,
        }
    }
}

impl Slots {
    /// Takes a place; waits for one at most `limit` where all are taken.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub(super) async fn take(
        self: &Arc<Self>,
        principal: &Principal,
        bounds: Bounds,
        limit: Duration,
    ) -> Result<Slot, Lack> {
        let (number, handed) = {
            let mut state = self.lock();
            if state.lack(principal, bounds).is_none() {
                let number = state.take(principal);
                return Ok(self.slot(number));
            }
            let number = state.next();
            let (sender, handed) = oneshot::channel();
            state.waiting.push_back(Waiter {
                number,
                principal: principal.clone(),
                bounds,
                handed: sender,
            });
            self.n_waiting.fetch_add(1, Ordering::AcqRel);
            (number, handed)
        };
        let _waiting = Waiting {
            slots: self,
            number,
        };
        self.make_places();
        match tokio::time::timeout(limit, handed).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => {
                Err((self.lock().lack(principal, bounds)).unwrap_or(Lack::Total))
            }
        }
    }

    /// Returns how many are taken.
    pub(super) fn n_taken(&self) -> usize {
        self.lock().taken.len()
    }

    /// Returns how many wait for one.
    pub(super) fn n_waiting(&self) -> usize {
        self.n_waiting.load(Ordering::Acquire)
    }

    /// Has connections that nobody uses make place, where somebody waits for one. To be called when
    /// one may have come out of use.
    pub(super) fn make_places(&self) {
        if self.n_waiting() == 0 {
            return;
        }
        self.is_changed.store(true, Ordering::Release);
        while self.is_changed.load(Ordering::Acquire)
            && let Ok(_choosing) = self.choosing.try_lock()
        {
            while self.is_changed.swap(false, Ordering::AcqRel) {
                self.choose();
            }
        }
    }

    /// Chooses connections that make place, those first that were not used for longest.
    fn choose(&self) {
        let (wanted, holders) = {
            let state = self.lock();
            let staying = state.taken.iter().filter(|(_, taken)| !taken.is_leaving);
            let holders: Vec<(u64, Principal, Weak<Relay>)> = staying
                .filter_map(|(number, taken)| {
                    let holder = taken.holder.clone()?;
                    Some((*number, taken.principal.clone(), holder))
                })
                .collect();
            (state.wanted(), holders)
        };
        if wanted.is_empty() {
            return;
        }
        let mut idle: Vec<(Instant, u64, Principal, Arc<Relay>)> = holders
            .into_iter()
            .filter_map(|(number, principal, holder)| {
                let holder = holder.upgrade()?;
                Some((holder.idle_since()?, number, principal, holder))
            })
            .collect();
        idle.sort_by_key(|(since, number, ..)| (*since, *number));
        // Who waits in a long line looks in vain once for all of its principal.
        let mut has_none: HashSet<Option<Principal>> = HashSet::new();
        for Wanted { of } in wanted {
            if idle.is_empty() {
                break;
            }
            if has_none.contains(&of) {
                continue;
            }
            let mut is_made = false;
            while let Some(found) = (idle.iter())
                .position(|(_, _, principal, _)| of.as_ref().is_none_or(|of| of == principal))
            {
                let (_, number, _, holder) = idle.remove(found);
                self.set_leaving(number, true);
                is_made = holder.make_place();
                if is_made {
                    break;
                }
                self.set_leaving(number, false);
            }
            if !is_made {
                has_none.insert(of);
            }
        }
    }

    fn set_leaving(&self, number: u64, is_leaving: bool) {
        if let Some(taken) = self.lock().taken.get_mut(&number) {
            taken.is_leaving = is_leaving;
        }
    }

    fn slot(self: &Arc<Self>, number: u64) -> Slot {
        Slot {
            slots: Arc::clone(self),
            number,
        }
    }

    /// Takes a place back and hands it to who waits for one.
    fn give_back(self: &Arc<Self>, number: u64) {
        let mut handed = Vec::new();
        {
            let mut state = self.lock();
            state.free(number);
            let mut next = 0;
            while let Some(waiter) = state.waiting.get(next) {
                if state.lack(&waiter.principal, waiter.bounds).is_some() {
                    next += 1;
                    continue;
                }
                if let Some(waiter) = state.waiting.remove(next) {
                    self.n_waiting.fetch_sub(1, Ordering::AcqRel);
                    let number = state.take(&waiter.principal);
                    handed.push((waiter.handed, self.slot(number)));
                }
            }
        }
        for (waiter, slot) in handed {
            // One that nobody waits for any more is given back at once.
            drop(waiter.send(slot));
        }
        self.make_places();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the connections of an upstream, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    number: u64,
}

impl Slot {
    /// Notes who has the place, and may have to make it for somebody else.
    pub(super) fn is_held_by(&self, holder: &Arc<Relay>) {
        if let Some(taken) = self.slots.lock().taken.get_mut(&self.number) {
            taken.holder = Some(Arc::downgrade(holder));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.give_back(self.number);
    }
}

/// Somebody who waits for a place, as long as it lives.
struct Waiting<'a> {
    slots: &'a Slots,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        let all = &mut state.waiting;
        let left = all.iter().position(|waiter| waiter.number == self.number);
        if left.and_then(|left| all.remove(left)).is_some() {
            self.slots.n_waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn bounds(total: usize, of_one: usize) -> Bounds {
        Bounds { total, of_one }
    }

    #[tokio::test]
    async fn places_go_to_those_who_waited_longest_of_those_who_may_have_them() {
        let slots = Arc::new(Slots::default());
        let [one, other] = ["one", "other"].map(Principal::named);
        let bounds = bounds(3, 2);
        let first = slots.take(&one, bounds, NOW).await.unwrap();
        let _second = slots.take(&one, bounds, NOW).await.unwrap();
        let third = slots.take(&other, bounds, NOW).await.unwrap();
        let long = Duration::from_mins(1);
        let mut of_one = Box::pin(slots.take(&one, bounds, long));
        let mut of_other = Box::pin(slots.take(&other, bounds, long));
        assert!(futures_util::poll!(&mut of_one).is_pending());
        assert!(futures_util::poll!(&mut of_other).is_pending());
        assert_eq!(slots.n_waiting(), 2);
        drop(third);
        let fourth = of_other.await.unwrap();
        assert!(
            futures_util::poll!(&mut of_one).is_pending(),
            "it has its share"
        );
        drop(first);
        let _fifth = of_one.await.unwrap();
        assert_eq!((slots.n_taken(), slots.n_waiting()), (3, 0));
        drop(fourth);
        assert_eq!(slots.n_taken(), 2);
    }

    #[tokio::test]
    async fn what_is_counted_for_principals_is_what_they_have() {
        let slots = Arc::new(Slots::default());
        let names: Vec<Principal> = (0..5).map(|n| Principal::named(&format!("p{n}"))).collect();
        let bounds = bounds(8, 3);
        let mut held = VecDeque::new();
        for round in 0..200_usize {
            let principal = &names[round * 7 % 5];
            match slots.take(principal, bounds, NOW).await {
                Ok(slot) => held.push_back(slot),
                Err(_) => drop(held.pop_front()),
            }
            let state = slots.lock();
            for name in &names {
                let n_taken = state.taken.values().filter(|one| one.principal == *name);
                assert_eq!(state.n_taken_by(name), n_taken.count());
            }
        }
        drop(held);
        assert!(slots.lock().by_principal.is_empty());
    }

    #[test]
    fn places_that_are_being_made_count_for_one_waiter_each() {
        let [one, other] = ["one", "other"].map(Principal::named);
        let taken = |principal: &Principal, is_leaving| Taken {
            principal: principal.clone(),
            holder: None,
            is_leaving,
        };
        let all = [taken(&one, true), taken(&other, true), taken(&other, false)];
        let mut leaving = Leaving::of(all.iter());
        assert!(leaving.take(Some(&other)) && !leaving.take(Some(&other)));
        assert!(leaving.take(None) && !leaving.take(None) && !leaving.take(Some(&one)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_in_vain_is_told_why_and_no_longer_waits() {
        let slots = Arc::new(Slots::default());
        let [one, other] = ["one", "other"].map(Principal::named);
        let bounds = bounds(2, 1);
        let first = slots.take(&one, bounds, NOW).await.unwrap();
        let second = slots.take(&other, bounds, NOW).await.unwrap();
        let limit = Duration::from_secs(1);
        let refused = slots.take(&one, bounds, limit).await;
        assert_eq!(refused.unwrap_err(), Lack::Share);
        let third = Principal::named("third");
        let refused = slots.take(&third, bounds, limit).await;
        assert_eq!(refused.unwrap_err(), Lack::Total);
        assert_eq!(slots.n_waiting(), 0);
        drop((first, second));
        assert_eq!(slots.n_taken(), 0);
    }

    #[tokio::test]
    async fn who_goes_away_while_a_place_is_handed_over_leaves_it_to_the_next() {
        let slots = Arc::new(Slots::default());
        let principal = Principal::local();
        let bounds = bounds(1, 1);
        let first = slots.take(&principal, bounds, NOW).await.unwrap();
        let long = Duration::from_mins(1);
        let mut second = Box::pin(slots.take(&principal, bounds, long));
        let mut third = Box::pin(slots.take(&principal, bounds, long));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut third).is_pending());
        drop(first);
        drop(second);
        assert!(third.await.is_ok());
        assert_eq!((slots.n_taken(), slots.n_waiting()), (0, 0));
    }
}
