//! The notations of all clients, each read into the same server.

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::configuration::server::{
    ConfiguredCommand, ConfiguredTransport, ConfiguredUrl, ServerNature, ServerNote, UnusableServer,
};
use crate::configuration::table;

fn read(id: &str, text: &str) -> ConfiguredServers {
    let riglm = RiglmIdentity {
        addresses: vec!["http://127.0.0.1:8642/mcp".to_owned()],
        programs: Vec::new(),
    };
    let context = ReadContext {
        home: "/home/me",
        riglm: &riglm,
    };
    read_servers(text, table::client(id).unwrap(), context).unwrap()
}

fn server(id: &str, text: &str) -> ConfiguredServer {
    let servers = read(id, text).servers;
    assert_eq!(servers.len(), 1, "{servers:?}");
    servers.into_iter().next().unwrap()
}

fn command_of(server: &ConfiguredServer) -> &ConfiguredCommand {
    match &server.transport {
        ConfiguredTransport::Command(command) => command,
        other => panic!("{other:?}"),
    }
}

fn url_of(server: &ConfiguredServer) -> &ConfiguredUrl {
    match &server.transport {
        ConfiguredTransport::Url(url) => url,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_is_read_in_the_notation_of_each_client() {
    let plain = r#"{"KEY": {"s": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}}}}"#;
    let array = r#"{"mcp": {"s": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"A": "b"}}}}"#;
    let cases = [
        ("claude-code", plain.replace("KEY", "mcpServers")),
        ("claude-desktop", plain.replace("KEY", "mcpServers")),
        ("cursor", plain.replace("KEY", "mcpServers")),
        ("vscode", plain.replace("KEY", "servers")),
        ("gemini", plain.replace("KEY", "mcpServers")),
        ("devin", plain.replace("KEY", "mcpServers")),
        ("windsurf", plain.replace("KEY", "mcpServers")),
        ("cline", plain.replace("KEY", "mcpServers")),
        ("copilot-cli", plain.replace("KEY", "mcpServers")),
        ("zed", plain.replace("KEY", "context_servers")),
        ("zed", r#"{"context_servers": {"s": {"source": "custom",
            "command": {"path": "npx", "args": ["-y", "x"], "env": {"A": "b"}}}}}"#.to_owned()),
        ("opencode", array.to_owned()),
        ("kilo", array.to_owned()),
        ("amp", plain.replace("KEY", "amp.mcpServers")),
        ("codex", "[mcp_servers.s]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { A = \"b\" }\n".to_owned()),
        ("codex", "[mcp_servers.\"s\"]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\n[mcp_servers.\"s\".env]\nA = \"b\"\n".to_owned()),
        ("vibe", "[[mcp_servers]]\nname = \"s\"\ntransport = \"stdio\"\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { A = \"b\" }\n".to_owned()),
        ("goose", "extensions:\n  s:\n    type: stdio\n    name: s\n    cmd: npx\n    args: [-y, x]\n    envs: {A: b}\n    enabled: true\n".to_owned()),
        ("continue", "mcpServers:\n  - name: s\n    command: npx\n    args: [-y, x]\n    env:\n      A: b\n".to_owned()),
        ("hermes", "mcp_servers:\n  s:\n    command: npx\n    args: [-y, x]\n    env: {A: b}\n".to_owned()),
    ];
    for (id, text) in cases {
        let server = server(id, &text);
        let command = command_of(&server);
        assert_eq!(server.name, "s", "{id}");
        assert_eq!(command.program, "npx", "{id}");
        assert_eq!(command.args, ["-y", "x"], "{id}");
        assert_eq!(command.env["A"], "b", "{id}");
        assert!(
            !server.is_disabled && server.notes.is_empty(),
            "{id}: {server:?}"
        );
    }
}

#[test]
fn an_address_is_read_in_the_notation_of_each_client() {
    let cases = [
        (
            "claude-code",
            r#"{"mcpServers": {"s": {"type": "http", @URL, HEADERS}}}"#,
        ),
        (
            "claude-code",
            r#"{"mcpServers": {"s": {"type": "streamable-http", @URL, HEADERS}}}"#,
        ),
        ("cursor", r#"{"mcpServers": {"s": {@URL, HEADERS}}}"#),
        (
            "vscode",
            r#"{"servers": {"s": {"type": "http", @URL, HEADERS}}}"#,
        ),
        (
            "gemini",
            r#"{"mcpServers": {"s": {"httpUrl": "https://x.example/mcp", HEADERS}}}"#,
        ),
        (
            "gemini",
            r#"{"mcpServers": {"s": {"type": "http", @URL, HEADERS}}}"#,
        ),
        (
            "windsurf",
            r#"{"mcpServers": {"s": {"serverUrl": "https://x.example/mcp", HEADERS}}}"#,
        ),
        ("zed", r#"{"context_servers": {"s": {@URL, HEADERS}}}"#),
        (
            "cline",
            r#"{"mcpServers": {"s": {"type": "streamableHttp", @URL, HEADERS}}}"#,
        ),
        (
            "opencode",
            r#"{"mcp": {"s": {"type": "remote", @URL, HEADERS, "oauth": false}}}"#,
        ),
        (
            "copilot-cli",
            r#"{"mcpServers": {"s": {"type": "http", @URL, HEADERS, "tools": ["*"]}}}"#,
        ),
        (
            "copilot-jetbrains",
            r#"{"servers": {"s": {@URL, "requestInit": {HEADERS}}}}"#,
        ),
        (
            "codex",
            "[mcp_servers.s]\nurl = \"https://x.example/mcp\"\nhttp_headers = { Authorization = \"Bearer t\", X = \"y\" }\n",
        ),
        (
            "goose",
            "extensions:\n  s:\n    type: streamable_http\n    uri: https://x.example/mcp\n    headers:\n      authorization: bearer t\n      X: y\n",
        ),
        (
            "continue",
            "mcpServers:\n- name: s\n  type: streamable-http\n  url: https://x.example/mcp\n  requestOptions:\n    headers: {Authorization: Bearer t, X: y}\n",
        ),
    ];
    for (id, text) in cases {
        let text = text
            .replace("@URL", r#""url": "https://x.example/mcp""#)
            .replace(
                "HEADERS",
                r#""headers": {"Authorization": "Bearer t", "X": "y"}"#,
            );
        let server = server(id, &text);
        let url = url_of(&server);
        assert_eq!(url.url, "https://x.example/mcp", "{id}");
        assert!(!url.is_sse, "{id}");
        assert_eq!(url.bearer.as_deref(), Some("t"), "{id}");
        assert_eq!(url.headers.len(), 1, "{id}");
        assert_eq!(url.headers["X"], "y", "{id}");
        assert!(server.notes.is_empty(), "{id}: {server:?}");
    }
}

#[test]
fn the_transport_of_an_address_without_a_type_depends_on_the_client() {
    let text = r#"{"mcpServers": {"s": {"url": "https://x.example/sse"}}}"#;
    for (id, is_sse) in [
        ("cline", true),
        ("gemini", true),
        ("qwen", true),
        ("cursor", false),
        ("devin", false),
        ("kiro", false),
    ] {
        let server = server(id, text);
        assert_eq!(url_of(&server).is_sse, is_sse, "{id}");
        assert!(server.notes.is_empty(), "{id}");
    }
    for id in ["claude-code", "roo"] {
        let server = server(id, text);
        assert!(!url_of(&server).is_sse, "{id}");
        assert_eq!(server.notes, [ServerNote::SkippedByClient], "{id}");
    }
    let text = r#"{"mcpServers": {"s": {"type": "sse", "url": "https://x.example/sse"}}}"#;
    for id in ["claude-code", "cursor", "gemini", "cline", "copilot-cli"] {
        assert!(url_of(&server(id, text)).is_sse, "{id}");
    }
}

#[test]
fn an_entry_that_cannot_be_used_never_hides_the_others() {
    let text = r#"{"mcpServers": {
        "quantum": {"type": "quantum", "url": "https://x.example"},
        "ws": {"type": "ws", "url": "wss://user:secret@x.example"},
        "pipe": {"type": "http", "url": "pipe:///secret"},
        "text": "secret",
        "args": {"command": "x", "args": "secret"},
        "env": {"command": "x", "env": {"KEY": ["secret"]}},
        "program": {"command": ["secret", {}]},
        "empty": {"command": "  "},
        "none": {"env": {}},
        "switch": {"disabled": true},
        "headers": {"type": "http", "url": "https://x.example", "headers": ["secret"]},
        "address": {"type": "http", "url": "secret"},
        "good": {"command": "x", "args": null, "env": null}
    }}"#;
    let servers = read("claude-code", text).servers;
    let reasons: Vec<String> = servers
        .iter()
        .map(|server| match &server.transport {
            ConfiguredTransport::Unusable(reason) => format!("{}: {reason}", server.name),
            _ => format!("{} is usable", server.name),
        })
        .collect();
    let expected = [
        "quantum: its transport \"quantum\" is unknown",
        "ws: its transport \"ws\" is unknown",
        "pipe: its address has the scheme \"pipe\", which is not supported",
        "text: it is not an object",
        "args: the value of \"args\" is malformed",
        "env: the value of \"env\" is malformed",
        "program: the value of \"command\" is malformed",
        "empty: the value of \"command\" is malformed",
        "none: it has neither a command nor an address",
        "switch: it only switches a server on or off that is configured elsewhere",
        "headers: the value of \"headers\" is malformed",
        "address: the value of \"url\" is malformed",
        "good is usable",
    ];
    assert_eq!(reasons, expected);
    assert!(!format!("{servers:?}").contains("secret"));
    let other = r#"{"mcp": {"off": {"enabled": false}}}"#;
    let other = server("opencode", other);
    let reason = ConfiguredTransport::Unusable(UnusableServer::OnlySwitch);
    assert_eq!(other.transport, reason);
}

#[test]
fn parts_of_a_client_are_no_servers() {
    let text = "extensions:\n  developer:\n    type: builtin\n    enabled: true\n  todo:\n    type: platform\n  \
                fetch:\n    type: stdio\n    cmd: uvx\n    args: [mcp-server-fetch]\n    env_keys: [API_KEY]\n    \
                envs: {}\n    enabled: false\n    timeout: 300\n    available_tools: []\n";
    let servers = read("goose", text).servers;
    let part = ConfiguredTransport::Unusable(UnusableServer::PartOfClient);
    assert_eq!(servers[0].transport, part);
    assert_eq!(servers[1].transport, part);
    assert!(servers[2].is_disabled);
    assert_eq!(command_of(&servers[2]).env["API_KEY"], "${API_KEY}");
    assert_eq!(servers[2].tools.allowed, None);
    assert_eq!(
        servers[2].timeouts.call,
        Some(std::time::Duration::from_mins(5))
    );
    let variable = "API_KEY".to_owned();
    assert_eq!(servers[2].notes, [ServerNote::Keyring { variable }]);
}

#[test]
fn variables_of_an_entry_with_an_address_are_put_into_its_headers() {
    let text = "extensions:\n  docs:\n    type: streamable_http\n    uri: https://x.example/mcp\n    headers:\n      \
                Authorization: Bearer $TOKEN\n      X-Team: ${TEAM}\n    envs: {TEAM: red}\n    env_keys: [TOKEN]\n";
    let server = server("goose", text);
    assert_eq!(url_of(&server).bearer.as_deref(), Some("${TOKEN}"));
    assert_eq!(url_of(&server).headers["X-Team"], "red");
    let variable = "TOKEN".to_owned();
    assert_eq!(server.notes, [ServerNote::Keyring { variable }]);
}

#[test]
fn names_of_variables_become_references() {
    let text = "[mcp_servers.a]\ncommand = \"x\"\nenv_vars = [\"ONE\", { name = \"TWO\", source = \"local\" }]\n\
                env = { LITERAL = \"${HOME}\" }\nstartup_timeout_sec = 2.5\ntool_timeout_sec = 60\n\
                enabled_tools = [\"t\"]\ndisabled_tools = [\"u\"]\ncwd = \"/srv\"\n\
                [mcp_servers.b]\nurl = \"https://x.example/mcp\"\nbearer_token_env_var = \"TOKEN\"\n\
                env_http_headers = { X-Team = \"TEAM\" }\nscopes = [\"read\"]\noauth = { client_id = \"c\" }\n\
                enabled = false\n";
    let servers = read("codex", text).servers;
    let command = command_of(&servers[0]);
    let env: Vec<(&str, &str)> = (command.env.iter())
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("LITERAL", "$${HOME}"),
        ("ONE", "${ONE}"),
        ("TWO", "${TWO}"),
    ];
    assert_eq!(env, expected);
    assert_eq!(command.cwd.as_deref(), Some("/srv"));
    assert_eq!(
        servers[0].tools.allowed.as_deref(),
        Some(&["t".to_owned()][..])
    );
    assert_eq!(servers[0].tools.denied, ["u"]);
    let startup = std::time::Duration::from_millis(2500);
    assert_eq!(servers[0].timeouts.startup, Some(startup));
    let url = url_of(&servers[1]);
    assert_eq!(url.bearer.as_deref(), Some("${TOKEN}"));
    assert_eq!(url.headers["X-Team"], "${TEAM}");
    let oauth = url.oauth.as_ref().unwrap();
    assert_eq!(oauth.client_id.as_deref(), Some("c"));
    assert_eq!(oauth.scopes, ["read"]);
    assert!(servers[1].is_disabled);
    assert_eq!(servers[1].notes, [ServerNote::LoginNeeded]);
}

#[test]
fn members_of_single_clients_are_read() {
    let text = r#"{"mcpServers": {"s": {"type": "http", "url": "${BASE:-https://x.example}/mcp",
        "headersHelper": "/opt/helper --for ${X}",
        "oauth": {"clientId": "c", "scopes": "a b"}}}}"#;
    let claude = server("claude-code", text);
    let url = url_of(&claude);
    assert_eq!(url.url, "${BASE:-https://x.example}/mcp");
    assert_eq!(
        url.credentials_command.as_deref(),
        Some("/opt/helper --for ${X}")
    );
    assert_eq!(url.oauth.as_ref().unwrap().scopes, ["a", "b"]);
    assert_eq!(
        claude.notes,
        [ServerNote::CredentialsCommand, ServerNote::LoginNeeded]
    );
    let text = r#"{"inputs": [], "servers": {"s": {"type": "stdio", "command": "x", "cwd": "${workspaceFolder}",
        "envFile": "${userHome}/.env", "env": {"K": "${input:my-key}", "N": 1, "B": true}}}}"#;
    let code = server("vscode", text);
    let command = command_of(&code);
    assert_eq!(command.env_file.as_deref(), Some("/home/me/.env"));
    assert_eq!(command.env["K"], "${MY_KEY}");
    assert_eq!(command.env["N"], "1");
    assert_eq!(command.env["B"], "true");
    let notes: Vec<String> = code.notes.iter().map(ToString::to_string).collect();
    let expected = [
        "the client asks for \"my-key\": set MY_KEY",
        "the value of \"env\" is not a text, and was taken as one",
        "${workspaceFolder} stands for a folder of the open project: the server is for one project",
        "more variables are in the file of \"envFile\"",
    ];
    for note in expected {
        assert!(notes.contains(&note.to_owned()), "{notes:?}");
    }
    let text = r#"{"mcp": {"s": {"type": "http", "url": "https://x.example",
        "headers": {"Authorization": "Bearer $(pass show key)"}}}}"#;
    let crush = server("crush", text);
    assert_eq!(url_of(&crush).bearer.as_deref(), Some("$(pass show key)"));
    let member = "headers".to_owned();
    assert_eq!(crush.notes, [ServerNote::Substitution { member }]);
    let text = r#"{"mcpServers": {"s": {"command": "x", "disabled": true, "autoApprove": ["a"],
        "timeout": 30}}}"#;
    let cline = server("cline", text);
    assert!(cline.is_disabled);
    let member = "autoApprove".to_owned();
    assert_eq!(cline.notes, [ServerNote::Consent { member }]);
    assert_eq!(
        cline.timeouts.call,
        Some(std::time::Duration::from_secs(30))
    );
    let text = r#"{"mcpServers": {"s": {"url": "https://x.example",
        "auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${env:S}", "scopes": ["r"]}}}}"#;
    let cursor = server("cursor", text);
    let oauth = url_of(&cursor).oauth.clone().unwrap();
    assert_eq!(oauth.client_secret.as_deref(), Some("${S}"));
}

#[test]
fn lists_and_projects_of_a_document_are_applied() {
    let text = r#"// comment
        {"mcpServers": {"a": {"command": "x", "timeout": 1500}, "b": {"command": "y"},
                        "c": {"command": "z"},},
         "mcp": {"excluded": ["b"], "allowed": ["a", "b"]}}"#;
    let servers = read("gemini", text).servers;
    let disabled: Vec<bool> = servers.iter().map(|server| server.is_disabled).collect();
    assert_eq!(disabled, [false, true, true]);
    let timeout = std::time::Duration::from_millis(1500);
    assert_eq!(servers[0].timeouts.call, Some(timeout));
    let text = r#"{"mcpServers": {"a": {"command": "x"}},
        "projects": {"/home/dev/p": {"mcpServers": {"a": {"command": "p"}, "b": {"command": "q"}},
                                 "disabledMcpServers": ["b"], "history": [1]},
                     "/home/dev/q": {"mcpServers": {}}, "/home/dev/r": 1}}"#;
    let servers = read("claude-code", text).servers;
    let names: Vec<(&str, Option<&str>, bool)> = servers
        .iter()
        .map(|it| (it.name.as_str(), it.project.as_deref(), it.is_disabled))
        .collect();
    let expected = [
        ("a", None, false),
        ("a", Some("/home/dev/p"), false),
        ("b", Some("/home/dev/p"), true),
    ];
    assert_eq!(names, expected);
}

#[test]
fn problems_of_a_document_are_reported() {
    let twice = r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#;
    let servers = read("cursor", twice);
    assert_eq!(command_of(&servers.servers[0]).program, "y");
    let path = "mcpServers.a".to_owned();
    assert_eq!(servers.problems, [FileProblem::DuplicateKey { path }]);
    let servers = read("cursor", r#"{"mcpServers": []}"#);
    let problem = servers.problems[0].to_string();
    assert_eq!(problem, "the value of \"mcpServers\" is not an object");
    assert_eq!(
        read("cursor", r#"{"mcpServers": null}"#),
        ConfiguredServers::default()
    );
    assert_eq!(read("cursor", ""), ConfiguredServers::default());
    let servers = read(
        "continue",
        "mcpServers:\n- command: x\n- name: b\n  command: y\n",
    );
    assert_eq!(servers.servers.len(), 1);
    let problem = servers.problems[0].to_string();
    assert_eq!(problem, "server 1 of \"mcpServers\" has no name");
}

#[test]
fn riglm_gateways_and_bridges_are_recognised() {
    let text = r#"{"mcpServers": {
        "own": {"command": "/opt/riglm", "args": ["connect"]},
        "bridged": {"command": "npx", "args": ["-y", "mcp-remote", "http://localhost:8642/mcp"]},
        "MCP_DOCKER": {"command": "docker", "args": ["mcp", "gateway", "run"]},
        "one": {"command": "npx", "args": ["-y", "@1mcp/agent@latest", "--transport", "stdio"]},
        "proxy": {"command": "C:\\bin\\mcpproxy.exe"},
        "plain": {"command": "docker", "args": ["run", "mcp/fetch"]}
    }}"#;
    let natures: Vec<ServerNature> = read("claude-desktop", text)
        .servers
        .into_iter()
        .map(|server| server.nature)
        .collect();
    let expected = [
        ServerNature::Riglm,
        ServerNature::Riglm,
        ServerNature::Gateway("Docker MCP gateway"),
        ServerNature::Gateway("1mcp"),
        ServerNature::Gateway("mcpproxy"),
        ServerNature::Server,
    ];
    assert_eq!(natures, expected);
    let text = r#"{"mcpServers": {"s": {"command": "cmd", "args": ["/c", "npx", "mcp-remote@0.1.9",
        "https://x.example/mcp", "--header", "Authorization: Bearer ${TOKEN}",
        "--header", "X-Key:${KEY}"], "env": {"TOKEN": "t0"}}}}"#;
    let bridged = server("claude-desktop", text);
    let url = url_of(&bridged);
    assert_eq!(url.url, "https://x.example/mcp");
    assert_eq!(url.bearer.as_deref(), Some("t0"));
    assert_eq!(url.headers["X-Key"], "${KEY}");
    assert!(!url.is_sse);
    let bridge = "mcp-remote";
    assert_eq!(bridged.notes, [ServerNote::BridgeReplaced { bridge }]);
    let text = r#"{"mcpServers": {"s": {"command": "uvx", "args": ["mcp-proxy", "https://x.example/sse"]},
        "t": {"command": "uvx", "args": ["mcp-proxy", "--transport=streamablehttp", "https://x.example/mcp"]}}}"#;
    let servers = read("claude-desktop", text).servers;
    assert!(url_of(&servers[0]).is_sse);
    // The flag stands before the address.
    assert!(!url_of(&servers[1]).is_sse);
}

#[test]
fn files_of_other_gateways_are_read() {
    let riglm = RiglmIdentity::default();
    let context = ReadContext {
        home: "/home/me",
        riglm: &riglm,
    };
    let list = r#"{"listen": ":8080", "mcpServers": [{"name": "a", "protocol": "stdio", "command": "x",
        "args": ["y"], "working_dir": "/srv", "enabled": true},
        {"name": "b", "protocol": "streamable-http", "url": "https://x.example/mcp"}]}"#;
    let targets = "mcp:\n  targets:\n  - name: a\n    stdio:\n      cmd: x\n      args: [\"y\"]\n  \
                   - name: b\n    mcp:\n      host: https://x.example/mcp\n";
    let routes = format!(
        "binds:\n- port: 3000\n  listeners:\n  - routes:\n    - backends:\n      - {}",
        targets.replace('\n', "\n        ")
    );
    let cases = [
        ("mcp_config.json", list.to_owned(), "mcpproxy"),
        ("config.yaml", targets.to_owned(), "agentgateway"),
        ("config.yaml", routes, "agentgateway"),
        ("gateway.yaml", "backends:\n  a:\n    command: \"x 'y'\"\n  b:\n    http_url: https://x.example/mcp\n".to_owned(),
            "mcp-gateway"),
        ("servers.json", r#"{"a": {"command": "x", "args": ["y"]}, "b": {"url": "https://x.example/mcp"}}"#.to_owned(),
            "a map of servers"),
        ("mcp-servers.json", r#"{"mcpServers": {"a": {"command": "x", "args": ["y"]},
            "b": {"url": "https://x.example/mcp"}}}"#.to_owned(), "mcpServers"),
        ("export", r#"{"mcpServers": {"a": {"type": "STDIO", "command": "x", "args": ["y"]},
            "b": {"type": "STREAMABLE_HTTP", "url": "https://x.example/mcp"}}}"#.to_owned(), "mcpServers"),
        ("1mcp.json", r#"{"mcpServers": {"a": {"command": "x", "args": ["y"], "tags": ["t"]},
            "b": {"type": "http", "url": "https://x.example/mcp", "tags": []}}}"#.to_owned(), "mcpServers"),
        ("config.toml", "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"y\"]\n[mcp_servers.b]\nurl = \"https://x.example/mcp\"\n".to_owned(),
            "Codex"),
        ("mcp.json", r#"{"servers": {"a": {"command": "x", "args": ["y"]},
            "b": {"type": "http", "url": "https://x.example/mcp"}}}"#.to_owned(), "VS Code"),
        ("settings.json", r#"{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"a": {"command": "x", "args": ["y"]},
            "b": {"type": "http", "url": "https://x.example/mcp"}}}}"#.to_owned(), "settings of VS Code"),
        ("opencode.jsonc", r#"{"mcp": {"a": {"type": "local", "command": ["x", "y"]},
            "b": {"type": "remote", "url": "https://x.example/mcp"}}}"#.to_owned(), "opencode"),
    ];
    for (file, text, title) in cases {
        let format = ImportFormat::guess(Path::new(file), &text)
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(format.title(), title, "{file}");
        let servers = format.read(&text, context).unwrap().servers;
        assert_eq!(servers.len(), 2, "{file}: {servers:?}");
        assert_eq!(command_of(&servers[0]).program, "x", "{file}");
        assert_eq!(command_of(&servers[0]).args, ["y"], "{file}");
        assert_eq!(url_of(&servers[1]).url, "https://x.example/mcp", "{file}");
    }
    for text in ["{}", "", "{\"a\": 1}", "x: 1", "[1]"] {
        let guess = ImportFormat::guess(Path::new("x"), text);
        assert!(
            matches!(guess, Err(ImportError::UnknownFormat)),
            "{text}: {guess:?}"
        );
    }
}

#[test]
fn a_file_with_many_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let last = level - 1;
        let aliases = vec![format!("*a{last}"); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let riglm = RiglmIdentity::default();
    let context = ReadContext {
        home: "",
        riglm: &riglm,
    };
    let goose = table::client("goose").unwrap();
    let error = read_servers(&text, goose, context).unwrap_err();
    assert_eq!(error, DocumentError::TooManyValues);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,40}", dense in "[{}\\[\\]\",:/*#a\\n \\\\é=&*-]{0,40}") {
        let riglm = RiglmIdentity::default();
        let context = ReadContext { home: "", riglm: &riglm };
        for text in [text, dense] {
            for id in ["cursor", "codex", "goose"] {
                let _ = read_servers(&text, table::client(id).unwrap(), context);
            }
            if let Ok(format) = ImportFormat::guess(Path::new("file"), &text) {
                let _ = format.read(&text, context);
            }
        }
    }
}

#[test]
fn the_path_of_a_file_says_whose_it_is() {
    let text = r#"{"mcpServers": {"s": {"url": "https://x.example"}}}"#;
    for (path, title) in [
        ("/home/me/.cursor/mcp.json", "Cursor"),
        (".cursor/mcp.json", "Cursor"),
        ("C:\\Users\\me\\.lmstudio\\mcp.json", "LM Studio"),
        (
            "backup/.cline/data/settings/cline_mcp_settings.json",
            "Cline",
        ),
        ("x/.claude.json", "Claude Code"),
        ("mcp.json", "mcpServers"),
        ("x.cursor/mcp.json", "mcpServers"),
        // The key is that of another client.
        ("Code/User/mcp.json", "mcpServers"),
    ] {
        let format = ImportFormat::guess(Path::new(path), text).unwrap();
        assert_eq!(format.title(), title, "{path}");
    }
}
