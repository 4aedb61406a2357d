//! Errors for wrong configurations.

use riglm_discovery::intent::IntentWeights;

use super::*;

#[test]
fn searches_must_not_wait_longer_for_models_than_requests_may_take() {
    let asked = |by: &str, timeout: &str| {
        let text =
            format!("[search.rerank]\nby = \"{by}\"\n[limits]\ncall_timeout = \"{timeout}\"\n");
        toml(&text)
    };
    let refusal = asked("client", "2s").unwrap_err().to_string();
    let expected = "riglm.toml: limits.call_timeout: must be more than 2s, which a search may wait \
                    for language models: see search.rerank.timeout and search.expansion.timeout";
    assert!(refusal.ends_with(expected), "{refusal}");
    asked("client", "3s").unwrap();
    asked("none", "1s").unwrap();
}

#[test]
fn what_learns_from_all_principals_is_refused_if_they_are_isolated() {
    let isolated = |more: &str| toml(&format!("[prediction]\nshared_learning = false\n{more}"));
    isolated("").unwrap();
    for (more, key) in [
        (
            "[recommend.tuning]\nenabled = true\n",
            "recommend.tuning.enabled",
        ),
        (
            "predictor = { command = [\"scores\"] }\n",
            "prediction.predictor",
        ),
        (
            "[filtering]\nstrategy = \"prediction\"\n[recommend.experiments.x]\n\
             metric = \"call_success\"\n[recommend.experiments.x.arms.control]\nshare = 0.5\n\
             [recommend.experiments.x.arms.other]\nshare = 0.5\npredictors = [\"markov\"]\n",
            "recommend.experiments.x.arms.other.predictors",
        ),
    ] {
        let refusal = isolated(more).unwrap_err().to_string();
        let named = format!("riglm.toml: {key}: ");
        assert!(refusal.contains(&named), "{refusal}");
        assert!(refusal.contains("prediction.shared_learning"), "{refusal}");
    }
}

#[test]
fn exploration_is_validated() {
    toml("[filtering.exploration]\nshare = 0.1\nseed = 7\n").unwrap();
    let refusal = |text: &str| toml(text).unwrap_err().to_string();
    let share = refusal("[filtering.exploration]\nshare = 1.5\n");
    let expected = "filtering.exploration.share: expected a number from 0 to 1";
    assert!(share.contains(expected), "{share}");
    let seed = refusal("[filtering.exploration]\nseed = -1\n");
    assert!(seed.contains("filtering.exploration.seed"), "{seed}");
}

#[test]
fn refusals_name_file_key_and_expected_value() {
    for (text, refusal) in [
        (
            "[filtering]\nstratgey = \"none\"\n",
            "riglm.toml: filtering.stratgey: unknown field `stratgey`, expected one of `enabled`, \
             `strategy`, `policy`, `min_tools`, `max_tools`, `token_budget`, `epoch`, `coverage`, \
             `gate_writes`, `enforce`, `context_shift`, `pins`, `bans`, `forbid`, `allow`, `deny`, `clients`, \
             `pools`, `costs`, `exploration`",
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
            "[limits]\nsessions = 1.5\n",
            "riglm.toml: limits.sessions: invalid type: floating point `1.5`, expected a whole \
             number from 0",
        ),
        (
            "[filtering]\nmin_tools = -1\n",
            "riglm.toml: filtering.min_tools: invalid value: integer `-1`, expected a whole \
             number from 0",
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
            "[search]\ntool_name = \"find tools\"\n",
            "riglm.toml: search.tool_name: expected 1 to 64 letters, digits, `_` and `-`",
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
            "riglm.toml: listen.address: 0.0.0.0:8642 can be reached from other machines: set \
             client keys in auth.keys, or listen on a loopback address",
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
            "[telemetry]\nsample_ratio = 1.5\n",
            "riglm.toml: telemetry.sample_ratio: expected a number from 0 to 1",
        ),
        (
            "[telemetry.otlp]\nendpoint = \"collector:4318\"\n",
            "riglm.toml: telemetry.otlp.endpoint: expected a URL with http:// or https://, or nothing",
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
fn budgets_of_tokens_and_searches_are_checked() {
    for (section, keys, refusal) in [
        (
            "safeguards.budget",
            "tokens = 99",
            ".tokens: expected a value from 100 to 1000000000000",
        ),
        (
            "safeguards.budget",
            "tokens = 0",
            ".tokens: expected a value from 100 to 1000000000000",
        ),
        (
            "safeguards.budget",
            "tokens = 1000000000001",
            ".tokens: expected a value from 100 to 1000000000000",
        ),
        (
            "safeguards.budget",
            "status = 0.0",
            ": status must be a share above 0 and at most 1, not 0",
        ),
        (
            "safeguards.budget",
            "stop = 1.01",
            ": stop must be a share above 0 and at most 1, not 1.01",
        ),
        (
            "safeguards.budget",
            "suggest = nan",
            ": suggest must be a share above 0 and at most 1, not NaN",
        ),
        (
            "safeguards.budget",
            "suggest = 0.9",
            ": stop (0.9) must be greater than suggest (0.9)",
        ),
        (
            "profiles.few.safeguards.budget",
            "status = 0.7",
            ": suggest (0.7) must be greater than status (0.7)",
        ),
        (
            "profiles.few.safeguards.budget",
            "tokens = 7",
            ".tokens: expected a value from 100 to 1000000000000",
        ),
        (
            "safeguards.searches",
            "overlap = 0.0",
            ".overlap: expected a share above 0 and at most 1",
        ),
        (
            "safeguards.searches",
            "overlap = 1.5",
            ".overlap: expected a share above 0 and at most 1",
        ),
        (
            "safeguards.searches",
            "falling = 1",
            ".falling: expected a value from 2 to 16",
        ),
        (
            "safeguards.searches",
            "without_call = 0",
            ".without_call: expected a value from 2 to 1000",
        ),
        (
            "safeguards.searches",
            "without_call = 1001",
            ".without_call: expected a value from 2 to 1000",
        ),
        (
            "safeguards.searches",
            "tools = [\" \"]",
            ".tools: expected names of tools, in which * stands for any characters",
        ),
    ] {
        let text = format!("[{section}]\n{keys}\n");
        assert_eq!(
            toml_refusal(&text),
            format!("riglm.toml: {section}{refusal}")
        );
    }
    assert!(
        toml_refusal("[safeguards.budget]\ntokens = -1\n")
            .starts_with("riglm.toml: safeguards.budget.tokens: ")
    );
    for sound in [
        "[safeguards.budget]\ntokens = 100\nstatus = 0.000001\nstop = 1.0\n",
        "[safeguards.searches]\noverlap = 1.0\nfalling = 16\nwithout_call = 2\n",
        "[safeguards.budget]\nstatus = 0.1\nsuggest = 0.2\n[profiles.few.safeguards.budget]\nstop = 0.3\n",
    ] {
        toml(sound).unwrap();
    }
}

#[test]
fn profiles_and_keys_of_operators_are_checked() {
    for (text, refusal) in [
        (
            "[profiles.few.filtering]\nmax_tools = 3\n",
            "riglm.toml: profiles.few.filtering: min_tools (5) must not be greater than \
             max_tools (3)",
        ),
        (
            "[profiles.few.filtering]\nmin_tools = 0\nmax_tools = 0\n",
            "riglm.toml: profiles.few.filtering.max_tools: expected a number from 1 to 5000",
        ),
        (
            "[profiles.few]\nmax_tools = 3\n",
            "riglm.toml: profiles.few.max_tools: unknown field `max_tools`, expected `filtering` \
             or `safeguards`",
        ),
        (
            "[profiles.\"a b\".filtering]\nmax_tools = 3\n",
            "riglm.toml: profiles.a b: profile name \"a b\" must be 1 to 64 characters of letters, \
             digits, '-', '_' and '.', begin with a letter or digit, and have no '__'",
        ),
        (
            "[profiles.few]\n[profiles.Few]\n",
            "configuration: profiles.few: differs from profiles.Few only in upper and lower case",
        ),
        (
            "[[filtering.pools]]\nname = \"p\"\ntools = [\"*\"]\nprofile = \"work\"\n\
             [profiles.few]\n",
            "riglm.toml: filtering.pools[0].profile: unknown profile \"work\"; known are few",
        ),
        (
            "[control]\ntoken = \"short\"\n",
            "riglm.toml: control.token: expected a key of at least 16 characters, or sha256: and \
             its digest",
        ),
        (
            "[control.keys.page]\nkey = \"the key of the page\"\nscopes = []\n",
            "riglm.toml: control.keys.page.scopes: expected at least one of read, override, \
             config and data",
        ),
        (
            "[control.keys.page]\nkey = \"the key of the page\"\nscopes = [\"all\"]\n",
            "riglm.toml: control.keys.page.scopes[0]: unknown variant `all`, expected one of \
             `read`, `override`, `config`, `data`",
        ),
    ] {
        assert_eq!(toml_refusal(text), refusal);
    }
}

#[test]
fn invalid_storage_settings_are_refused() {
    for (text, refusal) in [
        (
            "[storage]\nbackend = \"postgres\"\n",
            "riglm.toml: storage: backend postgres needs postgres.url",
        ),
        (
            "[storage.postgres]\nurl = \"mysql://a/b\"\n",
            "riglm.toml: storage.postgres: url must begin with postgres:// or postgresql://",
        ),
        (
            "[storage.postgres]\nmax_connections = 1\n",
            "riglm.toml: storage.postgres.max_connections: expected a value from 2 to 100",
        ),
        (
            "[storage.postgres]\ntls = \"prefer\"\n",
            "riglm.toml: storage.postgres.tls: unknown variant `prefer`, expected `verify-full` or \
             `off`",
        ),
        (
            "[storage.postgres]\nconnect_timeout = \"0s\"\n",
            "riglm.toml: storage.postgres.connect_timeout: must be more than 0s",
        ),
        (
            "[recording]\nretention_days = 36501\n",
            "riglm.toml: recording.retention_days: expected a value of at most 36500",
        ),
    ] {
        assert_eq!(toml_refusal(text), refusal);
    }
}

#[test]
fn invalid_and_conflicting_upstreams_are_refused_by_name() {
    for (text, refusal) in [
        (
            "[upstreams.git]\nurl = \"http://a\"\n[upstreams.Git]\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.git has the same name as upstreams.Git (riglm.toml); case and \
             the difference between '.', '-' and '_' are ignored",
        ),
        (
            "[upstreams.a-b]\nurl = \"http://a\"\n[upstreams.\"a.b\"]\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.a.b has the same name as upstreams.a-b (riglm.toml); case and \
             the difference between '.', '-' and '_' are ignored",
        ),
        (
            "[upstreams.Default]\nurl = \"http://a\"\n[upstream]\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.Default has the same name as upstream (riglm.toml); case and \
             the difference between '.', '-' and '_' are ignored",
        ),
        (
            "[upstreams.a__b]\nurl = \"http://a\"\n",
            "riglm.toml: upstreams.a__b: upstream name \"a__b\" must not contain __, which \
             separates the upstream name from the tool name",
        ),
        (
            "[upstreams.a_]\nurl = \"http://a\"\n",
            "riglm.toml: upstreams.a_: upstream name \"a_\" must not end with _ or ., which could \
             be read as a part of the tool name",
        ),
        (
            "[upstreams.a]\nurl = \"http://a\"\n[upstreams.b]\nmax_connections = 0\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.b.max_connections: expected a value of at least 1",
        ),
        (
            "[upstreams.a]\nurl = \"http://a\"\nisolation = \"none\"\n",
            "riglm.toml: upstreams.a.isolation: unknown variant `none`, expected \
             `per_session` or `shared`",
        ),
        (
            "naming = \"never\"\n",
            "riglm.toml: naming: unknown variant `never`, expected `prefix` or `collision`",
        ),
    ] {
        assert_eq!(toml_refusal(text), refusal);
    }
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
        refusal("RIGLM__TELEMETRY__OTPL", "x").starts_with(
            "environment variable RIGLM__TELEMETRY__OTPL: telemetry.otpl: unknown field"
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
        "[storage]\npostgres = \"postgres://u:hunter2@h/x\"\n",
        "[storage.postgres]\nurl = [\"postgres://u:hunter2@h/x\"]\n",
        "[telemetry.otlp]\nendpoint = \"https://u:hunter2@h\"\n",
        "[telemetry.otlp]\nheaders = \"hunter2\"\n",
    ] {
        let refusal = toml_refusal(text);
        assert!(!refusal.contains("hunter2"), "{refusal}");
        assert!(refusal.contains("expected"), "{refusal}");
    }
    for url in [
        "hunter2",
        "postgres://u:hunter2@h:x/y",
        "postgres://u:hunter2@h/x?sslmode=prefer",
    ] {
        let name = "RIGLM__STORAGE__POSTGRES__URL";
        let refusal = scene("riglm.toml", "", &[(name, url)]).refusal();
        assert!(
            refusal.contains("url") && !refusal.contains("hunter2"),
            "{refusal}"
        );
    }
}

#[test]
fn a_missing_data_directory_is_reported_with_the_remedy() {
    let error = load(&Overrides::default(), &ProcessEnv::default()).unwrap_err();
    assert!(error.to_string().contains("--data-dir"));
}

/// Returns an experiment with two arms; `arm` has the keys of the second one.
fn experiment(name: &str, keys: &str, arm: &str) -> String {
    format!(
        "[recommend.experiments.{name}]\n{keys}\n\
         [recommend.experiments.{name}.arms.control]\nshare = 0.5\n\
         [recommend.experiments.{name}.arms.a]\nshare = 0.5\n{arm}\n"
    )
}

#[test]
fn invalid_experiments_are_refused_with_their_key() {
    let rrf = "fusion = \"rrf\"";
    let weights = |of_rating: &str| {
        format!(
            "weights = {{ relevance = 0.5, success_rate = 0.2, popularity = 0.1, \
             performance = 0.1, user_rating = {of_rating} }}"
        )
    };
    let both = experiment("one", "", rrf) + &experiment("two", "", rrf);
    let three = experiment("e", "", rrf) + "[recommend.experiments.e.arms.b]\nshare = 0.2\n";
    let calls = "metric = \"call_success\"";
    let one_arm = "[recommend.experiments.e.arms.control]\nshare = 0.5\nfusion = \"rrf\"\n";
    for (text, refusal) in [
        (
            one_arm.to_owned(),
            "e.arms: expected at least 2 arms, got 1",
        ),
        (
            three,
            "e.arms: the shares of the arms sum to 1.2, which is more than 1",
        ),
        (
            both,
            "two.arms: experiment one is running and also has arms with fusion",
        ),
        (
            experiment("e", "", ""),
            "e.arms: no arm has weights, a fusion, a policy or predictors",
        ),
        (
            experiment("e", "", "fusion = \"magic\""),
            "e.arms.a.fusion: unknown variant `magic`, expected `score` or `rrf`",
        ),
        (
            experiment("e", calls, "policy = \"often\""),
            "e.arms.a.policy: unknown variant `often`, expected one of `epoch`, `append`",
        ),
        (
            experiment("e", calls, "policy = \"append\""),
            "e.arms.a.policy: a policy needs filtering.strategy = \"prediction\"",
        ),
        (
            experiment("e", "", "predictors = [\"mixture\"]"),
            "e.arms.a.predictors[0]: unknown variant `mixture`, expected one of `mix`,",
        ),
        (
            experiment("e", "", &weights("0.2")),
            "e.arms.a.weights: the weights sum to 1.",
        ),
        (
            experiment("e", "", &weights("-0.1")),
            "e.arms.a.weights: user_rating: expected",
        ),
        (
            experiment("e", "", &weights("nan")),
            "e.arms.a.weights: user_rating: expected",
        ),
        (
            experiment("e", "alpha = 0.9", rrf),
            "e.alpha: expected a number above 0",
        ),
        (
            experiment("e", "window = \"1s\"", rrf),
            "e.window: expected a duration",
        ),
        (
            experiment("e", "control = \"b\"", rrf),
            "e.control: unknown arm \"b\"",
        ),
        (
            experiment("\"a b\"", "", rrf),
            "a b: a name must be 1 to 64 characters",
        ),
        (
            experiment("e", "unit = \"session\"", rrf),
            "e.unit: unknown variant `session`, expected `principal` or `work_session`",
        ),
        (
            format!("[recording]\nmode = \"off\"\n{}", experiment("e", "", rrf)),
            "e.enabled: an experiment needs recorded calls",
        ),
    ] {
        let refused = scene("riglm.toml", &text, &[]).refusal();
        let expected = format!("riglm.toml: recommend.experiments.{refusal}");
        assert!(refused.starts_with(&expected), "{refused}\n{expected}");
    }
    let off = experiment("one", "", rrf) + &experiment("two", "enabled = false", rrf);
    let config = scene("riglm.toml", &off, &[]).load().unwrap();
    let running: Vec<bool> = config
        .experiments
        .iter()
        .map(|plan| plan.is_running)
        .collect();
    assert_eq!(running, [true, false]);
}

/// Returns an experiment with a control and arms with these predictors.
fn with_predictors(name: &str, sets: &[&str]) -> String {
    let arms = sets.iter().enumerate().map(|(n, set)| {
        format!("[recommend.experiments.{name}.arms.a{n}]\nshare = 0.1\npredictors = {set}\n")
    });
    format!(
        "[recommend.experiments.{name}]\nmetric = \"coverage\"\n\
         [recommend.experiments.{name}.arms.control]\nshare = 0.1\n{}",
        arms.collect::<String>()
    )
}

const SHOWN: &str = "[filtering]\nstrategy = \"prediction\"\n";

#[test]
fn invalid_arm_predictors_are_refused_with_their_key() {
    let markov = with_predictors("e", &["[\"markov\"]"]);
    let five = [
        "[\"markov\"]",
        "[\"server\"]",
        "[\"frequency\"]",
        "[\"markov\", \"server\"]",
        "[\"recency\"]",
    ];
    for (text, refusal) in [
        (
            format!(
                "{SHOWN}{}",
                with_predictors("e", &["[\"markov\", \"mixture\"]"])
            ),
            "e.arms.a0.predictors[1]: unknown variant `mixture`, expected one of `mix`,",
        ),
        (
            format!("{SHOWN}{}", with_predictors("e", &["[]"])),
            "e.arms.a0.predictors: expected the name of a predictor",
        ),
        (
            format!("{SHOWN}{}", with_predictors("e", &["[\"text\", \"text\"]"])),
            "e.arms.a0.predictors: text is named twice",
        ),
        (
            format!("{SHOWN}{}", with_predictors("e", &["[\"text\", \"mix\"]"])),
            "e.arms.a0.predictors: mix combines several predictors, so it must be the only name",
        ),
        (
            format!("{SHOWN}{}", with_predictors("e", &five)),
            "e.arms.a4.predictors: the arms have more than 4 predictors in addition",
        ),
        (
            format!("{SHOWN}[prediction]\nenabled = false\n{markov}"),
            "e.arms.a0.predictors: predictors need prediction.enabled = true",
        ),
        (
            markov.clone(),
            "e.arms.a0.predictors: predictors need filtering.strategy",
        ),
        (
            format!(
                "[filtering]\nstrategy = \"denylist\"\ndeny = [\"a*\"]\n[search]\nenabled = false\n{markov}"
            ),
            "e.arms.a0.predictors: predictors need filtering.strategy",
        ),
        (
            format!("{SHOWN}{}", markov.replace("coverage", "success")),
            "e.metric: arms with predictors need metric = \"call_success\" or \"coverage\"",
        ),
        (
            format!("{SHOWN}{markov}{}", with_predictors("f", &["[\"server\"]"])),
            "f.arms: experiment e is running and also has arms with predictors",
        ),
    ] {
        let refused = scene("riglm.toml", &text, &[]).refusal();
        let expected = format!("riglm.toml: recommend.experiments.{refusal}");
        assert!(refused.starts_with(&expected), "{refused}\n{expected}");
    }
}

#[test]
fn equal_and_default_predictors_do_not_count_towards_limits() {
    let sets = [
        "[\"markov\"]",
        "[\"server\"]",
        "[\"frequency\"]",
        "[\"markov\", \"server\"]",
        "[\"server\", \"markov\"]",
        "[\"mix\"]",
    ];
    let text = format!("{SHOWN}{}", with_predictors("e", &sets));
    let config = scene("riglm.toml", &text, &[]).load().unwrap();
    let of = |arm: &str| config.experiments[0].arm(arm).unwrap().predictors;
    assert_eq!(of("control"), None);
    assert!(of("a3").is_some() && of("a3") == of("a4"));
    assert_eq!(of("a5"), Some(config.prediction.predictors()));
    let searched = "[filtering]\nstrategy = \"denylist\"\ndeny = [\"a*\"]\n";
    let text = format!("{searched}{}", with_predictors("e", &sets[..1]));
    assert!(scene("riglm.toml", &text, &[]).load().is_ok());
}

#[test]
fn shell_syntax_in_commands_is_refused_with_the_reason() {
    for (command, reason) in [
        ("~/bin/server", "~ is special in a shell"),
        ("A=b server", "A=... sets a variable in a shell"),
        ("server | tee log", "| is special in a shell"),
        ("server 'x", "the quote ' is not closed"),
    ] {
        let refusal = toml_refusal(&format!("upstream.command = \"{command}\"\n"));
        let begin = format!("riglm.toml: upstream.command: {reason}");
        assert!(refusal.starts_with(&begin), "{command}: {refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
    let refusal = toml_refusal("[upstream]\ncommand = \"~/x\"\nargs = []\n");
    assert!(refusal.contains("~ is special"), "{refusal}");
}

#[test]
fn all_configuration_errors_are_listed_together() {
    let text = "[listen]\naddress = \"no.such.name.invalid:1\"\n\
                [upstreams.a]\ncommand = \"x | y\"\n\
                [upstreams.b]\nurl = \"http://${NONE}/\"\n\
                [upstreams.c]\nargs = [\"x\"]\n\
                [auth.keys]\nann = \"${NO_KEY}\"\n\
                [limits]\nsessions = \"many\"\n";
    let told = toml_refusal(text);
    for wrong in [
        "riglm.toml: listen.address: the name in no.such.name.invalid:1 cannot be resolved",
        "riglm.toml: upstreams.a.command: | is special in a shell",
        "riglm.toml: upstreams.b.url: environment variable NONE is not set",
        "riglm.toml: upstreams.c.args: arguments need a command",
        "riglm.toml: auth.keys.ann: environment variable NO_KEY is not set",
        "riglm.toml: limits.sessions: invalid type",
    ] {
        assert_eq!(told.matches(wrong).count(), 1, "{wrong}: {told}");
    }
    assert_eq!(told.lines().count(), 6, "{told}");
}

#[test]
fn unset_variables_in_keys_give_a_single_error() {
    let text = "[listen]\naddress = \"0.0.0.0:1\"\n[auth.keys]\nann = \"${NO_KEY}\"\n";
    assert_eq!(
        toml_refusal(text),
        "riglm.toml: auth.keys.ann: environment variable NO_KEY is not set"
    );
}

#[test]
fn invalid_values_are_shown_as_written() {
    let text = "[upstream]\ncommand = \"x | y ${NONE}\"\n[logging]\nformat = \"json\"\n";
    let scene = scene("riglm.toml", text, &[]);
    let shown = crate::config::show(&Overrides::default(), &scene.surroundings).unwrap();
    let command = shown.iter().find(|shown| shown.key == "upstream.command");
    assert_eq!(command.unwrap().value, "x | y ${NONE}");
    let source = ConfigSource::new(Overrides::default(), scene.surroundings.clone());
    assert_eq!(source.log_format(), crate::config::LogFormat::Json);
}

#[test]
fn an_unreadable_lexicon_is_refused_with_its_path() {
    let config = toml("[recommend]\nlexicon = \"/nowhere/words.txt\"\n").unwrap();
    let error = config.lexicon().unwrap_err().to_string();
    assert!(
        error.starts_with("recommend.lexicon: /nowhere/words.txt: "),
        "{error}"
    );
}

#[test]
fn weights_of_recommendations_are_refused_with_their_key() {
    let weights = "success_rate = 0.2\npopularity = 0.1\nperformance = 0.1\nuser_rating = 0.1\n";
    let refusal = |relevance: &str| {
        toml_refusal(&format!(
            "[recommend.weights]\nrelevance = {relevance}\n{weights}"
        ))
    };
    let error = refusal("0.6");
    assert!(
        error.contains("recommend.weights") && error.contains("sum to"),
        "{error}"
    );
    let error = refusal("-0.5");
    assert!(
        error.contains("recommend.weights") && error.contains("relevance"),
        "{error}"
    );
}

#[test]
fn unset_weights_of_intents_keep_their_defaults() {
    let config = toml("[intent]\nprompts = 0\n").unwrap();
    let expected = IntentWeights {
        prompts: 0.0,
        ..IntentWeights::default()
    };
    assert_eq!(config.intent, expected);
}
