//! Changes of tools that wait for approval, for each way in which an upstream reports them.

use riglm_domain::privacy::principal::Principal;

use riglm_app::control::approvals::{ApprovalError, ApprovalRequest};

use crate::scene::{HELLO, Scene, Setup};

const FIRST: &str = r#"{"tools":[{"name":"a","description":"one"}]}"#;
const SECOND: &str = r#"{"tools":[{"name":"a","description":"two"},{"name":"b"}]}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;

/// Returns a proxy that trusts the first list of its upstream.
async fn scene_with_first_list() -> Scene {
    let setup = Setup {
        holds_changes: true,
        ..Setup::default()
    };
    let scene = setup.scene();
    scene.send(HELLO).await;
    scene.send(LIST).await;
    say(&scene, FIRST).await;
    assert!(scene.last().contains(FIRST), "{}", scene.last());
    scene
}

async fn say(scene: &Scene, result: &str) {
    let answer = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
    scene.upstream.send_to_client(&answer, None).await;
}

#[tokio::test]
async fn answers_show_the_approved_definitions_until_approval() {
    let scene = scene_with_first_list().await;
    scene.send(LIST).await;
    say(&scene, SECOND).await;
    let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{FIRST}}}"#);
    assert_eq!(scene.last(), expected);
    let states = scene.proxy.upstream_states();
    assert_eq!(states[0].held.len(), 2);

    let (all, actor) = (ApprovalRequest::default(), Principal::from_name("alice"));
    let refused = scene.proxy.approve("none", &all, &actor).await;
    assert!(matches!(refused, Err(ApprovalError::UnknownUpstream(_))));
    let approved = scene.proxy.approve("u", &all, &actor).await.unwrap();
    assert_eq!(approved.len(), 2);
    scene.send(LIST).await;
    say(&scene, SECOND).await;
    assert!(scene.last().contains(SECOND), "{}", scene.last());
}

#[tokio::test]
async fn batched_answers_show_the_approved_definitions() {
    let scene = scene_with_first_list().await;
    scene.send(LIST).await;
    let other = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1.0}}"#;
    let batch = format!(r#"[ {other},{{"result":{SECOND} ,"jsonrpc":"2.0","id":7}}]"#);
    scene.upstream.send_to_client(&batch, None).await;
    let expected = format!(r#"[ {other},{{"result":{FIRST} ,"jsonrpc":"2.0","id":7}}]"#);
    assert_eq!(scene.last(), expected);
}

#[tokio::test]
async fn answers_to_cancelled_requests_reveal_no_held_definitions() {
    let scene = scene_with_first_list().await;
    scene.send(LIST).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    scene.send(cancel).await;
    say(&scene, SECOND).await;
    let delivered = scene.client.delivered_messages();
    assert!(delivered.iter().all(|(text, _)| !text.contains("two")));
}

#[tokio::test]
async fn changes_pass_if_approval_is_not_required() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    for result in [FIRST, SECOND] {
        scene.send(LIST).await;
        say(&scene, result).await;
        assert!(scene.last().contains(result), "{}", scene.last());
    }
    let wanted = ApprovalRequest {
        tool: Some("a".into()),
        hash: None,
    };
    let refused = scene.proxy.approve("u", &wanted, &Principal::local()).await;
    assert!(matches!(refused, Err(ApprovalError::NothingHeld(_))));
}
