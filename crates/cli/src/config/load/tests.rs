//! Files, variables and the command line, from text to a configuration or a refusal.

use std::path::Path;

use riglm_adapters_http::{ControlAddress, ControlConfig};
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_adapters_prediction::{FilteringConfig, Strategy};
use riglm_adapters_storage::{RecordingConfig, StorageConfig};
use riglm_app::limits::Limits;
use secrecy::ExposeSecret;
use tempfile::TempDir;

use super::*;
use crate::config::{Level, ListenConfig, LoggingConfig, UpstreamChoice};

/// A working directory with a file, and the variables beside it.
struct Scene {
    directory: TempDir,
    surroundings: Surroundings,
}

fn scene(name: &str, text: &str, variables: &[(&str, &str)]) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(name), text).unwrap();
    let surroundings = Surroundings {
        environment: variables.iter().copied().collect(),
        working_directory: directory.path().into(),
        config_directory: None,
        data_directory: Some("/data".into()),
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

    /// Returns the refusal, without the directory in front of the name of the file.
    fn refusal(&self) -> String {
        let text = self.load().unwrap_err().to_string();
        text.replace(&format!("{}/", self.directory.path().display()), "")
    }
}

fn toml(text: &str) -> Result<Config, ConfigError> {
    scene("riglm.toml", text, &[]).load()
}

fn toml_refusal(text: &str) -> String {
    scene("riglm.toml", text, &[]).refusal()
}

#[test]
fn without_any_source_everything_has_its_default() {
    let surroundings = Surroundings {
        data_directory: Some("/data".into()),
        working_directory: "/nonexistent".into(),
        ..Surroundings::default()
    };
    let config = load(&Overrides::default(), &surroundings).unwrap();
    assert_eq!(config.data_dir, Path::new("/data/riglm"));
    assert_eq!(config.listen.address.to_string(), "127.0.0.1:8642");
    assert_eq!(config.control.address.to_string(), "127.0.0.1:8643");
    assert!(config.keys.is_empty());
    assert!(matches!(config.upstream(), Err(ConfigError::NoUpstream)));
}

#[test]
fn the_example_file_equals_the_defaults() {
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../config/riglm.example.toml"
    ))
    .unwrap();
    let config = toml(&text).unwrap();
    assert_eq!(config.listen, ListenConfig::default());
    assert_eq!(config.control, ControlConfig::default());
    assert_eq!(config.storage, StorageConfig::default());
    assert_eq!(config.recording, RecordingConfig::default());
    assert_eq!(config.filtering, FilteringConfig::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.logging, LoggingConfig::default());
    assert!(config.keys.is_empty());
    let upstream = config.upstream().unwrap();
    let default = UpstreamConfig::default();
    assert_eq!(upstream.name.as_str(), "default");
    assert_eq!(upstream.config.connect_timeout, default.connect_timeout);
    assert_eq!(upstream.config.max_message_bytes, default.max_message_bytes);
    assert_eq!(upstream.config.shutdown_grace, default.shutdown_grace);
}

#[test]
fn keys_that_the_example_gives_as_comments_are_known() {
    let text = include_str!("../../../../../config/riglm.example.toml");
    let is_key = |line: &str| {
        line.strip_prefix("# ")
            .and_then(|rest| rest.split_once(" = "))
            .is_some_and(|(key, _)| !key.contains(' '))
    };
    let uncommented: String = text
        .lines()
        .filter(|line| !line.starts_with("url"))
        .map(|line| if is_key(line) { &line[2..] } else { line })
        .filter(|line| !line.starts_with("headers") && !line.starts_with("auth"))
        .map(|line| format!("{line}\n"))
        .collect();
    let variables = [("API_KEY", "k"), ("BOB_KEY", "the key of bob 1234")];
    let config = scene("riglm.toml", &uncommented, &variables)
        .load()
        .unwrap();
    assert_eq!(config.data_dir, Path::new("/var/lib/riglm"));
    let upstream = &config.upstream().unwrap().config;
    assert_eq!(upstream.env["API_KEY"], "k");
    assert!(config.keys.principal_of("the key of bob 1234").is_some());

    let remote = r#"
        [upstream]
        url = "https://h/mcp"
        headers = { X-Api-Key = "${API_KEY}" }
        auth = { type = "bearer", token = "${UPSTREAM_TOKEN}" }
    "#;
    let variables = [("API_KEY", "k"), ("UPSTREAM_TOKEN", "t")];
    let config = scene("riglm.toml", remote, &variables).load().unwrap();
    let upstream = &config.upstream().unwrap().config;
    assert_eq!(upstream.headers["X-Api-Key"].expose_secret(), "k");
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
    let upstream = &config.upstream().unwrap().config;
    assert_eq!(
        upstream.url.as_deref(),
        Some("http://gateway:12008/tools/endpoint/sse")
    );
    let token = upstream.auth.as_ref().unwrap().token.as_ref().unwrap();
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
fn later_layers_win() {
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
    assert_eq!(config.filtering.allow, ["get_*"]);
    assert!(config.logging.include_results);
    assert_eq!(config.data_dir, Path::new("/elsewhere"));
    assert_eq!(config.upstream().unwrap().name.as_str(), "notes");
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
    let upstream = &config.upstream().unwrap().config;
    assert_eq!(upstream.command, Some(vec!["prog".into(), "-x".into()]));
    assert_eq!(upstream.url, None);
    let urls = vec!["http://a/mcp".to_owned(), "http://b/mcp".to_owned()];
    assert_eq!(
        with(UpstreamChoice::Urls(urls)).unwrap_err().to_string(),
        "2 upstreams are configured; this version serves one: 1, 2"
    );
}

#[test]
fn files_are_found_by_name_variable_and_directory() {
    let scene = scene("other.yml", "listen: {address: '127.0.0.1:7'}\n", &[]);
    let port = |overrides: &Overrides, surroundings: &Surroundings| {
        load(overrides, surroundings).map(|config| config.listen.address.port())
    };
    let named = Overrides {
        file: Some("other.yml".into()),
        ..Overrides::default()
    };
    assert_eq!(port(&named, &scene.surroundings).unwrap(), 7);

    let by_variable = Surroundings {
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
    let of_the_user = Surroundings {
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
fn refusals_name_the_file_the_key_and_what_was_expected() {
    for (text, refusal) in [
        (
            "[filtering]\nstratgey = \"none\"\n",
            "riglm.toml: filtering.stratgey: unknown field `stratgey`, expected one of `enabled`, \
             `strategy`, `min_tools`, `max_tools`, `allow`, `deny`",
        ),
        (
            "[filtering]\nstrategy = \"magic\"\n",
            "riglm.toml: filtering.strategy: unknown variant `magic`, expected one of `none`, \
             `allowlist`, `denylist`, `prediction`",
        ),
        (
            "[limits]\nsessions = \"many\"\n",
            "riglm.toml: limits.sessions: invalid type: string \"many\", expected a whole number",
        ),
        (
            "[limits]\ncall_timeout = 60\n",
            "riglm.toml: limits.call_timeout: invalid value: string \"60\", expected a duration",
        ),
        (
            "[filtering]\nmin_tools = 30\n",
            "riglm.toml: filtering: min_tools (30) must not be greater than max_tools (20)",
        ),
        (
            "[filtering]\nmin_tools = 0\nmax_tools = 0\n",
            "riglm.toml: filtering.max_tools: expected a number from 1 to 5000",
        ),
        (
            "[auth.keys]\nalice = \"short\"\n",
            "riglm.toml: auth.keys.alice: expected a key of at least 16 characters, or sha256: \
             and its digest",
        ),
        (
            "[listen]\naddress = \"0.0.0.0:8642\"\n",
            "riglm.toml: listen.address: 0.0.0.0:8642 can be reached from other machines: name \
             the keys of clients in auth.keys, or listen on a loopback address",
        ),
        (
            "[upstream]\nurl = \"http://a\"\ncommand = [\"b\"]\n",
            "riglm.toml: upstream: exactly one of url and command must be given",
        ),
        (
            "[upstreams.\"a b\"]\nurl = \"http://a\"\n",
            "riglm.toml: upstreams.a b: upstream name \"a b\" must be 1 to 64 characters of \
             letters, digits, '-', '_' and '.'",
        ),
        (
            "filtering = 5\n",
            "riglm.toml: filtering: expected a section",
        ),
        (
            "[filtering]\nallow = \"get_*\"\n",
            "riglm.toml: filtering.allow: expected a list",
        ),
        (
            "[upstream]\nurl = \"${NOWHERE}\"\n",
            "riglm.toml: upstream.url: environment variable NOWHERE is not set",
        ),
        (
            "[filtering]\nallow = [\"${\"]\n",
            "riglm.toml: filtering.allow[0]: `${` must be followed by a variable name and `}`, or \
             be written `$${`",
        ),
        (
            "[control]\naddress = \"on\"\n",
            "riglm.toml: control.address: expected an address such as 127.0.0.1:8643, or off",
        ),
    ] {
        assert_eq!(toml_refusal(text), refusal);
    }
    assert!(toml_refusal("a = [").starts_with("configuration file riglm.toml is not valid TOML: "));
    let yaml = scene("riglm.yaml", "a: b: c\n", &[]).refusal();
    assert!(
        yaml.starts_with("configuration file riglm.yaml is not valid YAML: "),
        "{yaml}"
    );
}

#[test]
fn refusals_of_variables_and_of_the_command_line_name_those() {
    let refusal = |name: &str, value: &str| scene("riglm.toml", "", &[(name, value)]).refusal();
    assert_eq!(
        refusal("RIGLM__LIMITS__SESSIONS", "x"),
        "environment variable RIGLM__LIMITS__SESSIONS: limits.sessions: invalid type: string \
         \"x\", expected a whole number"
    );
    assert!(
        refusal("RIGLM__TELEMETRY__ENDPOINT", "x").starts_with(
            "environment variable RIGLM__TELEMETRY__ENDPOINT: telemetry: unknown field"
        )
    );
    let overrides = Overrides {
        strategy: Some(Strategy::Denylist),
        ..Overrides::default()
    };
    let scene = scene("riglm.toml", "", &[]);
    let error = load(&overrides, &scene.surroundings).unwrap_err();
    assert_eq!(
        error.to_string(),
        "command line: filtering: this strategy needs at least one pattern in deny"
    );
}

#[test]
fn a_refusal_never_repeats_a_secret() {
    for text in [
        "[upstream]\nurl = \"http://a\"\nauth = { type = \"bearer\", token = [\"hunter2\"] }\n",
        "[upstream]\nurl = \"http://a\"\nauth = \"hunter2\"\n",
        "[upstream]\nurl = \"http://a\"\nheaders = \"hunter2\"\n",
        "[auth]\nkeys = \"hunter2\"\n",
        "auth = \"hunter2\"\n",
        "upstream = \"hunter2\"\n",
        "[auth.keys]\nalice = \"hunter2\"\n",
    ] {
        let refusal = toml_refusal(text);
        assert!(!refusal.contains("hunter2"), "{refusal}");
        assert!(refusal.contains("expected"), "{refusal}");
    }
}

#[test]
fn keys_let_other_machines_in() {
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
    let auth = config.upstream().unwrap().config.auth.clone().unwrap();
    assert_eq!(auth.token.unwrap().expose_secret(), "123");
    assert!(scene("riglm.yml", "", &[]).load().is_ok());
}

#[test]
fn no_data_directory_is_an_error_that_says_what_to_do() {
    let error = load(&Overrides::default(), &Surroundings::default()).unwrap_err();
    assert!(error.to_string().contains("--data-dir"));
}
