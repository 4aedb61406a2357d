//! The example file and the documentation agree with the code and with each other.

use riglm_adapters_http::ControlConfig;
use riglm_adapters_mcp::downstream::ListenConfig;
use riglm_adapters_mcp::upstream::{CredentialsType, OAuthGrant};
use riglm_adapters_storage::{RecordingConfig, StorageConfig};
use riglm_app::limits::Limits;
use riglm_app::selection::FilteringConfig;

use super::*;
use riglm_adapters_telemetry::TelemetryConfig;
use riglm_discovery::recommend::RecommendConfig;

use crate::config::{LoggingConfig, SearchConfig};

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
    assert_eq!(config.search, SearchConfig::default());
    assert_eq!(config.recommend, RecommendConfig::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.logging, LoggingConfig::default());
    assert_eq!(config.telemetry, TelemetryConfig::default());
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
    assert_eq!(upstream.config.tool_changes, default.tool_changes);
    assert_eq!(config.naming, NamespacePolicy::default());
}

/// Returns the example with those of its commented keys that `is_wanted`.
fn uncomment_keys(is_wanted: impl Fn(&str) -> bool) -> String {
    let mut section = String::new();
    let mut lines = Vec::new();
    for line in EXAMPLE.lines() {
        let bare = line.trim_start_matches("# ");
        if let Some(name) = section_of(line) {
            section = name.to_owned();
            lines.push(bare);
        } else if let Some(key) = key_of(line)
            && is_wanted(&format!("{section}.{key}"))
            // An arm with a policy or predictors needs other keys than an arm with a fusion.
            && !(section.contains(".arms.") && ["policy", "predictors"].contains(&key))
        {
            lines.push(bare);
        }
    }
    // Some keys need riglm's own tools, which exist only if lists may hide tools.
    let text = lines.join("\n");
    text.replace("strategy = \"none\"", "strategy = \"prediction\"")
}

const VARIABLES: [(&str, &str); 8] = [
    ("EMBEDDINGS_KEY", "k"),
    ("CHAT_KEY", "k"),
    ("API_KEY", "k"),
    ("DATABASE_URL", "postgres://riglm@db.example/riglm"),
    ("BOB_KEY", "the key of bob 1234"),
    ("UPSTREAM_TOKEN", "t"),
    ("UPSTREAM_SECRET", "s"),
    ("OTLP_TOKEN", "t"),
];

#[test]
fn a_program_can_be_configured_as_the_example_has_it() {
    let text = uncomment_keys(|key| {
        !key.starts_with("upstream.url")
            && !key.starts_with("upstream.headers")
            && !key.starts_with("upstream.credentials")
    });
    let text = text.replace("[upstream.credentials]", "");
    let config = scene("riglm.toml", &text, &VARIABLES).load().unwrap();
    assert_eq!(config.data_dir, Path::new("/var/lib/riglm"));
    let upstream = &only(&config).config;
    assert_eq!(upstream.env["API_KEY"], "k");
    assert_eq!(upstream.cwd.as_deref(), Some(Path::new("/srv")));
    assert!(config.keys.principal_of("the key of bob 1234").is_some());
}

#[test]
fn an_address_can_be_configured_as_the_example_has_it() {
    let of_program = ["upstream.command", "upstream.env", "upstream.cwd"];
    let bearer = ["upstream.credentials.type", "upstream.credentials.token"];
    let program =
        ["command", "timeout", "refresh"].map(|key| format!("upstream.credentials.{key}"));
    let credentials = |text: &str| {
        let config = scene("riglm.toml", text, &VARIABLES).load().unwrap();
        let upstream = only(&config).config.clone();
        upstream.validate().unwrap();
        assert_eq!(upstream.headers["X-Api-Key"].expose_secret(), "k");
        upstream.credentials.unwrap()
    };
    let text = uncomment_keys(|key| {
        let is_of_oauth = key.starts_with("upstream.credentials") && !bearer.contains(&key);
        !of_program.contains(&key) && !is_of_oauth
    });
    let found = credentials(&text);
    assert_eq!(found.r#type, CredentialsType::Bearer);
    assert_eq!(found.token.unwrap().expose_secret(), "t");

    let text = uncomment_keys(|key| {
        let is_of_credentials = key.starts_with("upstream.credentials") && key != bearer[0];
        !of_program.contains(&key)
            && (!is_of_credentials || program.iter().any(|of_program| of_program == key))
    });
    let found = credentials(&text.replace("\"bearer\"", "\"command\""));
    assert_eq!(found.r#type, CredentialsType::Command);
    assert_eq!(found.command.unwrap(), ["print-token", "tracker"]);
    assert!(found.timeout.is_some() && found.refresh.is_some());

    let text = uncomment_keys(|key| {
        let is_of_program = program.iter().any(|of_program| of_program == key);
        !of_program.contains(&key) && key != bearer[1] && !is_of_program
    });
    let found = credentials(&text.replace("\"bearer\"", "\"oauth\""));
    assert_eq!(found.r#type, CredentialsType::Oauth);
    assert_eq!(found.grant, Some(OAuthGrant::default()));
    assert_eq!(found.client_secret.unwrap().expose_secret(), "s");
    assert!(found.client_metadata_url.is_some() && found.redirect_port.is_some());
    assert!(!found.scopes.is_empty());
}

/// Returns the name of the section that a line begins, commented or not.
fn section_of(line: &str) -> Option<&str> {
    let name = line
        .trim_start_matches("# ")
        .strip_prefix('[')?
        .strip_suffix(']')?;
    let entry = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let name = entry.unwrap_or(name);
    (!name.contains(['[', ' '])).then_some(name)
}

/// Returns the key that a line sets, commented or not.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
    let is_key = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    key.bytes().all(is_key).then_some(key)
}

/// Returns the paths of all keys of the example, including commented ones.
fn keys_of_the_example() -> Vec<String> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in EXAMPLE.lines() {
        if let Some(name) = section_of(line) {
            section = format!("{name}.");
        }
        keys.extend(key_of(line).map(|key| format!("{section}{key}")));
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
    let mut documented = keys_of_the_documentation();
    // The operator chooses the names of keys of clients.
    example.retain(|key| !key.starts_with("auth.keys."));
    documented.retain(|key| !key.starts_with("auth.keys."));
    // So are the names of experiments and arms. Their weights are keys of another section.
    example.retain(|key| !key.contains(".arms.ranks.weights."));
    for key in &mut example {
        *key = (key.replace(".fusions.", ".NAME."))
            .replace(".arms.control.", ".arms.NAME.")
            .replace(".arms.ranks.", ".arms.NAME.");
    }
    example.sort();
    example.dedup();
    documented.sort();
    assert_eq!(example, documented);
}

/// Returns the keys that the code knows in a section, from its error message for an unknown key.
fn keys_of_the_code(section: &str) -> Vec<String> {
    let heading = if section.is_empty() {
        String::new()
    } else if ["filtering.clients", "filtering.pools"].contains(&section) {
        format!("[[{section}]]\n")
    } else if section == "safeguards.limits.rules" {
        format!("[[{section}]]\ntools = [\"x\"]\n")
    } else {
        format!("[{section}]\n")
    };
    let error = toml(&format!("{heading}no_such_key = 1\n")).unwrap_err();
    let error = error.to_string();
    let (_, expected) = error.split_once("unknown field").unwrap();
    expected
        .split('`')
        .skip(3)
        .step_by(2)
        .map(|key| {
            format!("{section}.{key}")
                .trim_start_matches('.')
                .to_owned()
        })
        .collect()
}

#[test]
fn example_configuration_contains_every_known_key() {
    let example = keys_of_the_example();
    let sections = [
        "upstream",
        "upstreams",
        "upstream.credentials",
        "upstream.auth",
        "listen",
        "control",
        "control.keys",
        "control.keys.page",
        "auth",
        "auth.keys",
        "storage",
        "storage.sqlite",
        "storage.postgres",
        "recording",
        "filtering",
        "filtering.clients",
        "filtering.pools",
        "filtering.costs",
        "filtering.exploration",
        "profiles",
        "profiles.reading.filtering",
        "search",
        "search.encoder",
        "prediction",
        "prediction.bands",
        "safeguards",
        "safeguards.result_cache",
        "safeguards.long_results",
        "safeguards.budget",
        "safeguards.searches",
        "profiles.reading.safeguards.budget",
        "safeguards.limits",
        "safeguards.limits.rules",
        "recommend",
        "recommend.tags",
        "recommend.weights",
        "recommend.tuning",
        "recommend.experiments",
        "recommend.experiments.fusions",
        "recommend.experiments.fusions.arms",
        "intent",
        "work_sessions",
        "search.encoder.remote",
        "search.weights",
        "search.rrf",
        "search.quality",
        "search.notes",
        "search.expansion",
        "search.expansion.endpoint",
        "search.rerank",
        "search.rerank.endpoint",
        "limits",
        "logging",
        "telemetry",
        "telemetry.otlp",
    ];
    let with_keys = sections.into_iter().chain([""]);
    let named_freely = [
        "upstreams",
        "upstream.auth",
        "auth.keys",
        "control.keys",
        "profiles",
        "recommend.tags",
        "recommend.experiments",
        "recommend.experiments.fusions.arms",
    ];
    let with_keys = with_keys.filter(|name| !named_freely.contains(name));
    for section in with_keys {
        let keys = keys_of_the_code(section);
        assert!(!keys.is_empty(), "{section}");
        for key in keys {
            let is_there = example.contains(&key) || sections.contains(&key.as_str());
            assert!(is_there, "{key} is not in the example");
        }
    }
}

const EXPERIMENTS: &str = include_str!("../../../../../../config/experiments.example.toml");

#[test]
fn the_example_of_an_experiment_has_the_three_arms() {
    let config = toml(EXPERIMENTS).unwrap();
    let [plan] = &config.experiments[..] else {
        panic!("{:?}", config.experiments);
    };
    assert!(plan.is_running);
    let values = |name: &str| *plan.arm(name).unwrap().weights.unwrap().values();
    let expected = [
        ("control", [0.35, 0.25, 0.15, 0.15, 0.10]),
        ("variant_a", [0.50, 0.20, 0.10, 0.10, 0.10]),
        ("variant_b", [0.30, 0.30, 0.15, 0.15, 0.10]),
    ];
    assert_eq!(plan.arms.len(), expected.len());
    for (name, weights) in expected {
        let found = values(name).map(f64::to_bits);
        assert_eq!(found, weights.map(f64::to_bits), "{name}");
    }
    let total: f64 = plan.arms.iter().map(|arm| arm.share).sum();
    assert!((total - 1.0).abs() < 1e-9);
}

#[test]
fn references_have_values_of_the_file_of_secrets() {
    let scene = scene(
        "riglm.toml",
        "data_dir = \"${BASE}\"\n[upstreams.a]\nurl = \"https://${HOST}/${PATH_PART}\"\n\
         [upstreams.b]\nurl = \"https://b\"\nenabled = false\n",
        &[
            ("BASE", "data"),
            ("HOST", "of-the-environment"),
            ("PATH_PART", ""),
        ],
    );
    let data_dir = scene.directory.path().join("data");
    let values = [("HOST", "of-the-file"), ("PATH_PART", "p")];
    let values = values.map(|(name, value)| (name.into(), value.into()));
    (crate::config::SecretsFile::of(&data_dir).add(&values.into())).unwrap();
    let config = scene.load().unwrap();
    let url = only(&config).config.url.as_deref();
    assert_eq!(url, Some("https://of-the-environment/p"));
    let shown = crate::config::show(&Overrides::default(), &scene.surroundings).unwrap();
    assert!(!format!("{shown:?}").contains("/p\""));
}
