//! Each tested client: the exact bytes after an installation, and the original bytes after a
//! removal.

mod layouts;
mod refusals;

use std::fmt::Write as _;

use super::*;
use crate::configuration::client::Tier;
use crate::configuration::entry::EntryKey;
use crate::configuration::table;

const ADDRESS: &str = "http://127.0.0.1:8642/mcp";

fn identity() -> RiglmIdentity {
    RiglmIdentity {
        addresses: vec![ADDRESS.to_owned()],
        programs: vec!["/opt/riglm/bin/riglm".to_owned()],
    }
}

fn entry(key: EntryKey) -> InstallEntry {
    InstallEntry {
        name: "riglm".to_owned(),
        address: ADDRESS.to_owned(),
        program: "/opt/riglm/bin/riglm".to_owned(),
        arguments: vec!["connect".to_owned()],
        key,
    }
}

fn client(id: &str) -> &'static Client {
    table::client(id).unwrap()
}

fn install(id: &str, text: &str) -> Result<EditedText, EditError> {
    install_entry(text, client(id), &entry(EntryKey::None), &identity())
}

/// Installs, checks that the reader finds riglm, and removes it again. Returns the text between.
fn round_trip(id: &str, text: &str, key: EntryKey) -> String {
    let client = client(id);
    let installed = install_entry(text, client, &entry(key.clone()), &identity());
    let installed = installed.unwrap_or_else(|error| panic!("{id}: {error}: {text:?}"));
    assert_eq!(installed.change, EntryChange::Inserted, "{id}: {text:?}");
    let own = own_entries(&installed.text, client, &identity()).unwrap();
    let names: Vec<&str> = own.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["riglm"], "{id}: {}", installed.text);
    let again = install_entry(&installed.text, client, &entry(key), &identity()).unwrap();
    assert_eq!(again.text, installed.text, "{id}");
    // The record goes through the ledger.
    let record = serde_json::to_string(&installed.insertion).unwrap();
    let record: InsertionRecord = serde_json::from_str(&record).unwrap();
    let removal = EntryRemoval {
        name: "riglm",
        riglm: &identity(),
        insertion: Some(&record),
    };
    let removed = remove_entry(&installed.text, client, &removal).unwrap();
    assert_eq!(removed.change, EntryChange::Removed, "{id}");
    assert_eq!(removed.text, text, "{id}: after {}", installed.text);
    let without_record = EntryRemoval {
        insertion: None,
        ..removal
    };
    let removed = remove_entry(&installed.text, client, &without_record).unwrap();
    if installed.insertion.servers == Some(ContainerBefore::Filled)
        && installed.insertion.inputs.is_none()
    {
        assert_eq!(removed.text, text, "{id}: after {}", installed.text);
    }
    installed.text
}

fn variable() -> EntryKey {
    EntryKey::Variable("RIGLM_KEY".to_owned())
}

#[test]
fn each_client_gets_its_entry_in_a_new_file() {
    let typed = |kind: &str, reference: &str, rest: &str| {
        format!(
            "{{\n  \"mcpServers\": {{\n    \"riglm\": {{\n      \"type\": \"{kind}\",\n      \
             \"url\": \"http://127.0.0.1:8642/mcp\",\n      \"headers\": {{\n        \
             \"Authorization\": \"Bearer {reference}\"\n      }}{rest}\n    }}\n  }}\n}}\n"
        )
    };
    let plain = |container: &str, key: &str, reference: &str| {
        format!(
            "{{\n  \"{container}\": {{\n    \"riglm\": {{\n      \"{key}\": \
             \"http://127.0.0.1:8642/mcp\",\n      \"headers\": {{\n        \
             \"Authorization\": \"Bearer {reference}\"\n      }}\n    }}\n  }}\n}}\n"
        )
    };
    let expected = [
        ("claude-code", typed("http", "${RIGLM_KEY}", "")),
        (
            "claude-desktop",
            "{\n  \"mcpServers\": {\n    \"riglm\": {\n      \"command\": \"/opt/riglm/bin/riglm\",\n      \
             \"args\": [\"connect\"]\n    }\n  }\n}\n"
                .to_owned(),
        ),
        ("cursor", plain("mcpServers", "url", "${env:RIGLM_KEY}")),
        (
            "vscode",
            "{\n  \"servers\": {\n    \"riglm\": {\n      \"type\": \"http\",\n      \
             \"url\": \"http://127.0.0.1:8642/mcp\",\n      \"headers\": {\n        \
             \"Authorization\": \"Bearer ${input:riglm-key}\"\n      }\n    }\n  },\n  \
             \"inputs\": [\n    {\n      \"type\": \"promptString\",\n      \"id\": \"riglm-key\",\n      \
             \"description\": \"Access key of riglm\",\n      \"password\": true\n    }\n  ]\n}\n"
                .to_owned(),
        ),
        (
            "codex",
            "[mcp_servers.riglm]\nurl = \"http://127.0.0.1:8642/mcp\"\n\
             bearer_token_env_var = \"RIGLM_KEY\"\n"
                .to_owned(),
        ),
        ("gemini", plain("mcpServers", "httpUrl", "$RIGLM_KEY")),
        ("devin", plain("mcpServers", "url", "${env:RIGLM_KEY}")),
        ("windsurf", plain("mcpServers", "serverUrl", "${env:RIGLM_KEY}")),
        (
            "cline",
            typed("streamableHttp", "${env:RIGLM_KEY}", ",\n      \"disabled\": false"),
        ),
        (
            "opencode",
            typed(
                "remote",
                "{env:RIGLM_KEY}",
                ",\n      \"enabled\": true,\n      \"oauth\": false",
            )
            .replace("mcpServers", "mcp"),
        ),
        (
            "copilot-cli",
            typed("http", "${RIGLM_KEY}", ",\n      \"tools\": [\"*\"]"),
        ),
        (
            "goose",
            "extensions:\n  riglm:\n    type: streamable_http\n    name: riglm\n    \
             description: \"\"\n    uri: http://127.0.0.1:8642/mcp\n    headers:\n      \
             Authorization: \"Bearer ${RIGLM_KEY}\"\n    envs: {}\n    env_keys:\n    - RIGLM_KEY\n    \
             enabled: true\n    timeout: 300\n"
                .to_owned(),
        ),
    ];
    for (id, text) in &expected {
        assert_eq!(round_trip(id, "", variable()), *text, "{id}");
    }
    // Nothing is replaced there, so the key itself is needed.
    let zed = install_entry("", client("zed"), &entry(variable()), &identity());
    assert!(matches!(zed, Err(EditError::KeyNeeded { client: "Zed" })));
    let zed = round_trip("zed", "", EntryKey::Text("k1".to_owned()));
    assert_eq!(zed, plain("context_servers", "url", "k1"));
    let codex = round_trip("codex", "", EntryKey::Text("k1".to_owned()));
    let header = "http_headers = { Authorization = \"Bearer k1\" }\n";
    assert!(codex.ends_with(header), "{codex}");
    let tested = table::clients().filter(|client| client.tier == Tier::Tested);
    assert_eq!(tested.count(), expected.len() + 1);
}

#[test]
fn every_client_of_the_table_can_be_installed_and_removed() {
    for client in table::clients() {
        for text in ["", "\n"] {
            round_trip(client.id, text, EntryKey::None);
            round_trip(client.id, text, EntryKey::Text("k1".to_owned()));
        }
        let without_key = round_trip(client.id, "", EntryKey::None);
        assert!(!without_key.contains("Authorization"), "{}", client.id);
        assert!(!without_key.contains("inputs"), "{}", client.id);
    }
}

#[test]
fn an_entry_is_added_after_the_servers_that_are_there() {
    let text = "{\n    \"theme\": \"dark\", // mine\n    \"mcpServers\": {\n        \
                \"files\": { \"command\": \"npx\" } // local\n        // the end\n    }\n}";
    let installed = round_trip("cursor", text, EntryKey::None);
    let expected = "{\n    \"theme\": \"dark\", // mine\n    \"mcpServers\": {\n        \
                    \"files\": { \"command\": \"npx\" }, // local\n        \"riglm\": {\n            \
                    \"url\": \"http://127.0.0.1:8642/mcp\"\n        }\n        // the end\n    }\n}";
    assert_eq!(installed, expected);
}

#[test]
fn entries_are_added_to_documents_of_each_format() {
    let cases = [
        (
            "codex",
            "model = \"x\" # mine\r\n\r\n[mcp_servers.\"my docs\"]\r\nurl = \"https://x.example\"\r\n",
            "model = \"x\" # mine\r\n\r\n[mcp_servers.\"my docs\"]\r\nurl = \"https://x.example\"\r\n\r\n\
             [mcp_servers.riglm]\r\nurl = \"http://127.0.0.1:8642/mcp\"\r\n",
        ),
        (
            "codex",
            "mcp_servers = { docs = { url = \"https://x.example\" } }\n",
            "mcp_servers = { docs = { url = \"https://x.example\" }, \
             riglm = { url = \"http://127.0.0.1:8642/mcp\" } }\n",
        ),
        (
            "goose",
            "# mine\nextensions:\n  developer:\n    type: builtin # keep\n\nGOOSE_MODEL: x\n",
            "# mine\nextensions:\n  developer:\n    type: builtin # keep\n  riglm:\n    type: streamable_http\n    \
             name: riglm\n    description: \"\"\n    uri: http://127.0.0.1:8642/mcp\n    headers: {}\n    \
             envs: {}\n    env_keys: []\n    enabled: true\n    timeout: 300\n\nGOOSE_MODEL: x\n",
        ),
        (
            "continue",
            "mcpServers:\n  - name: a\n    command: x\nmodels: []\n",
            "mcpServers:\n  - name: a\n    command: x\n  - name: riglm\n    type: streamable-http\n    \
             url: http://127.0.0.1:8642/mcp\nmodels: []\n",
        ),
        (
            "claude-code",
            "{\"numStartups\":3,\"mcpServers\":{\"a\":{\"command\":\"x\"}},\"tips\":{}}",
            "{\"numStartups\":3,\"mcpServers\":{\"a\":{\"command\":\"x\"},\"riglm\":{\"type\":\"http\",\
             \"url\":\"http://127.0.0.1:8642/mcp\"}},\"tips\":{}}",
        ),
        (
            "opencode",
            "{\n\t\"mcp\": {\n\t\t// off\n\t\t\"a\": { \"enabled\": false },\n\t},\n}\n",
            "{\n\t\"mcp\": {\n\t\t// off\n\t\t\"a\": { \"enabled\": false },\n\t\t\"riglm\": {\n\t\t\t\
             \"type\": \"remote\",\n\t\t\t\"url\": \"http://127.0.0.1:8642/mcp\",\n\t\t\t\"enabled\": true,\n\t\t\t\
             \"oauth\": false\n\t\t},\n\t},\n}\n",
        ),
    ];
    for (id, text, expected) in cases {
        assert_eq!(round_trip(id, text, EntryKey::None), expected, "{id}");
    }
}

#[test]
fn large_documents_and_many_comments_are_kept() {
    let mut projects = String::new();
    for number in 0..20_000 {
        let comma = if number == 0 { "" } else { "," };
        let project =
            "{\"allowedTools\": [], \"history\": [{\"display\": \"x\"}], \"mcpServers\": {}}";
        write!(projects, "{comma}\n    \"/home/dev/{number}\": {project}").unwrap();
    }
    let text = format!("{{\n  \"mcpServers\": {{}},\n  \"projects\": {{{projects}\n  }}\n}}\n");
    assert!(text.len() > 1_500_000);
    round_trip("claude-code", &text, EntryKey::None);
    let comments = "// Settings of Zed, with \"quotes\" { and brackets\n".repeat(300);
    let text = format!("{comments}{{\n  \"theme\": \"One\",\n{comments}}}\n");
    let installed = round_trip("zed", &text, EntryKey::None);
    assert!(installed.starts_with(&format!("{comments}{{\n  \"theme\": \"One\",\n")));
}

#[test]
fn entries_do_not_have_the_mistakes_of_other_tools() {
    for client in table::clients() {
        let installed = round_trip(client.id, "", EntryKey::None);
        // Nothing is sent as HTTP+SSE, and nothing needs another program.
        for wrong in ["sse", "npx", "uvx", "apikey", "alwaysLoad"] {
            assert!(!installed.contains(wrong), "{}: {installed}", client.id);
        }
        let key = EntryKey::Text("k1".to_owned());
        let with_key = round_trip(client.id, "", key);
        if matches!(
            client.connection,
            crate::configuration::client::Connection::Http(_)
        ) {
            assert!(with_key.contains("Authorization"), "{}", client.id);
        }
        assert!(!with_key.contains('?'), "{}", client.id);
    }
    // An address without a type is skipped there.
    assert!(round_trip("claude-code", "", EntryKey::None).contains("\"type\": \"http\""));
    for id in ["codex", "zed"] {
        assert!(!round_trip(id, "", EntryKey::None).contains("type"), "{id}");
    }
    // The order of keys stays, and a reference is not replaced by its value.
    let text = "{\"z\": 1, \"mcpServers\": {\"b\": {\"env\": {\"K\": \"${SECRET}\"}}, \"a\": {}}, \"c\": 2}";
    let installed = round_trip("claude-desktop", text, EntryKey::None);
    assert!(
        installed.starts_with(&text[..text.find("}, \"c\"").unwrap()]),
        "{installed}"
    );
}
