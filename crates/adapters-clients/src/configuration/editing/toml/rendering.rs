//! Text of new entries in TOML.

use serde_json::Value;

use super::EntryPlace;
use crate::configuration::client::MapShape;

/// Returns the lines of an entry with a header of its own.
pub(super) fn block(place: EntryPlace<'_>, value: &Value) -> Vec<String> {
    let header = match place.shape {
        MapShape::Map => format!("[{}.{}]", key_text(place.container), key_text(place.name)),
        MapShape::List => format!("[[{}]]", key_text(place.container)),
    };
    let members = value.as_object().into_iter().flatten();
    let lines = members.map(|(key, value)| format!("{} = {}", key_text(key), inline(value)));
    std::iter::once(header).chain(lines).collect()
}

/// Returns a value in one line.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| format!("{} = {}", key_text(key), inline(value)));
            let members: Vec<String> = members.collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(inline).collect();
            format!("[{}]", values.join(", "))
        }
        Value::String(text) => string_text(text),
        value => value.to_string(),
    }
}

/// Returns a key, in quotes if needed.
pub(super) fn key_text(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !key.is_empty() && key.chars().all(is_bare) {
        key.to_owned()
    } else {
        string_text(key)
    }
}

/// Returns a text in quotes. JSON escapes are valid in TOML, except for the character DEL.
fn string_text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}
