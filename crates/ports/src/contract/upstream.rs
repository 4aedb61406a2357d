//! The clauses of [`UpstreamConnector`] and [`UpstreamLink`], and of the events that they report to
//! [`UpstreamEvents`].
//!
//! A scene has a connector over a real server, or over a fake. The server reacts as
//! [`reaction`] states, and records the messages that it gets. The clauses are the client.

mod server;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join_all, poll_immediate};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;

pub use server::{N_COUNTED, RESULT, Reaction, Tool, reaction};

use super::{until, within};
use crate::fake::{RecordedEvent, RecordingEvents};
use crate::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

/// The name with which the connector of a scene is configured.
pub const NAME: &str = "contract";

/// The time in which nothing may happen, where nothing should.
const QUIET: Duration = Duration::from_millis(150);

const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"contract","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const MODERN: &str = r#","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"contract","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

/// A connector, and the server at its other end.
pub trait UpstreamScene: Send + Sync + fmt::Debug {
    /// Returns the connector, whose name is [`NAME`].
    fn connector(&self) -> Arc<dyn UpstreamConnector>;

    /// Returns the texts of all messages that the server got, in the order of their arrival.
    fn received(&self) -> Vec<String>;

    /// Returns the era of the client.
    fn client_era(&self) -> Era {
        Era::Legacy
    }

    /// Returns whether notifications of the client reach the server. A bridge between the eras has
    /// no use for most of them.
    fn passes_notifications(&self) -> bool {
        true
    }

    /// Returns a connector whose server does not exist, if the scene has a transport.
    fn unreachable(&self) -> Option<Arc<dyn UpstreamConnector>> {
        None
    }
}

/// Expands to a module with one `tokio::test` for each clause of a connector and its links.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to an
/// [`UpstreamScene`](crate::contract::upstream::UpstreamScene).
#[macro_export]
macro_rules! upstream_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(upstream [$(#[$attribute])*] $fresh;
                a_connector_has_its_configured_name,
                nothing_is_sent_before_the_client_speaks,
                an_unreachable_server_is_reported,
                each_request_gets_its_own_answer,
                contents_keep_their_bytes_in_both_directions,
                requests_reach_the_server_in_the_order_of_the_calls,
                a_notification_reaches_the_server_before_later_messages,
                messages_of_one_stream_are_reported_in_order,
                a_report_is_awaited_before_the_next_one_of_its_stream,
                with_streams_a_message_of_a_request_names_it,
                a_dropped_sending_leaves_no_half_message,
                a_dropped_exchange_is_not_reported_as_unanswered,
                the_end_of_a_server_ends_its_requests,
                a_lost_connection_refuses_messages,
                an_answered_connection_is_not_needed,
                connections_are_independent,
                a_closed_connection_reports_nothing,
                a_closed_connection_refuses_messages,
                closing_again_returns,
                a_closed_connection_releases_its_receiver,
                a_dropped_connection_releases_its_receiver,
            );
        }
    };
}

/// The client of one connection.
struct Client {
    link: Arc<dyn UpstreamLink>,
    events: Arc<RecordingEvents>,
    era: Era,
}

impl Client {
    /// Connects, and makes the handshake if the era has one.
    async fn open(scene: &impl UpstreamScene) -> Self {
        let events = Arc::new(RecordingEvents::default());
        let link = connect(&*scene.connector(), events.clone()).await;
        let client = Self {
            link: link.unwrap(),
            events,
            era: scene.client_era(),
        };
        if client.era == Era::Legacy {
            client.send(HELLO).await.unwrap();
            client.end_of(&RequestId::Text("hello".into())).await;
            client.send(INITIALIZED).await.unwrap();
        }
        client
    }

    /// Sends a message and waits until it is on its way.
    async fn send(&self, text: &str) -> Result<(), UpstreamError> {
        within(send_over(&*self.link, text)).await
    }

    async fn call(&self, id: u32, tool: Tool) -> Result<(), UpstreamError> {
        self.send(&call(self.era, id, tool)).await
    }

    /// Waits for the event that ends a request.
    async fn end_of(&self, id: &RequestId) -> RecordedEvent {
        until(|| self.ends_of(id).pop()).await
    }

    /// Waits for the answer to a call, and returns its text.
    async fn answer(&self, id: u32) -> String {
        let end = self.end_of(&number(id)).await;
        let text = end.text().map(str::to_owned);
        text.unwrap_or_else(|| panic!("call {id} has no answer: {end:?}"))
    }

    fn ends_of(&self, id: &RequestId) -> Vec<RecordedEvent> {
        let mut ends = self.events.all();
        ends.retain(|event| event.ends_request(id));
        ends
    }

    /// Waits until the connection is lost or the request is known to be unanswered.
    async fn failure_of(&self, id: u32) -> RecordedEvent {
        let id = number(id);
        let is_failure = |event: &RecordedEvent| match event {
            RecordedEvent::Lost(_) => true,
            event => event.ends_request(&id),
        };
        until(|| self.events.all().into_iter().find(is_failure)).await
    }

    fn is_lost(&self) -> bool {
        let mut events = self.events.all().into_iter();
        events.any(|event| matches!(event, RecordedEvent::Lost(_)))
    }

    async fn close(&self) {
        within(self.link.close()).await;
    }
}

async fn connect(
    connector: &dyn UpstreamConnector,
    events: Arc<dyn UpstreamEvents>,
) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
    within(connector.connect(&Principal::local(), events)).await
}

async fn send_over(link: &dyn UpstreamLink, text: &str) -> Result<(), UpstreamError> {
    let message = Message::from_text(text.to_owned()).unwrap();
    if let SendOutcome::UnderWay(exchange) = link.send(message).await? {
        tokio::spawn(exchange.run);
        exchange.on_its_way.await;
    }
    Ok(())
}

fn number(id: u32) -> RequestId {
    RequestId::Number(id.to_string().into())
}

/// Returns the text in the call with this id that no other call has.
fn mark(id: u32) -> String {
    format!(r#""mark":"m-{id}","n":1.0e3,"x":18446744073709551616,"s":"\u00e9""#)
}

fn call(era: Era, id: u32, tool: Tool) -> String {
    let meta = match era {
        Era::Legacy => "",
        Era::Modern => MODERN,
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{}","arguments":{{{}}},"_meta":{{"progressToken":"t-{id}"{meta}}}}}}}"#,
        tool.as_str(),
        mark(id)
    )
}

fn note(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/contract","params":{{{}}}}}"#,
        mark(id)
    )
}

/// Returns the numbers of the marked messages that the server got, in order.
fn received_marks(scene: &impl UpstreamScene) -> Vec<u32> {
    let texts = scene.received();
    let marks = texts.iter().filter_map(|text| {
        let (_, rest) = text.split_once(r#""mark":"m-"#)?;
        rest.split('"').next()?.parse().ok()
    });
    marks.collect()
}

/// Returns the progress in a message, if it has any.
fn progress(event: &RecordedEvent) -> Option<usize> {
    let (_, rest) = event.text()?.split_once(r#""progress":"#)?;
    let digits = rest.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().ok()
}

/// A connector has the name from its configuration.
pub async fn a_connector_has_its_configured_name(scene: &impl UpstreamScene) {
    let name = UpstreamName::parse(NAME).unwrap();
    assert_eq!(*scene.connector().name(), name);
}

/// The proxy sends nothing to the server before the client has sent something.
pub async fn nothing_is_sent_before_the_client_speaks(scene: &impl UpstreamScene) {
    let events = Arc::new(RecordingEvents::default());
    let link = connect(&*scene.connector(), events.clone()).await.unwrap();
    tokio::time::sleep(QUIET).await;
    assert_eq!(scene.received(), Vec::<String>::new());
    assert_eq!(events.all(), []);
    within(link.close()).await;
}

/// A server that cannot be reached is reported by the connector, or as the reason why the first
/// request is unanswered.
pub async fn an_unreachable_server_is_reported(scene: &impl UpstreamScene) {
    let Some(connector) = scene.unreachable() else {
        return;
    };
    let events = Arc::new(RecordingEvents::default());
    let client = match connect(&*connector, events.clone()).await {
        Err(error) => return assert_unreachable(&error),
        Ok(link) => Client {
            link,
            events,
            era: scene.client_era(),
        },
    };
    if let Err(error) = client.call(1, Tool::Echo).await {
        return assert_unreachable(&error);
    }
    match client.failure_of(1).await {
        RecordedEvent::Unanswered { error, .. } | RecordedEvent::Lost(error) => {
            assert_unreachable(&error);
        }
        RecordedEvent::Received { text, .. } => panic!("nobody sent {text}"),
    }
    client.close().await;
}

fn assert_unreachable(error: &UpstreamError) {
    let is_named = matches!(
        error,
        UpstreamError::NotStarted { .. }
            | UpstreamError::Unreachable { .. }
            | UpstreamError::Unauthorized { .. }
    );
    assert!(is_named, "{error:?}");
}

/// Each request gets exactly one answer, with its own id, also if many are in flight.
pub async fn each_request_gets_its_own_answer(scene: &impl UpstreamScene) {
    const N: u32 = 20;
    let client = Client::open(scene).await;
    let n_before = client.events.all().len();
    let calls = (1..=N).map(|id| client.call(id, Tool::Echo));
    for sent in join_all(calls).await {
        sent.unwrap();
    }
    for id in 1..=N {
        client.answer(id).await;
    }
    tokio::time::sleep(QUIET).await;
    for id in 1..=N {
        assert_eq!(client.ends_of(&number(id)).len(), 1, "answers to {id}");
    }
    let events = client.events.all().split_off(n_before);
    assert_eq!(events.len(), N as usize, "{events:#?}");
    client.close().await;
}

/// Arguments and results pass as the bytes that they were sent with.
pub async fn contents_keep_their_bytes_in_both_directions(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Echo).await.unwrap();
    let answer = client.answer(1).await;
    assert!(answer.contains(RESULT), "{answer}");
    let received = scene.received();
    let arguments = format!(r#""arguments":{{{}}}"#, mark(1));
    let n_arrived = received.iter().filter(|text| text.contains(&arguments));
    assert_eq!(n_arrived.count(), 1, "{received:#?}");
    client.close().await;
}

/// Requests of one caller reach the server in the order of the calls, if the caller waits until
/// each is on its way.
pub async fn requests_reach_the_server_in_the_order_of_the_calls(scene: &impl UpstreamScene) {
    const N: u32 = 30;
    let client = Client::open(scene).await;
    for id in 1..=N {
        client.call(id, Tool::Echo).await.unwrap();
    }
    for id in 1..=N {
        client.answer(id).await;
    }
    assert_eq!(received_marks(scene), (1..=N).collect::<Vec<_>>());
    client.close().await;
}

/// A notification has reached the server, or the single stream to it, when sending it returns.
pub async fn a_notification_reaches_the_server_before_later_messages(scene: &impl UpstreamScene) {
    if !scene.passes_notifications() {
        return;
    }
    let client = Client::open(scene).await;
    for id in (1..20).step_by(2) {
        client.send(&note(id)).await.unwrap();
        client.call(id + 1, Tool::Echo).await.unwrap();
    }
    for id in (2..=20).step_by(2) {
        client.answer(id).await;
    }
    assert_eq!(received_marks(scene), (1..=20).collect::<Vec<_>>());
    client.close().await;
}

/// Messages that belong to a request are reported in the order in which the server sent them, the
/// answer last.
pub async fn messages_of_one_stream_are_reported_in_order(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Count).await.unwrap();
    client.answer(1).await;
    let events = client.events.all();
    let counted: Vec<usize> = events.iter().filter_map(progress).collect();
    assert_eq!(counted, (1..=N_COUNTED).collect::<Vec<_>>());
    assert!(
        events
            .last()
            .is_some_and(|event| event.ends_request(&number(1))),
        "the answer is not the last event: {events:#?}"
    );
    client.close().await;
}

/// Keeps the first report waiting.
#[derive(Debug, Default)]
struct SlowReceiver {
    events: RecordingEvents,
    n_entered: AtomicUsize,
    is_open: AtomicBool,
}

#[async_trait]
impl UpstreamEvents for SlowReceiver {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let is_counted = String::from_utf8_lossy(message.raw()).contains(r#""progress":"#);
        if is_counted {
            self.n_entered.fetch_add(1, Ordering::SeqCst);
            until(|| self.is_open.load(Ordering::SeqCst).then_some(())).await;
        }
        self.events.on_message(message, related).await;
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        self.events.on_unanswered(request, error).await;
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.events.on_lost(error).await;
    }
}

/// The next message of a stream is reported when the report of the one before has returned.
pub async fn a_report_is_awaited_before_the_next_one_of_its_stream(scene: &impl UpstreamScene) {
    let slow = Arc::new(SlowReceiver::default());
    let link = connect(&*scene.connector(), slow.clone()).await.unwrap();
    let era = scene.client_era();
    let has_ended = |id: RequestId| {
        let slow = Arc::clone(&slow);
        move || {
            let events = slow.events.all();
            events.into_iter().find(|event| event.ends_request(&id))
        }
    };
    if era == Era::Legacy {
        within(send_over(&*link, HELLO)).await.unwrap();
        until(has_ended(RequestId::Text("hello".into()))).await;
        within(send_over(&*link, INITIALIZED)).await.unwrap();
    }
    let counting = call(era, 1, Tool::Count);
    let sending = async { within(send_over(&*link, &counting)).await.unwrap() };
    let releasing = async {
        until(|| (slow.n_entered.load(Ordering::SeqCst) > 0).then_some(())).await;
        tokio::time::sleep(QUIET).await;
        let n_entered = slow.n_entered.load(Ordering::SeqCst);
        slow.is_open.store(true, Ordering::SeqCst);
        n_entered
    };
    let ((), n_entered) = join(sending, releasing).await;
    assert_eq!(n_entered, 1, "reports that did not wait");
    until(has_ended(number(1))).await;
    let counted: Vec<usize> = slow.events.all().iter().filter_map(progress).collect();
    assert_eq!(counted, (1..=N_COUNTED).collect::<Vec<_>>());
    within(link.close()).await;
}

/// If the transport has a stream for each request, messages on it name their request.
pub async fn with_streams_a_message_of_a_request_names_it(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Echo).await.unwrap();
    client.answer(1).await;
    if client.link.has_streams() {
        let n_before = client.events.all().len();
        client.call(2, Tool::Count).await.unwrap();
        client.answer(2).await;
        let events = client.events.all().split_off(n_before);
        assert_eq!(events.len(), N_COUNTED + 1);
        for event in events {
            let RecordedEvent::Received { related, text } = event else {
                panic!("{event:?}");
            };
            assert_eq!(related, Some(number(2)), "{text}");
        }
    }
    client.close().await;
}

/// If the sending of a large message is dropped, the server gets all of it or nothing, and later
/// messages arrive.
pub async fn a_dropped_sending_leaves_no_half_message(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    let small = call(client.era, 1, Tool::Echo);
    let large = small.replace("m-1", &format!("m-{}", "0".repeat(200_000)));
    let message = Message::from_text(large.replace(r#""id":1,"#, r#""id":2,"#)).unwrap();
    drop(poll_immediate(client.link.send(message)).await);
    client.call(3, Tool::Echo).await.unwrap();
    client.answer(3).await;
    for text in scene.received() {
        assert!(Message::from_text(text.clone()).is_ok(), "{text:.200}");
        let n_zeros = text.matches("0000").count();
        assert!(n_zeros == 0 || n_zeros == 50_000, "{n_zeros} of 50000");
    }
    client.close().await;
}

/// A request whose exchange is dropped is answered, or nothing is reported for it. The connection
/// goes on.
pub async fn a_dropped_exchange_is_not_reported_as_unanswered(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    let message = Message::from_text(call(client.era, 1, Tool::Echo)).unwrap();
    if let SendOutcome::UnderWay(exchange) = within(client.link.send(message)).await.unwrap() {
        drop(exchange);
        client.call(2, Tool::Echo).await.unwrap();
        client.answer(2).await;
        tokio::time::sleep(QUIET).await;
        let ends = client.ends_of(&number(1));
        assert!(ends.len() <= 1, "{ends:#?}");
        assert!(ends.iter().all(|end| end.text().is_some()), "{ends:#?}");
    } else {
        client.answer(1).await;
    }
    client.close().await;
}

/// When the server ends, each of its requests is reported as unanswered or the connection as lost.
/// A loss is reported once, and nothing after it.
pub async fn the_end_of_a_server_ends_its_requests(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Silent).await.unwrap();
    client.call(2, Tool::End).await.unwrap();
    let end = client.failure_of(2).await;
    assert_eq!(end.text(), None, "nobody answered");
    tokio::time::sleep(QUIET).await;
    let events = client.events.all();
    let is_loss = |event: &&RecordedEvent| matches!(event, RecordedEvent::Lost(_));
    match events.iter().filter(is_loss).count() {
        0 => assert_eq!(client.ends_of(&number(2)).len(), 1),
        1 => assert!(events.last().as_ref().is_some_and(is_loss), "{events:#?}"),
        n => panic!("the loss was reported {n} times"),
    }
    client.close().await;
}

/// A connection that was lost refuses messages, and reports nothing for them.
pub async fn a_lost_connection_refuses_messages(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::End).await.unwrap();
    client.failure_of(1).await;
    if client.is_lost() {
        // The report may come a moment before the end of the connection.
        let refused = async {
            let mut id = 2;
            while client.call(id, Tool::Echo).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                id += 1;
            }
            id
        };
        let id = within(refused).await;
        tokio::time::sleep(QUIET).await;
        assert_eq!(client.ends_of(&number(id)), []);
    }
    client.close().await;
}

/// A connection without unanswered requests is not needed.
pub async fn an_answered_connection_is_not_needed(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    assert!(!client.link.is_needed());
    client.call(1, Tool::Count).await.unwrap();
    client.answer(1).await;
    assert!(!client.link.is_needed());
    client.close().await;
}

/// Each client has a connection of its own: the same ids in two of them are different requests, and
/// the end of one leaves the other alone.
pub async fn connections_are_independent(scene: &impl UpstreamScene) {
    let (first, second) = (Client::open(scene).await, Client::open(scene).await);
    for client in [&first, &second] {
        client.call(1, Tool::Count).await.unwrap();
        client.call(2, Tool::Silent).await.unwrap();
    }
    for client in [&first, &second] {
        client.answer(1).await;
        let events = client.events.all();
        assert_eq!(events.iter().filter_map(progress).count(), N_COUNTED);
        assert_eq!(client.ends_of(&number(1)).len(), 1);
    }
    first.close().await;
    second.call(3, Tool::Echo).await.unwrap();
    second.answer(3).await;
    assert!(!second.is_lost());
    second.close().await;
}

/// Nothing is reported after a connection was closed, neither for requests in flight nor as a loss.
pub async fn a_closed_connection_reports_nothing(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Silent).await.unwrap();
    client.call(2, Tool::Count).await.unwrap();
    client.close().await;
    let n_events = client.events.all().len();
    tokio::time::sleep(QUIET).await;
    let later = client.events.all().split_off(n_events);
    assert_eq!(later, []);
    assert_eq!(client.ends_of(&number(1)), []);
    assert!(!client.is_lost());
}

/// A closed connection refuses messages, and reports nothing for them.
pub async fn a_closed_connection_refuses_messages(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.close().await;
    assert!(client.call(1, Tool::Echo).await.is_err());
    tokio::time::sleep(QUIET).await;
    assert_eq!(client.ends_of(&number(1)), []);
    assert!(!received_marks(scene).contains(&1));
}

/// A connection may be closed by several callers at once, and again.
pub async fn closing_again_returns(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Silent).await.unwrap();
    join(client.close(), client.close()).await;
    client.close().await;
    let other = Client::open(scene).await;
    other.call(2, Tool::Echo).await.unwrap();
    other.answer(2).await;
    other.close().await;
}

async fn assert_released(client: Client) {
    let events = Arc::downgrade(&client.events);
    drop(client);
    until(|| events.upgrade().is_none().then_some(())).await;
}

/// A connection that was closed and dropped does not keep its receiver alive.
pub async fn a_closed_connection_releases_its_receiver(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Silent).await.unwrap();
    client.close().await;
    assert_released(client).await;
}

/// A connection that is dropped without having been closed ends too.
pub async fn a_dropped_connection_releases_its_receiver(scene: &impl UpstreamScene) {
    let client = Client::open(scene).await;
    client.call(1, Tool::Silent).await.unwrap();
    assert_released(client).await;
}
