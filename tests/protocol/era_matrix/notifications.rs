//! Notifications of a server: progress, log messages and changes; and cancellations of a client.

use std::time::Duration;

use riglm_tests::envelope::{Envelope, raw_at, string_at};
use riglm_tests::inbox::ReceivedMessage;

use super::Era;
use super::cell::{Cell, call_params};

/// The number of attempts to cause a notification, until the subscription has reached the server.
const ATTEMPTS: usize = 100;

/// The time in which a client must not receive a notification.
const QUIET: Duration = Duration::from_millis(200);

const SUBSCRIPTION: [&str; 3] = ["params", "_meta", "io.modelcontextprotocol/subscriptionId"];

pub(super) async fn progress(cell: &Cell) {
    cell.start().await;
    for token in ["7", r#""t\u00f6ken""#, "18446744073709551616"] {
        let id = cell.next_id();
        let start = cell.client.n_received();
        let params = call_params("progress", r#"{"steps":5}"#);
        let meta = format!(r#""progressToken":{token}"#);
        let text = cell.text(&id, "tools/call", &params, &meta);
        let answer = cell.client.request(&text).await;
        cell.result(&answer);
        let received = cell.client.received_messages().split_off(start);
        let steps: Vec<String> = received
            .iter()
            .take_while(|message| !message.answers(&id))
            .filter(|message| {
                raw_at(&message.text, &["params", "progressToken"]).as_deref() == Some(token)
            })
            .filter_map(|message| raw_at(&message.text, &["params", "progress"]))
            .collect();
        assert_eq!(
            steps,
            ["1.0", "2.0", "3.0", "4.0", "5.0"],
            "token {token}:\n{}",
            cell.client.history()
        );
    }
    let start = cell.client.n_received();
    cell.call("progress", "{}").await;
    let received = cell.client.received_messages().split_off(start);
    assert!(
        !received
            .iter()
            .any(|m| m.is_method("notifications/progress")),
        "nobody asked for progress:\n{}",
        cell.client.history()
    );
}

pub(super) async fn cancellation(cell: &Cell) {
    cell.start().await;
    let id = cell.next_id();
    let params = call_params("slow", "{}");
    let text = cell.text(&id, "tools/call", &params, r#""progressToken":"slow""#);
    cell.client.send(&text).await;
    cell.client
        .method_after(0, "notifications/progress", 1)
        .await;
    cell.client.cancel(&id).await;
    let noticed = cell.result(&cell.call("await_cancelled", r#"{"count":1}"#).await);
    assert_eq!(
        raw_at(&noticed, &["structuredContent", "seen"]).as_deref(),
        Some("true"),
        "the server was not told:\n{}",
        cell.client.history()
    );
    let received = cell.client.received_messages();
    assert!(
        !received.iter().any(|message| message.answers(&id)),
        "a cancelled request was answered:\n{}",
        cell.client.history()
    );
}

pub(super) async fn logging(cell: &Cell) {
    cell.start().await;
    let meta = match cell.client_era {
        Era::Legacy => {
            let answer = cell.ask("logging/setLevel", r#""level":"warning""#).await;
            cell.result(&answer);
            ""
        }
        Era::Modern => r#""io.modelcontextprotocol/logLevel":"warning""#,
    };
    let start = cell.client.n_received();
    let text = cell.text(
        &cell.next_id(),
        "tools/call",
        &call_params("log", "{}"),
        meta,
    );
    cell.result(&cell.client.request(&text).await);
    let logged = cell
        .client
        .method_after(start, "notifications/message", 1)
        .await;
    assert_eq!(
        raw_at(&logged[0].text, &["params", "data"]).as_deref(),
        Some(r#"{"k":[1.0,null]}"#)
    );
    assert_eq!(
        string_at(&logged[0].text, &["params", "level"]).as_deref(),
        Some("warning")
    );
    assert_eq!(logged.len(), 1, "one is severe enough");
    if cell.client_era == Era::Modern {
        // "The server MUST NOT send" a log to a request that names no level.
        let start = cell.client.n_received();
        cell.call("log", "{}").await;
        assert_quiet(cell, start, "notifications/message").await;
    }
}

pub(super) async fn list_changes(cell: &Cell) {
    cell.start().await;
    let subscription = listen(cell, r#"{"toolsListChanged":true}"#, "toolsListChanged").await;
    let method = "notifications/tools/list_changed";
    let told = wait_for_caused(cell, "change_list", "{}", method).await;
    assert_eq!(
        raw_at(&told.text, &SUBSCRIPTION),
        subscription,
        "{}",
        told.text
    );
}

pub(super) async fn subscriptions(cell: &Cell) {
    cell.start().await;
    let uri = "odd://r/1";
    let subscription = if cell.client_era == Era::Legacy {
        let answer = cell
            .ask("resources/subscribe", &format!(r#""uri":"{uri}""#))
            .await;
        cell.result(&answer);
        None
    } else {
        let filter = format!(r#"{{"resourceSubscriptions":["{uri}"]}}"#);
        listen(cell, &filter, "resourceSubscriptions").await
    };
    let method = "notifications/resources/updated";
    let told = wait_for_caused(cell, "update_resource", "{}", method).await;
    assert_eq!(
        string_at(&told.text, &["params", "uri"]).as_deref(),
        Some(uri)
    );
    assert_eq!(
        raw_at(&told.text, &SUBSCRIPTION),
        subscription,
        "{}",
        told.text
    );
    if let Some(id) = &subscription {
        cell.client.cancel(id).await;
    } else {
        let answer = cell
            .ask("resources/unsubscribe", &format!(r#""uri":"{uri}""#))
            .await;
        cell.result(&answer);
    }
    // The legacy server sends updates to everyone, and without translation the client receives
    // them.
    if (cell.client_era, cell.server_era) != (Era::Legacy, Era::Legacy) {
        settle(cell).await;
        let start = cell.client.n_received();
        cell.call("update_resource", "{}").await;
        assert_quiet(cell, start, method).await;
    }
}

/// Opens the subscription of a modern client and returns its raw id after the acknowledgement.
async fn listen(cell: &Cell, filter: &str, member: &str) -> Option<String> {
    if cell.client_era == Era::Legacy {
        return None;
    }
    let id = cell.next_id();
    cell.client.send(&cell.meta().listen(&id, filter)).await;
    let acknowledged = cell
        .client
        .method_after(0, "notifications/subscriptions/acknowledged", 1)
        .await;
    let first = cell.client.received_messages().into_iter().next();
    assert_eq!(
        first.map(|message| message.text),
        Some(acknowledged[0].text.clone()),
        "the acknowledgement is the first message"
    );
    let text = &acknowledged[0].text;
    assert_eq!(
        raw_at(text, &SUBSCRIPTION).as_deref(),
        Some(id.as_str()),
        "{text}"
    );
    assert_eq!(
        raw_at(text, &["params", "notifications", member]),
        raw_at(filter, &[member]),
        "{text}"
    );
    Some(id)
}

/// Calls a tool until the client receives the notification: a subscription that the proxy makes for
/// its client may reach the server a little later.
async fn wait_for_caused(
    cell: &Cell,
    tool: &str,
    arguments: &str,
    method: &str,
) -> ReceivedMessage {
    let start = cell.client.n_received();
    for _ in 0..ATTEMPTS {
        cell.result(&cell.call(tool, arguments).await);
        let received = cell.client.received_messages().split_off(start);
        if let Some(told) = received.into_iter().find(|m| m.is_method(method)) {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no {method}:\n{}", cell.client.history())
}

/// Waits until no more messages arrive.
async fn settle(cell: &Cell) {
    loop {
        let before = cell.client.n_received();
        tokio::time::sleep(QUIET).await;
        if cell.client.n_received() == before {
            return;
        }
    }
}

async fn assert_quiet(cell: &Cell, start: usize, method: &str) {
    settle(cell).await;
    let received = cell.client.received_messages().split_off(start);
    let told: Vec<&ReceivedMessage> = received
        .iter()
        .filter(|message| {
            Envelope::all(&message.text)
                .iter()
                .any(|envelope| envelope.method().as_deref() == Some(method))
        })
        .collect();
    assert!(told.is_empty(), "nobody asked for {told:?}");
}
