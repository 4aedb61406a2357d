//! Calls through `call_tool`, unknown tool names, and contexts that a client declares.

use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::Transport;
use riglm_tests::modern::REVISION;
use riglm_tests::riglm::read_store;
use serde_json::Value;

use super::{sources, streamable_variant};
use crate::client_variant::{ClientSession, ClientVariant, text_of};
use crate::modern_odd;

fn parse(answer: &str) -> Value {
    serde_json::from_str(answer).expect("an answer is JSON")
}

/// Returns the message of an error, or the last text of an error result.
fn error_text(answer: &str) -> String {
    let answer = parse(answer);
    if let Some(message) = answer["error"]["message"].as_str() {
        return message.to_owned();
    }
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let content = answer["result"]["content"].as_array();
    let last = content.and_then(|content| content.last());
    let text = last.and_then(|last| last["text"].as_str());
    text.unwrap_or_default().to_owned()
}

/// Returns the responses to a direct call and to two calls through `call_tool`: the first before
/// the proxy knows the list, the second after it.
async fn three_ways(talk: &ClientSession, tool: &str, arguments: &str) -> [String; 3] {
    let result = |answer: String| {
        raw_at(&answer, &["result"])
            .or_else(|| raw_at(&answer, &["error"]))
            .unwrap_or_else(|| panic!("{:?}: {answer}", talk.face))
    };
    let first = result(talk.answer("1", (tool, true), arguments).await);
    let second = result(talk.answer("2", (tool, true), arguments).await);
    let direct = result(talk.answer("3", (tool, false), arguments).await);
    [direct, first, second]
}

#[tokio::test]
async fn call_tool_returns_the_same_result_as_a_direct_call() {
    for face in ClientVariant::all() {
        for (tool, arguments) in [
            // The result contains the length of the params, which must be the same.
            ("echo", r#"{"text":"h\u0065re"}"#),
            ("odd", "{}"),
            ("is_error", "{}"),
            ("fail", r#"{"code":-32000}"#),
        ] {
            let talk = face.start().await;
            let shown = face.listed_name(tool);
            let [direct, first, second] = three_ways(&talk, &shown, arguments).await;
            assert_eq!(first, direct, "{face:?}: {tool}");
            assert_eq!(second, direct, "{face:?}: {tool}");
            let source = if tool == "echo" { "hidden" } else { "shown" };
            let expected = (tool.to_owned(), source.to_owned());
            assert_eq!(sources(&talk).await, vec![expected; 3], "{face:?}");
        }
    }
}

#[tokio::test]
async fn call_tool_derives_the_headers_of_the_inner_call() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let face = ClientVariant {
        downstream: Transport::Streamable,
        revision: REVISION,
        is_aggregated: false,
    };
    let talk = face
        .start_before(&upstream, "[filtering]\ndeny = [\"echo\"]\n", "denylist")
        .await;
    // The server refuses calls without the headers that its schema requires.
    let arguments = r#"{"region":"eu \u00e9","place":{"number":7},"flag":true}"#;
    for id in ["1", "2"] {
        let answer = talk.answer(id, ("mirrored", true), arguments).await;
        assert!(raw_at(&answer, &["result"]).is_some(), "{answer}");
        let seen = talk.answer(id, ("seen", true), "{}").await;
        let headers = ["result", "structuredContent", "headers", "mcp-name"];
        assert_eq!(
            raw_at(&seen, &headers).as_deref(),
            Some(r#""seen""#),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn call_tool_forwards_progress_and_cancellation() {
    for is_aggregated in [false, true] {
        let talk = streamable_variant(is_aggregated).start().await;
        let client = &talk.line.client;
        for (id, is_known) in [("1", false), ("2", true)] {
            let shown = talk.face.listed_name("progress");
            let params = format!(
                r#""name":"call_tool","arguments":{{"name":"{shown}","arguments":{{"steps":2}}}},"_meta":{{"progressToken":"of {id}"}}"#
            );
            let before = client.n_received();
            let answer = talk.ask(id, "tools/call", &params).await;
            assert!(answer.text.contains("told"), "{is_known}: {}", answer.text);
            let told = client
                .method_after(before, "notifications/progress", 2)
                .await;
            let token = format!(r#""of {id}""#);
            for message in told {
                let found = raw_at(&message.text, &["params", "progressToken"]);
                assert_eq!(found.as_deref(), Some(&*token));
            }
        }
        let shown = talk.face.listed_name("wait_cancel");
        let params = format!(r#""name":"call_tool","arguments":{{"name":"{shown}"}}"#);
        let before = client.n_received();
        let text = talk.text("3", "tools/call", &params);
        let cancelling = async {
            client
                .method_after(before, "notifications/message", 1)
                .await;
            client.cancel("3").await;
        };
        // Over HTTP a response that never comes may have no head either.
        let limit = std::time::Duration::from_secs(5);
        let sending = tokio::time::timeout(limit, client.send(&text));
        let _ = tokio::join!(sending, cancelling);
        let rows = riglm_tests::riglm::rows(talk.line.data_dir.path(), &["calls", "--json"]).await;
        let last = rows.last().expect("there are calls");
        assert_eq!(last["tool"], "wait_cancel");
        assert_eq!(last["outcome"], "cancelled", "{last}");
    }
}

#[tokio::test]
async fn call_tool_does_not_call_itself() {
    for face in ClientVariant::all() {
        let talk = face.start().await;
        let none = talk.answer("1", ("call_tool", true), "{}").await;
        assert!(error_text(&none).contains("this tool itself"), "{none}");
        let result = parse(&none)["result"].take();
        assert_eq!(result["resultType"] == "complete", face.is_modern());
        let count = read_store(talk.line.data_dir.path(), &["calls", "--count"]).await;
        assert_eq!(count.trim(), "0", "{face:?}");
    }
}

#[tokio::test]
async fn an_unknown_tool_name_gets_similar_names() {
    for face in ClientVariant::all() {
        let talk = face.start().await;
        for (id, is_through) in [("1", false), ("2", true)] {
            let answer = talk.answer(id, ("ecko", is_through), "{}").await;
            let said = error_text(&answer);
            let echo = face.listed_name("echo");
            assert!(said.contains(&echo), "{face:?}: {said}");
            assert_eq!(said.contains("Input schema"), id == "1", "{face:?}: {said}");
            let code = parse(&answer)["error"]["code"].as_i64();
            assert!(code.is_none_or(|code| code == -32602), "{answer}");
        }
    }
}

#[tokio::test]
async fn failed_calls_of_a_hidden_tool_get_its_schema_once() {
    for face in ClientVariant::all() {
        let configuration = "[filtering]\nallow = [\"odd\"]\n";
        let talk = face.start_with(configuration, "allowlist").await;
        let fail = face.listed_name("fail");
        for (id, code, has_schema) in [
            ("1", -32_000, false),
            ("2", -32_602, true),
            ("3", -32_602, false),
        ] {
            let arguments = format!(r#"{{"code":{code},"note":7}}"#);
            let answer = talk.answer(id, (&fail, true), &arguments).await;
            assert_eq!(parse(&answer)["error"]["code"], code, "{face:?}: {answer}");
            let said = error_text(&answer);
            assert!(said.starts_with("odd: "), "{said}");
            let schema = format!("Input schema of {fail}: {{");
            assert_eq!(said.contains(&schema), has_schema, "{face:?}: {said}");
            assert_eq!(said.ends_with('\u{ab}'), !has_schema, "{said}");
        }
    }
}

#[tokio::test]
async fn set_context_returns_matching_tools() {
    for face in ClientVariant::all() {
        let talk = face.start().await;
        let said = r#"{"query":"echo","intent":"the text of a secret plan"}"#;
        let result = talk.call("1", "set_context", said).await;
        let echo = face.listed_name("echo");
        assert!(text_of(&result).contains(&echo), "{face:?}: {result}");
        let found = result["structuredContent"]["matches"].as_array();
        assert_eq!(found.is_some(), face.is_structured(), "{face:?}: {result}");
        talk.call("2", &echo, r#"{"text":"here"}"#).await;
        let expected = [("echo".to_owned(), "found".to_owned())];
        assert_eq!(sources(&talk).await, expected, "{face:?}");
    }
}
