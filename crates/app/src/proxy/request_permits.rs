//! Permits that all principals share, with a limit for each principal.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitLimits {
    /// The limit for all principals together.
    pub(crate) total: usize,
    /// The limit for one principal.
    pub(crate) of_one: usize,
}

impl PermitLimits {
    /// Returns whether the limit of one principal is lower than the limit of all.
    pub(crate) fn is_shared(self) -> bool {
        self.of_one < self.total
    }
}

/// The reason for a refused permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitRefusal {
    /// All permits are taken.
    Total,
    /// The principal has reached its own limit.
    Share,
}

#[derive(Debug, Default)]
pub(crate) struct PrincipalPermits(Mutex<PermitCounts>);

#[derive(Debug, Default)]
struct PermitCounts {
    n_taken: usize,
    by_principal: HashMap<Principal, usize>,
}

impl PrincipalPermits {
    /// Takes a permit for a principal until the result is dropped.
    ///
    /// # Errors
    ///
    /// Returns the limit that was reached.
    pub(crate) fn take(
        self: &Arc<Self>,
        principal: &Principal,
        bounds: PermitLimits,
    ) -> Result<PrincipalPermit, PermitRefusal> {
        self.take_many(principal, 1, bounds)
    }

    /// Takes `n` permits for a principal until the result is dropped.
    ///
    /// # Errors
    ///
    /// Returns the limit that was reached.
    pub(crate) fn take_many(
        self: &Arc<Self>,
        principal: &Principal,
        n: usize,
        bounds: PermitLimits,
    ) -> Result<PrincipalPermit, PermitRefusal> {
        let mut taken = self.0.lock();
        let n_own = taken.by_principal.get(principal).copied().unwrap_or(0);
        let n_own = n_own.saturating_add(n);
        // The share is checked first, so that a principal learns of its own limit.
        if bounds.is_shared() && n_own > bounds.of_one {
            return Err(PermitRefusal::Share);
        }
        let n_taken = taken.n_taken.saturating_add(n);
        if n_taken > bounds.total {
            return Err(PermitRefusal::Total);
        }
        taken.n_taken = n_taken;
        taken.by_principal.insert(principal.clone(), n_own);
        Ok(PrincipalPermit {
            places: Arc::clone(self),
            principal: principal.clone(),
            n,
        })
    }

    /// Returns the number of permits that are taken.
    pub(crate) fn n_taken(&self) -> usize {
        self.0.lock().n_taken
    }
}

/// A permit, or several at once, that is released on drop.
#[derive(Debug)]
pub(crate) struct PrincipalPermit {
    places: Arc<PrincipalPermits>,
    principal: Principal,
    /// The number of permits.
    n: usize,
}

impl Drop for PrincipalPermit {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        taken.n_taken = taken.n_taken.saturating_sub(self.n);
        if let Some(n_own) = taken.by_principal.get_mut(&self.principal) {
            *n_own = n_own.saturating_sub(self.n);
            if *n_own == 0 {
                taken.by_principal.remove(&self.principal);
            }
        }
    }
}

/// The presence of a client that waits for the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPresence {
    /// The client is gone. It may come back for the answer.
    Left,
    /// The client is back.
    Back,
}

/// Reserved memory for a message that waits for delivery. Released on drop.
#[derive(Debug)]
pub struct ReservedMemory {
    _place: PrincipalPermit,
}

impl ReservedMemory {
    pub(crate) fn new(place: PrincipalPermit) -> Self {
        Self { _place: place }
    }
}

/// The permit of a request, and the presence of its client.
///
/// A request whose client is gone continues in the background, where it does not block other
/// requests.
#[derive(Debug, Default)]
pub(crate) struct RequestPermit {
    place: Option<PrincipalPermit>,
    /// The memory of its message, which stays reserved in the background too.
    _room: Option<ReservedMemory>,
    is_left: bool,
    is_in_background: bool,
}

impl RequestPermit {
    /// Returns the state of a request with this permit and this memory for its message.
    pub(crate) fn new(place: PrincipalPermit, room: ReservedMemory) -> Self {
        Self {
            place: Some(place),
            _room: Some(room),
            ..Self::default()
        }
    }

    /// Returns whether the client is gone, so that nothing has to wait for the end of the request.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Returns whether the request moved to a background permit.
    pub(crate) fn is_in_background(&self) -> bool {
        self.is_in_background
    }

    /// Registers the presence of the client. When it leaves, the request moves to a permit of
    /// `background` if one is free.
    pub(crate) fn note(
        &mut self,
        presence: ClientPresence,
        background: impl FnOnce() -> Option<PrincipalPermit>,
    ) {
        self.is_left = presence == ClientPresence::Left;
        if !self.is_left || self.is_in_background || self.place.is_none() {
            return;
        }
        if let Some(place) = background() {
            self.place = Some(place);
            self.is_in_background = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn released_permits_can_be_taken_again() {
        let places = Arc::new(PrincipalPermits::default());
        let bounds = PermitLimits {
            total: 3,
            of_one: 2,
        };
        let [one, other] = ["one", "other"].map(Principal::from_name);
        let first = places.take(&one, bounds).unwrap();
        let _second = places.take(&one, bounds).unwrap();
        assert_eq!(places.take(&one, bounds).unwrap_err(), PermitRefusal::Share);
        let _third = places.take(&other, bounds).unwrap();
        assert_eq!(
            places.take(&other, bounds).unwrap_err(),
            PermitRefusal::Total
        );
        drop(first);
        assert_eq!(places.n_taken(), 2);
        assert!(places.take(&one, bounds).is_ok());
        assert_eq!(places.n_taken(), 2);
    }

    #[test]
    fn requests_without_a_client_take_free_background_permits() {
        let [front, back] = [(), ()].map(|()| Arc::new(PrincipalPermits::default()));
        let bounds_of = |n| PermitLimits {
            total: n,
            of_one: n,
        };
        let bounds = bounds_of(1);
        let principal = Principal::local();
        let behind = || back.take(&principal, bounds).ok();
        let memory = Arc::new(PrincipalPermits::default());
        let room = || ReservedMemory::new(memory.take(&principal, bounds_of(2)).unwrap());
        let standing = || RequestPermit::new(front.take(&principal, bounds).unwrap(), room());
        let mut first = standing();
        first.note(ClientPresence::Left, behind);
        assert_eq!((front.n_taken(), back.n_taken()), (0, 1));
        assert_eq!(memory.n_taken(), 1, "its message is still there");
        let mut second = standing();
        second.note(ClientPresence::Left, behind);
        assert!(second.is_left() && !second.is_in_background());
        assert_eq!((front.n_taken(), back.n_taken()), (1, 1));
        first.note(ClientPresence::Back, behind);
        assert!(!first.is_left() && first.is_in_background());
        drop((first, second));
        assert_eq!((front.n_taken(), back.n_taken()), (0, 0));
        assert_eq!(memory.n_taken(), 0);
    }

    proptest! {
        #[test]
        fn permits_are_refused_only_at_the_share_or_total(
            total in 1_usize..20,
            of_one in 1_usize..20,
            steps in prop::collection::vec((0_usize..4, any::<bool>()), 0..200),
        ) {
            let places = Arc::new(PrincipalPermits::default());
            let of_one = of_one.min(total);
            let bounds = PermitLimits { total, of_one };
            let principals = ["a", "b", "c", "d"].map(Principal::from_name);
            let mut held: [Vec<PrincipalPermit>; 4] = Default::default();
            for (who, takes) in steps {
                let n_held: usize = held.iter().map(Vec::len).sum();
                let n_own = held[who].len();
                if !takes {
                    held[who].pop();
                    continue;
                }
                match places.take(&principals[who], bounds) {
                    Ok(place) => {
                        held[who].push(place);
                        prop_assert!(n_own < of_one && n_held < total);
                    }
                    Err(PermitRefusal::Share) => prop_assert_eq!(n_own, of_one),
                    Err(PermitRefusal::Total) => prop_assert_eq!(n_held, total),
                }
                prop_assert_eq!(places.n_taken(), held.iter().map(Vec::len).sum::<usize>());
            }
            drop(held);
            prop_assert_eq!(places.n_taken(), 0);
            prop_assert!(places.0.lock().by_principal.is_empty());
        }
    }
}
