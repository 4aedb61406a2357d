use std::time::Duration;

use proptest::prelude::*;
use riglm_domain::id::ToolName;
use serde_json::Value;

use super::super::testing::Scene;
use super::*;

fn long(max_bytes: usize) -> LongResults {
    LongResults::new(LongResultsConfig {
        max_bytes,
        except: vec![NamePattern::new("whole*")],
        tool_name: "read_more".into(),
    })
}

fn scene() -> (Scene, ToolName) {
    (
        Scene::new(&[("read", "{}"), ("whole_page", "{}")]),
        "read".into(),
    )
}

fn result(texts: &[&str]) -> String {
    let texts = texts
        .iter()
        .map(|text| json!({"type": "text", "text": text}));
    json!({"content": texts.collect::<Vec<_>>()}).to_string()
}

/// Returns the handle and the offset in a truncated result.
fn place(cut: &str) -> (String, usize) {
    let cut: Value = serde_json::from_str(cut).unwrap();
    let said = cut["content"].as_array().unwrap().last().unwrap()["text"].as_str();
    let (_, arguments) = said.unwrap().split_once("read_more with ").unwrap();
    let arguments: Value = serde_json::from_str(arguments.trim_end_matches(".]")).unwrap();
    let offset = usize::try_from(arguments["offset"].as_u64().unwrap()).unwrap();
    (arguments["handle"].as_str().unwrap().to_owned(), offset)
}

#[test]
fn long_results_are_cut_at_lines_and_remain_readable() {
    let (scene, tool) = scene();
    let call = scene.call(&tool, "{}");
    let long = long(100);
    let lines: Vec<String> = (0..20).map(|n| format!("line {n:02} of it\n")).collect();
    let lines = lines.concat();
    let cut = long.cut(&call, &result(&[&lines])).unwrap();
    let (handle, offset) = place(&cut);
    assert_eq!(offset, 98, "seven lines of fourteen bytes");
    assert!(
        cut.contains("line 06 of it\\n\"") && !cut.contains("line 07"),
        "{cut}"
    );
    let mut read = lines[..offset].to_owned();
    let mut next = Some(offset);
    while let Some(offset) = next {
        let rest = long.rest(&call, &handle, offset).unwrap();
        assert!(rest.text.len() <= 100);
        read += &rest.text;
        next = rest.next;
    }
    assert_eq!(read, lines);
}

#[test]
fn short_structured_or_excepted_results_are_not_truncated() {
    let (scene, tool) = scene();
    let call = scene.call(&tool, "{}");
    let long = long(100);
    let text = "x".repeat(101);
    assert_eq!(long.cut(&call, &result(&[&text[..100]])), None);
    assert!(long.cut(&call, &result(&[&text])).is_some());
    let structured = result(&[&text]).replacen('{', r#"{"structuredContent":{},"#, 1);
    assert_eq!(long.cut(&call, &structured), None);
    let excepts =
        |tool: &ToolName| long.is_never_truncated(&ToolNames::of_call(&scene.call(tool, "{}")));
    assert!(excepts(&"whole_page".into()) && !excepts(&tool));
    for odd in [
        format!(r#"{{"content":"{text}"}}"#),
        format!(r#"{{"content":[{{"type":"image","data":"{text}"}}]}}"#),
    ] {
        assert_eq!(long.cut(&call, &odd), None);
    }
}

#[test]
fn truncation_cuts_only_text_and_the_rest_is_readable() {
    let (scene, tool) = scene();
    let call = scene.call(&tool, "{}");
    let long = long(10);
    let texts = r#"{"content":[{"type":"text","text":"12345"},{"type":"image","data":"aa","mimeType":"x"},
        {"type":"text","text":"6789abcdef","annotations":{"priority":1.0}},{"type":"text","text":"ghi"}],"_meta":{}}"#;
    let cut = long.cut(&call, texts).unwrap();
    let read: Value = serde_json::from_str(&cut).unwrap();
    let content = read["content"].as_array().unwrap();
    assert_eq!(content.len(), 4, "{cut}");
    assert_eq!(
        (&content[0]["text"], &content[2]["text"]),
        (&json!("12345"), &json!("6789"))
    );
    assert_eq!(content[1]["data"], "aa");
    assert!(cut.contains(r#""annotations":{"priority":1.0}"#), "{cut}");
    let (handle, offset) = place(&cut);
    let rest = long.rest(&call, &handle, offset).unwrap();
    assert_eq!(rest.text, "abcdef\ngh".to_owned() + "i");
    assert_eq!((rest.next, rest.n_all), (None, 20));
}

#[test]
fn remainders_are_limited_to_their_principal_and_lifetime() {
    let (scene, tool) = scene();
    let call = scene.call(&tool, "{}");
    let long = long(10);
    let (handle, offset) = place(&long.cut(&call, &result(&[&"x".repeat(25)])).unwrap());
    let other = Principal::from_name("other");
    let others = GuardedCall {
        principal: &other,
        ..call
    };
    assert_eq!(long.rest(&others, &handle, offset), None);
    assert_eq!(long.rest(&call, "0123456789ab", offset), None);
    assert_eq!(long.rest(&call, &handle, 25), None);
    assert!(long.rest(&call, &handle, 24).is_some());
    let at = |after: Duration| GuardedCall {
        at: call.at + after,
        ..call
    };
    assert!(
        long.rest(&at(Duration::from_mins(59)), &handle, offset)
            .is_some()
    );
    assert_eq!(long.rest(&at(LASTS), &handle, offset), None);
}

#[test]
fn kept_results_are_bounded_in_bytes() {
    let (scene, tool) = scene();
    let call = scene.call(&tool, "{}");
    let long = long(10);
    let first = long.cut(&call, &result(&[&"a".repeat(1_000_000)])).unwrap();
    for n in 0..70 {
        let text = format!("{n}{}", "b".repeat(1_000_000));
        long.cut(&call, &result(&[&text])).unwrap();
        assert!(long.kept.lock().n_bytes <= MAX_BYTES);
    }
    let (handle, offset) = place(&first);
    assert_eq!(long.rest(&call, &handle, offset), None);
}

proptest! {
    #[test]
    fn parts_of_a_text_concatenate_to_the_whole(text in "(?s).{0,300}", max_bytes in 1_usize..80) {
        let (mut at, mut parts) = (0, Vec::new());
        while at < text.len() {
            let end = end_of_part(&text, at, max_bytes);
            prop_assert!(end > at && text.is_char_boundary(end));
            prop_assert!(end - at <= max_bytes.max(4));
            parts.push(&text[at..end]);
            at = end;
        }
        prop_assert_eq!(parts.concat(), text);
    }
}
