use proptest::prelude::*;

use super::*;
use crate::mcp::message::ParamHeader;

/// The examples of the specification ("Value Encoding").
const ENCODED: [(&str, &str); 5] = [
    ("us-west1", "us-west1"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
];

#[test]
fn values_are_encoded_as_the_specification_shows() {
    for (value, text) in ENCODED {
        assert_eq!(encode_value(value), text);
        assert_eq!(decode_value(text).as_deref(), Some(value));
    }
}

#[test]
fn text_without_both_base64_markers_is_plain_text() {
    for text in [
        "SGVsbG8=",
        "=?base64?SGVsbG8=",
        "SGVsbG8=?=",
        "=?BASE64?SGVsbG8=?=",
        "=?base64?=",
        "a\tb",
        "",
    ] {
        assert_eq!(decode_value(text).as_deref(), Some(text));
    }
}

#[test]
fn invalid_header_text_is_not_decoded() {
    for text in [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?/w==?=",
        "caf\u{e9}",
        "a\u{7}",
    ] {
        assert_eq!(decode_value(text), None, "{text}");
    }
}

#[test]
fn the_name_header_depends_on_the_method() {
    let params = Some(r#"{"uri":"file:///a","taskId":"t","name":"caf\u00e9"}"#);
    let name = |method| name_of(method, params);
    assert_eq!(name("tools/call").as_deref(), Some("café"));
    assert_eq!(name("prompts/get").as_deref(), Some("café"));
    assert_eq!(name("resources/read").as_deref(), Some("file:///a"));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        assert_eq!(name(method).as_deref(), Some("t"));
    }
    assert_eq!(name("tools/list"), None);
    assert_eq!(name_of("tools/call", Some(r#"{"name":7}"#)), None);
    assert_eq!(name_of("tools/call", None), None);
}

const CALL: &str = r#"{"name":"execute_sql","arguments":{"region":"us-west1"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;

fn standard(name: Option<&'static str>) -> StandardHeaders<'static> {
    StandardHeaders {
        protocol_version: Some("2026-07-28"),
        method: Some("tools/call"),
        name,
    }
}

#[test]
fn standard_headers_matching_the_body_pass_the_check() {
    let check = |headers| check_standard(&headers, "tools/call", Some(CALL));
    assert_eq!(check(standard(Some("execute_sql"))), Ok(()));
    let encoded = "=?base64?ZXhlY3V0ZV9zcWw=?=";
    assert_eq!(check(standard(Some(encoded))), Ok(()));
    let list = StandardHeaders {
        method: Some("tools/list"),
        ..standard(Some("anything"))
    };
    assert_eq!(check_standard(&list, "tools/list", Some(CALL)), Ok(()));
}

#[test]
fn different_or_missing_standard_headers_are_named() {
    let whole = standard(Some("execute_sql"));
    let cases = [
        (standard(None), "Mcp-Name is missing"),
        (standard(Some("Execute_sql")), "Mcp-Name differs"),
        (standard(Some("=?base64?x?=")), "Mcp-Name cannot be decoded"),
        (
            StandardHeaders {
                method: Some("TOOLS/CALL"),
                ..whole
            },
            "Mcp-Method differs",
        ),
        (
            StandardHeaders {
                method: None,
                ..whole
            },
            "Mcp-Method is missing",
        ),
        (
            StandardHeaders {
                protocol_version: Some("2025-11-25"),
                ..whole
            },
            "MCP-Protocol-Version differs",
        ),
        (
            StandardHeaders {
                protocol_version: None,
                ..whole
            },
            "MCP-Protocol-Version is missing",
        ),
    ];
    for (headers, expected) in cases {
        let error = check_standard(&headers, "tools/call", Some(CALL)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
    }
    let nameless = CALL.replace("\"name\"", "\"nam\"");
    let error = check_standard(&whole, "tools/call", Some(&nameless)).unwrap_err();
    assert!(error.to_string().contains("Mcp-Name differs"), "{error}");
}

/// Returns a definition whose input schema has these members.
fn tool(schema: &str) -> String {
    format!(r#"{{"name":"t","inputSchema":{{"type":"object",{schema}}},"outputSchema":{{}}}}"#)
}

#[test]
fn annotations_are_found_along_properties() {
    let schema = r#""properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "query":{"type":"string"},
        "x-mcp-header":{"type":"string"},
        "limits":{"type":"object","properties":{"rows":{"type":"integer","\u0078-mcp-header":"Max-Rows"}}},
        "dry":{"type":"boolean","x-mcp-header":"dry","default":{"x-mcp-header":1}}}"#;
    let found = annotations(&tool(schema)).unwrap();
    let found: Vec<(&str, String)> = found
        .iter()
        .map(|found| (found.header.as_ref(), found.path.join(".")))
        .collect();
    let expected = [
        ("Region", "region"),
        ("Max-Rows", "limits.rows"),
        ("dry", "dry"),
    ];
    assert_eq!(found, expected.map(|(header, path)| (header, path.into())));
    assert_eq!(annotations(r#"{"name":"\u0061"}"#), Ok(Vec::new()));
}

#[test]
fn invalid_annotations_have_distinct_errors() {
    let property = |property: &str| {
        let schema = format!(r#""properties":{{"a":{{{property}}}}}"#);
        annotations(&tool(&schema)).unwrap_err()
    };
    let at = || "a".to_owned();
    assert_eq!(
        property(r#""type":"string","x-mcp-header":7"#),
        AnnotationError::NotText { property: at() }
    );
    for header in ["", "a b", "a:b", "a\\r\\nb", "é"] {
        assert_eq!(
            property(&format!(r#""type":"string","x-mcp-header":"{header}""#)),
            AnnotationError::NotAToken { property: at() }
        );
    }
    for kind in [r#""number""#, r#""object""#, r#"["string","null"]"#, "null"] {
        assert_eq!(
            property(&format!(r#""type":{kind},"x-mcp-header":"A""#)),
            AnnotationError::NotPrimitive { property: at() }
        );
    }
    let taken = r#""properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#;
    assert_eq!(
        annotations(&tool(taken)),
        Err(AnnotationError::Taken {
            property: "b".into()
        })
    );
    assert_eq!(
        annotations(r#"{"x-mcp-header""#),
        Err(AnnotationError::Unreadable)
    );
}

#[test]
fn annotations_outside_of_the_chain_of_properties_are_misplaced() {
    let header = r#"{"type":"string","x-mcp-header":"A"}"#;
    for schema in [
        r#""x-mcp-header":"A""#.to_owned(),
        format!(r#""properties":{{"a":{{"type":"array","items":{header}}}}}"#),
        format!(r#""oneOf":[{{"properties":{{"a":{header}}}}}]"#),
        format!(r#""$defs":{{"d":{header}}}"#),
        format!(r#""if":{{"properties":{{"a":{header}}}}}"#),
        format!(r#""properties":{{"a":{{"not":{header}}}}}"#),
        format!(r#""additionalProperties":{header}"#),
    ] {
        assert_eq!(
            annotations(&tool(&schema)),
            Err(AnnotationError::Misplaced),
            "{schema}"
        );
    }
}

fn example() -> Vec<ParamAnnotation> {
    let schema = r#""properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "n":{"type":"object","properties":{"rows":{"type":"integer","x-mcp-header":"Rows"}}},
        "dry":{"type":"boolean","x-mcp-header":"Dry"}}"#;
    annotations(&tool(schema)).unwrap()
}

fn headers(of: &[(&str, &str)]) -> Vec<ParamHeader> {
    of.iter()
        .map(|&(name, value)| (name.into(), value.into()))
        .collect()
}

#[test]
fn arguments_become_headers() {
    let arguments = r#"{"dry":false,"n":{"rows":4.2e1},"region":"Zürich","query":"x"}"#;
    assert_eq!(
        param_headers(&example(), Some(arguments)),
        headers(&[
            ("Mcp-Param-Region", "=?base64?WsO8cmljaA==?="),
            ("Mcp-Param-Rows", "42"),
            ("Mcp-Param-Dry", "false"),
        ])
    );
    let rows = |number: &str| {
        let arguments = format!(r#"{{"n":{{"rows":{number}}}}}"#);
        param_headers(&example(), Some(&arguments))[0].1.to_string()
    };
    assert_eq!(rows("-7"), "-7");
    assert_eq!(rows("-0"), "0");
    assert_eq!(rows("9007199254740993"), "9007199254740993");
    assert_eq!(rows("1.5"), "1.5");
    for none in [
        None,
        Some("{}"),
        Some(r#"{"region":null,"n":[1],"dry":{}}"#),
        Some(r#"{"n":{"rows":null}}"#),
        Some("7"),
    ] {
        assert_eq!(param_headers(&example(), none), []);
    }
}

#[test]
fn headers_of_arguments_are_checked() {
    let check = |arguments: &str, of: &[(&str, &str)]| {
        check_params(&example(), Some(arguments), &headers(of))
    };
    let region = r#"{"region":"us-west1"}"#;
    assert_eq!(check(region, &[("mcp-param-region", "us-west1")]), Ok(()));
    assert_eq!(check("{}", &[("mcp-param-other", "\u{7}")]), Ok(()));
    for (said, is_same) in [
        ("42", true),
        ("42.0", true),
        ("4.2e1", true),
        ("43", false),
        ("+42", false),
        ("042", false),
        ("=?base64?NDI=?=", true),
        ("=?base64?NDIK?=", false),
        ("=?base64?NDIg?=", false),
        ("", false),
    ] {
        let checked = check(r#"{"n":{"rows":42}}"#, &[("Mcp-Param-Rows", said)]);
        assert_eq!(checked.is_ok(), is_same, "{said}");
    }
    let big = r#"{"n":{"rows":9007199254740993}}"#;
    assert!(check(big, &[("mcp-param-rows", "9007199254740992")]).is_err());
    assert!(check(big, &[("mcp-param-rows", "9007199254740992.0")]).is_err());
    let refused = [
        (region, vec![], "is missing"),
        (
            r#"{"region":null}"#,
            vec!["us-west1"],
            "has no matching argument",
        ),
        (region, vec!["us-west2"], "differs from the arguments"),
        (region, vec!["US-WEST1"], "differs from the arguments"),
        (region, vec!["=?base64?x?="], "cannot be decoded"),
        (region, vec!["us-west1", "us-west1"], "occurs twice"),
    ];
    for (arguments, said, expected) in refused {
        let said: Vec<_> = said
            .into_iter()
            .map(|text| ("mcp-param-region", text))
            .collect();
        let text = check(arguments, &said).unwrap_err().to_string();
        assert!(
            text.contains("Mcp-Param-Region") && text.contains(expected),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_value_survives_its_header(value in any::<String>()) {
        let text = encode_value(&value).into_owned();
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(text.trim(), text.as_str());
        prop_assert_eq!(decode_value(&text).map(Cow::into_owned), Some(value));
    }

    #[test]
    fn headers_made_from_arguments_pass_the_check(
        region in any::<Option<String>>(),
        rows in any::<Option<i64>>(),
        dry in any::<Option<bool>>(),
    ) {
        let arguments = serde_json::json!({"region": region, "n": {"rows": rows}, "dry": dry});
        let arguments = arguments.to_string();
        let made = param_headers(&example(), Some(&arguments));
        let n_given = usize::from(region.is_some()) + usize::from(rows.is_some()) + usize::from(dry.is_some());
        prop_assert_eq!(made.len(), n_given);
        prop_assert_eq!(check_params(&example(), Some(&arguments), &made), Ok(()));
        for at in 0..made.len() {
            let mut without = made.clone();
            without.remove(at);
            prop_assert!(check_params(&example(), Some(&arguments), &without).is_err());
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in r#"[{}\[\]",:\\a0-9.e+\- ]{0,40}"#) {
        let _ = annotations(&text);
        let _ = param_headers(&example(), Some(&text));
        let _ = check_params(&example(), Some(&text), &headers(&[("mcp-param-rows", &text)]));
        let _ = decode_value(&text);
    }
}
