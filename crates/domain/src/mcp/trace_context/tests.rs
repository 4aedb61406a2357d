use proptest::prelude::*;

use super::*;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn parse(text: &str) -> Option<TraceContext> {
    TraceContext::parse(text, None)
}

fn message(text: &str) -> Message {
    Message::from_text(text.into()).unwrap()
}

fn text(message: &Message) -> &str {
    std::str::from_utf8(message.raw()).unwrap()
}

#[test]
fn the_example_of_the_w3c_is_read_and_written() {
    let context = parse(PARENT).unwrap();
    assert_eq!(context.trace.0[..2], [0x0a, 0xf7]);
    assert_eq!(context.span.0[6..], [0x33, 0x31]);
    assert!(context.is_sampled());
    assert_eq!(context.traceparent(), PARENT);
    assert_eq!(parse(&format!("\t{PARENT} ")), Some(context));
}

#[test]
fn a_malformed_traceparent_is_refused() {
    for wrong in [
        "",
        "00",
        &PARENT[..54],
        &format!("{PARENT}-00"),
        &format!("{PARENT}0"),
        &PARENT.to_uppercase(),
        &PARENT.replacen("00", "ff", 1),
        &PARENT.replacen("00", "0x", 1),
        &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
        &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
        &PARENT.replace('-', "_"),
        "000-af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-101",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\u{e9}",
    ] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn known_fields_of_later_versions_are_read() {
    let later = PARENT.replacen("00", "cc", 1);
    for text in [later.clone(), format!("{later}-what-the-future-will-be")] {
        assert_eq!(parse(&text).unwrap().traceparent(), PARENT);
    }
    assert_eq!(parse(&format!("{later}.x")), None);
}

#[test]
fn unknown_flags_are_dropped() {
    let of = |flags: &str| parse(&PARENT.replace("-01", flags)).unwrap();
    assert_eq!(of("-ff").flags.to_byte(), 3);
    assert!(!of("-fe").is_sampled());
    let child = of("-02").child(SpanId([1; 8]), true);
    assert!(child.traceparent().ends_with("-0101010101010101-03"));
}

#[test]
fn a_state_is_kept_with_its_order_and_without_white_space() {
    let state = |text: &str| TraceState::parse(text).map(|state| state.as_str().to_owned());
    assert_eq!(
        state("rojo=00f067aa0ba902b7 ,\t congo=t61rcWkgMzE,,"),
        Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE".into())
    );
    assert_eq!(state("1t@sys=a b"), Some("1t@sys=a b".into()));
    let long_key = "k".repeat(256);
    assert!(state(&format!("{long_key}=v")).is_some());
    for wrong in [
        "",
        " , ",
        "a",
        "a=",
        "=b",
        "A=b",
        "1a=b",
        "a=b,a=c",
        "a=b=c",
        "a@b@c=d",
        "a@1b=c",
        "a@=c",
        "@b=c",
        "a=\u{e9}",
        "a=\u{7f}",
        &format!("k{long_key}=v"),
        &format!("a={}", "v".repeat(257)),
        &format!("a@{}=v", "s".repeat(15)),
        &format!("{}@s=v", "t".repeat(242)),
    ] {
        assert_eq!(state(wrong), None, "{wrong}");
    }
    let many = |n: usize| (0..n).map(|n| format!("k{n}=v")).collect::<Vec<_>>();
    assert!(state(&many(32).join(",")).is_some());
    assert_eq!(state(&many(33).join(",")), None);
}

#[test]
fn a_long_state_loses_long_entries_first_and_then_the_oldest() {
    let entry = |key: &str, n: usize| format!("{key}={}", "v".repeat(n));
    let text = [
        entry("a", 100),
        entry("b", 200),
        entry("c", 100),
        entry("d", 200),
    ]
    .join(",");
    let state = TraceState::parse(&text).unwrap();
    assert_eq!(
        state.as_str(),
        [entry("a", 100), entry("b", 200), entry("c", 100)].join(",")
    );
    let text: Vec<String> = (0..6).map(|n| entry(&format!("k{n}"), 100)).collect();
    let state = TraceState::parse(&text.join(",")).unwrap();
    assert_eq!(state.as_str(), text[..4].join(","));
}

#[test]
fn a_malformed_state_does_not_invalidate_the_context() {
    let context = TraceContext::parse(PARENT, Some("A=1")).unwrap();
    assert_eq!(
        (context.tracestate(), context.traceparent().as_str()),
        (None, PARENT)
    );
}

#[test]
fn the_context_is_read_from_meta() {
    let params = format!(r#"{{"_meta":{{"traceparent":"{PARENT}","tracestate":"a=1"}}}}"#);
    let context = TraceContext::of_params(&params).unwrap();
    assert_eq!(context.tracestate(), Some("a=1"));
    for none in [
        "{}",
        r#"{"traceparent":"x"}"#,
        r#"{"_meta":{"traceparent":7}}"#,
    ] {
        assert_eq!(TraceContext::of_params(none), None);
    }
}

#[test]
fn injecting_a_context_changes_only_the_meta() {
    let context = TraceContext::parse(PARENT, Some(r#"a="\""#)).unwrap();
    let put = |before: &str| text(&context.inject(&message(before))).to_owned();
    let entries = format!(r#""traceparent":"{PARENT}","tracestate":"a=\"\\\"""#);
    assert_eq!(
        put(r#"{ "id":1.0,"method":"m", "params":{"x": 1e3} }"#),
        format!(r#"{{ "id":1.0,"method":"m", "params":{{"x": 1e3,"_meta":{{{entries}}}}} }}"#)
    );
    assert_eq!(
        put(r#"{"id":1,"method":"m"}"#),
        format!(r#"{{"id":1,"method":"m","params":{{"_meta":{{{entries}}}}}}}"#)
    );
    assert_eq!(
        put(
            r#"{"id":1,"method":"m","params":{"_meta":{"tracestate":"b=2","traceparent":"x","y":0}}}"#
        ),
        r#"{"id":1,"method":"m","params":{"_meta":{"tracestate":"a=\"\\\"","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","y":0}}}"#
    );
    for unchanged in [
        r#"[{"id":1,"method":"m"}]"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"id":1,"method":"m","params":[{}]}"#,
        r#"{"id":1,"method":"m","params":{"_meta":null}}"#,
    ] {
        assert_eq!(put(unchanged), unchanged);
    }
}

#[test]
fn injecting_a_context_removes_the_state_of_another_trace() {
    let context = parse(PARENT).unwrap();
    let before = r#"{"id":1,"method":"m","params":{"_meta":{"tracestate":"b=2"}}}"#;
    assert_eq!(
        text(&context.inject(&message(before))),
        format!(r#"{{"id":1,"method":"m","params":{{"_meta":{{"traceparent":"{PARENT}"}}}}}}"#)
    );
}

proptest! {
    #[test]
    fn a_written_context_is_read_back_unchanged(
        trace in any::<[u8; 16]>(),
        span in any::<[u8; 8]>(),
        flags in any::<u8>(),
        state in proptest::option::of("[a-z][a-z0-9_*/-]{0,8}=[!-+ -<>-~]{0,8}[!-+>-~]"),
    ) {
        prop_assume!(trace != [0; 16] && span != [0; 8]);
        let context = TraceContext {
            trace: TraceId(trace),
            span: SpanId(span),
            flags: TraceFlags::from_byte(flags),
            state: state.as_deref().and_then(TraceState::parse).map(Arc::new),
        };
        let again = TraceContext::parse(&context.traceparent(), context.tracestate());
        prop_assert_eq!(again, Some(context));
    }

    #[test]
    fn any_text_is_read_without_panic(parent in any::<String>(), state in any::<String>()) {
        let _ = TraceContext::parse(&parent, Some(&state));
        let _ = TraceContext::of_params(&parent);
        if let Some(read) = TraceState::parse(&state) {
            let again = TraceState::parse(read.as_str());
            prop_assert_eq!(again, Some(read));
        }
    }

    #[test]
    fn a_traceparent_is_accepted_exactly_by_its_grammar(
        version in "[0-9a-gA]{2}",
        trace in "[0-9a-f]{31,33}",
        span in "[0-9a-f]{15,17}",
        flags in "[0-9a-f]{2}",
        rest in "(-[a-z]{0,3})?",
    ) {
        let text = format!("{version}-{trace}-{span}-{flags}{rest}");
        let is_version = version.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_valid = is_version
            && version != "ff"
            && trace.len() == 32
            && span.len() == 16
            && trace.bytes().any(|byte| byte != b'0')
            && span.bytes().any(|byte| byte != b'0')
            && (version != "00" || rest.is_empty());
        prop_assert_eq!(parse(&text).is_some(), is_valid, "{}", text);
    }
}
