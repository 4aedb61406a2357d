//! Requests to one of several upstreams, and requests from upstreams.

use riglm_app::proxy::NamespacePolicy;
use riglm_domain::catalog::naming::{earlier_name, prefixed_name};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::RequestId;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository};
use riglm_ports::downstream::Route;
use riglm_ports::upstream::UpstreamError;
use serde_json::{Value, json};

use super::scene::{Scene, Setup, upstream};

async fn pair() -> Scene {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["x"])]);
    scene.initialize().await;
    scene
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[tokio::test]
async fn calls_are_sent_and_recorded_under_the_owners_name() {
    let scene = pair().await;
    scene.upstreams[1].reply_to("tools/call", r#""result":{"content":[],"n":1.0}"#);
    let call = json!({"name": "b__x", "arguments": {"k": 1}});
    scene.ask(1, "tools/call", call).await;
    let sent = scene.sent_messages(1).pop().unwrap();
    assert_eq!(
        sent,
        request(
            1,
            "tools/call",
            &json!({"name": "x", "arguments": {"k": 1}})
        )
    );
    let (last, _) = scene.client.delivered_messages().pop().unwrap();
    assert!(
        last.ends_with(r#""result":{"content":[],"n":1.0}}"#),
        "{last}"
    );
    let rows = scene
        .store
        .invocations(&InvocationFilter::default(), 9)
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].invocation.upstream.as_str(), "b");
    assert_eq!(rows[0].invocation.tool.as_str(), "x");
}

#[tokio::test]
async fn unknown_tools_are_refused_by_name() {
    let scene = pair().await;
    let answer = scene.ask(1, "tools/call", json!({"name": "c__x"})).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("c__x")
    );
}

#[tokio::test]
async fn cancellations_go_to_the_upstream_of_the_call() {
    let scene = pair().await;
    scene
        .start(&request(1, "tools/call", &json!({"name": "a__x"})))
        .await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1}});
    scene.send(&cancel).await;
    assert_eq!(scene.sent_messages(0).pop().unwrap(), cancel);
    assert_ne!(scene.sent_messages(1).pop().unwrap(), cancel);
    assert_eq!(
        scene.client.finished_requests(),
        [RequestId::Number("1".into())]
    );
}

#[tokio::test]
async fn equal_ids_of_two_upstreams_are_kept_apart() {
    let scene = pair().await;
    scene
        .start(&request(1, "tools/call", &json!({"name": "a__x"})))
        .await;
    scene
        .start(&request(2, "tools/call", &json!({"name": "b__x"})))
        .await;
    for upstream in &scene.upstreams {
        let asking = request(7, "sampling/createMessage", &json!({"from": "it"}));
        upstream.send_to_client(&asking.to_string(), None).await;
    }
    let asked: Vec<_> = scene
        .delivered_messages()
        .into_iter()
        .filter(|(message, _)| message["method"] == "sampling/createMessage")
        .collect();
    let related: Vec<_> = asked.iter().map(|(_, route)| route.clone()).collect();
    let to = |id: &str| Route::Related(RequestId::Number(id.into()));
    assert_eq!(related, [to("1"), to("2")]);
    assert_ne!(asked[0].0["id"], asked[1].0["id"]);
    for (number, (message, _)) in asked.iter().enumerate().rev() {
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"n": number}});
        scene.send(&answer).await;
        let expected = json!({"jsonrpc": "2.0", "id": 7, "result": {"n": number}});
        assert_eq!(scene.sent_messages(number).pop().unwrap(), expected);
    }
}

#[tokio::test]
async fn cancellations_from_upstreams_use_the_id_of_the_client() {
    let scene = pair().await;
    scene
        .start(&request(1, "tools/call", &json!({"name": "a__x"})))
        .await;
    let asking = request(7, "elicitation/create", &json!({}));
    scene.upstreams[0]
        .send_to_client(&asking.to_string(), None)
        .await;
    let asked = scene
        .delivered_such(|message| message["method"] == "elicitation/create")
        .await;
    let back = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "r"}});
    scene.upstreams[0]
        .send_to_client(&back.to_string(), None)
        .await;
    let (told, _) = scene.delivered_messages().pop().unwrap();
    assert_eq!(
        told["params"],
        json!({"requestId": asked["id"], "reason": "r"})
    );
}

#[tokio::test]
async fn resources_are_routed_by_list_or_template() {
    let a = upstream("a", &[]);
    a.reply_to(
        "resources/list",
        r#""result":{"resources":[{"uri":"r://1"}]}"#,
    );
    a.reply_to(
        "resources/templates/list",
        r#""result":{"resourceTemplates":[]}"#,
    );
    let b = upstream("b", &[]);
    b.reply_to(
        "resources/list",
        r#""result":{"resources":[{"uri":"r://2"}]}"#,
    );
    let templates = r#""result":{"resourceTemplates":[{"uriTemplate":"t://{id}/end"}]}"#;
    b.reply_to("resources/templates/list", templates);
    for (upstream, text) in [(&a, "a"), (&b, "b")] {
        upstream.reply_to(
            "resources/read",
            &format!(r#""result":{{"contents":"{text}"}}"#),
        );
    }
    let scene = Setup::default().scene(vec![a, b]);
    scene.initialize().await;
    for (id, uri, owner) in [(1, "r://2", "b"), (2, "r://1", "a"), (3, "t://7/end", "b")] {
        let answer = scene.ask(id, "resources/read", json!({"uri": uri})).await;
        assert_eq!(answer["result"]["contents"], owner, "{uri}");
    }
    let template = json!({"ref": {"type": "ref/resource", "uri": "t://{id}/end"}});
    scene.upstreams[1].reply_to("completion/complete", r#""result":{"of":"b"}"#);
    let answer = scene.ask(4, "completion/complete", template).await;
    assert_eq!(answer["result"]["of"], "b");
}

#[tokio::test]
async fn a_request_without_a_known_owner_tries_the_upstreams_in_order() {
    let scene = pair().await;
    let unknown = r#""error":{"code":-32601,"message":"no"}"#;
    scene.upstreams[0].reply_to("acme/do", unknown);
    scene.upstreams[1].reply_to("acme/do", r#""result":{"by":"b"}"#);
    let answer = scene.ask(1, "acme/do", json!({"deep": [1]})).await;
    assert_eq!(
        answer,
        json!({"jsonrpc": "2.0", "id": 1, "result": {"by": "b"}})
    );
    scene.upstreams[1].reply_to("acme/do", unknown);
    let answer = scene.ask(2, "acme/do", json!({})).await;
    assert_eq!(answer["error"]["code"], -32601);
}

#[tokio::test]
async fn task_requests_go_to_their_upstream() {
    let scene = pair().await;
    scene.upstreams[1].reply_to("tools/call", r#""result":{"task":{"taskId":"t-1"}}"#);
    scene
        .ask(1, "tools/call", json!({"name": "b__x", "task": {}}))
        .await;
    scene.upstreams[1].reply_to("tasks/get", r#""result":{"status":"working"}"#);
    let answer = scene.ask(2, "tasks/get", json!({"taskId": "t-1"})).await;
    assert_eq!(answer["result"]["status"], "working");
    assert!(
        scene
            .sent_messages(0)
            .iter()
            .all(|sent| sent["method"] != "tasks/get")
    );
}

#[tokio::test]
async fn prompts_are_named_and_completed_by_their_owner() {
    let a = upstream("a", &[]);
    a.reply_to("prompts/list", r#""result":{"prompts":[{"name":"p"}]}"#);
    a.reply_to("prompts/get", r#""result":{"messages":[]}"#);
    a.reply_to("completion/complete", r#""result":{"completion":{}}"#);
    let scene = Setup::default().scene(vec![a, upstream("b", &[])]);
    scene.initialize().await;
    scene.upstreams[1].reply_to("prompts/list", r#""result":{"prompts":[]}"#);
    let answer = scene.ask(1, "prompts/list", json!({})).await;
    assert_eq!(answer["result"]["prompts"][0]["name"], "a__p");
    scene.ask(2, "prompts/get", json!({"name": "a__p"})).await;
    assert_eq!(scene.sent_messages(0).pop().unwrap()["params"]["name"], "p");
    let reference = json!({"ref": {"type": "ref/prompt", "name": "a__p"}, "argument": {}});
    scene.ask(3, "completion/complete", reference).await;
    assert_eq!(
        scene.sent_messages(0).pop().unwrap()["params"]["ref"]["name"],
        "p"
    );
}

#[tokio::test]
async fn a_second_request_with_an_id_in_flight_is_refused() {
    let scene = pair().await;
    scene
        .start(&request(1, "tools/call", &json!({"name": "a__x"})))
        .await;
    scene
        .start(&request(1, "tools/call", &json!({"name": "b__x"})))
        .await;
    let answer = scene.delivered_such(|message| message["id"] == 1).await;
    assert_eq!(answer["error"]["code"], -32600);
    assert!(
        scene
            .sent_messages(1)
            .iter()
            .all(|sent| sent["method"] != "tools/call")
    );
}

#[tokio::test]
async fn hashed_names_are_looked_up_before_use() {
    let scene = Setup::default().scene(vec![upstream("a", &["x/y"]), upstream("b", &["x"])]);
    scene.initialize().await;
    scene.upstreams[0].reply_to("tools/call", r#""result":{"by":"a"}"#);
    let name = prefixed_name(&UpstreamName::parse("a").unwrap(), "x/y");
    let answer = scene.ask(1, "tools/call", json!({"name": name})).await;
    assert_eq!(answer["result"]["by"], "a");
    assert_eq!(
        scene.sent_messages(0).pop().unwrap()["params"]["name"],
        "x/y"
    );
    // A tool of the upstream whose own name looks like one with a hash.
    let answer = scene
        .ask(2, "tools/call", json!({"name": "a__x_0123abcd"}))
        .await;
    assert_eq!(answer["result"]["by"], "a");
    assert_eq!(
        scene.sent_messages(0).pop().unwrap()["params"]["name"],
        "x_0123abcd"
    );
}

#[tokio::test]
async fn long_tools_are_called_by_their_shorter_and_by_their_earlier_name() {
    let long = [
        "x".repeat(58),
        "y".repeat(90),
        format!("odd/{}", "z".repeat(50)),
    ];
    let names: Vec<&str> = long.iter().map(String::as_str).collect();
    for naming in [NamespacePolicy::Prefix, NamespacePolicy::Collision] {
        let setup = Setup {
            naming,
            ..Setup::default()
        };
        let upstreams = ["a", "b"].map(|name| upstream(name, &names));
        let scene = setup.scene(upstreams.into());
        scene.initialize().await;
        let mut id = 0;
        for (own, at) in long.iter().flat_map(|own| [(own, 0), (own, 1)]) {
            scene.upstreams[at].reply_to("tools/call", r#""result":{"by":true}"#);
            let upstream = UpstreamName::parse(["a", "b"][at]).unwrap();
            // The earlier name comes first, when no list is known.
            let names = [earlier_name(&upstream, own), prefixed_name(&upstream, own)];
            assert!(names[0].len() > names[1].len() && names[1].len() <= 52);
            for name in names {
                id += 1;
                let answer = scene.ask(id, "tools/call", json!({"name": name})).await;
                assert_eq!(answer["result"]["by"], true, "{answer}");
                let sent = scene.sent_messages(at).pop().unwrap();
                assert_eq!(
                    (&sent["method"], &sent["params"]["name"]),
                    (&json!("tools/call"), &json!(own))
                );
            }
        }
    }
}

#[tokio::test]
async fn a_call_without_a_tool_name_reaches_no_upstream() {
    let scene = pair().await;
    let answer = scene.ask(1, "tools/call", json!({"name": 5})).await;
    assert_eq!(answer["error"]["code"], -32602);
    for number in 0..2 {
        let sent = scene.sent_messages(number);
        assert!(sent.iter().all(|sent| sent["method"] != "tools/call"));
    }
}

#[tokio::test]
async fn equal_progress_tokens_of_two_upstreams_are_kept_apart() {
    let scene = pair().await;
    for (number, upstream) in scene.upstreams.iter().enumerate() {
        let params = json!({"_meta": {"progressToken": 7, "x": number}});
        let asking = request(7, "sampling/createMessage", &params);
        upstream.send_to_client(&asking.to_string(), None).await;
    }
    let asked: Vec<Value> = scene
        .delivered_messages()
        .into_iter()
        .map(|(message, _)| message)
        .filter(|message| message["method"] == "sampling/createMessage")
        .collect();
    for (number, asked) in asked.iter().enumerate() {
        let meta = &asked["params"]["_meta"];
        assert_eq!(meta["x"], number);
        let progress = |token: &Value| {
            json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": number}})
        };
        scene.send(&progress(&meta["progressToken"])).await;
        let told = scene.sent_messages(number).pop().unwrap();
        assert_eq!(told, progress(&json!(7)));
    }
}

#[tokio::test]
async fn flooding_upstreams_do_not_block_questions_of_others() {
    let scene = pair().await;
    for id in 0..2_000 {
        let asking = request(id, "roots/list", &json!({}));
        scene.upstreams[0]
            .send_to_client(&asking.to_string(), None)
            .await;
    }
    let asking = request(7, "sampling/createMessage", &json!({}));
    scene.upstreams[1]
        .send_to_client(&asking.to_string(), None)
        .await;
    let asked = scene.delivered_messages().pop().unwrap().0;
    assert_eq!(asked["method"], "sampling/createMessage");
    scene
        .send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}))
        .await;
    assert_eq!(scene.sent_messages(1).pop().unwrap()["id"], 7);
}

#[tokio::test]
async fn answers_for_lost_connections_do_not_reach_new_ones() {
    let scene = pair().await;
    let asking = request(7, "roots/list", &json!({}));
    scene.upstreams[0]
        .send_to_client(&asking.to_string(), None)
        .await;
    let old = scene.delivered_messages().pop().unwrap().0;
    let reason = "it ended".into();
    scene.upstreams[0]
        .lose_connection(UpstreamError::Lost { reason })
        .await;
    scene.upstreams[0].reply_to("tools/call", r#""result":{}"#);
    scene.ask(1, "tools/call", json!({"name": "a__x"})).await;
    scene.upstreams[0]
        .send_to_client(&asking.to_string(), None)
        .await;
    let answer =
        |asked: &Value| json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"of": asked["id"]}});
    scene.send(&answer(&old)).await;
    assert_eq!(
        scene.sent_messages(0).pop().unwrap()["method"],
        "tools/call"
    );
    let new = scene.delivered_messages().pop().unwrap().0;
    scene.send(&answer(&new)).await;
    assert_eq!(
        scene.sent_messages(0).pop().unwrap()["result"]["of"],
        new["id"]
    );
}

#[tokio::test]
async fn fan_out_does_not_wait_for_hanging_upstreams() {
    let scene = pair().await;
    scene.upstreams[1].reply_to("tasks/list", r#""result":{"tasks":[{"taskId":"t"}]}"#);
    let answer = scene.ask(1, "tasks/list", json!({})).await;
    assert_eq!(answer["result"]["tasks"], json!([{"taskId": "t"}]));
}

#[tokio::test]
async fn an_upstream_cannot_answer_for_another() {
    let scene = pair().await;
    scene.upstreams[0].reply_to("tools/list", "");
    let list = request(1, "tools/list", &json!({}));
    scene.start(&list).await;
    let asked = scene
        .sent_such(0, |sent| sent["method"] == "tools/list")
        .await;
    scene
        .start(&request(2, "tools/call", &json!({"name": "a__x"})))
        .await;
    let listed = |name: &str| json!({"tools": [{"name": name}]});
    let forged = json!({"jsonrpc": "2.0", "id": asked["id"], "result": listed("forged")});
    let answered = json!({"jsonrpc": "2.0", "id": 2, "result": {"by": "forged"}});
    let batch = json!([forged, answered]);
    for said in [&forged, &answered, &batch] {
        scene.upstreams[1]
            .send_to_client(&said.to_string(), None)
            .await;
    }
    let own = json!({"jsonrpc": "2.0", "id": asked["id"], "result": listed("x")});
    scene.upstreams[0]
        .send_to_client(&own.to_string(), None)
        .await;
    let answer = scene.delivered_such(|message| message["id"] == 1).await;
    assert_eq!(super::scene::names(&answer), ["a__x", "b__x"]);
    let own = json!({"jsonrpc": "2.0", "id": 2, "result": {"by": "a"}});
    scene.upstreams[0]
        .send_to_client(&own.to_string(), None)
        .await;
    scene
        .delivered_such(|message| message["result"]["by"] == "a")
        .await;
    let delivered = scene.client.delivered_messages();
    let forged: Vec<_> = (delivered.iter())
        .filter(|(text, _)| text.contains("forged"))
        .collect();
    assert_eq!(forged.len(), 0, "{forged:?}");
}
