//! Skills of several upstreams: joined lists, and requests about one skill.

use riglm_app::proxy::NamespacePolicy;
use riglm_app::selection::ListFilter;
use riglm_ports::fake::ScriptedUpstream;
use serde_json::{Value, json};
use std::sync::Arc;

use super::scene::{Scene, Setup, upstream};
use crate::scene::HidingPolicy;

const PDF: &str = "skill://pdf/SKILL.md";

/// Returns an upstream that declares skills, and never answers a request for them.
fn declaring_skills(name: &str) -> Arc<ScriptedUpstream> {
    let upstream = upstream(name, &["x"]);
    let welcome = json!({
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": name, "version": "1"},
        "capabilities": {"tools": {}, "resources": {}, "extensions": {
            "io.modelcontextprotocol/skills": {"directoryRead": name == "a"},
        }},
    });
    upstream.reply_to("initialize", &format!(r#""result":{welcome}"#));
    upstream
}

/// Returns an upstream that declares skills and lists one, whose file has this digest.
fn with_skill(name: &str, digest: &str) -> Arc<ScriptedUpstream> {
    let upstream = declaring_skills(name);
    let skill = skill(PDF, digest);
    let list = json!({"skills": [skill]});
    upstream.reply_to("skills/list", &format!(r#""result":{list}"#));
    upstream
}

fn skill(uri: &str, digest: &str) -> Value {
    let root = uri.strip_suffix("SKILL.md").unwrap();
    json!({
        "uri": uri,
        "frontmatter": {"name": "pdf", "description": "Fills forms.", "x-own": [1.5, null]},
        "resources": [
            {"uri": uri, "digest": digest, "size": 7},
            {"uri": format!("{root}forms/tax.md"), "digest": digest, "size": 9},
        ],
    })
}

async fn pair(naming: NamespacePolicy) -> Scene {
    let setup = Setup {
        naming,
        ..Setup::default()
    };
    let scene = setup.scene(vec![
        with_skill("a", "sha256:aa"),
        with_skill("b", "sha256:bb"),
        upstream("none", &["x"]),
    ]);
    scene.initialize().await;
    scene
}

/// Returns the last request of a method that an upstream got.
fn last_sent(scene: &Scene, upstream: usize, method: &str) -> Option<Value> {
    let sent = scene.sent_messages(upstream).into_iter().rev();
    sent.into_iter().find(|message| message["method"] == method)
}

#[tokio::test]
async fn skills_of_all_upstreams_are_listed_apart_with_their_digests() {
    for naming in [NamespacePolicy::Prefix, NamespacePolicy::Collision] {
        let scene = pair(naming).await;
        let hello = scene.delivered_such(|message| message["id"] == 0).await;
        let extension =
            &hello["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/skills"];
        assert_eq!(*extension, json!({"directoryRead": true}));
        let listed = scene.ask(1, "skills/list", json!({})).await;
        let expected = [
            skill("skill://a/pdf/SKILL.md", "sha256:aa"),
            skill("skill://b/pdf/SKILL.md", "sha256:bb"),
        ];
        assert_eq!(listed["result"]["skills"], json!(expected), "{naming:?}");
        // A server without skills is not asked.
        assert!(last_sent(&scene, 2, "skills/list").is_none());
    }
}

#[tokio::test]
async fn a_skill_that_only_one_upstream_has_keeps_its_uri_without_prefixes() {
    let setup = Setup {
        naming: NamespacePolicy::Collision,
        ..Setup::default()
    };
    let other = with_skill("b", "sha256:bb");
    let list = json!({"skills": [skill("skill://zip/SKILL.md", "sha256:bb")]});
    other.reply_to("skills/list", &format!(r#""result":{list}"#));
    let scene = setup.scene(vec![with_skill("a", "sha256:aa"), other]);
    scene.initialize().await;
    let listed = scene.ask(1, "skills/list", json!({})).await;
    let uris = [
        &listed["result"]["skills"][0]["uri"],
        &listed["result"]["skills"][1]["uri"],
    ];
    assert_eq!(uris, [PDF, "skill://zip/SKILL.md"]);
    let entry = json!({"skill": skill(PDF, "sha256:aa")});
    scene.upstreams[0].reply_to("skills/get", &format!(r#""result":{entry}"#));
    let got = scene.ask(2, "skills/get", json!({"uri": PDF})).await;
    assert_eq!(got["result"], entry);
}

#[tokio::test]
async fn files_and_directories_of_a_skill_come_from_its_upstream() {
    let scene = pair(NamespacePolicy::Prefix).await;
    // A client may know the URI from an earlier session, so no list is needed.
    for (method, shown, own, answered, expected) in [
        (
            "resources/read",
            "skill://b/pdf/forms/tax.md",
            "skill://pdf/forms/tax.md",
            json!({"contents": [{"uri": "skill://pdf/forms/tax.md", "text": "see skill://pdf/x"}]}),
            json!({"contents": [{"uri": "skill://b/pdf/forms/tax.md", "text": "see skill://pdf/x"}]}),
        ),
        (
            "resources/directory/read",
            "skill://b/pdf",
            "skill://pdf",
            json!({"resources": [{"uri": "skill://pdf/forms", "mimeType": "inode/directory"}]}),
            json!({"resources": [{"uri": "skill://b/pdf/forms", "mimeType": "inode/directory"}]}),
        ),
        (
            "skills/get",
            "skill://b/pdf/SKILL.md",
            PDF,
            json!({"skill": skill(PDF, "sha256:bb")}),
            json!({"skill": skill("skill://b/pdf/SKILL.md", "sha256:bb")}),
        ),
    ] {
        scene.upstreams[1].reply_to(method, &format!(r#""result":{answered}"#));
        let answer = scene.ask(1, method, json!({"uri": shown})).await;
        assert_eq!(answer["result"], expected, "{method}: {answer}");
        let sent = last_sent(&scene, 1, method).unwrap();
        assert_eq!(sent["params"], json!({"uri": own}), "{method}");
        assert!(last_sent(&scene, 0, method).is_none(), "{method}");
    }
}

#[tokio::test]
async fn a_skill_is_never_taken_for_that_of_another_upstream() {
    let scene = pair(NamespacePolicy::Prefix).await;
    let ambiguous = scene.ask(1, "skills/get", json!({"uri": PDF})).await;
    let error = &ambiguous["error"];
    assert_eq!(error["code"], -32602, "{ambiguous}");
    let text = error["message"].as_str().unwrap();
    assert!(
        text.contains("skill://a/pdf/SKILL.md") && text.contains("skill://b/pdf/SKILL.md"),
        "{text}"
    );
    let missing = scene.ask(2, "skills/get", json!({})).await;
    assert_eq!(missing["error"]["code"], -32602, "{missing}");
    // A server answers for skills that it does not list, such as those that its texts mention.
    let hidden = "skill://hidden/SKILL.md";
    for upstream in &scene.upstreams[..2] {
        upstream.reply_to("skills/get", r#""error":{"code":-32602,"message":"no"}"#);
    }
    let unknown = scene.ask(3, "skills/get", json!({"uri": hidden})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let entry = json!({"skill": {"uri": hidden, "frontmatter": {}, "resources": "dynamic"}});
    scene.upstreams[1].reply_to("skills/get", &format!(r#""result":{entry}"#));
    let got = scene.ask(4, "skills/get", json!({"uri": hidden})).await;
    assert_eq!(got["result"]["skill"]["uri"], "skill://b/hidden/SKILL.md");
}

#[tokio::test]
async fn a_path_that_begins_like_an_upstream_does_not_change_its_owner() {
    let setup = Setup {
        naming: NamespacePolicy::Collision,
        ..Setup::default()
    };
    // The directory of this skill has the name of the other upstream.
    let nested = "skill://a/pdf/SKILL.md";
    let other = with_skill("b", "sha256:bb");
    let list = json!({"skills": [skill(nested, "sha256:bb")]});
    other.reply_to("skills/list", &format!(r#""result":{list}"#));
    let entry = json!({"skill": skill(nested, "sha256:bb")});
    other.reply_to("skills/get", &format!(r#""result":{entry}"#));
    let scene = setup.scene(vec![with_skill("a", "sha256:aa"), other]);
    scene.initialize().await;
    scene.ask(1, "skills/list", json!({})).await;
    let got = scene.ask(2, "skills/get", json!({"uri": nested})).await;
    assert_eq!(got["result"], entry, "{got}");
    assert!(last_sent(&scene, 0, "skills/get").is_none());
}

/// Returns a session with a search tool in front of these upstreams.
async fn searching(upstreams: Vec<Arc<ScriptedUpstream>>) -> Scene {
    let setup = Setup {
        naming: NamespacePolicy::Prefix,
        filter: ListFilter::new(Some(Arc::new(HidingPolicy))),
        search: Some("search"),
        ..Setup::default()
    };
    let scene = setup.scene(upstreams);
    scene.initialize().await;
    scene.tools(100).await;
    scene
}

async fn search(scene: &Scene, id: u32, query: &str) -> Value {
    let params = json!({"name": "search", "arguments": {"query": query}});
    let answer = scene.ask(id, "tools/call", params).await;
    answer["result"].clone()
}

#[tokio::test]
async fn searches_find_skills_by_the_uris_that_read_them() {
    let several = searching(vec![
        with_skill("a", "sha256:aa"),
        with_skill("b", "sha256:bb"),
    ])
    .await;
    let found = search(&several, 1, "fill in a form").await;
    let text = found["content"][0]["text"].as_str().unwrap();
    for uri in ["skill://a/pdf/SKILL.md", "skill://b/pdf/SKILL.md"] {
        assert!(
            text.contains(&format!("- {uri} (pdf): Fills forms.")),
            "{text}"
        );
    }
    let one = searching(vec![with_skill("a", "sha256:aa")]).await;
    let found = search(&one, 1, "fill in a form").await;
    let text = found["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&format!("- {PDF} (pdf)")), "{text}");
    let other = search(&one, 2, "compute the square root").await;
    let text = other["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains("skill://"), "{text}");
}

#[tokio::test]
async fn skills_are_listed_once_for_several_searches_until_resources_change() {
    let scene = searching(vec![with_skill("a", "sha256:aa"), upstream("none", &["x"])]).await;
    let n_listed = || {
        let sent = scene.sent_messages(0).into_iter();
        sent.filter(|message| message["method"] == "skills/list")
            .count()
    };
    for id in 1..4 {
        search(&scene, id, &format!("fill in form {id}")).await;
    }
    assert_eq!(n_listed(), 1);
    let tidy = json!({"skills": [{
        "uri": "skill://tidy/SKILL.md",
        "frontmatter": {"name": "tidy", "description": "Tidies rooms."},
    }]});
    scene.upstreams[0].reply_to("skills/list", &format!(r#""result":{tidy}"#));
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#;
    scene.upstreams[0].send_to_client(changed, None).await;
    let mut text = String::new();
    for id in 10..200 {
        let found = search(&scene, id, "tidy the rooms").await;
        found["content"][0]["text"]
            .as_str()
            .unwrap()
            .clone_into(&mut text);
        if text.contains("tidy") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(text.contains("skill://a/tidy/SKILL.md"), "{text}");
    // A search does not fail because skills cannot be listed.
    let error = r#""error":{"code":-32000,"message":"m"}"#;
    scene.upstreams[0].reply_to("skills/list", error);
    scene.upstreams[0].send_to_client(changed, None).await;
    let found = search(&scene, 300, "anything").await;
    assert_ne!(found["isError"], true);
}

#[tokio::test]
async fn a_server_that_lists_no_skills_delays_one_search_only() {
    let scene = searching(vec![declaring_skills("a")]).await;
    for id in 1..4 {
        let found = search(&scene, id, &format!("fill in form {id}")).await;
        assert_ne!(found["isError"], true);
    }
    let sent = scene.sent_messages(0).into_iter();
    let n_listed = sent
        .filter(|message| message["method"] == "skills/list")
        .count();
    assert_eq!(n_listed, 1);
}
