//! Entries of others, and texts that cannot be changed.

use super::*;

#[test]
fn a_server_of_somebody_else_is_refused_by_name() {
    for (id, text) in [
        (
            "cursor",
            r#"{"mcpServers": {"riglm": {"url": "https://riglm.example/mcp"}}}"#,
        ),
        (
            "claude-code",
            r#"{"mcpServers": {"riglm": {"command": "npx", "args": ["riglm"]}}}"#,
        ),
        ("vscode", r#"{"servers": {"riglm": 1}}"#),
        ("codex", "[mcp_servers.riglm]\ncommand = \"x\"\n"),
        ("goose", "extensions:\n  riglm:\n    type: builtin\n"),
        ("continue", "mcpServers:\n  - name: riglm\n    command: x\n"),
    ] {
        let error = install(id, text).unwrap_err();
        let expected = "the server \"riglm\" is not riglm: rename or remove it first";
        assert_eq!(error.to_string(), expected, "{id}");
        let removal = EntryRemoval {
            name: "riglm",
            riglm: &identity(),
            insertion: None,
        };
        let error = remove_entry(text, client(id), &removal).unwrap_err();
        assert_eq!(error.to_string(), expected, "{id}");
    }
}

#[test]
fn an_entry_of_ours_is_renewed_in_its_place() {
    let text = "{\n  \"mcpServers\": {\n    \"riglm\": {\"type\": \"sse\", \"url\": \"http://localhost:8642/mcp\"}, // ours\n    \
                \"a\": {\"command\": \"x\"}\n  }\n}\n";
    let edited = install("claude-code", text).unwrap();
    assert_eq!(edited.change, EntryChange::Replaced);
    let expected = "{\n  \"mcpServers\": {\n    \"riglm\": {\n      \"type\": \"http\",\n      \
                    \"url\": \"http://127.0.0.1:8642/mcp\"\n    }, // ours\n    \
                    \"a\": {\"command\": \"x\"}\n  }\n}\n";
    assert_eq!(edited.text, expected);
    let text = "[mcp_servers.riglm]\nurl = \"http://localhost:8642/mcp/work\"\n\n[mcp_servers.a]\ncommand = \"x\"\n";
    let edited = install("codex", text).unwrap();
    assert_eq!(
        edited.text,
        text.replace("localhost:8642/mcp/work", "127.0.0.1:8642/mcp")
    );
    let text = "extensions:\n  riglm:\n    type: sse\n    uri: http://localhost:8642/mcp\n  a:\n    type: builtin\n";
    let edited = install("goose", text).unwrap();
    assert!(
        edited.text.contains("type: streamable_http"),
        "{}",
        edited.text
    );
    assert!(
        edited
            .text
            .ends_with("timeout: 300\n  a:\n    type: builtin\n")
    );
}

#[test]
fn an_entry_of_ours_under_another_name_is_enough() {
    let text = r#"{"mcpServers": {"tools": {"url": "http://localhost:8642/mcp/?x=1"}}}"#;
    let edited = install("cursor", text).unwrap();
    let name = "tools".to_owned();
    assert_eq!(edited.change, EntryChange::Unchanged { name });
    assert_eq!(edited.text, text);
    // That of a profile is another one.
    let text = r#"{"mcpServers": {"work": {"url": "http://localhost:8642/mcp/work"}}}"#;
    assert_eq!(
        install("cursor", text).unwrap().change,
        EntryChange::Inserted
    );
}

#[test]
fn values_of_the_wrong_kind_are_refused() {
    for (id, text, expected) in [
        (
            "cursor",
            r#"{"mcpServers": []}"#,
            "the value of \"mcpServers\" is not an object",
        ),
        (
            "cursor",
            r#"{"mcpServers": "x"}"#,
            "the value of \"mcpServers\" is not an object",
        ),
        ("cursor", "[]", "the file is not an object"),
        ("cursor", "{", "the file is malformed"),
        (
            "codex",
            "mcp_servers = []\n",
            "the value of \"mcp_servers\" is not a table",
        ),
        ("codex", "mcp_servers = \n", "the file is malformed"),
        (
            "goose",
            "extensions: [a]\n",
            "the value of \"extensions\" is not a mapping",
        ),
        ("goose", "- a\n", "the file is not an object"),
        ("goose", "a: 1\n---\nb: 2\n", "the file is malformed"),
        (
            "goose",
            "extensions: {a: {type: builtin}}\n",
            "the value of \"extensions\" has a form that cannot be changed safely: edit the file by hand",
        ),
    ] {
        assert_eq!(
            install(id, text).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_file_that_has_changed_since_loses_only_the_entry() {
    let text = "{\n  \"a\": 1\n}\n";
    let installed = install("cursor", text).unwrap();
    let changed = installed.text.replace("\"a\": 1", "\"a\": 2, \"b\": [3]");
    let removal = EntryRemoval {
        name: "riglm",
        riglm: &identity(),
        insertion: Some(&installed.insertion),
    };
    let removed = remove_entry(&changed, client("cursor"), &removal).unwrap();
    assert_eq!(removed.text, "{\n  \"a\": 2, \"b\": [3]\n}\n");
    // Without the record, the empty map stays.
    let removal = EntryRemoval {
        insertion: None,
        ..removal
    };
    let removed = remove_entry(&changed, client("cursor"), &removal).unwrap();
    assert_eq!(
        removed.text,
        "{\n  \"a\": 2, \"b\": [3],\n  \"mcpServers\": {}\n}\n"
    );
    let absent = remove_entry(text, client("cursor"), &removal).unwrap();
    assert_eq!(absent.change, EntryChange::Absent);
}

#[test]
fn names_that_some_client_does_not_take_are_refused() {
    for name in ["", "a b", "a.b", "größe", &"x".repeat(65)] {
        let entry = InstallEntry {
            name: name.to_owned(),
            ..entry(EntryKey::None)
        };
        let error = install_entry("", client("cursor"), &entry, &identity()).unwrap_err();
        assert!(matches!(error, EditError::InvalidName { .. }), "{name}");
    }
}

#[test]
fn additions_of_the_client_to_our_entry_stay() {
    let text = r#"{"mcpServers": {"riglm": {"type": "streamableHttp", "url": "http://127.0.0.1:8642/mcp", "disabled": false, "autoApprove": ["x"], "timeout": 9}}}"#;
    let edited = install("cline", text).unwrap();
    let name = "riglm".to_owned();
    assert_eq!(edited.change, EntryChange::Unchanged { name });
    let old = text
        .replace("127.0.0.1", "localhost")
        .replace("false", "true");
    assert_eq!(install("cline", &old).unwrap().text, text);
    // A key that is not needed any more does not stay, nor does a bridge.
    let text = r#"{"mcpServers": {"riglm": {"url": "http://127.0.0.1:8642/mcp"}}}"#;
    let with_key = text.replace("mcp\"", r#"mcp", "headers": {"Authorization": "Bearer x"}"#);
    assert_eq!(install("cursor", &with_key).unwrap().text, text);
    let bridge =
        r#"{"mcpServers": {"riglm": {"command": "/opt/riglm/bin/riglm", "args": ["connect"]}}}"#;
    assert_eq!(install("cursor", bridge).unwrap().text, text);
    // The input is missing although the entry is there.
    let edited = install_entry("", client("vscode"), &entry(variable()), &identity()).unwrap();
    let inputs = edited.text.find(",\n  \"inputs\"").unwrap();
    let without = format!("{}\n}}\n", &edited.text[..inputs]);
    let again = install_entry(&without, client("vscode"), &entry(variable()), &identity());
    assert_eq!(again.unwrap().text, edited.text);
}

#[test]
fn comments_that_were_written_since_stay() {
    let cases = [
        (
            "cursor",
            "",
            "{\n  \"mcpServers\"",
            "// mine\n{\n  \"mcpServers\"",
            "// mine\n{\n}\n",
        ),
        ("cursor", "", "}\n}\n", "}\n}\n// mine\n", "{\n}\n// mine\n"),
        (
            "cursor",
            "",
            "{\n  \"mcpServers\"",
            "{\n  // mine\n  \"mcpServers\"",
            "{\n  // mine\n}\n",
        ),
        (
            "cursor",
            "{}",
            "    \"riglm\"",
            "    // mine\n    \"riglm\"",
            "{\n  \"mcpServers\": {\n    // mine\n  }\n}",
        ),
        (
            "goose",
            "",
            "  riglm:",
            "  # mine\n  riglm:",
            "extensions: {}\n  # mine\n",
        ),
        (
            "goose",
            "a: 1\n",
            "extensions:",
            "# mine\nextensions:",
            "a: 1\n# mine\n",
        ),
        (
            "goose",
            "",
            "timeout: 300\n",
            "timeout: 300\n# mine\n",
            "# mine\n",
        ),
        (
            "codex",
            "",
            "[mcp_servers.riglm]",
            "# mine\n[mcp_servers.riglm]",
            "# mine\n",
        ),
    ];
    for (id, text, from, to, expected) in cases {
        let installed = install(id, text).unwrap();
        let changed = installed.text.replacen(from, to, 1);
        assert_ne!(changed, installed.text, "{id}: {from:?}");
        let removal = EntryRemoval {
            name: "riglm",
            riglm: &identity(),
            insertion: Some(&installed.insertion),
        };
        let removed = remove_entry(&changed, client(id), &removal).unwrap();
        assert_eq!(removed.text, expected, "{id}: {changed}");
    }
}
