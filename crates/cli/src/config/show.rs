//! The printable configuration: every key with its value and origin.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use config::{Map, Source, Value, ValueKind};

use riglm_domain::privacy::redaction::{REDACTED, redact_json};

use super::tree::{is_database_url, is_secret, join};
use super::tuning::dotted_key;
use super::{ConfigError, ConfigSource, Overrides, ProcessEnv, TuningUse, environment, overrides};

/// The example file, which has every key with its default.
const EXAMPLE: &str = include_str!("../../../../config/riglm.example.toml");

/// A key with its value and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The path of the key, with dots.
    pub key: String,
    /// The value as JSON, which equals TOML for text, numbers, booleans and lists.
    pub value: serde_json::Value,
    /// The file, the environment variable, the command line, or `default`.
    pub origin: String,
    /// The parts of the key. They are kept because the name of an upstream may contain dots.
    pub(super) parts: Vec<String>,
}

impl ConfigEntry {
    /// Returns whether the environment or the command line sets the key.
    pub(super) fn is_set_above_tuning(&self) -> bool {
        self.origin == overrides::ORIGIN || self.origin.starts_with(environment::ORIGIN)
    }
}

/// Returns every key with a value, sorted. References to variables appear as written; other values
/// that may be secret are redacted.
///
/// # Errors
///
/// Returns [`ConfigError`] if a layer cannot be read. Values are not validated here.
pub fn show(
    overrides: &Overrides,
    surroundings: &ProcessEnv,
) -> Result<Vec<ConfigEntry>, ConfigError> {
    let source = ConfigSource::new(overrides.clone(), surroundings.clone());
    match source.load(TuningUse::IfSound) {
        Ok(loaded) => Ok(loaded.shown),
        // An invalid configuration is shown as well, because that helps to find the error.
        Err(_) => Ok(entries_of(&source.as_written()?)),
    }
}

/// Returns every key of these values as written, and the defaults of all other keys, sorted.
pub(super) fn entries_of(tree: &Map<String, Value>) -> Vec<ConfigEntry> {
    let mut shown = Vec::new();
    collect(&mut shown, &[], tree);
    let mut defaults = Vec::new();
    collect(&mut defaults, &[], example());
    let of_upstreams = upstream_defaults(&shown, &defaults);
    defaults.retain(|default| default.parts[0] != "upstream");
    defaults.extend(of_upstreams);
    let set: BTreeSet<&[String]> = shown.iter().map(|set| set.parts.as_slice()).collect();
    defaults.retain(|default| !set.contains(default.parts.as_slice()));
    shown.append(&mut defaults);
    shown.sort_by(|a, b| a.key.cmp(&b.key));
    shown
}

/// Returns the defaults of every configured upstream.
fn upstream_defaults(shown: &[ConfigEntry], defaults: &[ConfigEntry]) -> Vec<ConfigEntry> {
    let sections: BTreeSet<&[String]> = shown
        .iter()
        .filter_map(|set| upstream_section(&set.parts))
        .collect();
    let of = |section: &[String]| {
        let keys = defaults.iter().filter_map(|default| {
            let (first, rest) = default.parts.split_first()?;
            // The example needs a URL, but it is not a default.
            (first == "upstream" && rest != ["url"]).then(|| ConfigEntry {
                key: join(&dotted_key(&texts(section)), &dotted_key(&texts(rest))),
                parts: [section, rest].concat(),
                ..default.clone()
            })
        });
        keys.collect::<Vec<_>>()
    };
    sections.into_iter().flat_map(of).collect()
}

/// Returns the part of a key that names its upstream.
fn upstream_section(parts: &[String]) -> Option<&[String]> {
    match parts.first()?.as_str() {
        "upstream" => parts.get(..1),
        "upstreams" => parts.get(..2),
        _ => None,
    }
}

/// Returns the values of the example file: every key with its default.
pub(super) fn example() -> &'static Map<String, Value> {
    static VALUES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        config::File::from_str(EXAMPLE, config::FileFormat::Toml)
            .collect()
            .expect("a test loads the example file")
    });
    &VALUES
}

fn texts(parts: &[String]) -> Vec<&str> {
    parts.iter().map(String::as_str).collect()
}

fn collect(shown: &mut Vec<ConfigEntry>, path: &[String], table: &Map<String, Value>) {
    for (part, value) in table {
        let mut path = path.to_vec();
        path.push(part.clone());
        if let ValueKind::Table(inner) = &value.kind {
            collect(shown, &path, inner);
            continue;
        }
        let parts = texts(&path);
        let value_shown = match &value.kind {
            ValueKind::Array(items) if parts.last() == Some(&"command") => arguments(items),
            ValueKind::String(text) if is_database_url(&parts) && !is_reference(text) => {
                database(text).unwrap_or_else(|| REDACTED.into()).into()
            }
            _ => display_value(value, is_secret(&parts)),
        };
        shown.push(ConfigEntry {
            value: value_shown,
            origin: value.origin().unwrap_or("default").into(),
            key: dotted_key(&parts),
            parts: path,
        });
    }
}

fn display_value(value: &Value, may_be_secret: bool) -> serde_json::Value {
    match &value.kind {
        ValueKind::Boolean(flag) => (*flag).into(),
        ValueKind::I64(number) => (*number).into(),
        ValueKind::U64(number) => (*number).into(),
        ValueKind::Float(number) => (*number).into(),
        ValueKind::Array(items) => items
            .iter()
            .map(|item| display_value(item, may_be_secret))
            .collect(),
        ValueKind::Table(table) => {
            let mut members: Vec<(&String, &Value)> = table.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let members = members.into_iter().map(|(key, value)| {
                let may_be_secret = may_be_secret || is_secret(&[key]);
                (key.clone(), display_value(value, may_be_secret))
            });
            serde_json::Value::Object(members.collect())
        }
        ValueKind::String(text) if is_reference(text) => text.as_str().into(),
        ValueKind::String(text) if may_be_secret || looks_secret("", text) => REDACTED.into(),
        ValueKind::String(text) => without_password(text).into(),
        other => other.to_string().into(),
    }
}

/// Returns a program and its arguments. Values of options that may be secret are redacted:
/// `--token VALUE`, `--token=VALUE`, `TOKEN=VALUE`.
fn arguments(items: &[Value]) -> serde_json::Value {
    let mut option = String::new();
    let mut shown = Vec::with_capacity(items.len());
    for item in items {
        let text = item.kind.to_string();
        shown.push(match text.split_once('=') {
            Some((name, value)) if !is_reference(value) && looks_secret(name, value) => {
                format!("{name}={REDACTED}")
            }
            None if !is_reference(&text) && looks_secret(&option, &text) => REDACTED.into(),
            _ => text.clone(),
        });
        let takes_a_value = text.starts_with('-') && !text.contains('=');
        option = if takes_a_value { text } else { String::new() };
    }
    shown.into()
}

/// Returns whether a value is a secret by the rules for stored arguments; `name` is the name of the
/// value.
fn looks_secret(name: &str, value: &str) -> bool {
    let member = serde_json::Map::from_iter([(name.to_owned(), value.into())]);
    let text = serde_json::Value::Object(member).to_string();
    // A URL is shown without its password instead of redacted as a whole.
    url::Url::parse(value).is_err() && redact_json(&text, usize::MAX) != text
}

/// Returns whether a text is a single reference to a variable.
fn is_reference(text: &str) -> bool {
    text.starts_with("${") && text.ends_with('}') && !text.contains(":-")
}

/// Returns the URL of a database without credentials and parameters; `None` if their place in the
/// URL is ambiguous.
fn database(text: &str) -> Option<String> {
    let url = url::Url::parse(text).ok()?;
    let is_database = matches!(url.scheme(), "postgres" | "postgresql");
    let n_signs = text.matches('@').count();
    // An unescaped @ in a password moves the rest of it to another part of the URL.
    let is_plain = n_signs == usize::from(has_user(&url)) && url.fragment().is_none();
    (is_database && url.has_host() && is_plain).then(|| without_password(text))
}

fn has_user(url: &url::Url) -> bool {
    url.password().is_some() || !url.username().is_empty()
}

/// Returns the text. If it is a URL, user, password and query are removed.
fn without_password(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return text.into();
    };
    let is_secret = has_user(&url) || url.query().is_some();
    if !is_secret {
        return text.into();
    }
    // Both fail only for URLs without a host, which have no user either.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    if url.query().is_some() {
        url.set_query(Some("redacted"));
    }
    url.into()
}

#[cfg(test)]
pub(super) fn every_key() -> Vec<Vec<String>> {
    let mut shown = Vec::new();
    collect(&mut shown, &[], example());
    shown.into_iter().map(|shown| shown.parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn entries(file: &str, variables: &[(&str, &str)]) -> Vec<(String, String, String)> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("riglm.toml"), file).unwrap();
        let surroundings = ProcessEnv {
            environment: variables.iter().copied().collect::<Environment>(),
            working_directory: directory.path().into(),
            ..ProcessEnv::default()
        };
        let prefix = format!("{}/", directory.path().display());
        show(&Overrides::default(), &surroundings)
            .unwrap()
            .into_iter()
            .map(|shown| {
                let origin = shown.origin.replace(&prefix, "");
                (shown.key, shown.value.to_string(), origin)
            })
            .collect()
    }

    fn line<'a>(lines: &'a [(String, String, String)], key: &str) -> (&'a str, &'a str) {
        let (_, value, origin) = lines.iter().find(|(name, ..)| name == key).unwrap();
        (value, origin)
    }

    #[test]
    fn every_key_is_shown_with_its_origin() {
        let lines = entries(
            "[limits]\nsessions = 7\n",
            &[("RIGLM__LOGGING__LEVEL", "debug")],
        );
        assert_eq!(line(&lines, "limits.sessions"), ("7", "riglm.toml"));
        assert_eq!(
            line(&lines, "logging.level"),
            (r#""debug""#, "environment variable RIGLM__LOGGING__LEVEL")
        );
        assert_eq!(line(&lines, "limits.in_flight"), ("4096", "default"));
        assert!(lines.iter().all(|(key, ..)| !key.starts_with("upstream")));
        assert!(lines.is_sorted());
    }

    #[test]
    fn every_upstream_is_shown_with_its_defaults() {
        let lines = entries(
            "[upstreams.a]\nurl = \"http://a\"\nisolation = \"shared\"\n\
             [upstreams.\"b.c\"]\ncommand = [\"b\"]\nenv = { \"X.Y\" = \"1\" }\n",
            &[],
        );
        let of = |name: &str| -> Vec<&str> {
            let lines = lines.iter().filter(|(key, ..)| key.starts_with(name));
            lines.map(|(key, ..)| &key[name.len()..]).collect()
        };
        let mut defaults = vec![
            "connect_timeout",
            "enabled",
            "health_check",
            "idle_timeout",
            "isolation",
            "max_connections",
            "max_message_bytes",
            "shutdown_grace",
            "spare",
            "start_timeout",
            "tool_changes",
            "unavailable",
        ];
        let mut with = |key| {
            let mut keys = defaults.clone();
            keys.extend(key);
            keys.sort_unstable();
            defaults.sort_unstable();
            keys
        };
        assert_eq!(of("upstreams.a."), with(vec!["url"]));
        assert_eq!(of("upstreams.b.c."), with(vec!["command", "env.X.Y"]));
        assert_eq!(line(&lines, "upstreams.a.isolation").0, r#""shared""#);
        assert_eq!(
            line(&lines, "upstreams.b.c.isolation").0,
            r#""per_session""#
        );
        assert_eq!(line(&lines, "naming"), (r#""prefix""#, "default"));
    }

    #[test]
    fn arguments_are_shown_without_the_values_of_secret_options() {
        let lines = entries(
            r#"
            upstream.command = ["env", "API_KEY=hunter2", "npx", "-y", "server", "--token", "hunter2",
                "--api-key=hunter2", "--root", "/srv", "--token", "${TOKEN}", "sk-hunter2hunter2"]
            "#,
            &[],
        );
        assert_eq!(
            line(&lines, "upstream.command").0,
            concat!(
                r#"["env","API_KEY=[redacted]","npx","-y","server","--token","[redacted]","#,
                r#""--api-key=[redacted]","--root","/srv","--token","${TOKEN}","[redacted]"]"#
            )
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let lines = entries(
            r#"
            [upstreams.Mine]
            url = "https://user:hunter2@host/mcp?key=hunter2"
            headers = { X-Key = "hunter2" }
            auth = { type = "bearer", token = "${TOKEN}" }
            [auth.keys]
            alice = "hunter2hunter2hunter2"
            bob = "${BOB:-hunter2hunter2}"
            "#,
            &[
                ("TOKEN", "hunter2"),
                ("RIGLM__UPSTREAMS__MINE__ENV__A", "hunter2"),
            ],
        );
        assert!(!format!("{lines:?}").contains("hunter2"), "{lines:?}");
        assert_eq!(
            line(&lines, "upstreams.Mine.url").0,
            r#""https://host/mcp?redacted""#
        );
        assert_eq!(line(&lines, "upstreams.Mine.auth.token").0, r#""${TOKEN}""#);
        assert_eq!(line(&lines, "auth.keys.alice").0, r#""[redacted]""#);
    }

    #[test]
    fn encoder_api_keys_are_not_shown() {
        let lines = entries(
            "[search.encoder]\nmodel = \"remote\"\n[search.encoder.remote]\n\
             url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\napi_key = \"hunter2\"\n",
            &[],
        );
        assert!(
            line(&lines, "search.encoder.remote.api_key")
                .0
                .contains(REDACTED)
        );
        assert!(lines.iter().all(|(_, value, _)| !value.contains("hunter2")));
    }

    #[test]
    fn the_headers_of_the_receiver_of_traces_are_not_shown() {
        let lines = entries(
            "[telemetry.otlp]\nendpoint = \"https://h/?key=hunter2\"\n\
             headers = { X-Key = \"hunter2\", Authorization = \"${TOKEN}\" }\n",
            &[("TOKEN", "hunter2")],
        );
        let value = |key: &str| line(&lines, &format!("telemetry.otlp.{key}")).0;
        assert_eq!(value("headers.X-Key"), r#""[redacted]""#);
        assert_eq!(value("headers.Authorization"), r#""${TOKEN}""#);
        assert!(lines.iter().all(|(_, value, _)| !value.contains("hunter2")));
    }

    #[test]
    fn database_addresses_are_shown_without_secrets() {
        let value = |url: &str| {
            let file = format!("[storage.postgres]\nurl = {url:?}\n");
            let lines = entries(&file, &[]);
            assert!(!format!("{lines:?}").contains("hunter2"), "{lines:?}");
            line(&lines, "storage.postgres.url").0.to_owned()
        };
        assert_eq!(
            value("postgres://riglm:hunter2@db.example:5432/usage?password=hunter2"),
            r#""postgres://db.example:5432/usage?redacted""#
        );
        assert_eq!(
            value("postgresql://db.example/usage"),
            r#""postgresql://db.example/usage""#
        );
        assert_eq!(value("${DATABASE_URL}"), r#""${DATABASE_URL}""#);
        for url in [
            "hunter2",
            "hunter2:hunter2",
            "postgres:hunter2",
            "postgres://u:hunter2",
            "postgres://u:1/hunter2@h/x",
            "postgres://u:1#hunter2@h/x",
            "postgres://u:1?hunter2@h/x",
            "postgres://u:1@h:2/hunter2@h/x",
            "postgres://u:hun/ter2hunter2@h/x",
        ] {
            assert_eq!(value(url), r#""[redacted]""#, "{url}");
        }
        let lines = entries("[storage]\npostgres = \"postgres://u:hunter2@h\"\n", &[]);
        assert_eq!(line(&lines, "storage.postgres").0, r#""postgres://h""#);
    }
}
