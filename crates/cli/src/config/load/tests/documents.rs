//! The example file and the documentation agree with the code and with each other.

use riglm_adapters_http::ControlConfig;
use riglm_adapters_mcp::downstream::ListenConfig;
use riglm_adapters_prediction::FilteringConfig;
use riglm_adapters_storage::{RecordingConfig, StorageConfig};
use riglm_app::limits::Limits;

use super::*;
use crate::config::LoggingConfig;

const EXAMPLE: &str = include_str!("../../../../../../config/riglm.example.toml");
const DOCUMENTATION: &str = include_str!("../../../../../../docs/configuration.md");

#[test]
fn the_example_file_equals_the_defaults() {
    let config = toml(EXAMPLE).unwrap();
    assert_eq!(config.listen, ListenConfig::default());
    assert_eq!(config.control, ControlConfig::default());
    assert_eq!(config.storage, StorageConfig::default());
    assert_eq!(config.recording, RecordingConfig::default());
    assert_eq!(config.filtering, FilteringConfig::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.logging, LoggingConfig::default());
    assert!(config.keys.is_empty());
    let upstream = only(&config);
    let default = UpstreamConfig::default();
    assert_eq!(upstream.name.as_str(), "default");
    assert_eq!(upstream.config.connect_timeout, default.connect_timeout);
    assert_eq!(upstream.config.shutdown_grace, default.shutdown_grace);
    assert_eq!(upstream.config.isolation, default.isolation);
    assert_eq!(upstream.config.unavailable, default.unavailable);
    assert_eq!(upstream.config.idle_timeout, default.idle_timeout);
    assert_eq!(upstream.config.max_connections, default.max_connections);
    assert_eq!(config.naming, Naming::default());
}

#[test]
fn keys_that_the_example_gives_as_comments_are_known() {
    let is_key = |line: &str| {
        line.strip_prefix("# ")
            .and_then(|rest| rest.split_once(" = "))
            .is_some_and(|(key, _)| !key.contains(' '))
    };
    let uncommented: Vec<&str> = EXAMPLE
        .lines()
        .filter(|line| !line.starts_with("url"))
        .map(|line| if is_key(line) { &line[2..] } else { line })
        .filter(|line| !line.starts_with("headers") && !line.starts_with("auth"))
        .collect();
    let variables = [("API_KEY", "k"), ("BOB_KEY", "the key of bob 1234")];
    let config = scene("riglm.toml", &uncommented.join("\n"), &variables)
        .load()
        .unwrap();
    assert_eq!(config.data_dir, Path::new("/var/lib/riglm"));
    let upstream = &only(&config).config;
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
    let upstream = &only(&config).config;
    assert_eq!(upstream.headers["X-Api-Key"].expose_secret(), "k");
}

/// Returns the paths of all keys of the example, those given as comments included.
fn keys_of_the_example() -> Vec<String> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in EXAMPLE.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = format!("{name}.");
        }
        let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ") else {
            continue;
        };
        if key
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            keys.push(format!("{section}{key}"));
        }
    }
    keys
}

/// Returns the paths of all keys in the tables of the documentation.
fn keys_of_the_documentation() -> Vec<String> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in DOCUMENTATION.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            section = heading
                .strip_prefix('`')
                .and_then(|rest| rest.split_once('`'))
                .map(|(name, _)| format!("{name}."))
                .unwrap_or_default();
        }
        if let Some((key, _)) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once('`'))
        {
            keys.push(format!("{section}{key}"));
        }
    }
    keys
}

#[test]
fn example_and_documentation_have_the_same_keys() {
    let mut example = keys_of_the_example();
    // The example gives credentials as one value, and keys by their names.
    example.retain(|key| !key.starts_with("auth.keys.") && key != "upstream.auth");
    let mut documented = keys_of_the_documentation();
    documented.retain(|key| !key.starts_with("auth.keys.") && !key.starts_with("upstream.auth."));
    example.sort();
    documented.sort();
    assert_eq!(example, documented);
}
