//! The values that a document must have after a change.

use serde_json::{Map, Value};

use super::{EditError, INPUTS};
use crate::configuration::client::{Client, MapShape};
use crate::configuration::document::{self, DocumentFormat};
use crate::configuration::entry::{ComposedEntry, INPUT_ID};

/// Returns the value of an entry.
pub(super) fn value_of<'a>(document: &'a Value, client: &Client, name: &str) -> Option<&'a Value> {
    let container = document.get(client.map.key)?;
    match client.map.shape {
        MapShape::Map => container.get(name),
        MapShape::List => {
            let mut entries = container.as_array()?.iter();
            entries.find(|entry| entry.get("name").is_some_and(|it| it == name))
        }
    }
}

/// Returns whether a document has the input that asks for the key.
pub(super) fn has_input(document: &Value) -> bool {
    let inputs = document.get(INPUTS).and_then(Value::as_array);
    let mut inputs = inputs.into_iter().flatten();
    inputs.any(|input| input.get("id").is_some_and(|id| id == INPUT_ID))
}

/// Returns the value that a document must have after the insertion of the entry for riglm.
pub(super) fn with_composed(
    old: Value,
    client: &Client,
    name: &str,
    composed: &ComposedEntry,
) -> Value {
    let mut document = with_entry(old, client, name, &composed.value);
    if let Some(input) = &composed.input
        && !has_input(&document)
    {
        match document.get_mut(INPUTS).and_then(Value::as_array_mut) {
            Some(inputs) => inputs.push(input.clone()),
            None => document[INPUTS] = Value::Array(vec![input.clone()]),
        }
    }
    document
}

/// Returns the value that a document must have after the insertion of an entry.
pub(super) fn with_entry(old: Value, client: &Client, name: &str, value: &Value) -> Value {
    let mut document = match old {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    let container = document.entry(client.map.key).or_insert(Value::Null);
    match client.map.shape {
        MapShape::Map => {
            if !container.is_object() {
                *container = Value::Object(Map::new());
            }
            if let Some(members) = container.as_object_mut() {
                members.insert(name.to_owned(), value.clone());
            }
        }
        MapShape::List => {
            if !container.is_array() {
                *container = Value::Array(Vec::new());
            }
            if let Some(entries) = container.as_array_mut() {
                let is_it = |entry: &&mut Value| entry.get("name").is_some_and(|it| it == name);
                match entries.iter_mut().find(is_it) {
                    Some(entry) => *entry = value.clone(),
                    None => entries.push(value.clone()),
                }
            }
        }
    }
    Value::Object(document)
}

/// Removes an entry from a value.
pub(super) fn remove_value(document: &mut Value, client: &Client, name: &str) {
    match document.get_mut(client.map.key) {
        Some(Value::Object(members)) => {
            members.shift_remove(name);
        }
        Some(Value::Array(entries)) => {
            entries.retain(|entry| entry.get("name").is_none_or(|it| it != name));
        }
        _ => {}
    }
}

/// Removes the input that asks for the key from a value.
pub(super) fn remove_input(document: &mut Value) {
    if let Some(Value::Array(inputs)) = document.get_mut(INPUTS) {
        inputs.retain(|input| input.get("id").is_none_or(|id| id != INPUT_ID));
    }
}

/// Checks that a text has the expected values. Empty collections count as absent.
pub(super) fn check(text: &str, format: DocumentFormat, expected: &Value) -> Result<(), EditError> {
    let contents = document::read(text, format).map_err(|_| EditError::Unsafe)?;
    if without_empty(contents.value) == without_empty(expected.clone()) {
        Ok(())
    } else {
        Err(EditError::Unsafe)
    }
}

/// Returns a document without members that are empty, and null without members.
fn without_empty(document: Value) -> Value {
    let Value::Object(members) = document else {
        return document;
    };
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    };
    let rest: Map<String, Value> = members
        .into_iter()
        .filter(|(_, value)| !is_empty(value))
        .collect();
    if rest.is_empty() {
        Value::Null
    } else {
        Value::Object(rest)
    }
}
