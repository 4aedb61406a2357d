//! Equal servers of several clients.

use super::*;
use crate::configuration::identity::RiglmIdentity;
use crate::configuration::reading::{ReadContext, read_servers};
use crate::configuration::table;

fn servers(id: &str, text: &str) -> Vec<SourcedServer> {
    let riglm = RiglmIdentity::default();
    let context = ReadContext {
        home: "",
        riglm: &riglm,
    };
    let servers = read_servers(text, table::client(id).unwrap(), context).unwrap();
    let servers = servers.servers.into_iter();
    servers
        .map(|server| SourcedServer {
            source: id.to_owned(),
            server,
        })
        .collect()
}

#[test]
fn equal_servers_are_one_with_their_differences() {
    let mut all = servers(
        "cursor",
        r#"{"mcpServers": {
            "gh": {"command": "npx", "args": ["gh"], "env": {"TOKEN": "secret1"}},
            "docs": {"url": "https://key@Docs.example/mcp?key=secret2"},
            "other": {"command": "npx", "args": ["gh", "--x"]}}}"#,
    );
    all.extend(servers(
        "claude-code",
        r#"{"mcpServers": {
            "gh": {"command": "npx", "args": ["gh"], "env": {"TOKEN": "secret3", "X": "1"}},
            "second": {"command": "npx", "args": ["gh", "--x"]},
            "docs": {"type": "http", "url": "https://docs.example:443/mcp/#top"}},
            "projects": {"/p": {"mcpServers": {"gh": {"command": "npx", "args": ["gh"]}}}}}"#,
    ));
    let merged = merge_servers(all);
    let names: Vec<&str> = merged.iter().map(|it| it.server.name.as_str()).collect();
    assert_eq!(names, ["gh", "docs", "other", "gh"]);
    assert_eq!(merged[0].sources, ["cursor", "claude-code"]);
    let differences: Vec<String> = (merged[..2].iter())
        .flat_map(|it| &it.differences)
        .map(ToString::to_string)
        .collect();
    let expected = [
        "claude-code has another value of the variable TOKEN than cursor",
        "claude-code has another value of the variable X than cursor",
        "claude-code has another user or query of the address than cursor",
    ];
    assert_eq!(differences, expected);
    let differences: Vec<String> = (merged[2].differences.iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(differences, ["claude-code has another name than cursor"]);
    let names: Vec<&str> = (merged[2].entries.iter())
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["other", "second"]);
}

#[test]
fn two_accounts_stay_apart() {
    let all = servers(
        "claude-code",
        r#"{"mcpServers": {
            "gh-home": {"command": "npx", "args": ["gh"], "env": {"TOKEN": "secret1"}},
            "gh-work": {"command": "npx", "args": ["gh"], "env": {"TOKEN": "secret2"}},
            "alpha": {"type": "http", "url": "https://h.example/mcp?project=a"},
            "beta": {"type": "http", "url": "https://h.example/mcp?project=b"}}}"#,
    );
    assert_eq!(merge_servers(all).len(), 4);
}

#[test]
fn a_server_that_one_client_uses_is_used() {
    let text = |value: bool| {
        format!(r#"{{"mcpServers": {{"a": {{"command": "x", "disabled": {value}}}}}}}"#)
    };
    let mut all = servers("cline", &text(true));
    all.extend(servers("kiro", &text(false)));
    let merged = merge_servers(all);
    assert_eq!(merged.len(), 1);
    assert!(!merged[0].server.is_disabled);
    let unusable = servers("kiro", r#"{"mcpServers": {"a": 1, "b": 1}}"#);
    assert_eq!(merge_servers(unusable).len(), 2);
}
