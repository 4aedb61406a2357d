//! Diminishing returns: agents that repeat searches without progress get a notice, agents that use
//! the results do not.

use std::path::Path;

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};
use serde_json::{Value, json};

struct RunningProxy {
    proxy: Proxy,
    client: RawClient,
    n_requests: std::cell::Cell<u32>,
}

/// Starts the proxy in front of these servers. The tools of all but `odd` are defined in files.
async fn start_proxy(servers: &[&str], more: &str) -> RunningProxy {
    let mut proxy = proxy();
    for name in servers {
        let listing =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("e2e/recommending/{name}.json"));
        proxy = proxy.server(&match *name {
            "odd" => server("odd"),
            name => server(name).listing(&listing),
        });
    }
    let proxy = proxy.configuration(more).strategy("prediction");
    let proxy = proxy.with_control().start().await;
    let client = proxy.client().connect().await;
    client.request(&request("1", "tools/list")).await;
    RunningProxy {
        proxy,
        client,
        n_requests: std::cell::Cell::new(10),
    }
}

impl RunningProxy {
    /// Calls a tool and returns the notice about searches, if any, and the result.
    async fn call(&self, tool: &str, arguments: &Value) -> (Option<String>, Value) {
        let id = self.n_requests.replace(self.n_requests.get() + 1);
        let asked = call(&id.to_string(), tool, &arguments.to_string());
        let answer = self.client.request(&asked).await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        let result = answer["result"].clone();
        let content = result["content"].as_array().unwrap();
        let mut texts = content.iter().filter_map(|part| part["text"].as_str());
        let said = texts.find(|text| text.contains("earching in circles"));
        (said.map(str::to_owned), result.clone())
    }

    async fn search(&self, query: &str) -> Option<String> {
        let (said, result) = self
            .call("search_available_tools", &json!({"query": query}))
            .await;
        assert!(
            result["structuredContent"]["matches"].is_array(),
            "{result}"
        );
        said
    }

    async fn metrics(&self) -> String {
        let asked = self.proxy.operate(Method::GET, "/metrics", "");
        asked.await.body
    }
}

/// A scripted agent: its query and the tool that it calls then.
const USEFUL: [(&str, &str); 4] = [
    ("find where a function is defined", "find_symbol"),
    ("read a file from disk", "read_file"),
    ("run a command in a shell", "execute_shell_command"),
    ("find where a function is defined", "find_symbol"),
];
const CIRCLING: [&str; 4] = [
    "send a letter by post",
    "rename a variable everywhere",
    "run a command in a shell",
    "write down a memory",
];

#[tokio::test]
async fn repeated_searches_without_calls_give_escalating_warnings() {
    for (servers, prefix) in [(&["code"][..], ""), (&["code", "browser"], "code__")] {
        let line = start_proxy(
            servers,
            "[safeguards.searches]\noverlap = 1.0\nfalling = 16\n",
        )
        .await;
        let mut said = Vec::new();
        for query in CIRCLING {
            said.push(line.search(query).await);
        }
        assert_eq!((&said[0], &said[1]), (&None, &None));
        let third = said[2].as_ref().unwrap();
        assert!(third.starts_with("Searching in circles: 3 searches without calling a tool."));
        for query in &CIRCLING[..3] {
            assert!(third.contains(&format!("\"{query}\"")), "{third}");
        }
        let fourth = said[3].as_ref().unwrap();
        assert!(
            fourth.starts_with("Still searching") && fourth.contains("ask the user"),
            "{fourth}"
        );
        // The agent calls a found tool, which ends the repetition.
        let tool = format!("{prefix}read_file");
        let (said, _) = line.call(&tool, &json!({})).await;
        assert_eq!(said, None);
        assert_eq!(line.search("rename a variable").await, None);
        let metrics = line.metrics().await;
        for expected in [
            r#"riglm_search_warnings_total{advice="warning",sign="without_call"} 1"#,
            r#"riglm_search_warnings_total{advice="ask_user",sign="without_call"} 1"#,
            r#"riglm_search_warnings_answered_total{stopped="false"} 1"#,
            r#"riglm_search_warnings_answered_total{stopped="true"} 1"#,
            r#"riglm_work_session_searches_total{searched="tools"} 5"#,
            r#"riglm_work_session_searches_followed_total{searched="tools"} 1"#,
        ] {
            assert!(metrics.contains(expected), "{expected} in {metrics}");
        }
    }
}

#[tokio::test]
async fn agents_are_warned_by_the_third_search_by_default() {
    let line = start_proxy(&["code", "browser"], "").await;
    let mut said = Vec::new();
    for query in CIRCLING {
        said.push(line.search(query).await);
    }
    assert!(said[..3].iter().any(Option::is_some), "{said:?}");
    assert!(
        said[3].as_ref().unwrap().contains("ask the user"),
        "{said:?}"
    );
}

#[tokio::test]
async fn searches_followed_by_calls_give_no_warning() {
    for (servers, prefix) in [(&["code"][..], ""), (&["code", "browser"], "code__")] {
        let line = start_proxy(servers, "").await;
        for (query, tool) in USEFUL {
            assert_eq!(line.search(query).await, None, "{query}");
            let (said, _) = line.call(&format!("{prefix}{tool}"), &json!({})).await;
            assert_eq!(said, None, "{tool}");
        }
    }
}

#[tokio::test]
async fn a_repeated_search_returns_the_earlier_answer_with_a_note() {
    let line = start_proxy(&["code"], "").await;
    let search = |query: &'static str| {
        let (line, query) = (&line, json!({"query": query}));
        async move { line.call("search_available_tools", &query).await }
    };
    // Only after all tools have vectors, a search result may be repeated.
    let mut result = search("find a symbol").await.1;
    for _ in 0..200 {
        line.call("read_file", &json!({})).await;
        result = search("Find  a SYMBOL").await.1;
        if result.to_string().contains("You made this search before") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let line_of = "You made this search before. The answer is the same.";
    assert!(
        result["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains(line_of),
        "{result}"
    );
    let notes = result["structuredContent"]["notes"].as_array().unwrap();
    assert_eq!(notes.last().unwrap(), line_of);
    // A repeated search without a call in between is a repetition too.
    let (said, _) = search("find a symbol").await;
    assert!(said.unwrap().contains("you searched for the same before"));
}

#[tokio::test]
async fn repeated_searches_of_upstream_tools_are_noticed_by_pattern() {
    let with_pattern = "[safeguards.searches]\ntools = [\"echo\"]\n";
    for (servers, prefix) in [(&["odd"][..], ""), (&["odd", "code"], "odd__")] {
        let line = start_proxy(servers, with_pattern).await;
        let echo = format!("{prefix}echo");
        let page = |n: usize| json!({"text": format!("line {n} of it\nline {} of it", n + 1)});
        let found = |n| {
            let (line, echo) = (&line, &echo);
            async move { line.call(echo, &page(n)).await.0 }
        };
        assert_eq!(found(1).await, None);
        assert_eq!(found(2).await, None, "half of it is new");
        assert!(
            found(2)
                .await
                .unwrap()
                .contains("you searched for the same before")
        );
        assert!(found(9).await.unwrap().contains("ask the user"));
        // Another tool ends the repetition.
        line.call(&format!("{prefix}structured"), &json!({})).await;
        assert_eq!(found(9).await, None);
    }
    let line = start_proxy(&["odd"], "").await;
    for _ in 0..5 {
        assert_eq!(line.call("echo", &json!({"text": "same"})).await.0, None);
    }
}

#[tokio::test]
async fn no_notice_is_added_if_the_safeguard_is_disabled() {
    let line = start_proxy(&["code"], "[safeguards.searches]\nenabled = false\n").await;
    for query in CIRCLING.iter().chain(&CIRCLING) {
        assert_eq!(line.search(query).await, None);
    }
}
