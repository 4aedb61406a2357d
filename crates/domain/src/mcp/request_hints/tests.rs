use proptest::prelude::*;

use super::*;

fn message(text: &str) -> Message {
    Message::from_text(text.into()).unwrap()
}

fn call(params: &str) -> Message {
    message(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#
    ))
}

fn params_of(message: &Message) -> &str {
    message.params(message.single().unwrap()).unwrap()
}

#[test]
fn hints_are_read_and_removed_from_meta() {
    let taken = extract_hints(call(
        r#"{ "_meta":{"io.github.riglm/session":" job 7 ","progressToken":1.0,
        "io.github.riglm\/context":"find the bug","io.github.riglm/token-budget":900},"name":"t" }"#,
    ));
    let hints = taken.hints();
    assert_eq!(hints.session.as_deref(), Some("job 7"));
    assert_eq!(hints.context.as_deref(), Some("find the bug"));
    assert_eq!(hints.token_budget, Some(900));
    assert_eq!(
        params_of(&taken),
        r#"{ "_meta":{"progressToken":1.0},"name":"t" }"#
    );
}

#[test]
fn only_a_meta_of_hints_is_removed_entirely() {
    let ours = call(r#"{"name":"t","_meta":{"io.github.riglm/session":"s"}}"#);
    assert_eq!(params_of(&extract_hints(ours)), r#"{"name":"t"}"#);
    let empty = call(r#"{"name":"riglm","_meta":{}}"#);
    assert_eq!(
        params_of(&extract_hints(empty)),
        r#"{"name":"riglm","_meta":{}}"#
    );
}

#[test]
fn trace_context_is_read_and_forwarded() {
    let params = r#"{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","baggage":"a=1, session.id=j%C3%BCl%201;p=q ,b=2"}}"#;
    let taken = extract_hints(call(params));
    assert_eq!(params_of(&taken), params);
    let hints = taken.hints();
    assert_eq!(hints.baggage_session.as_deref(), Some("jül 1"));
    assert_eq!(hints.trace.unwrap().0[..3], [0x0a, 0xf7, 0x65]);
    assert_eq!(hints.ignored, Vec::<&str>::new());
}

#[test]
fn long_and_malformed_hints_are_ignored_and_not_forwarded() {
    let long = "x".repeat(MAX_SESSION_BYTES + 1);
    let params = format!(
        r#"{{"_meta":{{"{SESSION}":"{long}","{CONTEXT}":["a"],"{TOKEN_BUDGET}":-1,"traceparent":"00-{:032}-b7ad6b7169203331-01","baggage":"session.id=%zz"}}}}"#,
        0
    );
    let taken = extract_hints(call(&params));
    let ignored = vec![SESSION, CONTEXT, TOKEN_BUDGET, TRACEPARENT, BAGGAGE];
    let expected = RequestHints {
        ignored,
        ..RequestHints::default()
    };
    assert_eq!(taken.hints(), &expected);
    assert!(!params_of(&taken).contains("riglm"));
    let fits = "x".repeat(MAX_SESSION_BYTES);
    let params = format!(r#"{{"_meta":{{"{SESSION}":"{fits}"}}}}"#);
    assert_eq!(
        RequestHints::of_params(&params).session.as_deref(),
        Some(&*fits)
    );
}

#[test]
fn vectors_of_queries_are_read_scaled_and_bounded() {
    let read = |value: &str| {
        let params = format!(r#"{{"name":"t","_meta":{{"{EMBEDDING}":{value}}}}}"#);
        let taken = extract_hints(call(&params));
        assert_eq!(params_of(&taken), r#"{"name":"t"}"#);
        taken.hints().clone()
    };
    let hints = read(r#"{"model":"m","vector":[3,0,-4.0]}"#);
    let vector = hints.embedding.unwrap();
    assert_eq!(
        (vector.model(), vector.vector()),
        ("m", &[0.6, 0.0, -0.8][..])
    );
    assert_eq!(hints.ignored, Vec::<&str>::new());
    let long = format!(
        r#"{{"model":"m","vector":[{}1]}}"#,
        "1,".repeat(Embedding::MAX_DIMENSION)
    );
    let padded = format!(
        r#"{{"model":"m",{}"vector":[1]}}"#,
        " ".repeat(MAX_EMBEDDING_BYTES)
    );
    for unusable in [
        r#"{"model":"m","vector":[0,0]}"#,
        r#"{"model":"m","vector":[1e300]}"#,
        r#"{"model":"m","vector":[1,null]}"#,
        r#"{"model":"","vector":[1]}"#,
        r#"{"model":"m","vector":[]}"#,
        r#"{"vector":[1]}"#,
        "[1,2]",
        "\"AAAA\"",
        long.as_str(),
        padded.as_str(),
    ] {
        let hints = read(unusable);
        assert_eq!(hints.embedding, None, "{unusable:.60}");
        assert_eq!(hints.ignored, [EMBEDDING], "{unusable:.60}");
    }
}

#[test]
fn a_vector_in_a_batch_of_several_requests_is_ignored() {
    let part = |n: u8| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"_meta":{{"{EMBEDDING}":{{"model":"m","vector":[1]}}}}}}}}"#
        )
    };
    let alone = extract_hints(message(&format!("[{}]", part(1))));
    assert!(alone.hints().embedding.is_some());
    let both = extract_hints(message(&format!("[{},{}]", part(1), part(2))));
    assert_eq!(both.hints().embedding, None);
    assert_eq!(both.hints().ignored, [EMBEDDING]);
    assert!(!String::from_utf8_lossy(both.raw()).contains("riglm"));
}

#[test]
fn hints_of_meta_take_precedence_over_headers() {
    let headers = RequestHints::of_headers(
        Some(b"of header"),
        Some("=?base64?Z3LDvG4=?=".as_bytes()),
        Some(b"5"),
    );
    assert_eq!(headers.context.as_deref(), Some("grün"));
    let call = call(r#"{"_meta":{"io.github.riglm/session":"of meta"}}"#).with_hints(headers);
    let taken = extract_hints(call);
    assert_eq!(taken.hints().session.as_deref(), Some("of meta"));
    assert_eq!(taken.hints().token_budget, Some(5));
    let unreadable = RequestHints::of_headers(Some(b"\xff"), None, Some(b"0"));
    assert_eq!(unreadable.ignored, [SESSION_HEADER, TOKEN_BUDGET_HEADER]);
}

#[test]
fn batch_hints_are_removed_and_the_first_applies() {
    let batch = message(
        r#"[{"jsonrpc":"2.0","id":1,"method":"a"},
        {"jsonrpc":"2.0","id":2,"method":"b","params":{"_meta":{"io.github.riglm/session":"x"},"k":1.50}},
        {"jsonrpc":"2.0","id":3,"method":"c","params":{"_meta":{"io.github.riglm/session":"y","z":1}}}]"#,
    );
    let taken = extract_hints(batch);
    assert_eq!(taken.hints().session.as_deref(), Some("x"));
    assert_eq!(
        taken.raw(),
        r#"[{"jsonrpc":"2.0","id":1,"method":"a"},
        {"jsonrpc":"2.0","id":2,"method":"b","params":{"k":1.50}},
        {"jsonrpc":"2.0","id":3,"method":"c","params":{"_meta":{"z":1}}}]"#
    );
}

#[test]
fn arguments_resembling_hints_are_not_changed() {
    let params = r#"{"arguments":{"_meta":{"io.github.riglm/session":"s"}},"_meta":{"a":1}}"#;
    let taken = extract_hints(call(params));
    assert_eq!(params_of(&taken), params);
    assert_eq!(taken.hints(), RequestHints::none());
}

proptest! {
    /// Entries of others stay unchanged, whatever they are.
    #[test]
    fn the_rest_of_meta_is_unchanged(
        entries in proptest::collection::vec(
            (prop_oneof![Just(SESSION), Just(CONTEXT), Just("a"), Just("b/c")], any::<i32>()),
            0..5,
        ),
    ) {
        let text = |entries: &[(&str, i32)]| {
            let entries: Vec<String> = entries.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
            entries.join(",")
        };
        let rest: Vec<_> = entries.iter().copied().filter(|(key, _)| !OWN_ENTRIES.contains(key)).collect();
        let taken = extract_hints(call(&format!(r#"{{"_meta":{{{}}}}}"#, text(&entries))));
        let expected = if rest.is_empty() && !entries.is_empty() {
            "{}".to_owned()
        } else {
            format!(r#"{{"_meta":{{{}}}}}"#, text(&rest))
        };
        prop_assert_eq!(params_of(&taken), expected);
    }

    /// The reader accepts any text of a client without a panic.
    #[test]
    fn any_text_is_read(text in ".{0,60}") {
        let json = serde_json::Value::from(text.as_str()).to_string();
        let params = format!(
            r#"{{"_meta":{{"baggage":{json},"traceparent":{json},"{SESSION}":{json}}}}}"#
        );
        let hints = RequestHints::of_params(&params);
        prop_assert!(hints.session.is_none_or(|key| !key.trim().is_empty()));
        prop_assert!(RequestHints::of_headers(Some(text.as_bytes()), None, None).context.is_none());
    }
}
