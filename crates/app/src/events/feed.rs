//! A feed of what happens, for people and programs that look on. Who is slow misses the oldest.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, Observer};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::tracking::micros;

/// How many events are held for a follower who has not taken them yet.
const MAX_HELD: usize = 4_096;
/// The longest name of a tool in the feed, in characters.
const MAX_NAME_CHARS: usize = 200;

/// Something that happened, in the form in which it is handed out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Happening {
    /// What it was.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When.
    pub at: Timestamp,
    /// What is known of it: an object whose members depend on the kind.
    pub data: Value,
}

/// How many events a follower was too slow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed(pub u64);

/// The feed.
#[derive(Debug)]
pub struct EventFeed {
    sender: broadcast::Sender<Arc<Happening>>,
    clock: Arc<dyn Clock>,
}

impl EventFeed {
    /// Returns a feed that nobody follows.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (sender, _) = broadcast::channel(MAX_HELD);
        Self { sender, clock }
    }

    /// Returns a follower of what happens from now on.
    #[must_use]
    pub fn follow(&self) -> Follower {
        Follower(self.sender.subscribe())
    }

    /// Returns how many follow.
    #[must_use]
    pub fn n_followers(&self) -> usize {
        self.sender.receiver_count()
    }
}

/// Follows the feed.
#[derive(Debug)]
pub struct Follower(broadcast::Receiver<Arc<Happening>>);

impl Follower {
    /// Waits for what happens next; `None` once the proxy ends.
    ///
    /// Cancellation safe.
    pub async fn next(&mut self) -> Option<Result<Arc<Happening>, Missed>> {
        match self.0.recv().await {
            Ok(happening) => Some(Ok(happening)),
            Err(RecvError::Lagged(n)) => Some(Err(Missed(n))),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Follower {
    /// Returns what happened already and was not taken; `None` where nothing waits.
    pub fn waiting(&mut self) -> Option<Result<Arc<Happening>, Missed>> {
        match self.0.try_recv() {
            Ok(happening) => Some(Ok(happening)),
            Err(TryRecvError::Lagged(n)) => Some(Err(Missed(n))),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Observer for EventFeed {
    fn observe(&self, event: &Event<'_>) {
        if self.n_followers() == 0 {
            return;
        }
        let (kind, data) = described(event);
        let at = self.clock.now();
        // The error says that the last follower has just left.
        let _ = self.sender.send(Arc::new(Happening { kind, at, data }));
    }
}

/// Returns the kind of an event, and what is said of it.
fn described(event: &Event<'_>) -> (&'static str, Value) {
    match event {
        Event::SessionOpened { transport } => {
            ("session_opened", json!({ "transport": transport.as_str() }))
        }
        Event::SessionClosed { transport } => {
            ("session_closed", json!({ "transport": transport.as_str() }))
        }
        Event::RequestEnded(request) => (
            "request_ended",
            json!({
                "method": request.method,
                "upstream": request.upstream,
                "tool": request.tool.map(|tool| cut(tool.as_str())),
                "outcome": request.outcome.as_str(),
                "took_us": micros(request.took),
                "with_upstream_us": request.with_upstream.map(micros),
            }),
        ),
        Event::ToolCalled(call) => (
            "tool_called",
            json!({
                "upstream": call.upstream,
                "tool": cut(call.tool.as_str()),
                "source": call.source.as_str(),
                "is_first_use": call.is_first_use,
            }),
        ),
        Event::ToolsSeen { upstream, tools } => (
            "tools_seen",
            json!({ "upstream": upstream, "n_tools": tools.len() }),
        ),
        Event::ListShown(list) => (
            "list_shown",
            json!({
                "policy": list.policy,
                "mode": list.mode.as_str(),
                "n_shown": list.n_shown,
                "n_available": list.n_available,
                "shown_tokens": list.shown_tokens,
                "available_tokens": list.available_tokens,
            }),
        ),
        Event::ListChangeTold => ("list_change_told", json!({})),
        Event::Searched {
            quality,
            n_matches,
            is_repeated,
            took,
        } => (
            "searched",
            json!({
                "quality": quality.as_str(),
                "n_matches": n_matches,
                "is_repeated": is_repeated,
                "took_us": micros(*took),
            }),
        ),
        Event::BudgetShort => ("budget_short", json!({})),
        Event::LimitReached(limit) => ("limit_reached", json!({ "limit": limit.as_str() })),
        Event::UpstreamChanged {
            upstream,
            is_available,
        } => (
            "upstream_changed",
            json!({ "upstream": upstream, "is_available": is_available }),
        ),
        Event::OverrideChanged => ("override_changed", json!({})),
        Event::ChangeHeld { upstream, tool } => (
            "change_held",
            json!({ "upstream": upstream, "tool": cut(tool.as_str()) }),
        ),
        Event::ConfigChanged { version } => ("config_changed", json!({ "version": version })),
    }
}

fn cut(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use riglm_ports::fake::ManualClock;
    use riglm_ports::observer::Limit;

    use super::*;

    fn feed() -> EventFeed {
        EventFeed::new(Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH)))
    }

    #[tokio::test]
    async fn a_follower_is_handed_what_happens_from_then_on() {
        let feed = feed();
        feed.observe(&Event::OverrideChanged);
        let mut follower = feed.follow();
        feed.observe(&Event::LimitReached(Limit::Sessions));
        let happening = follower.next().await.unwrap().unwrap();
        let json = serde_json::to_value(&*happening).unwrap();
        let expected = json!({
            "type": "limit_reached",
            "at": "1970-01-01T00:00:00Z",
            "data": { "limit": "sessions" },
        });
        assert_eq!(json, expected);
    }

    #[tokio::test]
    async fn one_that_is_slow_is_told_how_much_it_missed() {
        let feed = feed();
        let mut follower = feed.follow();
        for _ in 0..MAX_HELD + 10 {
            feed.observe(&Event::ListChangeTold);
        }
        assert_eq!(follower.next().await.unwrap(), Err(Missed(10)));
        assert!(follower.next().await.unwrap().is_ok());
        drop(feed);
        for _ in 1..MAX_HELD {
            assert!(follower.waiting().unwrap().is_ok());
        }
        assert!(follower.waiting().is_none());
        assert!(follower.next().await.is_none());
    }
}
