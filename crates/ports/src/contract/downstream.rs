//! The clauses of [`ClientLink`].

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use riglm_domain::mcp::message::{Message, RequestId};

use super::{until, within};
use crate::downstream::{ClientLink, Route};
use crate::fake::RecordingClient;

/// A link, and the client at its other end.
#[async_trait]
pub trait ClientScene: Send + Sync + fmt::Debug {
    /// Returns the link.
    fn link(&self) -> Arc<dyn ClientLink>;

    /// Opens the stream of a request with this id, as the arrival of the request does.
    async fn open_request(&self, id: &RequestId);

    /// Returns the texts that the client has received on this route so far. A transport with a
    /// single stream returns the same texts for every route.
    fn received(&self, route: &Route) -> Vec<String>;

    /// Returns whether the client has seen the end of the stream of this request; `None` if the
    /// transport has no such streams.
    fn has_stream_ended(&self, id: &RequestId) -> Option<bool>;

    /// Returns whether the client has seen the end of its session, or of everything that it waits
    /// for.
    fn has_session_ended(&self) -> bool;

    /// Returns whether the client gets messages that belong to no request.
    fn has_standalone(&self) -> bool {
        true
    }

    /// Makes the client go away without a word.
    async fn leave(&self);
}

/// Expands to a module with one `tokio::test` for each clause of a client link.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a
/// [`ClientScene`](crate::contract::downstream::ClientScene).
#[macro_export]
macro_rules! client_link_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(downstream [$(#[$attribute])*] $fresh;
                messages_of_a_request_arrive_in_order,
                messages_of_no_request_arrive_in_order,
                contents_arrive_with_their_bytes,
                a_message_over_several_lines_arrives_as_one,
                a_response_ends_the_stream_of_its_request,
                a_finished_request_has_no_more_messages,
                finishing_an_unknown_request_does_nothing,
                requests_have_their_own_streams,
                a_client_that_left_fails_no_delivery,
                messages_before_the_end_of_the_session_arrive,
                a_closed_link_does_nothing,
            );
        }
    };
}

fn id(number: u32) -> RequestId {
    RequestId::Number(number.to_string().into())
}

fn related(number: u32) -> Route {
    Route::Related(id(number))
}

fn note(number: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"t","progress":{number}}}}}"#
    )
}

fn answer(number: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"n":1.0e3,"x":18446744073709551616}}}}"#)
}

async fn deliver(scene: &impl ClientScene, text: &str, route: Route) {
    let message = Message::from_text(text.to_owned()).unwrap();
    within(scene.link().deliver(message, route)).await;
}

/// Waits until the client has received these texts on a route, and no others.
async fn until_received(scene: &impl ClientScene, route: &Route, texts: &[String]) {
    until(|| (scene.received(route).len() >= texts.len()).then_some(())).await;
    assert_eq!(scene.received(route), texts);
}

/// Messages of a request arrive in the order of their delivery, its response last.
pub async fn messages_of_a_request_arrive_in_order(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    let mut texts: Vec<String> = (0..40).map(note).collect();
    texts.push(answer(1));
    for text in &texts {
        deliver(scene, text, related(1)).await;
    }
    until_received(scene, &related(1), &texts).await;
}

/// Messages that belong to no request arrive in the order of their delivery, if the client gets
/// them.
pub async fn messages_of_no_request_arrive_in_order(scene: &impl ClientScene) {
    let texts: Vec<String> = (0..40).map(note).collect();
    for text in &texts {
        deliver(scene, text, Route::Standalone).await;
    }
    if scene.has_standalone() {
        until_received(scene, &Route::Standalone, &texts).await;
    } else {
        assert_eq!(scene.received(&Route::Standalone), Vec::<String>::new());
    }
}

/// A message arrives with the bytes that it was delivered with.
pub async fn contents_arrive_with_their_bytes(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    let text = r#"{ "id":1 , "result":{"n":1.0e3,"s":"\u00e9 é 👩‍👩‍👧‍👦"}, "jsonrpc":"2.0"}"#;
    deliver(scene, text, related(1)).await;
    until_received(scene, &related(1), &[text.to_owned()]).await;
}

/// A message with line breaks between its members arrives as one message.
pub async fn a_message_over_several_lines_arrives_as_one(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    let text = "{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\n\"result\":{\"a\":\n[1,\n2]}}\n";
    deliver(scene, text, related(1)).await;
    until(|| (!scene.received(&related(1)).is_empty()).then_some(())).await;
    let received = scene.received(&related(1));
    let [received] = received.as_slice() else {
        panic!("{received:?}");
    };
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(received), read(text));
}

/// A response ends the stream of its request.
pub async fn a_response_ends_the_stream_of_its_request(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    deliver(scene, &note(1), related(1)).await;
    deliver(scene, &answer(1), related(1)).await;
    until_received(scene, &related(1), &[note(1), answer(1)]).await;
    if scene.has_stream_ended(&id(1)).is_some() {
        until(|| {
            scene
                .has_stream_ended(&id(1))
                .filter(|has_ended| *has_ended)
        })
        .await;
    }
}

/// The stream of a request that is finished ends without an answer.
pub async fn a_finished_request_has_no_more_messages(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    deliver(scene, &note(1), related(1)).await;
    within(scene.link().finish(&id(1))).await;
    if scene.has_stream_ended(&id(1)).is_some() {
        until(|| {
            scene
                .has_stream_ended(&id(1))
                .filter(|has_ended| *has_ended)
        })
        .await;
    }
    until_received(scene, &related(1), &[note(1)]).await;
}

/// Finishing a request that is unknown, or was answered, does nothing.
pub async fn finishing_an_unknown_request_does_nothing(scene: &impl ClientScene) {
    within(scene.link().finish(&id(9))).await;
    scene.open_request(&id(1)).await;
    deliver(scene, &answer(1), related(1)).await;
    within(scene.link().finish(&id(1))).await;
    within(scene.link().finish(&id(1))).await;
    until_received(scene, &related(1), &[answer(1)]).await;
}

/// If the transport has streams, messages of one request are not in the stream of another, and the
/// end of one leaves the other open. Deliveries may run at the same time.
pub async fn requests_have_their_own_streams(scene: &impl ClientScene) {
    for number in [1, 2] {
        scene.open_request(&id(number)).await;
    }
    let delivering = [1, 2].map(|number| async move {
        deliver(scene, &answer_or_note(number), related(number)).await;
    });
    join_all(delivering).await;
    if scene.has_stream_ended(&id(1)).is_none() {
        until(|| (scene.received(&related(1)).len() == 2).then_some(())).await;
        return;
    }
    until_received(scene, &related(1), &[answer_or_note(1)]).await;
    until_received(scene, &related(2), &[answer_or_note(2)]).await;
    assert_eq!(scene.has_stream_ended(&id(2)), Some(false));
    deliver(scene, &answer(2), related(2)).await;
    until_received(scene, &related(2), &[answer_or_note(2), answer(2)]).await;
}

/// Returns the answer to the first request, and a notification for the second.
fn answer_or_note(number: u32) -> String {
    match number {
        1 => answer(1),
        _ => note(number),
    }
}

/// Deliveries to a client that left return.
pub async fn a_client_that_left_fails_no_delivery(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    scene.leave().await;
    for number in 0..200 {
        deliver(scene, &note(number), related(1)).await;
    }
    deliver(scene, &answer(1), related(1)).await;
    within(scene.link().finish(&id(1))).await;
    within(scene.link().close()).await;
}

/// Messages that were delivered before the link was closed arrive, and then the session ends.
pub async fn messages_before_the_end_of_the_session_arrive(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    deliver(scene, &note(1), related(1)).await;
    deliver(scene, &note(2), related(1)).await;
    within(scene.link().close()).await;
    until_received(scene, &related(1), &[note(1), note(2)]).await;
    until(|| scene.has_session_ended().then_some(())).await;
}

/// Calls of any method after the link was closed do nothing.
pub async fn a_closed_link_does_nothing(scene: &impl ClientScene) {
    scene.open_request(&id(1)).await;
    deliver(scene, &note(1), related(1)).await;
    within(scene.link().close()).await;
    until_received(scene, &related(1), &[note(1)]).await;
    until(|| scene.has_session_ended().then_some(())).await;
    deliver(scene, &note(2), related(1)).await;
    deliver(scene, &note(3), Route::Standalone).await;
    deliver(scene, &answer(1), related(1)).await;
    within(scene.link().finish(&id(1))).await;
    within(scene.link().close()).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(scene.received(&related(1)), [note(1)]);
    assert!(scene.has_session_ended());
}

/// A scene of any link in front of a [`RecordingClient`]: for the fake, and for links that wrap
/// another one.
#[derive(Debug)]
pub struct RecordedScene {
    client: Arc<RecordingClient>,
    link: Arc<dyn ClientLink>,
}

impl RecordedScene {
    /// Returns the scene of the link that `wrap` makes of the link of the client.
    pub fn new(wrap: impl FnOnce(Arc<dyn ClientLink>) -> Arc<dyn ClientLink>) -> Self {
        let client = Arc::<RecordingClient>::default();
        let link = wrap(client.clone());
        Self { client, link }
    }
}

#[async_trait]
impl ClientScene for RecordedScene {
    fn link(&self) -> Arc<dyn ClientLink> {
        Arc::clone(&self.link)
    }

    async fn open_request(&self, _id: &RequestId) {}

    fn received(&self, route: &Route) -> Vec<String> {
        let delivered = self.client.delivered_messages().into_iter();
        let on_route = delivered.filter(|(_, found)| found == route);
        on_route.map(|(text, _)| text).collect()
    }

    fn has_stream_ended(&self, id: &RequestId) -> Option<bool> {
        let is_answer = |text: String| {
            let message = Message::from_text(text).unwrap();
            let part = message.single().unwrap();
            part.is_response() && part.id() == Some(id)
        };
        let mut texts = self.received(&Route::Related(id.clone())).into_iter();
        Some(texts.any(is_answer) || self.client.finished_requests().contains(id))
    }

    fn has_session_ended(&self) -> bool {
        self.client.is_closed()
    }

    /// A recording client has no way to go.
    async fn leave(&self) {}
}
