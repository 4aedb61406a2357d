use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Message {
    Message::parse(&Bytes::from(text.to_owned())).unwrap()
}

fn refusal(text: &str) -> String {
    Message::parse(&Bytes::from(text.to_owned()))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_request_keeps_its_bytes_and_shows_its_parts() {
    let text = r#"{"x":1e3,"params":{"b":[1.0, 2]},"id":"a\u0041","jsonrpc":"2.0","method":"m"}"#;
    let message = parse(text);
    let envelope = message.single().unwrap();
    assert_eq!(message.raw().as_ref(), text.as_bytes());
    assert_eq!(envelope.kind(), MessageKind::Request);
    assert_eq!(
        envelope.as_request(),
        Some(("m", &RequestId::Text("aA".into())))
    );
    assert_eq!(message.params(envelope), Some(r#"{"b":[1.0, 2]}"#));
}

#[test]
fn numbers_and_strings_are_different_ids() {
    let number = parse(r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#);
    let text = parse(r#"{"jsonrpc":"2.0","id":"1","method":"m"}"#);
    assert_ne!(number.single().unwrap().id(), text.single().unwrap().id());
}

#[test]
fn the_four_kinds_of_messages_are_recognised() {
    let kind = |text| parse(text).single().unwrap().kind();
    assert_eq!(kind(r#"{"id":1,"method":"m"}"#), MessageKind::Request);
    assert_eq!(kind(r#"{"method":"m"}"#), MessageKind::Notification);
    assert_eq!(kind(r#"{"id":1,"result":null}"#), MessageKind::Success);
    assert_eq!(kind(r#"{"id":null,"error":{}}"#), MessageKind::Failure);
}

#[test]
fn a_batch_has_an_envelope_for_each_member() {
    let message = parse(r#" [{"id":1,"method":"a"}, {"method":"b","params":[7]}] "#);
    assert!(message.is_batch());
    assert!(message.single().is_none());
    assert_eq!(message.params(&message.envelopes()[1]), Some("[7]"));
}

#[test]
fn a_short_message_does_not_keep_a_long_text_in_memory() {
    let text = r#"{"id":1,"method":"m","params":[7]}"#;
    for (white, is_kept) in [(10, true), (1 << 20, false)] {
        let whole = Bytes::from(" ".repeat(white) + text);
        let message = Message::parse(&whole).unwrap();
        assert_eq!(message.raw().as_ref(), text.as_bytes());
        assert_eq!(message.params(&message.envelopes()[0]), Some("[7]"));
        let range = whole.as_ptr_range();
        assert_eq!(range.contains(&message.raw().as_ptr()), is_kept, "{white}");
    }
}

#[test]
fn a_shortened_message_keeps_no_unused_memory() {
    let long = format!(r#"{{"id":1,"result":"{}"}}"#, "x".repeat(1 << 20));
    let edited = parse(&long).with_result("7");
    let text = edited.raw().clone();
    drop(edited);
    let owned = text.try_into_mut().unwrap();
    assert!(
        owned.capacity() < 100,
        "{} bytes are kept",
        owned.capacity()
    );
}

#[test]
fn an_invalid_message_is_refused_with_its_reason() {
    assert_eq!(refusal("{"), "message is not JSON");
    assert_eq!(refusal(""), "message is not JSON");
    assert_eq!(refusal("3"), "message is not JSON-RPC 2.0: not an object");
    assert_eq!(
        refusal("[]"),
        "message is not JSON-RPC 2.0: the batch is empty"
    );
    assert_eq!(
        refusal(r#"{"id":1}"#),
        "message is not JSON-RPC 2.0: no method, result or error"
    );
    assert_eq!(
        refusal(r#"{"id":null,"method":"m"}"#),
        "message is not JSON-RPC 2.0: the id of a request must not be null"
    );
    assert_eq!(
        refusal(r#"{"id":{},"method":"m"}"#),
        "message is not JSON-RPC 2.0: the id is neither a string nor a number"
    );
    assert_eq!(
        refusal(r#"{"id":1,"id":2,"method":"m"}"#),
        "message is not JSON-RPC 2.0: a member has the wrong type or occurs twice"
    );
    assert!(matches!(
        Message::parse(&Bytes::from_static(b"{\"method\":\"\xff\"}")),
        Err(MessageError::NotUtf8(_))
    ));
}

#[test]
fn nesting_of_any_depth_does_not_exhaust_the_stack() {
    let deep = format!(
        r#"{{"id":1,"method":"m","params":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(parse(&deep).single().unwrap().method(), Some("m"));
}

#[test]
fn an_edit_touches_only_its_place() {
    let message = parse(r#"{"n":1.0,"id":7,"result":{"a":1},"z":[ ]}"#);
    assert_eq!(
        message
            .with_id(&RequestId::Text("riglm:1".into()))
            .raw()
            .as_ref(),
        br#"{"n":1.0,"id":"riglm:1","result":{"a":1},"z":[ ]}"#
    );
    assert_eq!(
        message.with_result("{}").raw().as_ref(),
        br#"{"n":1.0,"id":7,"result":{},"z":[ ]}"#
    );
}

#[test]
fn a_message_with_another_id_is_read_like_its_text() {
    for text in [
        r#"{"jsonrpc":"2.0","id":7,"result":{"a":[1]},"z":1}"#,
        r#"{"jsonrpc":"2.0","result":{"a":[1]},"id":"seven"}"#,
        r#"{"id":"a","method":"m","params":{"id":1}}"#,
        r#"{"params":[1],"id":1.0,"method":"m"}"#,
        r#"{"id":1,"error":{"code":1},"result":null}"#,
        r#"{"id":{"a":1},"error":{"code":1}}"#,
    ] {
        for id in [
            RequestId::Text("riglm:1".into()),
            RequestId::Number("1".into()),
        ] {
            let message = parse(text);
            assert!(!message.is_deeper_than(3));
            let edited = message.with_id(&id);
            let read = parse(std::str::from_utf8(edited.raw()).unwrap());
            assert!(!edited.is_deeper_than(3) && !read.is_deeper_than(3));
            assert_eq!(edited.single().unwrap().id(), Some(&id), "{text}");
            assert_eq!(format!("{edited:?}"), format!("{read:?}"), "{text}");
        }
    }
}

#[test]
fn line_breaks_between_tokens_become_spaces() {
    let message = parse("{\"id\":1,\r\n \"result\":\"a\\nb\"}");
    assert_eq!(
        message.on_one_line().as_ref(),
        b"{\"id\":1,   \"result\":\"a\\nb\"}"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::parse(&Bytes::from(bytes));
    }

    #[test]
    fn ids_survive_their_json_form(text in ".*", number in any::<i64>()) {
        for id in [RequestId::Text(text.as_str().into()), RequestId::Number(number.to_string().into())] {
            prop_assert_eq!(RequestId::from_json(&id.to_json()), Some(id));
        }
    }
}

proptest! {
    #[test]
    fn a_constructed_answer_equals_its_parsed_form(
        id in prop_oneof![
            any::<i64>().prop_map(|id| RequestId::Number(id.to_string().into())),
            any::<String>().prop_map(|id| RequestId::Text(id.into())),
        ],
        texts in proptest::collection::vec(any::<String>(), 0..3),
    ) {
        let result = serde_json::json!({"content": texts}).to_string();
        let made = Message::success(&id, &result);
        let read = Message::parse(made.raw()).unwrap();
        let (made_part, read_part) = (made.single().unwrap(), read.single().unwrap());
        prop_assert_eq!(made_part.kind(), read_part.kind());
        prop_assert_eq!(made_part.id(), Some(&id));
        prop_assert_eq!(read_part.id(), Some(&id));
        prop_assert_eq!(made.result(made_part), Some(result.as_str()));
        prop_assert_eq!(read.result(read_part), Some(result.as_str()));
        prop_assert!(made_part.is_version_2());
        let other = RequestId::Number("7".into());
        let (made, read) = (made.with_id(&other), read.with_id(&other));
        prop_assert_eq!(made.raw(), read.raw());
    }
}

#[test]
fn ambiguous_members_are_found() {
    let found = |text: &str| Message::from_text(text.into()).unwrap().ambiguous_member();
    let call = |params: &str| {
        found(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#
        ))
    };
    assert_eq!(
        call(r#"{"name":"read","arguments":{"Name":1,"name":2}}"#),
        None
    );
    assert_eq!(
        call(r#"{"name":"read","Name":"rm"}"#).as_deref(),
        Some("Name")
    );
    assert_eq!(call(r#"{"NAM\u0045":"rm"}"#).as_deref(), Some("NAME"));
    assert_eq!(
        call(r#"{"name":"rm","name":"read"}"#).as_deref(),
        Some("name")
    );
    let ping = |member: &str| {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"Name":1},"#;
        found(&format!("{text}{member}}}"))
    };
    assert_eq!(ping(r#""x":{"Method":1}"#), None);
    assert_eq!(ping(r#""METHOD":"tools/call""#).as_deref(), Some("METHOD"));
    assert_eq!(ping(r#""Params":{}"#).as_deref(), Some("Params"));
    assert!(ping("\"param\u{17f}\":{}").is_some());
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{},"Method":"tools/call"}"#;
    assert_eq!(found(answer).as_deref(), Some("Method"));
    let batch = format!(r#"[{{"jsonrpc":"2.0","id":2,"method":"ping"}},{answer}]"#);
    assert_eq!(found(&batch).as_deref(), Some("Method"));
}

#[test]
fn a_repeated_result_before_its_id_is_parsed_by_comparison() {
    let text = r#"{"result":{"tools":["a long list of tools"],"n":"ä"},"jsonrpc":"2.0","id":7}"#;
    let known = parse(text);
    let found = Message::parse_repeated(&Bytes::from(text), &known).unwrap();
    assert_eq!(format!("{:?}", found.parts), format!("{:?}", known.parts));
    let other = RequestId::Text("other".into());
    assert_eq!(found.with_id(&other).raw(), known.with_id(&other).raw());
    let edited = found.with_id(&other).with_result("[]");
    let expected = r#"{"result":[],"jsonrpc":"2.0","id":"other"}"#;
    assert_eq!(edited.as_str(), expected);
}

#[test]
fn a_repeated_result_is_parsed_by_comparison() {
    let known = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"\"}"}], "next":"c"}}"#;
    let known = Message::from_text(known.into()).unwrap();
    let again = |text: &str| Message::parse_repeated(&Bytes::from(text.to_owned()), &known);
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"\"}"}], "next":"c"}}"#,
        "{\"id\":\"x\", \"jsonrpc\":\"2.0\",\n\"result\":{\"tools\":[{\"name\":\"\\\"}\"}], \"next\":\"c\"}}\n",
        r#"{"x":[[[[[1]]]]],"id":7,"result":{"tools":[{"name":"\"}"}], "next":"c"}}"#,
    ] {
        let (found, read) = (
            again(text).unwrap(),
            Message::from_text(text.into()).unwrap(),
        );
        let part = &found.envelopes()[0];
        assert_eq!(format!("{:?}", found.parts), format!("{:?}", read.parts));
        assert_eq!(found.raw(), read.raw());
        assert_eq!(found.member(part, "next"), Some("\"c\""));
        assert_eq!(
            found.member(part, "tools"),
            read.member(&read.parts[0], "tools")
        );
        assert_eq!(found.on_one_line(), read.on_one_line());
        for limit in 1..8 {
            assert_eq!(
                found.is_deeper_than(limit),
                read.is_deeper_than(limit),
                "{limit} {text}"
            );
        }
    }
    for other in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"\"}"}], "next":"d"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"tools":[{"name":"\"}"}], "next":"c"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":0,"result":{"tools":[{"name":"\"}"}], "next":"c"}}"#,
        r#"{"id":1,"result":{"a":{"tools":[{"name":"\"}"}], "next":"c"}}"#,
        r#"{"id":1,"a":"b\"result":{"tools":[{"name":"\"}"}], "next":"c"}}"#,
        "",
    ] {
        assert!(again(other).is_none(), "{other}");
    }
}
