//! Limits on calls and messages, through the real program: below, at and above each limit.

mod concurrent_calls;
mod connections;
mod message_rates;
mod principal_shares;
mod rates;

use std::path::Path;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Upstream;
use riglm_tests::messages::{call, initialize};
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;

use crate::odd_over_stdio;

/// The keys of two principals.
const KEYS: &str = r#"
[auth.keys]
ann = "key-of-ann-0123456789"
bob = "key-of-bob-0123456789"
"#;

async fn serve(data: &Path, toml: &str) -> Riglm {
    let options = Options::with_configuration(toml);
    Riglm::serve(&odd_over_stdio(), data, &options).await
}

/// Returns a client with its own session and work session.
async fn connect(riglm: &Riglm, principal: Option<&str>, work: &str) -> RawClient {
    let client = riglm.client(Answers::default());
    if let Some(principal) = principal {
        let bearer = format!("Bearer key-of-{principal}-0123456789");
        client.set_header("authorization", &bearer);
    }
    client.set_header("x-riglm-session", work);
    client.initialize(&initialize("\"i\"", "2025-11-25")).await;
    client
}

/// Calls a tool and returns the result.
async fn result(client: &RawClient, id: u32, tool: &str, arguments: &str) -> Value {
    let answer = client
        .request(&call(&id.to_string(), tool, arguments))
        .await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// Calls a tool and returns the reason of its refusal, or `None` if it was made.
async fn refusal(client: &RawClient, id: u32, tool: &str, arguments: &str) -> Option<String> {
    let result = result(client, id, tool, arguments).await;
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    let is_refused = text.starts_with("This call was not made: ");
    assert_eq!(is_refused, result["isError"] == true, "{result}");
    is_refused.then(|| text.to_owned())
}

/// Returns an upstream that lists the tools of a file.
fn listing_upstream() -> Upstream {
    Upstream::from_configuration()
}
