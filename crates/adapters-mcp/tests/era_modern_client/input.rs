//! Requests of a legacy server to the client during a call.

mod call_assignment;
mod endings;
mod rounds;

use std::time::Duration;

use crate::scene::Scene;

const SHORT: Duration = Duration::from_secs(1);
const FORM: &str = r#"{"message":"who?","requestedSchema":{"n":1.0}}"#;
const ACCEPT: &str = r#"{"action":"accept","content":{"n":1e3}}"#;

/// Returns a call that waits for the answer to an elicitation, and its state.
async fn parked_call(scene: &Scene) -> (String, String) {
    scene.call("1").await;
    let id = scene.legacy_id("tools/call");
    scene.ask("7", "elicitation/create", FORM).await;
    let (_, state) = scene.input_request().await;
    (id, state)
}
