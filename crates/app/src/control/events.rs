//! Consumers of events: several observers as one, and a bounded feed for followers.

mod feed;

use std::sync::Arc;

use riglm_ports::observer::{Event, EventOrigin, Observer};

pub use feed::{EventFeed, Follower, MissedEvents, PublishedEvent, PublishedOrigin};

/// Several observers as one, called in order.
#[derive(Debug)]
pub struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    /// Combines the observers.
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
