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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use riglm_domain::privacy::principal::Principal;
    use riglm_ports::contract::observer::ObserverScene;
    use riglm_ports::fake::{ManualClock, RecordingObserver};
    use riglm_ports::observer::NoObserver;

    use super::*;

    /// Two recording observers, and one that ignores everything.
    #[derive(Debug)]
    struct Scene {
        both: [Arc<RecordingObserver>; 2],
        observers: Observers,
    }

    impl Scene {
        fn new() -> Self {
            let both = [(); 2].map(|()| Arc::<RecordingObserver>::default());
            let [first, last] = both.clone();
            let observers = Observers::new(vec![first, Arc::new(NoObserver), last]);
            Self { both, observers }
        }
    }

    impl ObserverScene for Scene {
        fn observer(&self) -> &dyn Observer {
            &self.observers
        }

        fn size(&self) -> usize {
            self.both.iter().map(|one| one.names().len()).sum()
        }

        fn n_recorded(&self) -> Option<usize> {
            let [first, last] = &self.both;
            let [first, last] = [first, last].map(|observer| {
                // Threads reach the observers in different orders.
                let mut names = observer.names();
                names.sort_unstable();
                names
            });
            assert_eq!(first, last);
            Some(first.len())
        }
    }

    riglm_ports::observer_contract!(fan_out, ready(Box::new(Scene::new())));

    #[test]
    fn every_observer_gets_the_origin_of_an_event() {
        let feeds = [(); 2].map(|()| Arc::new(EventFeed::new(Arc::<ManualClock>::default())));
        let mut followers = feeds.each_ref().map(|feed| feed.follow());
        let [first, last] = feeds;
        let observers = Observers::new(vec![first, last]);
        let bob = Principal::from_name("bob");
        observers.observe_from(&Event::OverrideChanged, &EventOrigin::of_principal(&bob));
        for follower in &mut followers {
            let published = follower.waiting().unwrap().unwrap();
            assert_eq!(published.origin.principal.as_ref(), Some(&bob));
        }
    }
}
