//! The schema of the arguments of a tool, in the form that providers accept.
//!
//! A provider refuses a whole request if one of its tools has a schema that it does not accept. So
//! each schema becomes an object without alternatives at its top level. What is lost is told to the
//! model in the description, and the server still checks the arguments.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::names::argument_name;

/// Keywords that providers refuse at the top level of a schema.
const ALTERNATIVES: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "enum"];
/// The maximum length of the refused part of a schema that a description repeats, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;
/// Keywords whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// The form of schemas that a provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaForm {
    /// Names of arguments have few characters.
    PlainArguments,
    /// Each array says what it has.
    ArraysWithItems,
}

/// A schema for a provider.
#[derive(Debug)]
pub(super) struct ProviderSchema {
    /// The schema, whose type is `object`.
    pub(super) schema: Value,
    /// A sentence for the description, about rules that the schema does not have.
    pub(super) note: Option<String>,
    /// The names of arguments that differ: for the provider, and in the schema of the server.
    pub(super) originals: HashMap<String, String>,
}

/// Returns the schema of a tool, as JSON text, in the form of a provider.
pub(super) fn provider_schema(schema: Option<&str>, form: SchemaForm) -> ProviderSchema {
    let parsed = schema.and_then(|text| serde_json::from_str(text).ok());
    let mut object = match parsed {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    // Providers read schemas by their own draft.
    object.shift_remove("$schema");
    let refused: Map<String, Value> = ALTERNATIVES
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), object.shift_remove(*key)?)))
        .collect();
    object.insert("type".into(), json!("object"));
    if !object.get("properties").is_some_and(Value::is_object) {
        object.insert("properties".into(), json!({}));
    }
    merge_alternatives(&mut object, &refused);
    let mut originals = HashMap::new();
    match form {
        SchemaForm::PlainArguments => originals = rename_arguments(&mut object),
        SchemaForm::ArraysWithItems => object.values_mut().for_each(add_items),
    }
    ProviderSchema {
        schema: Value::Object(object),
        note: note(&refused),
        originals,
    }
}

/// Adds the arguments of the alternatives to those of the schema, so that the model knows them.
fn merge_alternatives(object: &mut Map<String, Value>, refused: &Map<String, Value>) {
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = refused.get(key) else {
            continue;
        };
        for branch in branches {
            let (Some(Value::Object(known)), Some(Value::Object(more))) =
                (object.get_mut("properties"), branch.get("properties"))
            else {
                continue;
            };
            for (name, schema) in more {
                if !known.contains_key(name) {
                    known.insert(name.clone(), schema.clone());
                }
            }
        }
    }
}

fn note(refused: &Map<String, Value>) -> Option<String> {
    if refused.is_empty() {
        return None;
    }
    let text = Value::Object(refused.clone()).to_string();
    Some(if text.len() <= MAX_NOTE_BYTES {
        format!("The arguments must also match this JSON Schema: {text}")
    } else {
        "The arguments must also meet rules that only the tool knows; its errors name them.".into()
    })
}

/// Renames the arguments whose names the provider does not accept.
fn rename_arguments(object: &mut Map<String, Value>) -> HashMap<String, String> {
    let Some(Value::Object(properties)) = object.get_mut("properties") else {
        return HashMap::new();
    };
    let mut renamed = HashMap::new();
    let names = std::mem::take(properties);
    for (original, schema) in names {
        let provider = argument_name(&original).into_owned();
        properties.insert(provider.clone(), schema);
        if provider != original {
            renamed.insert(provider, original);
        }
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        for name in required {
            if let Value::String(text) = name {
                *text = argument_name(text).into_owned();
            }
        }
    }
    renamed
}

/// Adds `items` to each array schema without them.
fn add_items(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_array = match object.get("type") {
                Some(Value::String(kind)) => kind == "array",
                Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
                _ => false,
            };
            if is_array && !object.contains_key("items") {
                object.insert("items".into(), json!({}));
            }
            for (key, value) in object {
                if !DATA.contains(&key.as_str()) {
                    add_items(value);
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(add_items),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str, form: SchemaForm) -> ProviderSchema {
        provider_schema(Some(text), form)
    }

    #[test]
    fn ordinary_schemas_stay_and_missing_ones_are_empty_objects() {
        let text = r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#;
        for form in [SchemaForm::PlainArguments, SchemaForm::ArraysWithItems] {
            let adapted = schema(text, form);
            assert_eq!(adapted.schema.to_string(), text);
            assert_eq!((adapted.note, adapted.originals), (None, HashMap::new()));
            let empty = json!({"type": "object", "properties": {}});
            assert_eq!(provider_schema(None, form).schema, empty);
            assert_eq!(schema("true", form).schema, empty);
        }
    }

    #[test]
    fn alternatives_at_the_top_level_are_told_in_words() {
        let text = r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
            "anyOf":[{"properties":{"id":{"type":"string"}},"required":["id"]},{"required":["name"]}],
            "properties":{"name":{"oneOf":[{"type":"string"}]}}}"#;
        let adapted = schema(text, SchemaForm::PlainArguments);
        assert_eq!(
            adapted.schema,
            json!({"type": "object", "properties": {
                "name": {"oneOf": [{"type": "string"}]}, "id": {"type": "string"}}})
        );
        assert!(adapted.note.unwrap().contains(r#"{"anyOf":[{"properties""#));
        let long = format!(r#"{{"enum":["{}"]}}"#, "x".repeat(MAX_NOTE_BYTES));
        let note = schema(&long, SchemaForm::PlainArguments).note.unwrap();
        assert!(note.len() < 100, "{note}");
    }

    #[test]
    fn odd_names_of_arguments_are_changed_only_where_needed() {
        let text = r#"{"type":"object","properties":{"$top":{"type":"array"},"b":{}},"required":["$top"]}"#;
        let adapted = schema(text, SchemaForm::PlainArguments);
        let provider = &argument_name("$top").into_owned();
        let originals = HashMap::from([(provider.clone(), "$top".to_owned())]);
        assert_eq!(adapted.originals, originals);
        assert_eq!(adapted.schema["required"], json!([provider]));
        assert_eq!(
            adapted.schema["properties"][provider],
            json!({"type": "array"})
        );
        let adapted = schema(text, SchemaForm::ArraysWithItems);
        assert_eq!(
            adapted.schema["properties"]["$top"],
            json!({"type": "array", "items": {}})
        );
        assert_eq!(adapted.originals, HashMap::new());
    }

    #[test]
    fn data_in_schemas_is_no_schema() {
        let text = r#"{"properties":{"a":{"default":{"type":"array"},"anyOf":[{"type":["array","null"]}]}}}"#;
        let adapted = schema(text, SchemaForm::ArraysWithItems).schema;
        assert_eq!(
            adapted["properties"]["a"]["default"],
            json!({"type": "array"})
        );
        assert_eq!(adapted["properties"]["a"]["anyOf"][0]["items"], json!({}));
    }
}
