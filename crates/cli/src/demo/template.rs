//! Templates of the answers: texts with the values of arguments and of fields.
//!
//! `${name}` is an argument of the call, and `${.name}` a field of the item. `${a|b}` is the first of
//! them that there is. Names of filters follow after colons.

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::Value;

/// The values that a template may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    arguments: &'a JsonObject,
    item: &'a JsonObject,
}

impl<'a> Scope<'a> {
    pub(super) fn new(arguments: &'a JsonObject, item: &'a JsonObject) -> Self {
        Self { arguments, item }
    }

    /// Returns a template with its values; `None` if there is no such value or filter.
    pub(super) fn fill(self, template: &str) -> Option<String> {
        let mut parts = template.split("${");
        let mut filled = parts.next()?.to_owned();
        for part in parts {
            let (place, rest) = part.split_once('}')?;
            let mut words = place.split(':');
            let value = words.next()?.split('|').find_map(|name| self.value(name))?;
            let value = words.try_fold(text_of(value), |text, name| self.filter(name, &text))?;
            filled.push_str(&value);
            filled.push_str(rest);
        }
        Some(filled)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        name.strip_prefix('.')
            .map_or_else(|| self.arguments.get(name), |field| self.item.get(field))
    }

    /// Returns a text as a filter changes or counts it; `None` if there is no such filter.
    fn filter(self, name: &str, text: &str) -> Option<String> {
        let argument = |name| self.arguments.get(name).map(text_of).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().collect();
        match name {
            "bytes" => return Some(text.len().to_string()),
            "characters" => return Some(text.chars().count().to_string()),
            "words" => return Some(text.split_whitespace().count().to_string()),
            "lines" => return Some(lines.len().to_string()),
            "upper" => return Some(text.to_uppercase()),
            "lower" => return Some(text.to_lowercase()),
            "replaced" => return Some(text.replace(&argument("find"), &argument("replacement"))),
            "slug" => {
                let runs = text.split(|character: char| !character.is_alphanumeric());
                let runs: Vec<&str> = runs.filter(|run| !run.is_empty()).collect();
                return Some(runs.join("-").to_lowercase());
            }
            // Another line can follow.
            "ended" if text.is_empty() || text.ends_with('\n') => return Some(text.to_owned()),
            "ended" => return Some(format!("{text}\n")),
            "head" => match argument("max_lines").parse() {
                Ok(limit) => lines.truncate(limit),
                Err(_) => return Some(text.to_owned()),
            },
            "matching" => {
                let query = argument("query").to_lowercase();
                lines.retain(|line| line.to_lowercase().contains(&query));
            }
            "sorted" => lines.sort_by_key(|line| line.to_lowercase()),
            "reversed" => lines.reverse(),
            "unique" => {
                let mut known = BTreeSet::new();
                lines.retain(|line| known.insert(*line));
            }
            _ => return None,
        }
        Some(lines.join("\n"))
    }
}

/// Returns a value as a text: the items of a list with commas.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
