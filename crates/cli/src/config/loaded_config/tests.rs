//! Layers from real files, including the tuning file.

use std::fs;

use riglm_domain::prediction::NamePattern;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::config::{
    ConfigError, ConfigSource, Overrides, ProcessEnv, TuningDocument, TuningUse, load, show,
};

struct Scene {
    directory: TempDir,
    source: ConfigSource,
    surroundings: ProcessEnv,
}

fn scene(file: &str, variables: &[(&str, &str)]) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("riglm.toml"), file).unwrap();
    let surroundings = ProcessEnv {
        environment: variables.iter().copied().collect(),
        working_directory: directory.path().into(),
        config_directory: None,
        data_directory: Some(directory.path().into()),
        home_directory: None,
    };
    Scene {
        source: ConfigSource::new(Overrides::default(), surroundings.clone()),
        directory,
        surroundings,
    }
}

fn document(tuning: Json) -> TuningDocument {
    let Json::Object(tuning) = tuning else {
        panic!("no section: {tuning}");
    };
    TuningDocument { version: 1, tuning }
}

impl Scene {
    fn write_file(&self, text: &str) {
        fs::write(self.directory.path().join("riglm.toml"), text).unwrap();
    }

    fn write_tuning(&self, text: &str) {
        let directory = self.directory.path().join("riglm");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("tuning.json"), text).unwrap();
    }

    fn tune(&self, tuning: &Json) {
        self.write_tuning(&json!({"version": 4, "tuning": tuning}).to_string());
    }

    fn load_proposal(&self, tuning: Json) -> Result<LoadedConfig, ConfigError> {
        self.source.load(TuningUse::Proposed(document(tuning)))
    }

    fn load_stored(&self) -> LoadedConfig {
        self.source.load(TuningUse::Stored).unwrap()
    }
}

#[test]
fn tuned_values_rank_between_file_and_environment() {
    let file = "[limits]\nsessions = 1\nin_flight = 1\nin_flight_per_session = 1\n";
    let scene = scene(file, &[("RIGLM__LIMITS__IN_FLIGHT", "3")]);
    scene.tune(&json!({"limits": {"sessions": 2, "in_flight": 2}}));
    let loaded = scene.load_stored();
    let limits = &loaded.config.limits;
    assert_eq!(
        (
            limits.sessions,
            limits.in_flight,
            limits.in_flight_per_session
        ),
        (2, 3, 1)
    );
    assert_eq!((loaded.tuning.version, &loaded.ignored), (4, &None));
    let shown = show(&Overrides::default(), &scene.surroundings).unwrap();
    let origin = |key: &str| {
        let shown = shown.iter().find(|shown| shown.key == key).unwrap();
        shown.origin.rsplit('/').next().unwrap().to_owned()
    };
    assert_eq!(origin("limits.sessions"), "tuning.json");
    assert_eq!(
        origin("limits.in_flight"),
        "environment variable RIGLM__LIMITS__IN_FLIGHT"
    );
    assert_eq!(origin("limits.in_flight_per_session"), "riglm.toml");
}

#[test]
fn invalid_tuning_is_ignored_at_startup_and_refused_later() {
    let scene = scene("[filtering]\nmin_tools = 9\n", &[]);
    for (text, names) in [
        ("{", "tuning.json"),
        (
            r#"{"version":1,"tuning":{"filtering":{"max_tools":8}}}"#,
            "filtering",
        ),
        (
            r#"{"version":1,"tuning":{"limits":{"sessions":"many"}}}"#,
            "limits.sessions",
        ),
        (
            r#"{"version":1,"tuning":{"listen":{"address":"[::]:1"}}}"#,
            "listen.address",
        ),
        (
            r#"{"version":1,"tuning":{"profiles":{"x":{"filtering":{"pins":[]}}}}}"#,
            "profiles.x",
        ),
    ] {
        scene.write_tuning(text);
        let loaded = scene.source.load(TuningUse::IfSound).unwrap();
        assert_eq!(loaded.config.filtering.min_tools, 9);
        assert!(loaded.tuning.tuning.is_empty());
        // The next tuning gets a new version, different from the ignored one.
        assert_eq!(loaded.tuning.version, u64::from(text.len() > 1));
        let why = loaded.ignored.unwrap();
        assert!(why.contains(names), "{text}: {why}");
        assert!(load(&Overrides::default(), &scene.surroundings).is_ok());
        let refused = scene.source.load(TuningUse::Stored).unwrap_err();
        assert_eq!(refused.to_string(), why);
    }
    // An error in the configuration file is not attributed to the tuning.
    scene.write_file("[filtering]\nmin_tools = \"few\"\n");
    let error = scene.source.load(TuningUse::IfSound).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("riglm.toml: filtering.min_tools"),
        "{error}"
    );
}

#[test]
fn keys_fixed_at_startup_are_named_with_the_reason() {
    let scene = scene("upstream.url = 'http://a'\n[profiles.few]\n", &[]);
    let start = scene.load_stored();
    let fixed = |file: &str| -> Vec<String> {
        scene.write_file(file);
        let differences = start.fixed_differences(&scene.load_stored());
        differences.into_iter().map(|fixed| fixed.key).collect()
    };
    let tuned = "upstream.url = 'http://b'\nlimits.sessions = 9\n[filtering]\nmax_tools = 9\n\
                 strategy = 'prediction'\n[profiles.few.filtering]\npins = ['x']\n\
                 [search]\nenabled = false\nsynonyms = '/x'\n[safeguards.budget]\ntokens = 900\n\
                 [prediction.predictor]\ncommand = ['x']\n";
    assert!(fixed(tuned).is_empty());
    let others = "naming = 'collision'\nlisten.address = '127.0.0.1:1'\n[profiles.few]\n\
                  [profiles.new.filtering]\npins = ['x']\n[filtering]\nmax_tools = 9\n\
                  [search]\ntool_name = 'find'\n[auth.keys]\na = '0123456789abcdef'\n";
    assert_eq!(
        fixed(others),
        [
            "naming",
            "listen.address",
            "profiles.new.filtering.pins",
            "search.tool_name",
        ]
    );
    scene.write_file("listen.address = '127.0.0.1:1'\n");
    let differences = start.fixed_differences(&scene.load_stored());
    assert_eq!(differences[0].why, "addresses are bound at startup");
    // A removed profile has no key to name.
    assert_eq!(differences[1].key, "profiles");
}

#[test]
fn effective_values_combine_reloadable_and_startup_settings() {
    let file = "upstreams.\"a.b\".url = 'http://u:secret@a'\nnaming = 'collision'\n";
    let scene = scene(file, &[]);
    let start = scene.load_stored();
    scene.write_file("upstreams.\"c.d\".url = 'http://c'\nlimits.sessions = 9\n");
    let in_use = start.effective_values(&scene.load_stored());
    assert_eq!(in_use["naming"], "collision");
    assert_eq!(in_use["limits"]["sessions"], 9);
    assert_eq!(in_use["upstreams"]["c.d"]["url"], "http://c");
    assert_eq!(in_use["upstreams"].get("a.b"), None);
    assert_eq!(in_use["filtering"]["clients"][0]["name"], "claude-code*");
    assert!(
        !start
            .effective_values(&start)
            .to_string()
            .contains("secret")
    );
}

#[test]
fn keys_set_by_the_environment_cannot_be_tuned() {
    let scene = scene("", &[("RIGLM__FILTERING__MAX_TOOLS", "7")]);
    let start = scene.load_stored();
    let tunable = start.tunable();
    assert!(tunable.contains(&"filtering.min_tools".to_owned()));
    assert!(!tunable.contains(&"filtering.max_tools".to_owned()));
    assert!(tunable.contains(&"filtering.strategy".to_owned()));
    assert!(!tunable.contains(&"search.encoder.model".to_owned()));
    let refused = start.check_tuning(&document(json!({"filtering": {"max_tools": 8}})).tuning);
    let (key, reason) = refused.unwrap_err();
    assert_eq!(key, "filtering.max_tools");
    assert!(
        reason.contains("environment variable RIGLM__FILTERING__MAX_TOOLS"),
        "{reason}"
    );
}

#[test]
fn changed_keys_must_be_valid_with_fixed_ones() {
    let experiment = "[filtering]\nstrategy = 'prediction'\n[recommend.experiments.sizes]\n\
                      control = 'a'\nmetric = 'coverage'\n[recommend.experiments.sizes.arms.a]\nshare = 0.5\n\
                      [recommend.experiments.sizes.arms.b]\nshare = 0.5\npolicy = 'all'\n";
    let scene = scene(experiment, &[]);
    let start = scene.load_stored();
    // The file is valid by itself, but an experiment needs the strategy.
    scene.write_file("[filtering]\nstrategy = 'none'\n");
    let newer = scene.load_stored();
    let error = start.followed_by(&newer.config).unwrap_err().to_string();
    assert!(
        error.contains("experiments keep their settings from startup"),
        "{error}"
    );
    scene.write_file(
        "[filtering]\nstrategy = 'prediction'\npins = ['y']\n[recording]\nmode = 'off'\n\
         [search]\ntool_name = 'find'\nmin_fit = 0.5\n",
    );
    let config = start.followed_by(&scene.load_stored().config).unwrap();
    assert_eq!(config.filtering.pins, [NamePattern::new("y")]);
    assert_eq!(config.recording, start.config.recording);
    assert_eq!(config.search.tool_name, start.config.search.tool_name);
    assert!((config.search.min_fit - 0.5).abs() < f64::EPSILON);
}

#[test]
fn values_are_checked_as_those_of_the_file_are() {
    let scene = scene("", &[]);
    for (tuning, key) in [
        (
            json!({"filtering": {"max_tools": 0}}),
            "filtering.max_tools",
        ),
        (json!({"limits": {"call_timeout": "11m"}}), "limits"),
        (json!({"logging": {"level": "loud"}}), "logging.level"),
        (json!({"filtering": {"pins": "x"}}), "filtering.pins"),
        (json!({"limits": {"sessions": null}}), "limits.sessions"),
        (json!({"intent": {"search": 2}}), "intent.search"),
        (
            json!({"prediction": {"bands": {"show_all_below": 0.9, "search_prominent_below": 0.5}}}),
            "prediction.bands",
        ),
    ] {
        let error = scene.load_proposal(tuning.clone()).unwrap_err();
        let ConfigError::Value { key: named, .. } = &error else {
            panic!("{tuning}: {error}");
        };
        assert_eq!(named, key, "{tuning}: {error}");
    }
    let sound =
        json!({"limits": {"call_timeout": "9m", "sessions": 3}, "logging": {"level": "off"}});
    let loaded = scene.load_proposal(sound).unwrap();
    assert_eq!(loaded.config.limits.call_timeout.as_secs(), 540);
    let start = scene
        .source
        .load(TuningUse::Proposed(TuningDocument::default()))
        .unwrap();
    assert_eq!(
        start.tuned_differences(&loaded),
        ["limits.call_timeout", "limits.sessions", "logging.level"]
    );
}
