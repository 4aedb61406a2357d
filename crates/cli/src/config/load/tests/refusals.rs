//! What a wrong configuration is answered with.

use super::*;

#[test]
fn refusals_name_the_file_the_key_and_what_was_expected() {
    for (text, refusal) in [
        (
            "[filtering]\nstratgey = \"none\"\n",
            "riglm.toml: filtering.stratgey: unknown field `stratgey`, expected one of `enabled`, \
             `strategy`, `policy`, `min_tools`, `max_tools`, `token_budget`, `epoch`, `coverage`, \
             `gate_writes`, `pins`, `bans`, `allow`, `deny`, `clients`, `pools`, `costs`",
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
             number from 0 to 4294967295",
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
            "riglm.toml: profiles.few.max_tools: unknown field `max_tools`, expected `filtering`",
        ),
        (
            "[profiles.\"a b\".filtering]\nmax_tools = 3\n",
            "riglm.toml: profiles.a b: profile name \"a b\" must be 1 to 64 characters of letters, \
             digits, '-', '_' and '.', begin with a letter or digit, and have no '__'",
        ),
        (
            "[profiles.few]\n[profiles.Few]\n",
            "configuration: profiles.few: differs from profiles.Few in the case of letters alone",
        ),
        (
            "[[filtering.pools]]\nname = \"p\"\ntools = [\"*\"]\nprofile = \"work\"\n\
             [profiles.few]\n",
            "riglm.toml: filtering.pools[0].profile: there is no profile \"work\"; there are few",
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
fn what_the_store_cannot_use_is_refused() {
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
fn upstreams_that_do_not_fit_together_are_named() {
    for (text, refusal) in [
        (
            "[upstreams.git]\nurl = \"http://a\"\n[upstreams.Git]\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.git has the same name as upstreams.Git (riglm.toml); case and \
             the characters '.', '-' and '_' do not make names different",
        ),
        (
            "[upstreams.a-b]\nurl = \"http://a\"\n[upstreams.\"a.b\"]\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.a.b has the same name as upstreams.a-b (riglm.toml); case and \
             the characters '.', '-' and '_' do not make names different",
        ),
        (
            "[upstreams.Default]\nurl = \"http://a\"\n[upstream]\nurl = \"http://b\"\n",
            "riglm.toml: upstreams.Default has the same name as upstream (riglm.toml); case and \
             the characters '.', '-' and '_' do not make names different",
        ),
        (
            "[upstreams.a__b]\nurl = \"http://a\"\n",
            "riglm.toml: upstreams.a__b: upstream name \"a__b\" must not contain __, which \
             separates the name of an upstream from that of a tool",
        ),
        (
            "[upstreams.a_]\nurl = \"http://a\"\n",
            "riglm.toml: upstreams.a_: upstream name \"a_\" must not end with _ or ., which could \
             be taken for a part of the name of a tool",
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
fn no_data_directory_is_an_error_that_says_what_to_do() {
    let error = load(&Overrides::default(), &Surroundings::default()).unwrap_err();
    assert!(error.to_string().contains("--data-dir"));
}
