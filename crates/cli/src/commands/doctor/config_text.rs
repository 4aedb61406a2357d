//! The configuration file as it is written: references to variables are not replaced.

use std::path::{Path, PathBuf};

use config::{File, FileFormat, Map, Source as _, Value, ValueKind};
use riglm_domain::privacy::redaction::is_credential;
use url::Url;

/// The sections that are loaded one by one if the whole cannot be loaded. An address for other
/// machines needs keys, so `listen` follows `auth`.
const SECTIONS: [&str; 6] = [
    "data_dir", "auth", "storage", "control", "listen", "upstream",
];
/// Keys of riglm whose values are secrets.
const SECRET_KEYS: [&str; 4] = ["api_key", "client_secret", "key", "token"];
/// Last words of the names of secrets. An import moves more than these, because a reference does no
/// harm; a warning must be right.
const SECRET_WORDS: [&str; 12] = [
    "auth",
    "authorization",
    "cookie",
    "credential",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "pat",
    "pw",
    "pwd",
    "token",
];
/// Parts of the names of secrets.
const SECRET_PARTS: [&str; 3] = ["apikey", "password", "secret"];
/// Values that are settings, whatever their names suggest.
const SETTINGS: [&str; 8] = ["true", "false", "yes", "no", "on", "off", "none", "auto"];

/// The text of a configuration file. Its values may be secrets.
pub(super) struct ConfigText {
    path: PathBuf,
    text: String,
    /// `None` if the text is malformed.
    values: Option<Map<String, Value>>,
}

/// A part of a configuration that can be loaded without the others.
pub(super) struct ConfigPart<'a> {
    /// The parts of its key.
    pub(super) path: Vec<String>,
    pub(super) value: &'a Value,
}

impl ConfigText {
    /// Reads a file; returns `None` if it cannot be read.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let is_toml = path.extension().is_some_and(|ending| ending == "toml");
        let format = if is_toml {
            FileFormat::Toml
        } else {
            FileFormat::Yaml
        };
        let body = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let values = File::from_str(body, format).collect().ok();
        Some(Self {
            path: path.to_owned(),
            text,
            values,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_well_formed(&self) -> bool {
        self.values.is_some()
    }

    pub(super) fn refers_to(&self, variable: &str) -> bool {
        let is_in = |reference: String| self.text.contains(&reference);
        is_in(format!("${{{variable}}}")) || is_in(format!("${{{variable}:-"))
    }

    /// Returns the keys of secrets that are in the file itself, sorted; each key by its parts.
    pub(super) fn literal_secrets(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for (key, value) in self.values.iter().flatten() {
            collect_secrets(std::slice::from_ref(key), value, &mut found);
        }
        found.sort();
        found
    }

    /// Returns the keys of the upstreams that are switched off, sorted.
    pub(super) fn disabled_upstreams(&self) -> Vec<String> {
        let Some(values) = &self.values else {
            return Vec::new();
        };
        let mut keys = Vec::new();
        if values.get("upstream").is_some_and(is_off) {
            keys.push("upstream".to_owned());
        }
        for (name, section) in named_upstreams(values) {
            if is_off(section) {
                keys.push(format!("upstreams.{name}"));
            }
        }
        keys
    }

    /// Returns the parts that the checks need, those first that others depend on.
    pub(super) fn parts(&self) -> Vec<ConfigPart<'_>> {
        let Some(values) = &self.values else {
            return Vec::new();
        };
        let sections = SECTIONS.iter().filter_map(|section| {
            let value = values.get(*section)?;
            let path = vec![(*section).to_owned()];
            Some(ConfigPart { path, value })
        });
        let upstreams = named_upstreams(values).into_iter();
        let upstreams = upstreams.map(|(name, value)| ConfigPart {
            path: vec!["upstreams".to_owned(), name.clone()],
            value,
        });
        sections.chain(upstreams).collect()
    }
}

/// Returns the sections `upstreams.NAME`, sorted by their names.
fn named_upstreams(values: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let Some(ValueKind::Table(named)) = values.get("upstreams").map(|value| &value.kind) else {
        return Vec::new();
    };
    let mut sections: Vec<(&String, &Value)> = named.iter().collect();
    sections.sort_by_key(|(name, _)| *name);
    sections
}

/// Returns whether the section of an upstream switches it off.
fn is_off(section: &Value) -> bool {
    let ValueKind::Table(section) = &section.kind else {
        return false;
    };
    section
        .get("enabled")
        .is_some_and(|enabled| match &enabled.kind {
            ValueKind::Boolean(is_on) => !is_on,
            ValueKind::String(text) => text == "false",
            _ => false,
        })
}

fn collect_secrets(path: &[String], value: &Value, found: &mut Vec<Vec<String>>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (key, value) in table {
                let path = [path, std::slice::from_ref(key)].concat();
                collect_secrets(&path, value, found);
            }
        }
        ValueKind::Array(items) => {
            let is_secret = |item: &Value| match &item.kind {
                ValueKind::String(text) => is_literal_credential(text),
                _ => false,
            };
            if items.iter().any(is_secret) {
                found.push(path.to_vec());
            }
        }
        ValueKind::String(text) if is_literal_secret(path, text) => found.push(path.to_vec()),
        _ => {}
    }
}

/// Returns whether the value of a key is a secret that is written there.
fn is_literal_secret(path: &[String], text: &str) -> bool {
    // A digest tells nobody the key.
    if text.is_empty() || text.contains("${") || text.starts_with("sha256:") {
        return false;
    }
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let is_in_secret_place = match parts[..] {
        ["auth", "keys", _] => true,
        [.., "env" | "headers", name] => names_secret(name) && may_be_secret(text),
        [.., last] => SECRET_KEYS.contains(&last),
        [] => false,
    };
    is_in_secret_place || is_literal_credential(text) || has_secret_parameter(text)
}

fn is_literal_credential(text: &str) -> bool {
    !text.contains("${") && is_credential(text)
}

/// Returns whether a text is a URL with a secret in its query.
fn has_secret_parameter(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        let mut parameters = url.query_pairs();
        parameters.any(|(name, value)| names_secret(&name) && may_be_secret(&value))
    })
}

/// Returns whether a name, such as `GITHUB_TOKEN` or `X-Api-Key`, suggests a secret.
fn names_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let last = lower.rsplit(['-', '_', '.']).next().unwrap_or_default();
    SECRET_WORDS.contains(&last) || SECRET_PARTS.iter().any(|part| lower.contains(part))
}

/// Returns whether a value can be a secret: numbers, switches, paths and addresses are none.
fn may_be_secret(text: &str) -> bool {
    let is_setting = SETTINGS.contains(&text.to_ascii_lowercase().as_str());
    let is_place = text.starts_with(['/', '~', '.']) || text.contains("://");
    !text.is_empty() && !is_setting && !is_place && text.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(toml: &str) -> ConfigText {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("riglm.toml");
        std::fs::write(&path, toml).unwrap();
        ConfigText::read(&path).unwrap()
    }

    #[test]
    fn secrets_in_the_file_are_found_and_settings_are_not() {
        let text = text(
            r#"
            [auth.keys]
            ann = "plain-key-of-ann"
            bob = "sha256:71c4"
            [recording]
            tokens = "counted"
            [upstreams.a]
            command = ["a", "ghp_0123456789abcdef"]
            env = { A_TOKEN = "x1", B_KEY = "${B}", MAX_TOKENS = "9", KEY = "/k", TOKEN_TYPE = "b" }
            [upstreams.b]
            url = "https://h.example/mcp?api_key=x1&page=a"
            headers = { Authorization = "Bearer ${B:-x}", X-Api-Key = "x1", Accept = "a" }
            credentials = { type = "bearer", token = "x1" }
            "#,
        );
        let keys: Vec<String> = (text.literal_secrets().iter())
            .map(|key| key.join("."))
            .collect();
        let expected = [
            "auth.keys.ann",
            "upstreams.a.command",
            "upstreams.a.env.A_TOKEN",
            "upstreams.b.credentials.token",
            "upstreams.b.headers.X-Api-Key",
            "upstreams.b.url",
        ];
        assert_eq!(keys, expected);
        assert!(text.refers_to("B") && !text.refers_to("A"));
    }

    #[test]
    fn parts_are_in_the_order_of_their_dependence() {
        let text = text(
            "data_dir = \"d\"\n[upstreams.b]\nenabled = false\n[upstreams.a]\nurl = \"u\"\n\
             [listen]\naddress = \":1\"\n[search]\nenabled = true\n[auth.keys]\n",
        );
        let paths: Vec<String> = (text.parts().iter())
            .map(|part| part.path.join("."))
            .collect();
        let expected = ["data_dir", "auth", "listen", "upstreams.a", "upstreams.b"];
        assert_eq!(paths, expected);
        assert_eq!(text.disabled_upstreams(), ["upstreams.b"]);
    }
}
