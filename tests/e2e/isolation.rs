//! Isolation of principals: with `prediction.shared_learning = false`, the answers to one principal
//! do not depend on the history of another.

use std::time::Duration;

use regex::Regex;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};

const KEYS: &str = r#"
[auth.keys]
alice = "alice-key-0123456789abcdef"
bob = "bob-key-0123456789abcdef"

[search.encoder]
model = "none"

[filtering]
max_tools = 2
min_tools = 2

[recommend]
tools = true

# Searches predict tools even where little is known.
[prediction.bands]
show_all_below = 0.0
"#;

/// The number of sessions of a history, each with five calls.
const N_SESSIONS: u64 = 12;
/// A query that no tool fits, so that only predictions can be in its answer.
const UNFOUND: &str = r#"{"query":"weather in Paris"}"#;

async fn start(more: &str) -> Proxy {
    proxy()
        .before(server("plain").tools(500).upstream())
        .configuration(&format!("{KEYS}{more}"))
        .strategy("prediction")
        .with_control()
        .start()
        .await
}

async fn client(proxy: &Proxy, principal: &str) -> RawClient {
    let key = format!("Bearer {principal}-key-0123456789abcdef");
    proxy.client().header("authorization", &key).connect().await
}

/// Waits until this number of calls is learned.
async fn wait_until_learned(proxy: &Proxy, n_calls: u64) {
    for _ in 0..300 {
        let health = proxy.control_response("/health").await;
        let learned = health["prediction"]["learned_calls"].as_u64().unwrap();
        if health["prediction"]["status"] == "ok" && learned >= n_calls {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("calls were not learned from");
}

/// Makes sessions in which a principal searches, and uses the last tools of the catalog.
async fn make_history(proxy: &Proxy, principal: &str) {
    for _ in 0..N_SESSIONS {
        let client = client(proxy, principal).await;
        client.request(&request("1", "tools/list")).await;
        let query = r#"{"query":"tool 455"}"#;
        client
            .request(&call("2", "search_available_tools", query))
            .await;
        for (n, tool) in (3..).zip(["tool-455", "tool-456", "tool-457", "tool-458", "tool-459"]) {
            let answer = client.request(&call(&n.to_string(), tool, "{}")).await;
            assert!(answer.text.contains("result"), "{}", answer.text);
        }
    }
    wait_until_learned(proxy, 5 * N_SESSIONS).await;
    // The statistics of recommendations are read from the store.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Returns an answer with its identifiers replaced, because they differ in every run.
fn without_ids(text: &str) -> String {
    let id = Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap();
    id.replace_all(text, "ID").into_owned()
}

/// Returns the answers to a list, a search and a request for recommendations of a principal.
async fn answers_to(proxy: &Proxy, principal: &str) -> [String; 3] {
    let client = client(proxy, principal).await;
    let listed = client.request(&request("1", "tools/list")).await.text;
    // The answer has likely tools in addition to those that were found.
    let searched = client
        .request(&call("2", "search_available_tools", UNFOUND))
        .await
        .text;
    let query = r#"{"query":"tool 455"}"#;
    let recommended = client
        .request(&call("3", "recommend_tools", query))
        .await
        .text;
    assert!(recommended.contains("structuredContent"), "{recommended}");
    [listed, without_ids(&searched), without_ids(&recommended)]
}

/// Returns the answers to bob in front of a new proxy, without and with a history of alice.
async fn answers_to_bob(more: &str) -> [[String; 3]; 2] {
    let quiet = start(more).await;
    let without = answers_to(&quiet, "bob").await;
    let busy = start(more).await;
    make_history(&busy, "alice").await;
    let with = answers_to(&busy, "bob").await;
    [without, with]
}

#[tokio::test]
async fn isolated_principals_learn_nothing_from_each_other() {
    let isolated = "[prediction]\nshared_learning = false\n";
    let [without, with] = answers_to_bob(isolated).await;
    assert_eq!(without, with);
}

#[tokio::test]
async fn principals_that_share_learning_learn_from_each_other() {
    let [without, with] = answers_to_bob("").await;
    // What the other test compares can differ, each answer by itself.
    let differs = |at: usize| without[at] != with[at];
    assert!(differs(0), "lists: {}", with[0]);
    assert!(differs(1), "searches: {}", with[1]);
    assert!(differs(2), "recommendations: {}", with[2]);
    for used in ["tool-455", "tool-456", "tool-457", "tool-458", "tool-459"] {
        assert!(!without[1].contains(used), "{}", without[1]);
    }
    assert!(with[1].contains("tool-45"), "{}", with[1]);
}

#[tokio::test]
async fn isolated_principals_still_learn_from_themselves() {
    let proxy = start("[prediction]\nshared_learning = false\n").await;
    let before = answers_to(&proxy, "alice").await;
    make_history(&proxy, "alice").await;
    let after = answers_to(&proxy, "alice").await;
    // The search adds nothing here: the list of the work session already has all used tools.
    for at in [0, 2] {
        assert_ne!(before[at], after[at], "{at}");
    }
    assert!(after[0].contains("tool-45"), "{}", after[0]);
}
