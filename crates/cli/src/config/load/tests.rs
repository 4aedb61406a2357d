//! Files, variables and the command line, from text to a configuration or an error.

use std::path::Path;

use riglm_adapters_http::ControlAddress;
use riglm_adapters_mcp::upstream::{Isolation, UpstreamConfig};
use riglm_app::proxy::{NamespacePolicy, Unavailable};
use riglm_app::selection::Strategy;
use riglm_domain::prediction::NamePattern;
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::*;
use crate::config::{Level, LogFormat, Upstream, UpstreamChoice};

mod documents;
mod refusals;

/// A working directory with a configuration file, and environment variables.
struct Scene {
    directory: TempDir,
    surroundings: ProcessEnv,
}

fn scene(name: &str, text: &str, variables: &[(&str, &str)]) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), text).unwrap();
    let surroundings = ProcessEnv {
        environment: variables.iter().copied().collect(),
        working_directory: directory.path().into(),
        config_directory: None,
        data_directory: Some("/data".into()),
        home_directory: None,
    };
    Scene {
        directory,
        surroundings,
    }
}

impl Scene {
    fn load(&self) -> Result<Config, ConfigError> {
        load(&Overrides::default(), &self.surroundings)
    }

    /// Returns the error without the directory of the file.
    fn refusal(&self) -> String {
        let text = self.load().unwrap_err().to_string();
        text.replace(&format!("{}/", self.directory.path().display()), "")
    }
}

/// Returns the upstream of a configuration with only one.
fn only(config: &Config) -> &Upstream {
    let [upstream] = config.upstreams().unwrap() else {
        panic!("not one upstream: {:?}", config.upstreams());
    };
    upstream
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    let upstreams = config.upstreams().unwrap();
    upstreams.iter().map(|upstream| upstream.name.as_str())
}

fn toml(text: &str) -> Result<Config, ConfigError> {
    scene("riglm.toml", text, &[]).load()
}

fn toml_refusal(text: &str) -> String {
    scene("riglm.toml", text, &[]).refusal()
}

#[test]
fn without_any_source_everything_has_its_default() {
    let surroundings = ProcessEnv {
        data_directory: Some("/data".into()),
        home_directory: None,
        working_directory: "/nonexistent".into(),
        ..ProcessEnv::default()
    };
    let config = load(&Overrides::default(), &surroundings).unwrap();
    assert_eq!(config.data_dir, Path::new("/data/riglm"));
    assert_eq!(config.listen.address.to_string(), "127.0.0.1:8642");
    assert_eq!(config.control.address.to_string(), "127.0.0.1:8643");
    assert!(config.keys.is_empty());
    assert!(matches!(config.upstreams(), Err(ConfigError::NoUpstream)));
}

#[test]
fn a_yaml_file_with_credentials_filtering_and_logging_loads() {
    let text = r#"
upstream:
  url: "http://gateway:12008/tools/endpoint/sse"
  auth:
    type: "bearer"
    token: "${GATEWAY_KEY}"

filtering:
  enabled: true
  strategy: "prediction"
  min_tools: 5
  max_tools: 20

logging:
  level: "info"
  include_arguments: true
  include_results: false
"#;
    let config = scene("riglm.yaml", text, &[("GATEWAY_KEY", "k1")])
        .load()
        .unwrap();
    let upstream = &only(&config).config;
    assert_eq!(
        upstream.url.as_deref(),
        Some("http://gateway:12008/tools/endpoint/sse")
    );
    let token = upstream
        .credentials
        .as_ref()
        .unwrap()
        .token
        .as_ref()
        .unwrap();
    assert_eq!(token.expose_secret(), "k1");
    assert_eq!(config.filtering.strategy, Strategy::Prediction);
    assert_eq!(
        (config.filtering.min_tools, config.filtering.max_tools),
        (5, 20)
    );
    assert_eq!(config.logging.level, Level::Info);
    assert!(config.logging.include_arguments && !config.logging.include_results);
}

#[test]
fn later_configuration_layers_take_precedence() {
    let file = "[listen]\naddress = \"127.0.0.1:1\"\n[limits]\nsessions = 1\nin_flight = 1\n";
    let variables = [
        ("RIGLM__LISTEN__ADDRESS", "127.0.0.1:2"),
        ("RIGLM__LIMITS__SESSIONS", "2"),
        ("RIGLM__FILTERING__ALLOW", r#"["get_*"]"#),
        ("RIGLM__FILTERING__STRATEGY", "none"),
        ("RIGLM__LOGGING__INCLUDE_RESULTS", "true"),
        ("RIGLM__UPSTREAMS__NOTES__COMMAND", r#"["notes"]"#),
        ("RIGLM__LIMITS__IDLE_TIMEOUT", "5m"),
    ];
    let scene = scene("riglm.toml", file, &variables);
    let overrides = Overrides {
        listen: Some("127.0.0.1:3".parse().unwrap()),
        control: Some(ControlAddress::Off),
        strategy: Some(Strategy::Allowlist),
        data_dir: Some("/elsewhere".into()),
        ..Overrides::default()
    };
    let config = load(&overrides, &scene.surroundings).unwrap();
    assert_eq!(config.listen.address.port(), 3);
    assert_eq!(config.control.address, ControlAddress::Off);
    assert_eq!((config.limits.sessions, config.limits.in_flight), (2, 1));
    assert_eq!(config.limits.idle_timeout.as_secs(), 300);
    assert_eq!(config.filtering.strategy, Strategy::Allowlist);
    assert_eq!(config.filtering.allow, [NamePattern::new("get_*")]);
    assert!(config.logging.include_results);
    assert_eq!(config.data_dir, Path::new("/elsewhere"));
    assert_eq!(only(&config).name.as_str(), "notes");
}

#[test]
fn an_upstream_of_the_command_line_replaces_all_others() {
    let file = "[upstream]\nurl = \"http://a/mcp\"\nheaders = { X-A = \"1\" }\n";
    let scene = scene("riglm.toml", file, &[]);
    let with = |upstream| {
        let overrides = Overrides {
            upstream: Some(upstream),
            ..Overrides::default()
        };
        load(&overrides, &scene.surroundings)
    };
    let config = with(UpstreamChoice::Command(vec!["prog".into(), "-x".into()])).unwrap();
    let upstream = &only(&config).config;
    assert_eq!(upstream.command, Some(vec!["prog".into(), "-x".into()]));
    assert_eq!(upstream.url, None);
    let urls = vec!["http://b.example/mcp".to_owned(), "http://a/mcp".to_owned()];
    let config = with(UpstreamChoice::Urls(urls)).unwrap();
    let names: Vec<&str> = names(&config).collect();
    assert_eq!(names, ["a", "b-example"]);
}

#[test]
fn files_are_found_by_name_variable_and_directory() {
    let scene = scene("other.yml", "listen: {address: '127.0.0.1:7'}\n", &[]);
    let port = |overrides: &Overrides, surroundings: &ProcessEnv| {
        load(overrides, surroundings).map(|config| config.listen.address.port())
    };
    let named = Overrides {
        file: Some("other.yml".into()),
        ..Overrides::default()
    };
    assert_eq!(port(&named, &scene.surroundings).unwrap(), 7);

    let by_variable = ProcessEnv {
        environment: [("RIGLM_CONFIG", "other.yml")].into_iter().collect(),
        ..scene.surroundings.clone()
    };
    assert_eq!(port(&Overrides::default(), &by_variable).unwrap(), 7);

    let user = scene.directory.path().join("user");
    std::fs::create_dir_all(user.join("riglm")).unwrap();
    std::fs::write(
        user.join("riglm/riglm.toml"),
        "listen.address = '127.0.0.1:9'",
    )
    .unwrap();
    let of_the_user = ProcessEnv {
        config_directory: Some(user),
        ..scene.surroundings.clone()
    };
    assert_eq!(port(&Overrides::default(), &of_the_user).unwrap(), 9);

    let missing = Overrides {
        file: Some("missing.toml".into()),
        ..Overrides::default()
    };
    let error = port(&missing, &scene.surroundings).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
}

#[test]
fn configured_keys_allow_nonlocal_listen_addresses() {
    let text = "[listen]\naddress = \"[::]:8642\"\n[auth.keys]\nAlice = \"${KEY}\"\n";
    let key = "a key of some length";
    let config = scene("riglm.toml", text, &[("KEY", key)]).load().unwrap();
    let principal = config.keys.principal_of(key).unwrap();
    assert_eq!(principal.as_str(), "Alice");
    assert!(!format!("{config:?}").contains(key));
}

#[test]
fn yaml_sections_without_content_and_unquoted_numbers_are_fine() {
    let text = "filtering:\nupstream:\n  url: http://a/mcp\n  auth: {type: bearer, token: 123}\n";
    let config = scene("riglm.yaml", text, &[]).load().unwrap();
    let credentials = only(&config).config.credentials.clone().unwrap();
    assert_eq!(credentials.token.unwrap().expose_secret(), "123");
    assert!(scene("riglm.yml", "", &[]).load().is_ok());
}

#[test]
fn several_upstreams_are_sorted_by_their_names_behind_the_one_without() {
    let text = r#"
        naming = "collision"
        [upstreams.zeta]
        url = "http://z"
        isolation = "shared"
        unavailable = "list"
        idle_timeout = "90s"
        max_connections = 3
        [upstreams.Alpha]
        command = ["a"]
        [upstream]
        url = "http://d"
    "#;
    let variables = [("RIGLM__UPSTREAMS__ZETA__MAX_CONNECTIONS", "4")];
    let config = scene("riglm.toml", text, &variables).load().unwrap();
    assert_eq!(
        names(&config).collect::<Vec<_>>(),
        ["default", "Alpha", "zeta"]
    );
    assert_eq!(config.naming, NamespacePolicy::Collision);
    let upstreams = config.upstreams().unwrap();
    let options = |config: &UpstreamConfig| {
        (
            config.isolation,
            config.unavailable,
            config.idle_timeout.as_secs(),
            config.max_connections,
        )
    };
    let shared = (Isolation::Shared, Unavailable::List, 90, 4);
    assert_eq!(options(&upstreams[2].config), shared);
    let default = (Isolation::PerSession, Unavailable::Keep, 300, 128);
    assert_eq!(options(&upstreams[1].config), default);
}

#[test]
fn differences_are_named_by_their_keys() {
    let before = toml("upstream.url = 'http://a'").unwrap();
    let same = toml("limits.sessions = 10000\nupstream.url = 'http://b'").unwrap();
    assert_eq!(before.differences(&same), Vec::<&str>::new());
    let after = "naming = 'collision'\nlimits.sessions = 1\n[auth.keys]\na = '0123456789abcdef'\n";
    assert_eq!(
        before.differences(&toml(after).unwrap()),
        ["naming", "auth", "limits"]
    );
}

/// Returns the command of the only upstream.
fn command(scene: &Scene) -> Vec<String> {
    let config = scene.load().unwrap();
    only(&config).config.command.clone().unwrap()
}

#[test]
fn variables_expand_within_single_command_words() {
    for value in [
        r"ab\cd",
        "a|b",
        "x --allow-all",
        "/home/my self",
        "'\"",
        "a${B}",
    ] {
        let text = "[upstream]\ncommand = \"server --token=${VALUE} '${VALUE}'\"\n";
        let scene = scene("riglm.toml", text, &[("VALUE", value)]);
        let token = format!("--token={value}");
        assert_eq!(command(&scene), ["server", &token, value]);
    }
    let text = "upstream.command = \"server ${NONE:-a b} $${VALUE}\"\n";
    let scene = scene("riglm.toml", text, &[("VALUE", "x")]);
    assert_eq!(command(&scene), ["server", "a b", "${VALUE}"]);
}

#[test]
fn a_command_with_arguments_of_its_own_is_a_program() {
    let text = "[upstream]\ncommand = \"${HOME}/my server\"\nargs = [\"-v\", \"a b\"]\n";
    let one = scene("riglm.toml", text, &[("HOME", "/h")]);
    assert_eq!(command(&one), ["/h/my server", "-v", "a b"]);
    let text = "[upstream]\ncommand = [\"npx\", \"-y\"]\nargs = [\"server\"]\n";
    let list = scene("riglm.toml", text, &[]);
    assert_eq!(command(&list), ["npx", "-y", "server"]);
    let text = "upstream.command = \"/my server\"\n";
    let above = scene("riglm.toml", text, &[("RIGLM__UPSTREAM__ARGS", "[\"x\"]")]);
    assert_eq!(command(&above), ["/my server", "x"]);
    let variable = scene("riglm.toml", "", &[("RIGLM__UPSTREAM__COMMAND", "a 'b c'")]);
    assert_eq!(command(&variable), ["a", "b c"]);
}

#[test]
fn addresses_of_a_file_may_have_names() {
    let text = "listen.address = \"localhost:1\"\ncontrol.address = \"localhost:${PORT}\"\n";
    let config = scene("riglm.toml", text, &[("PORT", "2")]).load().unwrap();
    let ControlAddress::At(control) = config.control.address else {
        panic!("no address");
    };
    for (address, port) in [(config.listen.address, 1), (control, 2)] {
        assert!(
            address.ip().is_loopback() && address.port() == port,
            "{address}"
        );
    }
}

#[test]
fn log_format_can_come_from_a_variable() {
    for (text, value, expected) in [
        ("${LOG_FORMAT}", "json", LogFormat::Json),
        ("${LOG_FORMAT:-json}", "pretty", LogFormat::Pretty),
        ("${OTHER:-json}", "pretty", LogFormat::Json),
    ] {
        let text = format!("logging.format = \"{text}\"\n");
        let scene = scene("riglm.toml", &text, &[("LOG_FORMAT", value)]);
        let source = ConfigSource::new(Overrides::default(), scene.surroundings.clone());
        assert_eq!(source.log_format(), expected, "{text}");
        assert_eq!(scene.load().unwrap().logging.format, expected, "{text}");
    }
}
