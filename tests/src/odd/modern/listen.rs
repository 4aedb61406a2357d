//! The open `subscriptions/listen` requests, and the notifications that they receive.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::{Exchange, complete};
use crate::envelope::{Envelope, json_string, raw_at};
use crate::odd::session::error;

/// The members of a filter that this server honours.
const HONOURED: [&str; 4] = [
    "toolsListChanged",
    "promptsListChanged",
    "resourcesListChanged",
    "resourceSubscriptions",
];

#[derive(Clone, Debug)]
struct Listener {
    exchange: Exchange,
    filter: String,
    end: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct Listeners {
    open: watch::Sender<Vec<Listener>>,
}

impl Default for Listeners {
    fn default() -> Self {
        Self {
            open: watch::Sender::new(Vec::new()),
        }
    }
}

impl Listeners {
    /// Acknowledges a subscription and holds it open. Returns the result if the server ends it, and
    /// `None` after a cancellation.
    pub(super) async fn serve(&self, exchange: &Exchange) -> Option<String> {
        let id = exchange.id.as_str();
        let Some(asked) = exchange.param(&["notifications"]) else {
            return Some(error(id, -32602, "odd: nothing to listen to", "null"));
        };
        let filter = accepted_filter(&asked);
        let acknowledged = format!(
            r#"{{"x":1.0,"notifications":{filter},"_meta":{{"io.modelcontextprotocol/subscriptionId":{id},"x.example/a":null}}}}"#
        );
        let end = Arc::new(Notify::new());
        exchange
            .notify("notifications/subscriptions/acknowledged", &acknowledged)
            .await;
        self.open.send_modify(|open| {
            open.push(Listener {
                exchange: exchange.clone(),
                filter,
                end: Arc::clone(&end),
            });
        });
        let ended = tokio::select! {
            () = end.notified() => true,
            () = exchange.wait_for_cancellation() => false,
        };
        self.open
            .send_modify(|open| open.retain(|listener| !Arc::ptr_eq(&listener.end, &end)));
        ended.then(|| {
            complete(
                id,
                &format!(r#""x-listened":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#),
            )
            .replace(
                r#""x.example/n""#,
                &format!(r#""io.modelcontextprotocol/subscriptionId":{id},"x.example/n""#),
            )
        })
    }

    /// Notifies subscribers of a changed list (`tools`, `prompts` or `resources`).
    pub(super) async fn notify_list_changed(&self, what: &str) {
        let wanted = format!("{what}ListChanged");
        let method = format!("notifications/{what}/list_changed");
        self.tell(&method, "", |filter| {
            raw_at(filter, &[&wanted]).as_deref() == Some("true")
        })
        .await;
    }

    /// Notifies subscribers of an updated resource.
    pub(super) async fn notify_resource_updated(&self, uri: &str) {
        let member = format!(r#""uri":{},"x":1.0,"#, json_string(uri));
        self.tell("notifications/resources/updated", &member, |filter| {
            raw_at(filter, &["resourceSubscriptions"])
                .and_then(|uris| serde_json::from_str::<Vec<String>>(&uris).ok())
                .is_some_and(|uris| uris.iter().any(|known| known == uri))
        })
        .await;
    }

    pub(super) fn end(&self) {
        for listener in self.all() {
            listener.end.notify_one();
        }
    }

    /// Waits until `count` subscriptions are open. Returns whether that happened within `patience`.
    pub(super) async fn wait_for_count(&self, count: usize, patience: Duration) -> bool {
        let mut open = self.open.subscribe();
        let settled = open.wait_for(|open| open.len() == count);
        tokio::time::timeout(patience, settled).await.is_ok()
    }

    pub(super) fn n_open(&self) -> usize {
        self.open.borrow().len()
    }

    fn all(&self) -> Vec<Listener> {
        self.open.borrow().clone()
    }

    async fn tell(&self, method: &str, members: &str, is_wanted: impl Fn(&str) -> bool) {
        for listener in self.all() {
            if is_wanted(&listener.filter) {
                let id = &listener.exchange.id;
                let params = format!(
                    r#"{{{members}"_meta":{{"x.example/b":0.70,"io.modelcontextprotocol/subscriptionId":{id}}}}}"#
                );
                listener.exchange.notify(method, &params).await;
            }
        }
    }
}

fn accepted_filter(asked: &str) -> String {
    let asked = Envelope::one(asked);
    let members: Vec<String> = HONOURED
        .iter()
        .filter_map(|name| {
            let value = asked.as_ref()?.member(name)?;
            (value != "false").then(|| format!(r#""{name}":{value}"#))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}
