//! The own tools of the proxy: their place in lists, the results of searches, and calls of found
//! tools.

mod own_tools;

use std::time::Duration;

use riglm_tests::envelope::{json_string, raw_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::messages::{call, initialize};
use riglm_tests::riglm::{read_store, rows};
use serde_json::{Value, json};

use crate::client_variant::{ClientSession, ClientVariant, NAME, OWN, names, text_of};
use crate::{answers, dual_odd, odd_with};

/// Returns a legacy client over Streamable HTTP whose revision has structured content.
fn streamable_variant(is_aggregated: bool) -> ClientVariant {
    ClientVariant {
        downstream: Transport::Streamable,
        revision: "2025-06-18",
        is_aggregated,
    }
}

/// Returns the tool and the source of every recorded call.
async fn sources(talk: &ClientSession) -> Vec<(String, String)> {
    let rows = rows(talk.line.data_dir.path(), &["calls", "--json"]).await;
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    rows.iter()
        .map(|row| (text(row, "tool"), text(row, "source")))
        .collect()
}

#[tokio::test]
async fn own_tools_are_listed_last_with_revision_specific_members() {
    for face in ClientVariant::all() {
        let talk = face.start().await;
        let tools = talk.tools("list").await;
        let names = names(&tools);
        assert!(names.ends_with(&OWN), "{face:?}: {names:?}");
        for shown in ["odd", "empty"] {
            assert!(
                names.contains(&&*face.listed_name(shown)),
                "{face:?}: {names:?}"
            );
        }
        assert!(
            !names.contains(&&*face.listed_name("echo")),
            "{face:?}: {names:?}"
        );
        for own in OWN {
            assert_eq!(names.iter().filter(|name| **name == own).count(), 1);
            let mut all = tools.iter();
            let definition = all.find(|tool| tool["name"] == own).expect("it is listed");
            for key in ["title", "outputSchema", "annotations"] {
                let is_there = definition.contains_key(key);
                let is_known = key != "outputSchema" || own != "call_tool";
                let expected = face.is_structured() && is_known;
                assert_eq!(is_there, expected, "{face:?}: {own}: {key}");
            }
            let required = if own == "call_tool" { "name" } else { "query" };
            assert_eq!(definition["inputSchema"]["required"], json!([required]));
        }
    }
}

#[tokio::test]
async fn unlisted_hidden_tools_are_found_and_recorded_as_found() {
    for face in ClientVariant::all() {
        let talk = face.start().await;
        let result = talk.search("1", "echo").await;
        let echo = face.listed_name("echo");
        assert!(text_of(&result).contains(&echo), "{face:?}: {result}");
        let found = result["structuredContent"]["matches"].as_array();
        assert_eq!(found.is_some(), face.is_structured(), "{face:?}: {result}");
        if let Some(found) = found {
            assert!(found.iter().any(|tool| tool["name"] == *echo), "{result}");
            assert!(found.iter().all(|tool| tool["name"] != NAME), "{result}");
        }
        assert_eq!(result["resultType"] == "complete", face.is_modern());
        let called = talk.call("2", &echo, r#"{"text":"here"}"#).await;
        assert_eq!(text_of(&called), "here", "{face:?}");
        let expected = [("echo".to_owned(), "found".to_owned())];
        assert_eq!(sources(&talk).await, expected, "{face:?}");
        let count = read_store(talk.line.data_dir.path(), &["calls", "--count"]).await;
        assert_eq!(count.trim(), "1", "{face:?}: a search is no call");
    }
}

#[tokio::test]
async fn calls_are_recorded_as_hidden_found_or_shown() {
    for is_aggregated in [false, true] {
        let talk = streamable_variant(is_aggregated).start().await;
        talk.tools("list").await;
        let echo = talk.face.listed_name("echo");
        talk.call("1", &echo, r#"{"text":"a"}"#).await;
        talk.search("2", "echo").await;
        talk.call("3", &echo, r#"{"text":"b"}"#).await;
        talk.call("4", &talk.face.listed_name("empty"), "{}").await;
        let expected = [("echo", "hidden"), ("echo", "found"), ("empty", "shown")];
        let expected = expected.map(|(tool, source)| (tool.to_owned(), source.to_owned()));
        assert_eq!(sources(&talk).await, expected);
    }
}

#[tokio::test]
async fn disabled_strategies_leave_lists_unchanged_without_own_tools() {
    for face in ClientVariant::all()
        .into_iter()
        .filter(|face| !face.is_aggregated)
    {
        let talk = face.start_with("", "none").await;
        let upstream = dual_odd().start(Transport::Stdio).await;
        let client = if face.is_modern() {
            upstream.modern_client()
        } else {
            let client = upstream.client(answers()).await;
            client.initialize(&initialize("0", face.revision)).await;
            client
        };
        let direct = ClientSession::of(face, client);
        assert_eq!(
            talk.pages("list").await,
            direct.pages("list").await,
            "{face:?}"
        );
        let params = format!(r#""name":"{NAME}","arguments":{{"query":"echo"}}"#);
        let answer = talk.ask("1", "tools/call", &params).await;
        assert!(
            raw_at(&answer.text, &["error"]).is_some(),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn lists_have_the_same_bytes_every_time() {
    for is_aggregated in [false, true] {
        let talk = streamable_variant(is_aggregated).start().await;
        let first = talk.pages("first").await;
        talk.search("1", "echo").await;
        assert_eq!(talk.pages("second").await, first);
        let riglm = talk.line.riglm.as_ref().expect("the proxy listens");
        let client = riglm.client(answers());
        client.initialize(&initialize("0", "2025-06-18")).await;
        let other = ClientSession::of(talk.face, client);
        assert_eq!(other.pages("other").await, first);
    }
}

#[tokio::test]
async fn errors_for_invalid_arguments_describe_valid_ones() {
    for face in ClientVariant::all() {
        let talk = face.start().await;
        for (arguments, named) in [
            ("{}", "query"),
            (r#"{"query":""}"#, "query"),
            (r#"{"query":7}"#, "query"),
            (r#"{"query":"echo","limit":0}"#, "limit"),
            (r#"{"query":"echo","limit":"ten"}"#, "limit"),
            ("[]", "query"),
        ] {
            let result = talk.call("1", NAME, arguments).await;
            assert_eq!(result["isError"], true, "{face:?}: {arguments}");
            let text = text_of(&result);
            assert!(text.contains(named) && text.contains("must"), "{text}");
        }
        let result = talk.call("2", NAME, r#"{"query":"echo","limit":1,"why":{}}"#);
        assert_ne!(result.await["isError"], true, "{face:?}");
    }
}

#[tokio::test]
async fn renamed_own_tools_do_not_hide_upstream_tools() {
    let filter = "[filtering]\ndeny = [\"hang\"]\n";
    let talk = streamable_variant(false)
        .start_with(
            &format!("{filter}[search]\ntool_name = \"echo\"\n"),
            "denylist",
        )
        .await;
    let result = talk
        .call("1", "echo", r#"{"text":"own","query":"x"}"#)
        .await;
    assert_eq!(text_of(&result), "own");
    let tools = talk.tools("list").await;
    let all = names(&tools);
    assert_eq!(all.iter().filter(|name| **name == "echo").count(), 1);
    assert!(
        tools
            .iter()
            .all(|tool| tool.get("outputSchema").is_none() || tool["name"] != "echo")
    );
    let result = talk
        .call("2", "echo", r#"{"text":"own","query":"x"}"#)
        .await;
    assert_eq!(text_of(&result), "own");
    let riglm = talk.line.riglm.as_ref().expect("the proxy listens");
    let output = riglm.process.output();
    assert_eq!(output.matches("search.tool_name").count(), 1, "{output}");

    let talk = streamable_variant(false)
        .start_with(
            &format!("{filter}[search]\ntool_name = \"find\"\n"),
            "denylist",
        )
        .await;
    let tools = talk.tools("list").await;
    assert!(names(&tools).ends_with(&["find", "call_tool", "set_context"]));
    let result = talk.call("1", "find", r#"{"query":"hang"}"#).await;
    assert!(text_of(&result).contains("hang"), "{result}");
}

#[tokio::test]
async fn a_disabled_search_tool_is_neither_listed_nor_callable() {
    for is_aggregated in [false, true] {
        let configuration = "[filtering]\ndeny = [\"echo\"]\n[search]\nenabled = false\n";
        let face = streamable_variant(is_aggregated);
        let talk = face.start_with(configuration, "denylist").await;
        let tools = talk.tools("list").await;
        assert!(OWN.iter().all(|own| !names(&tools).contains(own)));
        let params = format!(r#""name":"{NAME}","arguments":{{"query":"echo"}}"#);
        let answer = talk.ask("1", "tools/call", &params).await;
        assert!(
            raw_at(&answer.text, &["error"]).is_some(),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_cancelled_search_is_not_answered_and_holds_nothing_up() {
    for face in ClientVariant::all()
        .into_iter()
        .filter(|face| !face.is_aggregated)
    {
        let arguments = ["--era", "dual", "--tools", "3", "--delay", "1500"];
        let slow = odd_with(&arguments).start(Transport::Stdio).await;
        let upstream = Upstream::of_command(slow.command.clone());
        let talk = face
            .start_before(&upstream, "[filtering]\ndeny = [\"x\"]\n", "denylist")
            .await;
        let client = &talk.line.client;
        let params = format!(r#""name":"{NAME}","arguments":{{"query":"tool"}}"#);
        let text = talk.text("1", "tools/call", &params);
        let sending = client.send(&text);
        let cancelling = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            client.cancel("1").await;
            talk.search("2", "tool").await
        };
        // Over HTTP a response that never comes may have no head either.
        let (_, result) = tokio::join!(
            tokio::time::timeout(Duration::from_secs(1), sending),
            cancelling
        );
        assert!(text_of(&result).contains("tool-000"), "{face:?}: {result}");
        let received = client.received_messages();
        assert!(
            received.iter().all(|message| !message.answers("1")),
            "{face:?}"
        );
    }
}

#[tokio::test]
async fn a_search_in_a_batch_is_answered_among_the_others() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        let face = ClientVariant {
            downstream,
            revision: "2025-03-26",
            is_aggregated: false,
        };
        let talk = face.start().await;
        let search = call(
            "1",
            NAME,
            &format!(r#"{{"query":{}}}"#, json_string("echo")),
        );
        let other = call("2", "echo", r#"{"text":"other"}"#);
        let client = &talk.line.client;
        client.send(&format!("[{search},{other}]")).await;
        assert!(client.answer("1").await.text.contains("echo"));
        assert!(client.answer("2").await.text.contains("other"));
    }
}

#[tokio::test]
async fn identical_tools_of_several_servers_are_one_match() {
    let odd = dual_odd().start(Transport::Stdio).await;
    let command = Value::from(odd.command.clone());
    let servers = ["one", "two", "three"];
    let sections = servers.map(|name| format!("[upstreams.{name}]\ncommand = {command}\n"));
    let configuration = format!("[filtering]\ndeny = [\"echo\"]\n{}", sections.concat());
    let upstream = Upstream::from_configuration();
    let talk = streamable_variant(true)
        .start_before(&upstream, &configuration, "denylist")
        .await;
    let arguments = r#"{"query":"echo the text","limit":1}"#;
    let result = talk.call("1", NAME, arguments).await;
    let matches = &result["structuredContent"]["matches"];
    assert_eq!(matches.as_array().map(Vec::len), Some(1), "{result}");
    let same = matches[0]["same_as"].as_array().expect("it is an array");
    let named = same.iter().chain([&matches[0]["name"]]);
    let mut named: Vec<&str> = named.filter_map(Value::as_str).collect();
    named.sort_unstable();
    assert_eq!(named, ["one__echo", "three__echo", "two__echo"]);
    for name in named {
        assert!(text_of(&result).contains(name), "{result}");
    }
}

#[tokio::test]
async fn searches_of_very_long_lists_are_limited_and_noted() {
    for is_listed_before in [false, true] {
        let long = odd_with(&["--era", "dual", "--tools", "5030"]);
        let long = long.start(Transport::Stdio).await;
        let upstream = Upstream::of_command(long.command.clone());
        let configuration = "[filtering]\ndeny = [\"x\"]\n";
        let talk = streamable_variant(false)
            .start_before(&upstream, configuration, "denylist")
            .await;
        let mut cursor = is_listed_before.then(String::new);
        while let Some(params) = cursor {
            let answer = talk.ask("\"page\"", "tools/list", &params).await;
            let next = raw_at(&answer.text, &["result", "nextCursor"]);
            cursor = next.map(|next| format!(r#""cursor":{next}"#));
        }
        for (id, name, is_found) in [("1", "tool-4999", true), ("2", "tool-5000", false)] {
            let result = talk.search(id, name).await;
            let matches = result["structuredContent"]["matches"].as_array();
            let mut matches = matches.expect("there are matches").iter();
            assert_eq!(
                matches.any(|tool| tool["name"] == name),
                is_found,
                "{result}"
            );
            let note = "Only the first 5000 tools are searched; there are more.";
            assert!(text_of(&result).contains(note), "{result}");
        }
        let riglm = talk.line.riglm.as_ref().expect("the proxy listens");
        let output = riglm.process.output();
        let n_warnings = output
            .matches("lists more tools than the search limit")
            .count();
        assert_eq!(n_warnings, 1, "{output}");
    }
}
