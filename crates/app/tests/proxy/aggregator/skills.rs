//! Skills of several upstreams: joined lists, and requests about one skill.

use riglm_app::proxy::NamespacePolicy;
use riglm_ports::fake::ScriptedUpstream;
use serde_json::{Value, json};
use std::sync::Arc;

use super::scene::{Scene, Setup, upstream};

const PDF: &str = "skill://pdf/SKILL.md";

/// Returns an upstream that declares skills and lists one, whose file has this digest.
fn with_skill(name: &str, digest: &str) -> Arc<ScriptedUpstream> {
    let upstream = upstream(name, &["x"]);
    let welcome = json!({
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": name, "version": "1"},
        "capabilities": {"resources": {}, "extensions": {
            "io.modelcontextprotocol/skills": {"directoryRead": name == "a"},
        }},
    });
    upstream.reply_to("initialize", &format!(r#""result":{welcome}"#));
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
