//! Multi-round calls: the server requests input, and all rounds are rows of one logical call.

use std::time::Duration;

use bytes::Bytes;
use riglm_domain::mcp::message::Message;
use riglm_domain::usage::invocation::Invocation;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository};

use crate::scene::{Scene, Setup};

const T: &str = r#""name":"t","arguments":{"a":1.0}"#;
const DONE: &str = r#""result":{"resultType":"complete","content":[]}"#;

/// Returns a modern call with these members of `params`.
fn modern(id: u32, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"c","version":"2"}},"io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}},"roots":{{}}}}}}}}}}"#
    )
}

/// Returns the member of an answer that requests input, with this state as JSON text.
fn asking(state: Option<&str>) -> String {
    let state = state.map_or_else(String::new, |state| format!(r#""requestState":{state},"#));
    format!(
        r#""result":{{{state}"inputRequests":{{"k":{{"method":"roots/list"}}}},"resultType":"input_required"}}"#
    )
}

/// Returns the members of a further round of a call.
fn again(params: &str, state: Option<&str>) -> String {
    let state = state.map_or_else(String::new, |state| format!(r#","requestState":{state}"#));
    format!(r#"{params},"inputResponses":{{"k":{{"roots":[]}}}}{state}"#)
}

impl Scene {
    /// Sends a message and runs all tasks that need little time.
    async fn goes_on(&self, text: &str) {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        if let Some(exchange) = self.session.receive(message).await.unwrap() {
            tokio::spawn(exchange.run);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Makes a call of a modern client, which the server answers with this member.
    async fn call_with_answer(&self, id: u32, params: &str, member: &str) {
        self.goes_on(&modern(id, params)).await;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#);
        self.upstream.send_to_client(&answer, None).await;
    }

    async fn calls(&self) -> Vec<Invocation> {
        let filter = InvocationFilter::default();
        let calls = self.store.invocations(&filter, 100).await.unwrap();
        calls.into_iter().map(|call| call.invocation).collect()
    }

    /// Returns the rows, oldest first: each with its sequence number, and with the position of the
    /// row that it continues.
    async fn rows(&self) -> Vec<(u64, Option<usize>)> {
        let calls = self.calls().await;
        let position = |id| calls.iter().position(|call| call.id == id).unwrap();
        let rows = calls.iter();
        rows.map(|call| (call.sequence, call.continues.map(position)))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_round_with_a_modern_server_continues_the_first() {
    let scene = Setup::default().scene();
    // Servers and clients may spell a text in different ways.
    scene
        // Servers and clients may escape the same text differently.
        .call_with_answer(1, T, &asking(Some(r#""s\u0031""#)))
        .await;
    let second = again(T, Some(r#""s1""#));
    scene
        .call_with_answer(2, &second, &asking(Some(r#""s2""#)))
        .await;
    scene
        .call_with_answer(3, &again(T, Some(r#""s2""#)), DONE)
        .await;
    scene.call_with_answer(4, T, DONE).await;
    let expected = [(1, None), (1, Some(0)), (1, Some(0)), (2, None)];
    assert_eq!(scene.rows().await, expected);
}

#[tokio::test(start_paused = true)]
async fn stateless_rounds_continue_the_call_with_equal_arguments() {
    let scene = Setup::default().scene();
    let other = T.replace("1.0", "2");
    scene.call_with_answer(1, T, &asking(None)).await;
    scene.call_with_answer(2, &other, &asking(None)).await;
    let spelled_anew = r#""arguments":{ "a" : 1 },"name":"\u0074""#;
    scene
        .call_with_answer(3, &again(spelled_anew, None), &asking(None))
        .await;
    scene.call_with_answer(4, &again(&other, None), DONE).await;
    scene.call_with_answer(5, &again(T, None), DONE).await;
    // Without answers it is a call like any other.
    scene.call_with_answer(6, T, DONE).await;
    let expected = [
        (1, None),
        (2, None),
        (1, Some(0)),
        (2, Some(1)),
        (1, Some(0)),
        (3, None),
    ];
    assert_eq!(scene.rows().await, expected);
}

#[tokio::test(start_paused = true)]
async fn concurrent_multi_round_calls_are_distinguished() {
    let scene = Setup::default().scene();
    scene
        .call_with_answer(1, T, &asking(Some(r#""one""#)))
        .await;
    scene
        .call_with_answer(2, T, &asking(Some(r#""two""#)))
        .await;
    for (id, state) in [(3, r#""one""#), (4, r#""two""#)] {
        scene
            .call_with_answer(id, &again(T, Some(state)), DONE)
            .await;
    }
    let expected = [(1, None), (2, None), (1, Some(0)), (2, Some(1))];
    assert_eq!(scene.rows().await, expected);
}

#[tokio::test(start_paused = true)]
async fn rounds_of_unknown_calls_count_as_new_calls() {
    let scene = Setup::default().scene();
    scene.call_with_answer(1, T, &asking(Some(r#""s""#))).await;
    scene
        .call_with_answer(2, &again(T, Some(r#""x""#)), DONE)
        .await;
    scene.call_with_answer(3, &again(T, None), DONE).await;
    let of_another_tool = again(r#""name":"u""#, Some(r#""s""#));
    scene.call_with_answer(4, &of_another_tool, DONE).await;
    let expected = [(1, None), (2, None), (3, None), (4, None)];
    assert_eq!(scene.rows().await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_round_continues_the_call_twice() {
    let scene = Setup::default().scene();
    scene.call_with_answer(1, T, &asking(Some(r#""s""#))).await;
    for id in 2..=3 {
        scene
            .call_with_answer(id, &again(T, Some(r#""s""#)), DONE)
            .await;
    }
    assert_eq!(scene.rows().await, [(1, None), (1, Some(0)), (1, Some(0))]);
}

#[tokio::test(start_paused = true)]
async fn request_states_are_not_recorded() {
    let scene = Setup::default().scene();
    scene
        .call_with_answer(1, T, &asking(Some(r#""s3cr3t""#)))
        .await;
    let second = again(T, Some(r#""s3cr3t""#));
    scene.call_with_answer(2, &second, DONE).await;
    assert_eq!(scene.rows().await[1], (1, Some(0)));
    let records = format!("{:?}", scene.store.records());
    assert!(!records.contains("s3cr3t"), "{records}");
}
