//! The connection permits of one upstream, with a queue of waiting sessions.
//!
//! A free permit goes to the longest waiting session that may have it. While a session waits, the
//! connection that has been idle for longest is closed at once. A connection in use is never
//! closed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;
use tokio::sync::oneshot;

use super::request_permits::{PermitLimits, PermitRefusal};
use super::upstream_session::UpstreamSession;

#[derive(Debug, Default)]
pub(super) struct ConnectionPermits {
    state: Mutex<PermitState>,
    /// The number of waiting sessions, readable without the lock.
    n_waiting: AtomicUsize,
    // Locked while idle connections are chosen for closing.
    choosing: Mutex<()>,
    /// Whether the state changed since the last choice.
    is_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct PermitState {
    last: u64,
    taken: BTreeMap<u64, TakenPermit>,
    /// The number of permits of each principal.
    by_principal: HashMap<Principal, usize>,
    /// The queue, in order of arrival.
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct TakenPermit {
    principal: Principal,
    /// The upstream session that holds the permit, once it is known.
    holder: Option<Weak<UpstreamSession>>,
    /// Whether its connection is being closed for a waiting session.
    is_leaving: bool,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    principal: Principal,
    bounds: PermitLimits,
    handed: oneshot::Sender<ConnectionPermit>,
}

/// A permit that must be freed for a waiting session.
struct NeededPermit {
    /// The principal whose connection must be closed; `None` if any connection will do.
    of: Option<Principal>,
}

impl PermitState {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn n_taken_by(&self, principal: &Principal) -> usize {
        self.by_principal.get(principal).copied().unwrap_or(0)
    }

    /// Returns the limit that keeps a principal from getting a permit. Returns `None` if it may
    /// have one.
    fn refusal(&self, principal: &Principal, bounds: PermitLimits) -> Option<PermitRefusal> {
        if bounds.is_shared() && self.n_taken_by(principal) >= bounds.of_one {
            return Some(PermitRefusal::Share);
        }
        (self.taken.len() >= bounds.total).then_some(PermitRefusal::Total)
    }

    /// Registers a permit as taken and returns its number.
    fn take(&mut self, principal: &Principal) -> u64 {
        let number = self.next();
        let taken = TakenPermit {
            principal: principal.clone(),
            holder: None,
            is_leaving: false,
        };
        self.taken.insert(number, taken);
        *self.by_principal.entry(principal.clone()).or_default() += 1;
        number
    }

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

    /// Returns the permits that must be freed, without those that are already being freed.
    fn needed_permits(&self) -> Vec<NeededPermit> {
        let mut leaving = LeavingPermits::of(self.taken.values());
        let mut wanted = Vec::new();
        for waiter in &self.waiting {
            let of = match self.refusal(&waiter.principal, waiter.bounds) {
                None => continue,
                Some(PermitRefusal::Share) => Some(&waiter.principal),
                Some(PermitRefusal::Total) => None,
            };
            if !leaving.take(of) {
                wanted.push(NeededPermit { of: of.cloned() });
            }
        }
        wanted
    }
}

/// The permits that are being freed, with counts per principal, so that a waiter need not search
/// all of them.
struct LeavingPermits<'a> {
    by_principal: HashMap<&'a Principal, usize>,
    /// In the order in which they were taken. Some may be used up already.
    all: Vec<&'a Principal>,
}

impl<'a> LeavingPermits<'a> {
    fn of(taken: impl Iterator<Item = &'a TakenPermit>) -> Self {
        let leaving = taken.filter(|taken| taken.is_leaving);
        let all: Vec<&Principal> = leaving.map(|taken| &taken.principal).collect();
        let mut by_principal: HashMap<&Principal, usize> = HashMap::new();
        for principal in &all {
            *by_principal.entry(principal).or_default() += 1;
        }
        Self { by_principal, all }
    }

    /// Uses up one permit, of this principal or of any. Returns whether there was one.
    fn take(&mut self, of: Option<&Principal>) -> bool {
        if let Some(of) = of {
            return self.take_one(of);
        }
        while let Some(last) = self.all.pop() {
            if self.take_one(last) {
                return true;
            }
        }
        false
    }

    fn take_one(&mut self, of: &Principal) -> bool {
        match self.by_principal.get_mut(of) {
            Some(n_left) if *n_left > 0 => {
                *n_left -= 1;
                true
            }
            _ => false,
        }
    }
}

impl ConnectionPermits {
    /// Takes a permit. Waits at most `limit` if none is free.
    ///
    /// # Errors
    ///
    /// Returns the limit that was reached.
    pub(super) async fn take(
        self: &Arc<Self>,
        principal: &Principal,
        bounds: PermitLimits,
        limit: Duration,
    ) -> Result<ConnectionPermit, PermitRefusal> {
        let (number, handed) = {
            let mut state = self.state.lock();
            if state.refusal(principal, bounds).is_none() {
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
        let _waiting = QueueEntry {
            slots: self,
            number,
        };
        self.free_idle_connections();
        match tokio::time::timeout(limit, handed).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => {
                Err((self.state.lock().refusal(principal, bounds)).unwrap_or(PermitRefusal::Total))
            }
        }
    }

    /// Returns the number of taken permits.
    pub(super) fn n_taken(&self) -> usize {
        self.state.lock().taken.len()
    }

    /// Returns the number of waiting sessions.
    pub(super) fn n_waiting(&self) -> usize {
        self.n_waiting.load(Ordering::Acquire)
    }

    /// Closes idle connections while sessions wait. Call it whenever a connection may have become
    /// idle.
    pub(super) fn free_idle_connections(&self) {
        if self.n_waiting() == 0 {
            return;
        }
        self.is_changed.store(true, Ordering::Release);
        // Only one caller chooses at a time. A concurrent caller only sets the flag, and the loop
        // runs again.
        while self.is_changed.load(Ordering::Acquire)
            && let Some(_choosing) = self.choosing.try_lock()
        {
            while self.is_changed.swap(false, Ordering::AcqRel) {
                self.close_idle_connections();
            }
        }
    }

    /// Closes the idle connections of clients that have left, except for the `n_kept` newest ones.
    pub(super) fn close_left(&self, n_kept: usize) {
        let now = Instant::now();
        let holders: Vec<Arc<UpstreamSession>> = {
            let state = self.state.lock();
            let holders = state
                .taken
                .values()
                .filter_map(|taken| taken.holder.as_ref());
            holders.filter_map(Weak::upgrade).collect()
        };
        let left = holders
            .into_iter()
            .filter(|holder| holder.scope.client_context.has_left(now));
        let mut idle: Vec<(Instant, Arc<UpstreamSession>)> = left
            .filter_map(|holder| Some((holder.idle_since()?, holder)))
            .collect();
        idle.sort_by_key(|(since, _)| Reverse(*since));
        for (_, holder) in idle.into_iter().skip(n_kept) {
            holder.close_if_idle();
        }
    }

    /// Closes idle connections for the waiting sessions, longest idle first.
    fn close_idle_connections(&self) {
        let (wanted, holders) = {
            let state = self.state.lock();
            let staying = state.taken.iter().filter(|(_, taken)| !taken.is_leaving);
            let holders: Vec<(u64, Principal, Weak<UpstreamSession>)> = staying
                .filter_map(|(number, taken)| {
                    let holder = taken.holder.clone()?;
                    Some((*number, taken.principal.clone(), holder))
                })
                .collect();
            (state.needed_permits(), holders)
        };
        if wanted.is_empty() {
            return;
        }
        let mut idle: Vec<(Instant, u64, Principal, Arc<UpstreamSession>)> = holders
            .into_iter()
            .filter_map(|(number, principal, holder)| {
                let holder = holder.upgrade()?;
                Some((holder.idle_since()?, number, principal, holder))
            })
            .collect();
        idle.sort_by_key(|(since, number, ..)| (*since, *number));
        // A principal without idle connections is searched only once, however many of its sessions
        // wait.
        let mut has_none: HashSet<Option<Principal>> = HashSet::new();
        for NeededPermit { of } in wanted {
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
                is_made = holder.close_if_idle();
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
        if let Some(taken) = self.state.lock().taken.get_mut(&number) {
            taken.is_leaving = is_leaving;
        }
    }

    fn slot(self: &Arc<Self>, number: u64) -> ConnectionPermit {
        ConnectionPermit {
            slots: Arc::clone(self),
            number,
        }
    }

    /// Frees a permit and gives it to a waiting session.
    fn release(self: &Arc<Self>, number: u64) {
        let mut handed = Vec::new();
        {
            let mut state = self.state.lock();
            state.free(number);
            let mut next = 0;
            while let Some(waiter) = state.waiting.get(next) {
                if state.refusal(&waiter.principal, waiter.bounds).is_some() {
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
            // If the receiver has given up, the permit is dropped and thereby freed at once.
            drop(waiter.send(slot));
        }
        self.free_idle_connections();
    }
}

/// A permit for a connection to an upstream, which is freed on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    slots: Arc<ConnectionPermits>,
    number: u64,
}

impl ConnectionPermit {
    /// Registers the upstream session that holds the permit. Its idle connection may be closed for a waiting
    /// session.
    pub(super) fn set_holder(&self, holder: &Arc<UpstreamSession>) {
        if let Some(taken) = self.slots.state.lock().taken.get_mut(&self.number) {
            taken.holder = Some(Arc::downgrade(holder));
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.slots.release(self.number);
    }
}

/// A place in the queue, which is left on drop.
struct QueueEntry<'a> {
    slots: &'a ConnectionPermits,
    number: u64,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
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

    fn bounds(total: usize, of_one: usize) -> PermitLimits {
        PermitLimits { total, of_one }
    }

    #[tokio::test]
    async fn permits_go_to_the_longest_waiting_eligible_principal() {
        let slots = Arc::new(ConnectionPermits::default());
        let [one, other] = ["one", "other"].map(Principal::from_name);
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
    async fn counts_per_principal_match_the_held_permits() {
        let slots = Arc::new(ConnectionPermits::default());
        let names: Vec<Principal> = (0..5)
            .map(|n| Principal::from_name(&format!("p{n}")))
            .collect();
        let bounds = bounds(8, 3);
        let mut held = VecDeque::new();
        for round in 0..200_usize {
            let principal = &names[round * 7 % 5];
            match slots.take(principal, bounds, NOW).await {
                Ok(slot) => held.push_back(slot),
                Err(_) => drop(held.pop_front()),
            }
            let state = slots.state.lock();
            for name in &names {
                let n_taken = state.taken.values().filter(|one| one.principal == *name);
                assert_eq!(state.n_taken_by(name), n_taken.count());
            }
        }
        drop(held);
        assert!(slots.state.lock().by_principal.is_empty());
    }

    #[test]
    fn leaving_permits_satisfy_one_waiter_each() {
        let [one, other] = ["one", "other"].map(Principal::from_name);
        let taken = |principal: &Principal, is_leaving| TakenPermit {
            principal: principal.clone(),
            holder: None,
            is_leaving,
        };
        let all = [taken(&one, true), taken(&other, true), taken(&other, false)];
        let mut leaving = LeavingPermits::of(all.iter());
        assert!(leaving.take(Some(&other)) && !leaving.take(Some(&other)));
        assert!(leaving.take(None) && !leaving.take(None) && !leaving.take(Some(&one)));
    }

    #[tokio::test(start_paused = true)]
    async fn waits_time_out_with_the_reason() {
        let slots = Arc::new(ConnectionPermits::default());
        let [one, other] = ["one", "other"].map(Principal::from_name);
        let bounds = bounds(2, 1);
        let first = slots.take(&one, bounds, NOW).await.unwrap();
        let second = slots.take(&other, bounds, NOW).await.unwrap();
        let limit = Duration::from_secs(1);
        let refused = slots.take(&one, bounds, limit).await;
        assert_eq!(refused.unwrap_err(), PermitRefusal::Share);
        let third = Principal::from_name("third");
        let refused = slots.take(&third, bounds, limit).await;
        assert_eq!(refused.unwrap_err(), PermitRefusal::Total);
        assert_eq!(slots.n_waiting(), 0);
        drop((first, second));
        assert_eq!(slots.n_taken(), 0);
    }

    #[tokio::test]
    async fn a_dropped_wait_leaves_its_permit_to_the_next() {
        let slots = Arc::new(ConnectionPermits::default());
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
