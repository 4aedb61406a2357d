//! Ten upstreams behind one proxy: both eras over every transport, one of them slow and one
//! unreachable.

mod many;

use std::time::{Duration, Instant};

use riglm_tests::envelope::{integer_at, raw_at, string_at};
use riglm_tests::fixture::Transport;
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::initialize;
use serde_json::Value;

use crate::{answers, odd_with};
use many::{EraClient, HEALTHY, N_TOOLS, PATIENCE, SLOW, TenServers, UNREACHABLE};

/// Returns the names of the tools of a server.
fn tools_of(server: &str) -> Vec<String> {
    (0..N_TOOLS)
        .map(|n| format!("{server}__tool-{n:03}"))
        .collect()
}

fn healthy_servers() -> impl Iterator<Item = String> + Clone {
    (0..HEALTHY.len()).map(|n| format!("u{n}"))
}

fn text_of(answer: &ReceivedMessage) -> String {
    let content = raw_at(&answer.text, &["result", "content"])
        .unwrap_or_else(|| panic!("no content: {}", answer.text));
    let content: Vec<Value> = serde_json::from_str(&content).expect("content is JSON");
    content[0]["text"].as_str().unwrap_or_default().to_owned()
}

fn assert_own_error(answer: &ReceivedMessage) {
    let code = integer_at(&answer.text, &["error", "code"])
        .unwrap_or_else(|| panic!("no error: {}", answer.text));
    assert!(!(-32_768..=-32_000).contains(&code), "{code} is reserved");
}

#[tokio::test]
async fn merged_lists_contain_all_healthy_servers_in_stable_order() {
    let many = TenServers::start().await;
    for speaker in many.clients().await {
        let tools = speaker.all_tools().await;
        let mut expected: Vec<String> = healthy_servers()
            .flat_map(|server| tools_of(&server))
            .collect();
        expected.extend(tools_of(SLOW));
        let mut sorted = tools.clone();
        sorted.sort();
        expected.sort();
        assert_eq!(sorted, expected, "modern: {}", speaker.is_modern);
        assert_eq!(speaker.tools("again").await, tools, "the order is the same");
        for server in healthy_servers() {
            let own: Vec<&String> = tools
                .iter()
                .filter(|tool| tool.starts_with(&format!("{server}__")))
                .collect();
            assert!(own.is_sorted(), "the order of {server} is its own: {own:?}");
        }
    }
}

#[tokio::test]
async fn two_clients_see_the_same_order() {
    let many = TenServers::start().await;
    let [legacy, modern] = many.clients().await;
    assert_eq!(legacy.all_tools().await, modern.all_tools().await);
}

#[tokio::test]
async fn calls_reach_the_server_of_the_tool() {
    let many = TenServers::start().await;
    for speaker in many.clients().await {
        for server in healthy_servers() {
            let tool = format!("{server}__tool-042");
            let answer = speaker.call(&format!("\"{server}\""), &tool).await;
            assert_eq!(text_of(&answer), format!("{server} ran tool-042"));
        }
        let slow = speaker.call("\"slow\"", &format!("{SLOW}__tool-000")).await;
        assert_eq!(text_of(&slow), format!("{SLOW} ran tool-000"));
        let dead = speaker
            .call("\"dead\"", &format!("{UNREACHABLE}__tool-000"))
            .await;
        assert_own_error(&dead);
        for unknown in ["u0__nothing", "u77__tool-000", "tool-000"] {
            let answer = speaker.call("\"unknown\"", unknown).await;
            let code = integer_at(&answer.text, &["error", "code"]);
            assert_eq!(code, Some(-32602), "{unknown}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_slow_and_an_unreachable_server_do_not_delay_other_calls() {
    const ROUNDS: usize = 3;
    let many = TenServers::start().await;
    for speaker in many.clients().await {
        // Connects all upstreams before the measurement.
        speaker.all_tools().await;
        for server in healthy_servers() {
            let tool = format!("{server}__tool-000");
            speaker.call(&format!("\"warm {server}\""), &tool).await;
        }
        let params = format!(r#""name":"{SLOW}__tool-001","arguments":{{}}"#);
        let slow = speaker.text("\"slow\"", "tools/call", &params);
        let params = format!(r#""name":"{UNREACHABLE}__tool-001","arguments":{{}}"#);
        let dead = speaker.text("\"dead\"", "tools/call", &params);
        let calls = async {
            for round in 0..ROUNDS {
                for server in healthy_servers() {
                    let tool = format!("{server}__tool-{round:03}");
                    let answer = speaker.call(&format!("\"{server} {round}\""), &tool).await;
                    assert_eq!(text_of(&answer), format!("{server} ran tool-{round:03}"));
                }
            }
            let received = speaker.client.received_messages();
            received.iter().any(|message| message.answers("\"slow\""))
        };
        let (slow, dead, was_overtaken) = tokio::join!(
            speaker.client.request(&slow),
            speaker.client.request(&dead),
            calls
        );
        assert!(
            !was_overtaken,
            "{} calls took longer than one of the slow server (modern: {})",
            ROUNDS * HEALTHY.len(),
            speaker.is_modern
        );
        assert_eq!(text_of(&slow), format!("{SLOW} ran tool-001"));
        assert_own_error(&dead);
    }
}

#[tokio::test]
async fn resources_are_read_from_their_server() {
    let many = TenServers::start().await;
    for speaker in many.clients().await {
        speaker.all_tools().await;
        let uris = speaker
            .list_all_pages("uris", "resources/list", "resources", "uri")
            .await;
        let templates = speaker
            .list_all_pages(
                "templates",
                "resources/templates/list",
                "resourceTemplates",
                "uriTemplate",
            )
            .await;
        for server in healthy_servers() {
            let uri = format!("plain://{server}/1");
            assert!(uris.contains(&uri), "{uris:?}");
            let template = format!("plain://{server}/t/{{id}}");
            assert!(templates.contains(&template), "{templates:?}");
            for uri in [uri, format!("plain://{server}/t/7")] {
                let params = format!(r#""uri":"{uri}""#);
                let answer = speaker.ask("\"read\"", "resources/read", &params).await;
                assert!(
                    answer.text.contains(&format!("{server} has {uri}")),
                    "{}",
                    answer.text
                );
            }
        }
        let unknown = speaker
            .ask("\"none\"", "resources/read", r#""uri":"nowhere://x""#)
            .await;
        let code = integer_at(&unknown.text, &["error", "code"]);
        assert!(
            code == Some(-32602) || !speaker.is_modern && code == Some(-32002),
            "{}",
            unknown.text
        );
    }
}

#[tokio::test]
async fn prompts_of_all_servers_are_listed_under_distinct_names() {
    let many = TenServers::start().await;
    for speaker in many.clients().await {
        speaker.all_tools().await;
        let names = speaker
            .list_all_pages("prompts", "prompts/list", "prompts", "name")
            .await;
        for server in healthy_servers() {
            let name = format!("{server}__greet");
            assert!(names.contains(&name), "{names:?}");
            let params = format!(r#""name":"{name}""#);
            let answer = speaker.ask("\"get\"", "prompts/get", &params).await;
            assert!(
                answer.text.contains(&format!("{server} greets")),
                "{}",
                answer.text
            );
        }
        assert!(
            !names.iter().any(|name| name.starts_with(UNREACHABLE)),
            "{names:?}"
        );
    }
}

#[tokio::test]
async fn pages_follow_each_other_and_a_stale_cursor_is_refused() {
    let many = TenServers::start().await;
    for speaker in many.clients().await {
        let tools = speaker.all_tools().await;
        let mut distinct = tools.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), tools.len(), "no tool comes twice");
        for cursor in [r#""made up""#, r#""from 40""#, r#""""#] {
            let params = format!(r#""cursor":{cursor}"#);
            let answer = speaker.ask("\"stale\"", "tools/list", &params).await;
            let code = integer_at(&answer.text, &["error", "code"]);
            assert_eq!(code, Some(-32602), "{cursor}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn initialize_returns_one_server_with_the_capabilities_of_all() {
    let many = TenServers::start().await;
    let [_, modern] = many.clients().await;
    let discovered = modern.ask("\"d\"", "server/discover", "").await;
    let legacy = many.riglm.client(answers()).with_patience(PATIENCE);
    let initialized = legacy.initialize(&initialize("0", "2025-11-25")).await;
    for answer in [discovered, initialized] {
        for capability in ["tools", "resources", "prompts"] {
            let path = ["result", "capabilities", capability];
            assert!(raw_at(&answer.text, &path).is_some(), "{}", answer.text);
        }
        let changes = ["result", "capabilities", "tools", "listChanged"];
        assert_eq!(
            raw_at(&answer.text, &changes).as_deref(),
            Some("true"),
            "{}",
            answer.text
        );
    }
    let version = string_at(
        &legacy.received_messages()[0].text,
        &["result", "protocolVersion"],
    );
    assert_eq!(version.as_deref(), Some("2025-11-25"));
}

#[tokio::test]
async fn the_unusual_server_lists_calls_and_reads_in_both_eras() {
    let arguments = ["--era", "dual", "--tools", "100", "--name", "u0"];
    let upstream = odd_with(&arguments).start(Transport::Streamable).await;
    let legacy = upstream.client(answers()).await;
    legacy.initialize(&initialize("0", "2025-11-25")).await;
    for (client, is_modern) in [(legacy, false), (upstream.modern_client(), true)] {
        let speaker = EraClient { client, is_modern };
        let tools = speaker.tools("direct").await;
        let expected: Vec<String> = (0..N_TOOLS).map(|n| format!("tool-{n:03}")).collect();
        assert_eq!(tools, expected);
        let pages = speaker.client.received_messages().len();
        assert!(pages >= 3, "{pages} pages");
        let called = speaker.call("\"c\"", "tool-042").await;
        assert_eq!(text_of(&called), "u0 ran tool-042");
        let wrong = speaker
            .ask("\"w\"", "tools/list", r#""cursor":"made up""#)
            .await;
        let code = integer_at(&wrong.text, &["error", "code"]);
        assert_eq!(code, Some(-32602), "{}", wrong.text);
        for uri in ["plain://u0/1", "plain://u0/t/7"] {
            let params = format!(r#""uri":"{uri}""#);
            let read = speaker.ask("\"r\"", "resources/read", &params).await;
            assert!(
                read.text.contains(&format!("u0 has {uri}")),
                "{}",
                read.text
            );
        }
    }
}

/// Prints the latencies of a client in front of ten servers: the first list, a later list, and a
/// call, alone and during calls to the slow and the unreachable server.
#[tokio::test]
#[ignore = "needs a quiet machine and prints figures: run it with --nocapture and RIGLM_BIN"]
async fn prints_latencies() {
    const CALLS: usize = 200;
    let many = TenServers::start().await;
    for (era, speaker) in ["legacy", "modern"].iter().zip(many.clients().await) {
        let begun = Instant::now();
        let first = speaker.tools("first").await.len();
        let first_list = begun.elapsed();
        let all = speaker.all_tools().await.len();
        let begun = Instant::now();
        speaker.tools("later").await;
        let later_list = begun.elapsed();
        let alone = speaker.median_of_calls("alone", CALLS).await;
        let disturbed = async {
            let params = format!(r#""name":"{SLOW}__tool-001","arguments":{{}}"#);
            let slow = speaker.text("\"slow\"", "tools/call", &params);
            let params = format!(r#""name":"{UNREACHABLE}__tool-001","arguments":{{}}"#);
            let dead = speaker.text("\"dead\"", "tools/call", &params);
            let others = async {
                tokio::join!(speaker.client.request(&slow), speaker.client.request(&dead))
            };
            tokio::join!(others, speaker.median_of_calls("disturbed", CALLS)).1
        };
        let disturbed = disturbed.await;
        eprintln!(
            "{era}: first list of {first} tools {first_list:.0?}, list of {all} tools {later_list:.1?}, \
             median call {alone:.0?}, while the slow and the dead one are called {disturbed:.0?}"
        );
    }
}

impl EraClient {
    /// Returns the median latency of calls to the healthy servers in turn.
    async fn median_of_calls(&self, what: &str, n: usize) -> Duration {
        let mut times = Vec::with_capacity(n);
        for (number, server) in healthy_servers().cycle().take(n).enumerate() {
            let begun = Instant::now();
            let tool = format!("{server}__tool-007");
            let answer = self.call(&format!("\"{what} {number}\""), &tool).await;
            times.push(begun.elapsed());
            assert_eq!(text_of(&answer), format!("{server} ran tool-007"));
        }
        times.sort_unstable();
        times[n / 2]
    }
}
