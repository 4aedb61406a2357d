//! The environment layer: `RIGLM__SECTION__KEY=value`.
//!
//! In names of sections and keys, upper and lower case do not matter. Names that the operator
//! chooses (of upstreams, headers, keys) have the case of the file. Without a match in the file, a
//! name in capitals is converted to lower case. Variables for the process of an upstream keep their
//! case.

use std::collections::{BTreeMap, BTreeSet};

use config::{Map, Value, ValueKind};

use super::interpolation::{InterpolationError, interpolate, unset_variables};
use super::{ConfigError, WrongValue};

/// The prefix of configuration variables.
const PREFIX: &str = "RIGLM__";

/// The prefix of origins in this layer.
pub(super) const ORIGIN: &str = "environment variable ";

/// The separator of key parts in the name of a variable.
const SEPARATOR: &str = "__";

/// The environment variables.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl Environment {
    /// Returns the variables of this process, without those that are not Unicode.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::NotUnicode`] if a variable of riglm is not Unicode.
    pub fn of_process() -> Result<Self, ConfigError> {
        let mut variables = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let variable = name.to_string_lossy().into_owned();
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => {
                    variables.insert(name, value);
                }
                _ if variable.starts_with("RIGLM_") => {
                    return Err(ConfigError::NotUnicode { variable });
                }
                _ => {}
            }
        }
        Ok(Self(variables))
    }

    /// Returns the value of a variable, or `None` if it is unset or empty.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns a text with its references replaced.
    ///
    /// # Errors
    ///
    /// Returns [`InterpolationError`] for the first reference without a value.
    pub(crate) fn expand(&self, text: &str) -> Result<String, InterpolationError> {
        interpolate(text, self)
    }

    /// Returns all variables without a value that a text refers to.
    pub(crate) fn unset_in(&self, text: &str) -> BTreeSet<String> {
        unset_variables(text, self)
    }

    pub(crate) fn all(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Returns these variables, and `others` for those that are unset or empty.
    pub(crate) fn with_others(&self, others: BTreeMap<String, String>) -> Self {
        let mut all = others;
        let own = self.0.iter().filter(|(_, value)| !value.is_empty());
        all.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        Self(all)
    }

    /// Returns the configuration in the variables, and the errors of variables that set both a key
    /// and a part of it. `file` determines the case of names.
    pub(super) fn layer(&self, file: &Map<String, Value>) -> (Map<String, Value>, Vec<WrongValue>) {
        let mut layer = Map::new();
        let mut wrong = Vec::new();
        for (name, value) in &self.0 {
            let Some(key) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let origin = format!("{ORIGIN}{name}");
            let path = key_path(key, file);
            let value = Value::new(Some(&origin), parse_value(value, &origin));
            if !insert(&mut layer, &path, value) {
                let error = ConfigError::Value {
                    origin,
                    key: path.join("."),
                    reason: "another variable sets a part of this key".into(),
                };
                wrong.push(WrongValue { path, error });
            }
        }
        (layer, wrong)
    }
}

/// Parses the value of a variable: a JSON array becomes a list, anything else is text. Text is
/// converted to a number or boolean where the key expects one.
fn parse_value(text: &str, origin: &String) -> ValueKind {
    let items = text
        .starts_with('[')
        .then(|| serde_json::from_str::<Vec<serde_json::Value>>(text).ok())
        .flatten();
    let Some(items) = items else {
        return ValueKind::String(text.into());
    };
    let text = |item: serde_json::Value| match item {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    ValueKind::Array(
        items
            .into_iter()
            .map(|item| Value::new(Some(origin), text(item)))
            .collect(),
    )
}

/// Returns the path of the key that the rest of a variable's name stands for.
fn key_path(name: &str, file: &Map<String, Value>) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    let mut known = Some(file);
    let mut rest = Some(name);
    while let Some(text) = rest {
        if is_process_environment(&path) {
            // The name of a process variable may contain the separator.
            path.push(text.into());
            break;
        }
        let (part, after) = match text.split_once(SEPARATOR) {
            Some((part, after)) => (part, Some(after)),
            None => (text, None),
        };
        let existing = known
            .into_iter()
            .flat_map(Map::keys)
            .find(|key| key.eq_ignore_ascii_case(part))
            .cloned();
        let is_chosen_name = has_chosen_names(&path);
        let is_capital = !part.bytes().any(|byte| byte.is_ascii_lowercase());
        let key = match existing {
            Some(existing) => existing,
            None if is_chosen_name && !is_capital => part.into(),
            None => part.to_ascii_lowercase(),
        };
        known = known
            .and_then(|table| table.get(&key))
            .and_then(|value| match &value.kind {
                ValueKind::Table(table) => Some(table),
                _ => None,
            });
        path.push(key);
        rest = after;
    }
    path
}

fn parts(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Returns whether the keys under this path are variables for the process of an upstream.
fn is_process_environment(path: &[String]) -> bool {
    matches!(
        parts(path).as_slice(),
        ["upstream", "env"] | ["upstreams", _, "env"]
    )
}

/// Returns whether the keys under this path are names that the operator chooses.
fn has_chosen_names(path: &[String]) -> bool {
    matches!(
        parts(path).as_slice(),
        ["upstreams"] | ["upstream", "headers"] | ["upstreams", _, "headers"] | ["auth", "keys"]
    )
}

/// Sets `path` to `value`. Returns false if a part of the path has a value already, or if the whole
/// path has parts.
fn insert(table: &mut Map<String, Value>, path: &[String], value: Value) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    if rest.is_empty() {
        return table.insert(first.clone(), value).is_none();
    }
    let entry = table
        .entry(first.clone())
        .or_insert_with(|| Value::new(None, ValueKind::Table(Map::new())));
    match &mut entry.kind {
        ValueKind::Table(inner) => insert(inner, rest, value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(pairs: &[(&str, Value)]) -> Map<String, Value> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect()
    }

    fn table_value(key: &str, inner: Map<String, Value>) -> Map<String, Value> {
        table(&[(key, Value::new(None, ValueKind::Table(inner)))])
    }

    #[test]
    fn keys_are_compared_without_case_and_chosen_names_keep_their_spelling() {
        let file = table_value(
            "upstreams",
            table_value(
                "GitHub",
                table_value("headers", table(&[("X-Api", "a".into())])),
            ),
        );
        let path = |name: &str| key_path(name, &file).join("/");
        assert_eq!(path("FILTERING__MIN_TOOLS"), "filtering/min_tools");
        assert_eq!(
            path("UPSTREAMS__GITHUB__HEADERS__X-API"),
            "upstreams/GitHub/headers/X-Api"
        );
        assert_eq!(path("UPSTREAMS__OTHER__URL"), "upstreams/other/url");
        assert_eq!(path("UPSTREAMS__Mixed__URL"), "upstreams/Mixed/url");
        assert_eq!(path("UPSTREAM__ENV__API__Key"), "upstream/env/API__Key");
        assert_eq!(path("AUTH__KEYS__ALICE"), "auth/keys/alice");
    }

    #[test]
    fn a_json_array_is_a_list_and_an_address_is_not() {
        let origin = String::from("environment variable X");
        let items = |text: &str| match parse_value(text, &origin) {
            ValueKind::Array(items) => items.iter().map(ToString::to_string).collect(),
            other => vec![format!("text {other}")],
        };
        assert_eq!(items(r#"["get_*", 7]"#), ["get_*", "7"]);
        assert_eq!(items("[::1]:80"), ["text [::1]:80"]);
        assert_eq!(items("60"), ["text 60"]);
    }

    #[test]
    fn variables_for_a_key_and_its_subkey_conflict() {
        let environment =
            Environment::from_iter([("RIGLM__UPSTREAM", "x"), ("RIGLM__UPSTREAM__URL", "y")]);
        let (_, wrong) = environment.layer(&Map::new());
        assert_eq!(
            wrong[0].error.to_string(),
            "environment variable RIGLM__UPSTREAM__URL: upstream.url: another variable sets a part of this key"
        );
    }
}
