//! Who looks on: events go to several observers, and to a bounded feed that can be followed.

mod feed;

use std::sync::Arc;

use riglm_ports::observer::{Event, EventOrigin, Observer};

pub use feed::{EventFeed, Follower, Happening, HappeningOrigin, Missed};

/// Several observers as one, told in their order.
#[derive(Debug)]
pub struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    /// Returns these observers.
    #[must_use]
    pub fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self(observers)
    }
}

impl Observer for Observers {
    fn observe(&self, event: &Event<'_>) {
        for observer in &self.0 {
            observer.observe(event);
        }
    }

    fn observe_from(&self, event: &Event<'_>, origin: &EventOrigin<'_>) {
        for observer in &self.0 {
            observer.observe_from(event, origin);
        }
    }
}
