//! Requests of a client: lists, calls and reads, and their errors.

use riglm_tests::envelope::{integer_at, raw_at, string_at};
use riglm_tests::inbox::ReceivedMessage;
use serde_json::Value;

use super::Era;
use super::cell::Cell;

fn code(answer: &ReceivedMessage) -> i64 {
    integer_at(&answer.text, &["error", "code"])
        .unwrap_or_else(|| panic!("no error: {}", answer.text))
}

fn names(result: &str, list: &str, key: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(result).expect("a result is JSON");
    let entries = value[list].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| entry[key].as_str().map(str::to_owned))
        .collect()
}

pub(super) async fn opening(cell: &Cell) {
    let result = if let Some(answer) = cell.start().await {
        initialize_result(&cell.result(&answer))
    } else {
        discovery_result(cell).await
    };
    for capability in ["tools", "resources", "prompts", "completions", "logging"] {
        assert!(
            raw_at(&result, &["capabilities", capability]).is_some(),
            "{capability}: {result}"
        );
    }
    assert_eq!(
        string_at(&result, &["instructions"]).as_deref(),
        Some("Line one.\nLine two.")
    );
}

fn initialize_result(result: &str) -> String {
    let version = string_at(result, &["protocolVersion"]);
    assert_eq!(version.as_deref(), Some("2025-11-25"), "{result}");
    let name = string_at(result, &["serverInfo", "name"]);
    assert_eq!(name.as_deref(), Some("odd"), "{result}");
    result.to_owned()
}

async fn discovery_result(cell: &Cell) -> String {
    let result = cell.result(&cell.ask("server/discover", "").await);
    cell.assert_cacheable(&result);
    let versions = raw_at(&result, &["supportedVersions"]).unwrap_or_default();
    assert!(versions.contains("2026-07-28"), "{result}");
    let path = ["_meta", "io.modelcontextprotocol/serverInfo", "name"];
    let name = string_at(&result, &path);
    assert_eq!(name.as_deref(), Some("odd"), "{result}");
    result
}

/// Skills are an extension with the same messages in both eras.
pub(super) async fn skills(cell: &Cell) {
    cell.start().await;
    let list = cell.result(&cell.ask("skills/list", "").await);
    let value: Value = serde_json::from_str(&list).expect("a result is JSON");
    let uri = "skill://tidy/SKILL.md";
    assert_eq!(value["skills"][0]["uri"], uri);
    assert!(
        list.contains(r#""digest":"sha256:0a","size":7"#) && list.contains(r#""x":1e3"#),
        "digests and frontmatter are kept: {list}"
    );
    let params = format!(r#""uri":"{uri}""#);
    let got = cell.result(&cell.ask("skills/get", &params).await);
    assert_eq!(
        raw_at(&got, &["skill", "frontmatter", "x"]).as_deref(),
        Some("1e3"),
        "{got}"
    );
    let params = r#""uri":"skill://tidy""#;
    let read = cell.result(&cell.ask("resources/directory/read", params).await);
    assert!(read.contains(uri), "{read}");
}

pub(super) async fn tools(cell: &Cell) {
    cell.start().await;
    let list = cell.result(&cell.ask("tools/list", "").await);
    cell.assert_cacheable(&list);
    assert!(
        names(&list, "tools", "name").contains(&"echo".to_owned()),
        "{list}"
    );
    assert!(
        list.contains(r#""x-hint":18446744073709551616"#),
        "unknown members are kept: {list}"
    );
    let echoed = cell.result(&cell.call("echo", r#"{"text":"t \u2713"}"#).await);
    let content = raw_at(&echoed, &["content"]);
    assert_eq!(
        content.as_deref(),
        Some(r#"[{"type":"text","text":"t \u2713"}]"#)
    );
    let odd = cell.result(&cell.call("odd", "{}").await);
    for kept in [
        r#"{"type":"hologram","payload":{"a":1e3,"b":null},"annotations":{"priority":0.70}}"#,
        r#""big":123456789012345678901234567890,"small":1E-7"#,
        r#""x-after":-0"#,
    ] {
        assert!(odd.contains(kept), "{kept} is lost in {odd}");
    }
    let failed = cell.result(&cell.call("is_error", "{}").await);
    assert_eq!(raw_at(&failed, &["isError"]).as_deref(), Some("true"));
}

pub(super) async fn prompts(cell: &Cell) {
    cell.start().await;
    let list = cell.result(&cell.ask("prompts/list", "").await);
    cell.assert_cacheable(&list);
    assert!(
        names(&list, "prompts", "name").contains(&"p".to_owned()),
        "{list}"
    );
    let prompt = cell
        .ask("prompts/get", r#""name":"p","arguments":{"a":"\u0062"}"#)
        .await;
    let prompt = cell.result(&prompt);
    assert!(prompt.contains(r#""role":"user""#), "{prompt}");
    assert!(
        prompt.contains(r#""a":"\u0062""#),
        "the arguments arrived: {prompt}"
    );
}

pub(super) async fn resources(cell: &Cell) {
    cell.start().await;
    let list = cell.result(&cell.ask("resources/list", "").await);
    cell.assert_cacheable(&list);
    assert!(
        names(&list, "resources", "uri").contains(&"odd://r/1".to_owned()),
        "{list}"
    );
    let templates = cell.result(&cell.ask("resources/templates/list", "").await);
    cell.assert_cacheable(&templates);
    assert_eq!(
        names(&templates, "resourceTemplates", "uriTemplate"),
        ["odd://r/{id}"]
    );
    let read = cell.result(&cell.ask("resources/read", r#""uri":"odd://r/7""#).await);
    cell.assert_cacheable(&read);
    assert_eq!(names(&read, "contents", "uri"), ["odd://r/7"]);
    assert!(read.contains(r#""priority":1.0"#), "{read}");
}

pub(super) async fn completion(cell: &Cell) {
    cell.start().await;
    let answer = cell
        .ask(
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}"#,
        )
        .await;
    let result = cell.result(&answer);
    assert_eq!(
        raw_at(&result, &["completion", "values"]).as_deref(),
        Some(r#"["a","\u0062"]"#)
    );
    assert_eq!(
        raw_at(&result, &["completion", "total"]).as_deref(),
        Some("1e3")
    );
}

pub(super) async fn paging(cell: &Cell) {
    cell.start().await;
    let first = cell.result(&cell.ask("tools/list", "").await);
    let cursor = raw_at(&first, &["nextCursor"]).expect("there is a second page");
    let params = format!(r#""cursor":{cursor}"#);
    let second = cell.result(&cell.ask("tools/list", &params).await);
    cell.assert_cacheable(&second);
    assert_eq!(raw_at(&second, &["nextCursor"]), None);
    let names = names(&second, "tools", "name");
    assert!(names.contains(&"elicit".to_owned()), "{second}");
    assert!(!names.contains(&"echo".to_owned()), "{second}");
    let wrong = cell.ask("tools/list", r#""cursor":"x\u0041""#).await;
    assert_eq!(code(&wrong), -32602, "{}", wrong.text);
}

pub(super) async fn not_found(cell: &Cell) {
    cell.start().await;
    let answer = cell
        .ask("resources/read", r#""uri":"odd://missing/1""#)
        .await;
    match (cell.client_era, cell.server_era) {
        // "Implementations of this protocol version MUST NOT emit" -32002.
        (Era::Modern, _) => assert_eq!(code(&answer), -32602, "{}", answer.text),
        (Era::Legacy, Era::Legacy) => assert_eq!(code(&answer), -32002, "{}", answer.text),
        // The code -32602 may mean a missing resource or a wrong request.
        (Era::Legacy, Era::Modern) => {
            assert!([-32602, -32002].contains(&code(&answer)), "{}", answer.text);
        }
    }
    let answer = cell.call("no_such_tool", "{}").await;
    assert_eq!(code(&answer), -32602, "{}", answer.text);
}

pub(super) async fn errors(cell: &Cell) {
    cell.start().await;
    for (expected, data) in [(7, r#""te\u0078t""#), (-32603, "0.70"), (-31337, "null")] {
        let arguments = format!(r#"{{"code":{expected},"data":{data}}}"#);
        let answer = cell.call("fail", &arguments).await;
        assert_eq!(code(&answer), expected, "{}", answer.text);
        let seen = raw_at(&answer.text, &["error", "data"]);
        assert_eq!(seen.as_deref(), Some(data), "{}", answer.text);
        let message = string_at(&answer.text, &["error", "message"]);
        assert_eq!(message.as_deref(), Some("odd: \u{bb}failed\u{ab}"));
    }
    let unknown = cell.ask("odd/unknown", "").await;
    assert_eq!(code(&unknown), -32601, "{}", unknown.text);
}

pub(super) async fn ping(cell: &Cell) {
    cell.start().await;
    let answer = cell.ask("ping", "").await;
    match cell.sentence {
        None => assert!(
            raw_at(&answer.text, &["result"]).is_some(),
            "{}",
            answer.text
        ),
        Some(sentence) => assert_eq!(code(&answer), -32601, "{sentence}: {}", answer.text),
    }
}
