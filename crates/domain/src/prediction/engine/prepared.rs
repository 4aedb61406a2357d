//! What the latest forecast was made from: learning from the call that follows needs the same.

use std::fmt;
use std::sync::Mutex;

use crate::prediction::mixers::{Outcome, Scene};
use crate::prediction::trail::Trail;

/// What was made for one forecast.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The situation, and the candidates ascending: what it was made for.
    situation: Trail,
    candidates: Vec<usize>,
    pub(super) scene: Scene,
    pub(super) outcome: Outcome,
}

impl Prepared {
    pub(super) fn new(
        trail: &Trail,
        candidates: Vec<usize>,
        scene: Scene,
        outcome: Outcome,
    ) -> Self {
        Self {
            situation: trail.situation(),
            candidates,
            scene,
            outcome,
        }
    }

    /// Returns whether it is what would be made now, as long as nothing was learned since.
    fn is_of(&self, trail: &Trail, candidates: &[usize]) -> bool {
        self.candidates == candidates && self.situation == trail.situation()
    }
}

/// The place for what the latest forecast was made from. Whoever changes what was learned has to
/// empty it. A copy of an engine starts with an empty one.
#[derive(Default)]
pub(super) struct Latest(Mutex<Option<Prepared>>);

impl Latest {
    /// Keeps this instead of what was there. Of several at once one is kept.
    pub(super) fn keep(&self, prepared: Prepared) {
        if let Ok(mut latest) = self.0.try_lock() {
            let before = latest.replace(prepared);
            drop(latest);
            drop(before);
        }
    }

    /// Takes out what is there where it was made for these, unless somebody else is about it.
    pub(super) fn borrow(&self, trail: &Trail, candidates: &[usize]) -> Option<Prepared> {
        let mut latest = self.0.try_lock().ok()?;
        latest.take_if(|latest| latest.is_of(trail, candidates))
    }

    /// Takes out what is there where it was made for these.
    pub(super) fn take(&mut self, trail: &Trail, candidates: &[usize]) -> Option<Prepared> {
        let latest = self.0.get_mut().ok()?.take();
        latest.filter(|latest| latest.is_of(trail, candidates))
    }

    pub(super) fn clear(&mut self) {
        if let Ok(latest) = self.0.get_mut() {
            *latest = None;
        }
    }
}

impl Clone for Latest {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latest").finish_non_exhaustive()
    }
}
