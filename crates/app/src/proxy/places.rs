//! Places that all principals share, of which each of them may have a part only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use riglm_domain::principal::Principal;

/// How many places there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// In all.
    pub(crate) total: usize,
    /// For one principal.
    pub(crate) of_one: usize,
}

impl Bounds {
    /// Returns whether one principal may not have all places.
    pub(crate) fn is_shared(self) -> bool {
        self.of_one < self.total
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// All are taken.
    Total,
    /// The principal has as many as one may have.
    Share,
}

/// Places of one kind.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    n_taken: usize,
    by_principal: HashMap<Principal, usize>,
}

impl Places {
    /// Takes a place for a principal, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub(crate) fn take(
        self: &Arc<Self>,
        principal: &Principal,
        bounds: Bounds,
    ) -> Result<Place, Lack> {
        self.take_many(principal, 1, bounds)
    }

    /// Takes so many places for a principal, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// Returns why there are not as many.
    pub(crate) fn take_many(
        self: &Arc<Self>,
        principal: &Principal,
        n: usize,
        bounds: Bounds,
    ) -> Result<Place, Lack> {
        let mut taken = self.lock();
        let n_own = taken.by_principal.get(principal).copied().unwrap_or(0);
        let n_own = n_own.saturating_add(n);
        if bounds.is_shared() && n_own > bounds.of_one {
            return Err(Lack::Share);
        }
        let n_taken = taken.n_taken.saturating_add(n);
        if n_taken > bounds.total {
            return Err(Lack::Total);
        }
        taken.n_taken = n_taken;
        taken.by_principal.insert(principal.clone(), n_own);
        Ok(Place {
            places: Arc::clone(self),
            principal: principal.clone(),
            n,
        })
    }

    /// Returns how many are taken.
    pub(crate) fn n_taken(&self) -> usize {
        self.lock().n_taken
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    principal: Principal,
    /// How many of them it is.
    n: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.n_taken = taken.n_taken.saturating_sub(self.n);
        if let Some(n_own) = taken.by_principal.get_mut(&self.principal) {
            *n_own = n_own.saturating_sub(self.n);
            if *n_own == 0 {
                taken.by_principal.remove(&self.principal);
            }
        }
    }
}

/// Whether the client of a request waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is gone, and may come back for the answer.
    Left,
    /// It is back.
    Back,
}

/// Room in memory for a message that waits, given back when it is dropped.
#[derive(Debug)]
pub struct Room {
    _place: Place,
}

impl Room {
    pub(crate) fn new(place: Place) -> Self {
        Self { _place: place }
    }
}

/// The place of a request, and whether its client is there.
///
/// A request whose client is gone goes on in the background, where it does not keep others from
/// being made.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    place: Option<Place>,
    /// The memory of its message, taken in the background too.
    _room: Option<Room>,
    is_left: bool,
    is_in_background: bool,
}

impl Standing {
    /// Returns that of a request which has this place, and room for its message.
    pub(crate) fn new(place: Place, room: Room) -> Self {
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

    /// Returns whether the request gave its place up for one in the background.
    pub(crate) fn is_in_background(&self) -> bool {
        self.is_in_background
    }

    /// Notes whether the client is there. When it goes, the request gives its place up for one of
    /// `background`, if there is one.
    pub(crate) fn note(&mut self, presence: Presence, background: impl FnOnce() -> Option<Place>) {
        self.is_left = presence == Presence::Left;
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
    fn a_place_that_is_given_back_can_be_taken_again() {
        let places = Arc::new(Places::default());
        let bounds = Bounds {
            total: 3,
            of_one: 2,
        };
        let [one, other] = ["one", "other"].map(Principal::named);
        let first = places.take(&one, bounds).unwrap();
        let _second = places.take(&one, bounds).unwrap();
        assert_eq!(places.take(&one, bounds).unwrap_err(), Lack::Share);
        let _third = places.take(&other, bounds).unwrap();
        assert_eq!(places.take(&other, bounds).unwrap_err(), Lack::Total);
        drop(first);
        assert_eq!(places.n_taken(), 2);
        assert!(places.take(&one, bounds).is_ok());
        assert_eq!(places.n_taken(), 2);
    }

    #[test]
    fn a_request_that_is_left_gives_its_place_up_while_there_is_one_in_the_background() {
        let [front, back] = [(), ()].map(|()| Arc::new(Places::default()));
        let bounds_of = |n| Bounds {
            total: n,
            of_one: n,
        };
        let bounds = bounds_of(1);
        let principal = Principal::local();
        let behind = || back.take(&principal, bounds).ok();
        let memory = Arc::new(Places::default());
        let room = || Room::new(memory.take(&principal, bounds_of(2)).unwrap());
        let standing = || Standing::new(front.take(&principal, bounds).unwrap(), room());
        let mut first = standing();
        first.note(Presence::Left, behind);
        assert_eq!((front.n_taken(), back.n_taken()), (0, 1));
        assert_eq!(memory.n_taken(), 1, "its message is still there");
        let mut second = standing();
        second.note(Presence::Left, behind);
        assert!(second.is_left() && !second.is_in_background());
        assert_eq!((front.n_taken(), back.n_taken()), (1, 1));
        first.note(Presence::Back, behind);
        assert!(!first.is_left() && first.is_in_background());
        drop((first, second));
        assert_eq!((front.n_taken(), back.n_taken()), (0, 0));
        assert_eq!(memory.n_taken(), 0);
    }

    proptest! {
        #[test]
        fn nobody_has_more_than_a_share_and_who_has_less_is_refused_only_when_all_are_taken(
            total in 1_usize..20,
            of_one in 1_usize..20,
            steps in prop::collection::vec((0_usize..4, any::<bool>()), 0..200),
        ) {
            let places = Arc::new(Places::default());
            let of_one = of_one.min(total);
            let bounds = Bounds { total, of_one };
            let principals = ["a", "b", "c", "d"].map(Principal::named);
            let mut held: [Vec<Place>; 4] = Default::default();
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
                    Err(Lack::Share) => prop_assert_eq!(n_own, of_one),
                    Err(Lack::Total) => prop_assert_eq!(n_held, total),
                }
                prop_assert_eq!(places.n_taken(), held.iter().map(Vec::len).sum::<usize>());
            }
            drop(held);
            prop_assert_eq!(places.n_taken(), 0);
            prop_assert!(places.lock().by_principal.is_empty());
        }
    }
}
