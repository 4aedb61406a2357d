//! Run configurations by hand, with the members that `ToolHive` writes.

use std::path::Path;

use super::super::{ImportFormat, ReadContext};
use super::*;

fn server(text: &str) -> ConfiguredServer {
    let riglm = RiglmIdentity::default();
    let context = ReadContext {
        home: "/home/me",
        riglm: &riglm,
    };
    let format = ImportFormat::guess(Path::new("fetch.json"), text).unwrap();
    assert_eq!(format.title(), "ToolHive");
    let servers = format.read(text, context).unwrap().servers;
    assert_eq!(servers.len(), 1, "{servers:?}");
    servers.into_iter().next().unwrap()
}

fn url_of(server: &ConfiguredServer) -> &ConfiguredUrl {
    match &server.transport {
        ConfiguredTransport::Url(url) => url,
        other => panic!("{other:?}"),
    }
}

/// Returns a server in a container; `more` are its other members.
fn container(more: &str) -> ConfiguredServer {
    server(&format!(
        r#"{{"schema_version": "v0.1.0", "image": "ghcr.io/example/fetch:1", "name": "fetch",
            "container_name": "fetch", "base_name": "fetch", "permission_profile": {{}},
            "env_vars": {{"MCP_TRANSPORT": "stdio"}}, "secrets": ["fetch-key,target=API_KEY"],
            "middleware_configs": [{{"type": "auth", "parameters": {{}}}}], {more}}}"#
    ))
}

/// Returns a remote server; `more` are its other members.
fn remote(more: &str) -> ConfiguredServer {
    server(&format!(
        r#"{{"schema_version": "v0.1.0", "image": "", "name": "notes", "host": "127.0.0.1",
            "remote_url": "https://notes.example/mcp", "port": 41000, {more}}}"#
    ))
}

#[test]
fn a_server_in_a_container_has_the_address_of_its_proxy() {
    for (members, address, is_sse) in [
        (
            r#""transport": "stdio", "proxy_mode": "streamable-http", "host": "127.0.0.1", "port": 40001"#,
            "http://127.0.0.1:40001/mcp",
            false,
        ),
        (
            r#""transport": "stdio", "proxy_mode": "sse", "host": "127.0.0.1", "port": 40001"#,
            "http://127.0.0.1:40001/sse",
            true,
        ),
        (
            r#""transport": "stdio", "host": "", "port": 40001"#,
            "http://127.0.0.1:40001/mcp",
            false,
        ),
        (
            r#""transport": "sse", "proxy_mode": "sse", "host": "0.0.0.0", "port": 40001, "target_port": 9"#,
            "http://127.0.0.1:40001/sse",
            true,
        ),
        (
            r#""transport": "streamable-http", "host": "::1", "port": 65535"#,
            "http://[::1]:65535/mcp",
            false,
        ),
        (
            r#""transport": "streamable-http", "host": "build.example", "port": 80"#,
            "http://build.example:80/mcp",
            false,
        ),
    ] {
        let server = container(members);
        let url = url_of(&server);
        assert_eq!((url.url.as_str(), url.is_sse), (address, is_sse));
        assert!(url.headers.is_empty() && url.bearer.is_none());
        let note = "ToolHive runs it, and must run it for riglm, too: thv start fetch";
        assert_eq!(server.notes.len(), 1, "{:?}", server.notes);
        assert_eq!(server.notes[0].to_string(), note);
    }
    let guarded = container(r#""transport": "sse", "port": 4, "oidc_config": {"issuer": "x"}"#);
    assert_eq!(
        guarded.notes[1].to_string(),
        "ToolHive asks for a token at its address: set credentials of the upstream"
    );
}

#[test]
fn a_remote_server_has_its_own_address_and_references_for_secrets() {
    let plain = remote(r#""transport": "sse", "tools_filter": ["read"]"#);
    assert_eq!(url_of(&plain).url, "https://notes.example/mcp");
    assert!(url_of(&plain).is_sse);
    assert_eq!(plain.tools.allowed, Some(vec!["read".to_owned()]));
    assert!(plain.notes.is_empty());

    let headers = remote(
        r#""transport": "streamable-http", "header_forward": {
            "add_plaintext_headers": {"X-Team": "${red}"},
            "add_headers_from_secret": {"X-Key": "notes-key", "X-Old": "1old"}},
            "remote_auth_config": {"bearer_token": "BEARER_TOKEN_notes,target=bearer_token"}"#,
    );
    let url = url_of(&headers);
    assert!(!url.is_sse);
    assert_eq!(url.headers["X-Team"], "$${red}");
    assert_eq!(url.headers["X-Key"], "${NOTES_KEY}");
    assert_eq!(url.headers["X-Old"], "${NOTES_1OLD}");
    assert_eq!(url.bearer.as_deref(), Some("${NOTES_BEARER_TOKEN_NOTES}"));
    assert!(url.oauth.is_none());
    assert_eq!(
        headers.notes[0].to_string(),
        "ToolHive keeps the secret \"notes-key\": set NOTES_KEY to its value"
    );

    let login = remote(
        r#""transport": "streamable-http", "remote_auth_config": {"use_pkce": true,
            "client_id": "c1", "client_secret": "S,target=oauth_secret", "scopes": ["a", "b"],
            "issuer": "https://login.example"}"#,
    );
    let oauth = url_of(&login).oauth.as_ref().unwrap();
    assert_eq!(oauth.client_id.as_deref(), Some("c1"));
    assert_eq!(oauth.client_secret.as_deref(), Some("${NOTES_S}"));
    assert_eq!(oauth.scopes, ["a", "b"]);
    assert!(login.notes.contains(&ServerNote::LoginNeeded));

    let open = remote(r#""transport": "sse", "remote_auth_config": {"use_pkce": true}"#);
    assert!(url_of(&open).oauth.is_none() && open.notes.is_empty());
}

#[test]
fn the_variable_of_a_secret_has_the_name_of_its_server() {
    for (server, secret, variable) in [
        ("notes", "github-token", "NOTES_GITHUB_TOKEN"),
        ("notes", "notes-key", "NOTES_KEY"),
        ("my notes", "k", "MY_NOTES_K"),
        ("1st", "k", "SECRET_1ST_K"),
    ] {
        assert_eq!(variable_of(server, secret), variable);
    }
}

#[test]
fn malformed_members_are_named_and_not_shown() {
    for (members, reason) in [
        (
            r#""transport": "stdio", "port": 0"#,
            "the value of \"port\" is malformed",
        ),
        (
            r#""transport": "stdio", "port": "s3cret""#,
            "the value of \"port\" is malformed",
        ),
        (
            r#""transport": "stdio", "port": 70000"#,
            "the value of \"port\" is malformed",
        ),
        (
            r#""transport": "stdio", "port": 4, "host": "evil.example/x?""#,
            "the value of \"host\" is malformed",
        ),
        (
            r#""transport": "inspector", "port": 4"#,
            "its transport \"inspector\" is unknown",
        ),
    ] {
        let server = container(members);
        let ConfiguredTransport::Unusable(found) = &server.transport else {
            panic!("{members}: {:?}", server.transport);
        };
        assert_eq!(found.to_string(), reason);
    }
    let wrong = remote(r#""transport": "sse", "header_forward": ["s3cret"]"#);
    assert_eq!(
        wrong.transport,
        ConfiguredTransport::Unusable(malformed_member("header_forward"))
    );
}
