//! Layouts of documents that must survive an installation.

use proptest::prelude::*;
use serde::Serialize as _;
use serde_json::Map;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::*;

/// JSON documents, with `KEY` for the key of the servers.
const JSON: [&str; 34] = [
    "",
    "\n",
    "  \r\n",
    "\u{feff}",
    "\u{feff}{}",
    "// nothing yet",
    "/* nothing\n yet */\n",
    "{}",
    "{ }",
    "{\n}",
    "{\n\n  \n}\n",
    "{\"KEY\": {}}",
    "{\"KEY\":{},\"a\":1}",
    "{\"KEY\": null}",
    "{\n  \"KEY\": null,\n  \"a\": 1\n}\n",
    "{\n  \"KEY\": {}\n}\n",
    "{\n  \"KEY\": { },\n  \"a\": {}\n}",
    "{\n  \"KEY\": {\n  }\n}\n",
    "{\n  \"KEY\": {\n    // none\n  }\n}\n",
    "{\n  \"KEY\": { /* none */ }\n}\n",
    "{\n  \"KEY\": { // none\n  }\n}\n",
    "{\"KEY\":{\"a\":{\"command\":\"x\"}}}",
    "{\"KEY\": {\"a\": {\"command\": \"x\"}}, \"b\": [1, 2]}",
    "{\"KEY\": {\"a\": {\"command\": \"x\"}, }}",
    "{\r\n\t\"KEY\": {\r\n\t\t\"a\": {\r\n\t\t\t\"command\": \"x\"\r\n\t\t}\r\n\t}\r\n}",
    "\u{feff}{\r\n  \"KEY\": {\r\n    \"a\": { \"command\": \"x\" }, // end\r\n  },\r\n}\r\n",
    "{\n  \"KEY\": {\n    \"a\": {\"command\": \"x\"},\n\n\n    \"b\": {\"url\": \"https://x.example\"}\n  }\n}",
    "{\n  \"KEY\": {\n    \"a\": {\"command\": \"x\"} /* one */ /* two */ // three\n    // four\n  }\n}",
    "{\n  \"KEY\": {\n    \"a\": {\"command\": \"x\"} /* one\n two */\n  }\n}",
    "{\n  \"KEY\": {\n    \"a\": {\"command\": \"x\"}}}",
    "{\n  \"KEY\": {\"a\": {\"command\": \"x\"},\n    \"b\": {\"command\": \"y\"} }\n}",
    "// first\n{ // second\n  /* third */ \"a\": 1 // fourth\n} // fifth\n",
    "{\n  \"naïve\": \"日本\",\n  \"KEY\": {\n    \"größe 🙂\": {\"command\": \"x\", \"env\": {\"N\": 1}}\n  }\n}\n",
    "{\"KEY\": 1, \"KEY\": {\"a\": {\"command\": \"x\"}, \"a\": {\"command\": \"y\"}}}",
];

#[test]
fn json_keeps_all_bytes_but_those_of_the_entry() {
    let json = |client: &&Client| {
        let format = client.format;
        matches!(
            format,
            DocumentFormat::Json | DocumentFormat::JsonWithComments
        )
    };
    for client in table::clients().filter(json) {
        for text in JSON {
            let text = text.replace("KEY", client.map.key);
            let installed = round_trip(client.id, &text, EntryKey::None);
            for line in text.lines().filter(|line| line.contains('/')) {
                // A comma may be added before a comment.
                let comment = &line[line.find('/').unwrap()..];
                let end = comment.find("*/").unwrap_or(comment.len());
                assert!(installed.contains(&comment[..end]), "{installed}");
            }
            if text.starts_with('\u{feff}') {
                assert!(installed.starts_with('\u{feff}'));
            }
            let n_lines = installed.matches('\n').count();
            if text.contains("\r\n") {
                assert_eq!(installed.matches("\r\n").count(), n_lines, "{installed:?}");
            }
        }
    }
}

#[test]
fn inputs_are_added_only_with_a_key_and_removed_with_it() {
    for text in [
        "{}",
        "{\"servers\":{},\"inputs\":[]}",
        "{\n  \"inputs\": [],\n  \"servers\": {}\n}\n",
        "{\n  \"inputs\": [\n    {\"id\": \"a\", \"type\": \"promptString\"}, // mine\n  ],\n}\n",
        "{\n\t\"servers\": {\n\t\t\"a\": {\n\t\t\t\"command\": \"x\"\n\t\t}\n\t},\n\t\"inputs\": [{\"id\": \"a\"}]\n}",
    ] {
        let installed = round_trip("vscode", text, variable());
        assert!(installed.contains("\"riglm-key\""), "{installed}");
        let installed = round_trip("vscode", text, EntryKey::None);
        assert!(!installed.contains("riglm-key"), "{installed}");
    }
}

#[test]
fn toml_keeps_all_bytes_but_those_of_the_entry() {
    for text in [
        "",
        "\n",
        "\u{feff}# mine\n",
        "model = \"x\"",
        "model = \"x\"\n\n\n",
        "model = \"x\"\r\n\r\n[mcp_servers.a]\r\ncommand = \"x\"\r\n",
        "[mcp_servers.\"a b\"]\ncommand = \"x\" # why\n\n[mcp_servers.\"a b\".env]\nN = \"1\"\n# end",
        "mcp_servers.a.command = \"x\"\n",
        "mcp_servers = {}\nmodel = \"x\"\n",
        "mcp_servers = { }\n",
        "mcp_servers = { a = { command = \"x\" } } # all\n\n[tools]\nweb = true\n",
        "[mcp_servers]\na = { command = \"x\" }\n\n[projects.\"/home/é\"]\ntrust_level = \"trusted\"\n",
        "[mcp_servers.a]\ncommand = \"x\"\n\n[tui]\ntheme = 'dark'\n[[hooks]]\nname = \"\"\"\n[mcp_servers.b]\n\"\"\"\n",
    ] {
        round_trip("codex", text, variable());
        round_trip("codex", text, EntryKey::None);
    }
    for text in [
        "mcp_servers = []\nx = 1\n",
        "x = 1\n",
        "[[mcp_servers]]\nname = \"a\"\ntransport = \"stdio\"\ncommand = \"x\"\n",
        "mcp_servers = [{ name = \"a\", transport = \"stdio\", command = \"x\" }]\n",
    ] {
        round_trip("vibe", text, EntryKey::None);
    }
}

#[test]
fn tables_of_an_entry_are_removed_with_it() {
    let text = "a = 1\n\n[mcp_servers.riglm]\nurl = \"http://127.0.0.1:8642/mcp\"\n# note\nenabled = true\n\n\
                [mcp_servers.riglm.tools.x]\napproval_mode = \"auto\"\n\n[mcp_servers.b]\ncommand = \"x\"\n";
    let removal = EntryRemoval {
        name: "riglm",
        riglm: &identity(),
        insertion: None,
    };
    let removed = remove_entry(text, client("codex"), &removal).unwrap();
    assert_eq!(removed.text, "a = 1\n\n[mcp_servers.b]\ncommand = \"x\"\n");
}

#[test]
fn yaml_keeps_all_bytes_but_those_of_the_entry() {
    for text in [
        "",
        "\n",
        "# mine\n",
        "# mine",
        "---\n",
        "GOOSE_MODEL: x",
        "GOOSE_MODEL: x\r\nextensions:\r\n  developer:\r\n    type: builtin\r\n    enabled: true\r\n",
        "extensions:\n  developer:\n    bundled: true\n    enabled: true\n    name: developer\n    timeout: 300\n    \
         type: builtin\nGOOSE_PROVIDER: openai\n",
        "extensions: {}\nGOOSE_MODEL: x\n",
        "extensions: {} # none\n",
        "extensions:\nGOOSE_MODEL: x\n",
        "extensions: ~\n",
        "extensions:\n    a:\n        cmd: x\n        type: stdio\n\n\n# later\nGOOSE_MODEL: x\n",
        "extensions:\n  a: {type: stdio, cmd: x}\n  # about b\n  b:\n    type: stdio\n    cmd: |\n      x\n      # y\n",
        "extensions:\n  a:\n    type: stdio\n    cmd: x\n    # the end of a\n  # the end\n\n# other\nb: 1",
        "base: &base\n  type: stdio\n  cmd: x\nextensions:\n  a:\n    <<: *base\n  b: *base\n",
    ] {
        round_trip("goose", text, variable());
        round_trip(
            "hermes",
            &text.replace("extensions", "mcp_servers"),
            EntryKey::None,
        );
    }
    for text in [
        "",
        "name: me\nversion: 1.0.0\nschema: v1\n",
        "mcpServers: []\n",
        "models:\n  - &m\n    name: x\nmcpServers:\n  - name: a\n    command: x\n    args:\n      - y\ncontext: []\n",
        "mcpServers:\n- name: a\n  command: x\n- name: b\n  url: https://x.example\nmodels:\n- name: c",
    ] {
        round_trip("continue", text, EntryKey::None);
    }
}

/// Returns documents with servers and other members, in several layouts.
fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let members = prop::collection::btree_map("\\PC{0,6}", value.clone(), 0..4);
    let server = prop::collection::btree_map("[a-z]{1,6}", value, 0..3);
    let servers = prop::option::of(prop::collection::btree_map("\\PC{1,6}", server, 0..4));
    (members, servers, 0..4_usize, any::<bool>()).prop_map(
        |(members, servers, layout, has_crlf)| {
            let mut document: Map<String, Value> = members.into_iter().collect();
            if let Some(servers) = servers {
                let mut map = Map::new();
                for (name, server) in servers {
                    map.insert(name, Value::Object(server.into_iter().collect()));
                }
                document.insert("mcpServers".to_owned(), Value::Object(map));
            }
            let text = match layout {
                0 => serde_json::to_string(&document).unwrap(),
                1 => serde_json::to_string_pretty(&document).unwrap(),
                2 => {
                    let mut text = Vec::new();
                    let tabs = PrettyFormatter::with_indent(b"\t");
                    let mut serializer = Serializer::with_formatter(&mut text, tabs);
                    document.serialize(&mut serializer).unwrap();
                    String::from_utf8(text).unwrap() + "\n"
                }
                _ => serde_json::to_string(&document)
                    .unwrap()
                    .replace("\":", "\": ")
                    .replace(",\"", ", \""),
            };
            if has_crlf && layout == 1 {
                text.replace('\n', "\r\n")
            } else {
                text
            }
        },
    )
}

/// White space and comments between the tokens of a document.
const GAPS: [&str; 10] = [
    "",
    "",
    "",
    " ",
    "\n",
    "\n  ",
    "\n\n\t",
    "/* , } */",
    " // , { \n",
    "\r\n    ",
];

/// Writes a value with gaps between all tokens. A number chooses each of them.
fn write_with_gaps(value: &Value, choices: &mut impl Iterator<Item = usize>, text: &mut String) {
    let (open, close, items): (&str, &str, Vec<(Option<&String>, &Value)>) = match value {
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (Some(key), value));
            ("{", "}", members.collect())
        }
        Value::Array(values) => ("[", "]", values.iter().map(|value| (None, value)).collect()),
        value => return text.push_str(&value.to_string()),
    };
    text.push_str(open);
    text.push_str(GAPS[choices.next().unwrap_or(0) % GAPS.len()]);
    let n_items = items.len();
    for ((key, value), number) in items.into_iter().zip(1..) {
        if let Some(key) = key {
            text.push_str(&Value::from(key.as_str()).to_string());
            text.push_str(GAPS[choices.next().unwrap_or(0) % GAPS.len()]);
            text.push(':');
            text.push_str(GAPS[choices.next().unwrap_or(0) % GAPS.len()]);
        }
        write_with_gaps(value, choices, text);
        text.push_str(GAPS[choices.next().unwrap_or(0) % GAPS.len()]);
        if number < n_items || choices.next().unwrap_or(0).is_multiple_of(3) {
            text.push(',');
            text.push_str(GAPS[choices.next().unwrap_or(0) % GAPS.len()]);
        }
    }
    text.push_str(close);
}

/// Returns a value in the block style of YAML.
fn yaml_block(value: &Value, indent: usize, text: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, value) in members {
                write!(text, "\n{pad}{}:", Value::from(key.as_str())).unwrap();
                yaml_block(value, indent + 2, text);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            for value in values {
                write!(text, "\n{pad}- {value} # {{}}").unwrap();
            }
        }
        value => write!(text, " {value}").unwrap(),
    }
}

/// Lines at the start of a TOML document, of which one has the servers.
const TOML_STARTS: [&str; 8] = [
    "",
    "# mine\n",
    "mcp_servers = {}\n",
    "mcp_servers = { a = { command = \"x\", args = [\"[mcp_servers.riglm]\"] } } # all\n",
    "mcp_servers.\"a b\".command = \"x\"\nmcp_servers.\"a b\".args = []\n",
    "model = \"x\"\nnotify = [\n  \"sh\", # why\n]\n",
    "model = 'x'\n\n\n",
    "mcp_servers = { }\nmodel = \"\"\"\n[mcp_servers.riglm]\n\"\"\"\n",
];

/// Tables of a TOML document.
const TOML_TABLES: [&str; 7] = [
    "[projects.\"/home/é\"]\ntrust_level = \"trusted\"\n",
    "[tui] # why\ntheme = \"dark\"\n\n",
    "[[hooks]]\nname = \"a\"\n",
    "# about docs\n[mcp_servers.docs]\nurl = \"https://x.example\"\n\n",
    "[mcp_servers.files]\ncommand = \"x\" # why\n  [mcp_servers.files.env]\n  KEY = \"1\"\n",
    "[mcp_servers.\"z z\"]\ncommand = \"x\"\n# the end\n",
    "\n\n",
];

proptest! {
    #[test]
    fn installing_and_removing_restores_any_tables(
        start in 0..TOML_STARTS.len(),
        tables in prop::sample::subsequence(&TOML_TABLES[..], 0..TOML_TABLES.len()).prop_shuffle(),
        has_crlf in any::<bool>(),
        has_end in any::<bool>(),
    ) {
        let mut text = TOML_STARTS[start].to_owned();
        let is_inline = text.starts_with("mcp_servers =");
        for table in tables {
            if !(is_inline && table.contains("[mcp_servers")) {
                text.push_str(table);
            }
        }
        if !has_end {
            text.truncate(text.trim_end().len());
        }
        if has_crlf {
            text = text.replace('\n', "\r\n");
        }
        round_trip("codex", &text, variable());
        // An entry in the middle, with tables of its own.
        let own = "\n[mcp_servers.riglm]\nurl = \"http://127.0.0.1:8642/mcp\"\n\n[mcp_servers.riglm.tools.x]\na = 1\n";
        let more = "\n[mcp_servers.last]\ncommand = \"x\"\n";
        let before = format!("{text}\n");
        let removal = EntryRemoval { name: "riglm", riglm: &identity(), insertion: None };
        if !is_inline {
            let whole = format!("{before}{own}{more}");
            let removed = remove_entry(&whole, client("codex"), &removal).unwrap();
            prop_assert_eq!(removed.text, format!("{before}{more}"));
        }
    }

    #[test]
    fn installing_and_removing_restores_any_document(text in document()) {
        for id in ["cursor", "claude-desktop"] {
            round_trip(id, &text, EntryKey::None);
        }
    }

    #[test]
    fn installing_and_removing_restores_any_gaps(
        text in document(),
        choices in prop::collection::vec(0..GAPS.len(), 0..200),
    ) {
        let value: Value = serde_json::from_str(&text).unwrap();
        let mut text = String::new();
        write_with_gaps(&value, &mut choices.into_iter(), &mut text);
        round_trip("cursor", &text, EntryKey::None);
        let text = text.replace("mcpServers", "servers");
        round_trip("vscode", &text, variable());
    }

    #[test]
    fn installing_and_removing_restores_any_blocks(text in document(), has_end in any::<bool>()) {
        let value: Value = serde_json::from_str(&text).unwrap();
        let mut text = String::new();
        yaml_block(&value, 0, &mut text);
        let end = if has_end { "\n" } else { "" };
        let text = format!("{}{end}", text.trim_start().replace("mcpServers", "extensions"));
        round_trip("goose", &text, EntryKey::None);
    }

    #[test]
    fn no_text_makes_an_edit_panic(text in "[{}\\[\\]\",:/*#a\\n \\\\é=-]{0,40}") {
        for id in ["cursor", "codex", "goose", "continue", "vibe"] {
            let _ = install(id, &text);
        }
    }
}
