//! The schema of the arguments of a tool, in the form that providers accept.
//!
//! A provider refuses a whole request if one of its tools has a schema that it does not accept. So
//! each schema becomes an object without alternatives at its top level. What is lost is told to the
//! model in the description, and the server still checks the arguments. So is a schema that is
//! nested too deeply: a provider might refuse it, and with it all other tools.

use std::collections::HashMap;

use riglm_domain::mcp::scan::is_deeper_than;
use serde_json::{Map, Value, json};

use super::names::argument_name;

/// Keywords that providers refuse at the top level of a schema.
const ALTERNATIVES: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "enum"];
/// The maximum length of the refused part of a schema that a description repeats, in bytes.
const MAX_NOTE_BYTES: usize = 2_000;
/// The maximum depth of a schema.
const MAX_DEPTH: usize = 100;
/// The note on a schema that is left out.
const LEFT_OUT: &str = "The schema of the arguments is not shown, because it is nested too deeply or \
                        cannot be read. The errors of the tool name the arguments.";

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
    let (mut object, is_left_out) = match schema.map(read) {
        Some(Some(Value::Object(object))) => (object, false),
        Some(None) => (Map::new(), true),
        // Without arguments, or with any.
        _ => (Map::new(), false),
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
        SchemaForm::ArraysWithItems => add_items_inside(&mut object),
    }
    let note = if is_left_out {
        Some(LEFT_OUT.to_owned())
    } else {
        note(&refused)
    };
    ProviderSchema {
        schema: Value::Object(object),
        note,
        originals,
    }
}

/// Returns the value of a JSON text; `None` if it is nested too deeply, or has numbers that are too
/// large.
fn read(text: &str) -> Option<Value> {
    let is_flat = !is_deeper_than(text.as_bytes(), MAX_DEPTH);
    is_flat.then(|| serde_json::from_str(text).ok()).flatten()
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
                known.entry(name).or_insert_with(|| schema.clone());
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
    let Value::Object(object) = schema else {
        return;
    };
    let is_array = match object.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    if is_array && !object.contains_key("items") {
        object.insert("items".into(), json!({}));
    }
    add_items_inside(object);
}

/// Adds `items` to each array schema inside a schema. All other values are data, among them
/// examples and defaults, or the names of arguments.
fn add_items_inside(schema: &mut Map<String, Value>) {
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            (
                "additionalItems"
                | "additionalProperties"
                | "contains"
                | "contentSchema"
                | "else"
                | "if"
                | "items"
                | "not"
                | "propertyNames"
                | "then"
                | "unevaluatedItems"
                | "unevaluatedProperties",
                one @ Value::Object(_),
            ) => add_items(one),
            ("allOf" | "anyOf" | "items" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(add_items);
            }
            (
                "$defs" | "definitions" | "dependencies" | "dependentSchemas" | "patternProperties"
                | "properties",
                Value::Object(by_name),
            ) => by_name.values_mut().for_each(add_items),
            _ => {}
        }
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
    fn arrays_get_items_wherever_a_schema_can_stand() {
        let array = json!({"type": ["array", "null"]});
        let with_items = json!({"type": ["array", "null"], "items": {}});
        let of = |array: &Value| {
            let lists = json!([array, true]);
            let named = json!({"default": array, "type": array, "x": ["x"]});
            json!({"type": "object",
                "properties": {"a": {
                    "items": array, "additionalProperties": array, "not": array, "if": array,
                    "anyOf": lists, "prefixItems": lists, "patternProperties": named,
                    "dependentSchemas": named, "properties": named, "const": {"items": {}}}},
                "$defs": named, "additionalProperties": array})
        };
        let text = of(&array).to_string();
        let adapted = schema(&text, SchemaForm::ArraysWithItems);
        assert_eq!(adapted.schema, of(&with_items));
    }

    #[test]
    fn data_in_schemas_is_no_schema() {
        let data = json!({"type": "array", "properties": {"x": {"type": "array"}}});
        let text = json!({"type": "object", "properties": {
                "a": {"default": data, "enum": [data], "const": data, "examples": [data],
                    "x-vendor": data, "required": ["a"]}},
            "default": data, "examples": [data], "required": ["a"]});
        let adapted = schema(&text.to_string(), SchemaForm::ArraysWithItems);
        assert_eq!((adapted.schema, adapted.note), (text, None));
    }

    #[test]
    fn a_schema_that_is_too_deep_is_left_out_with_a_note() {
        let nested = |n: usize| {
            let (open, close) = (r#"{"properties":{"a":"#.repeat(n), "}}".repeat(n));
            format!("{open}{{}}{close}")
        };
        for form in [SchemaForm::PlainArguments, SchemaForm::ArraysWithItems] {
            let shown = schema(&nested(MAX_DEPTH / 2 - 1), form);
            assert!(shown.schema["properties"]["a"].is_object());
            assert_eq!(shown.note, None);
            for text in [
                nested(MAX_DEPTH / 2),
                nested(10_000),
                r#"{"maximum":1e999}"#.into(),
            ] {
                let left_out = schema(&text, form);
                let empty = json!({"type": "object", "properties": {}});
                assert_eq!(left_out.schema, empty);
                assert_eq!(left_out.note.as_deref(), Some(LEFT_OUT));
            }
        }
    }
}
