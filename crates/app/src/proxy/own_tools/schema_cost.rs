//! The cost of validation with a JSON schema, estimated before the validation.
//!
//! Schemas and arguments come from peers. A schema of two kilobytes, whose definitions refer to
//! each other twice, can expand to billions of schemas, and a validator visits all of them. The
//! estimate is an upper bound of these visits. Above the budget there is no validation.

mod errors;

use std::collections::HashSet;

use serde_json::{Map, Value};

pub(super) use self::errors::{CollectedErrors, check_errors};

/// The maximum number of schemas after expanding references.
const MAX_SCHEMAS: u32 = 20_000;
/// The cost of visiting a schema. The unit is one comparison with an `enum` value or one property
/// lookup, about 10 nanoseconds.
const VISIT: usize = 16;
/// The cost per byte of a string that is searched with a pattern: at worst the number of states of
/// the pattern.
const PATTERN_BYTE: usize = 1_000;
/// The number of bytes of a string that cost one unit if it is only read.
const READ_BYTES: usize = 16;
/// The maximum nesting depth of schemas, including references.
const MAX_DEPTH: u32 = 200;
/// The maximum number of patterns of a schema, because each compiled pattern takes memory.
const MAX_PATTERNS: usize = 64;
/// The maximum length of a pattern in bytes, because one character may stand for hundreds of
/// ranges.
const MAX_PATTERN_BYTES: usize = 1_000;
/// The keywords with targets by name, which this estimate does not follow.
const NOT_FOLLOWED: [&str; 6] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "id",
];
/// Keywords whose values are no schemas.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];
/// Keywords whose values are compared with the complete value.
const COMPARED: [&str; 2] = ["enum", "const"];
/// Keywords whose names or schemas are all iterated, however few members the value has.
const GONE_THROUGH: [&str; 5] = [
    "required",
    "properties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
];
/// Keywords with one schema for the value itself.
const SAME: [&str; 5] = ["not", "if", "then", "else", "$ref"];
/// Keywords with several schemas for the value itself, as an array or as an object by name.
const SAME_ALL: [&str; 5] = [
    "allOf",
    "anyOf",
    "oneOf",
    "dependentSchemas",
    "dependencies",
];
/// Keywords with schemas for each member or element.
const EACH: [&str; 7] = [
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
];

/// The error for work beyond the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// The size of a compiled schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaSize {
    /// The number of schemas after expanding references.
    pub(super) n_schemas: u32,
    pub(super) n_patterns: usize,
}

/// Returns the size of a schema that can be compiled: it does not expand to too many schemas, is
/// not nested too deep, has neither too many nor too long patterns, and refers only to itself.
///
/// # Errors
///
/// Returns [`TooMuch`] for any other schema.
pub(super) fn check_schema(schema: &Value) -> Result<SchemaSize, TooMuch> {
    survey(schema, true)?;
    let mut walk = Walk::new(schema, MAX_SCHEMAS);
    walk.expand(schema)?;
    Ok(SchemaSize {
        n_schemas: MAX_SCHEMAS - walk.left,
        n_patterns: walk.patterns.len(),
    })
}

/// Limits the cost of validating `value` with a schema that passed [`check_schema`] to `budget`
/// units of about 10 nanoseconds.
///
/// # Errors
///
/// Returns [`TooMuch`] if it may cost more.
pub(super) fn check_validation(schema: &Value, value: &Value, budget: u32) -> Result<(), TooMuch> {
    Walk::new(schema, budget).visit(schema, value)
}

/// Searches for unsupported references everywhere, even without a reference to the place.
fn survey(schema: &Value, is_root: bool) -> Result<(), TooMuch> {
    match schema {
        Value::Array(all) => all.iter().try_for_each(|one| survey(one, false)),
        Value::Object(members) => {
            check_references(members, is_root)?;
            let mut inner = members
                .iter()
                .filter(|(key, _)| !DATA.contains(&key.as_str()));
            inner.try_for_each(|(_, one)| survey(one, false))
        }
        _ => Ok(()),
    }
}

/// Refuses a schema with unsupported references or base URIs.
fn check_references(members: &Map<String, Value>, is_root: bool) -> Result<(), TooMuch> {
    let is_text = |key: &&str| members.get(*key).is_some_and(Value::is_string);
    // An `$id` changes the base of the references in it.
    let has_base = !is_root && is_text(&"$id");
    if has_base || NOT_FOLLOWED.iter().any(|key| !is_root && is_text(key)) {
        return Err(TooMuch);
    }
    match members.get("$ref") {
        Some(Value::String(target)) if target != "#" && !target.starts_with("#/") => Err(TooMuch),
        _ => Ok(()),
    }
}

/// Returns the cost of a schema by itself, without the schemas in it.
fn own_cost(members: &Map<String, Value>, value: &Value) -> usize {
    let compared = COMPARED.iter().filter_map(|key| members.get(*key));
    let compared: usize = compared.map(n_values).sum();
    let of_value = match value {
        Value::String(text) => {
            let searched = if members.contains_key("pattern") {
                text.len() * PATTERN_BYTE
            } else {
                0
            };
            searched + n_bytes_read(text)
        }
        Value::Array(_) if members.contains_key("uniqueItems") => n_values(value),
        Value::Object(inner) => {
            let all = GONE_THROUGH.iter().filter_map(|key| members.get(*key));
            let all = all.map(|all| match all {
                Value::Array(all) => all.len(),
                Value::Object(all) => {
                    let names = all.values().filter_map(Value::as_array);
                    all.len() + names.map(Vec::len).sum::<usize>()
                }
                _ => 0,
            });
            let patterns = members.get("patternProperties").and_then(Value::as_object);
            let n_bytes: usize = inner.keys().map(String::len).sum();
            // The factor 2 covers the second search, for additional properties.
            let searched = 2 * patterns.map_or(0, Map::len) * n_bytes * PATTERN_BYTE;
            all.sum::<usize>() + searched
        }
        _ => 0,
    };
    compared + of_value
}

/// Returns the number of values in a value. A long text counts as several values.
fn n_values(value: &Value) -> usize {
    match value {
        Value::Array(all) => 1 + all.iter().map(n_values).sum::<usize>(),
        Value::Object(all) => {
            let members = all.iter();
            1 + members
                .map(|(name, value)| n_bytes_read(name) + n_values(value))
                .sum::<usize>()
        }
        Value::String(text) => 1 + n_bytes_read(text),
        _ => 1,
    }
}

fn n_bytes_read(text: &str) -> usize {
    text.len() / READ_BYTES
}

/// A walk over a schema with its remaining budget.
struct Walk<'a> {
    root: &'a Value,
    left: u32,
    depth: u32,
    /// The references that are being followed.
    followed: Vec<&'a str>,
    patterns: HashSet<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value, budget: u32) -> Self {
        Self {
            root,
            left: budget,
            depth: 0,
            followed: Vec::new(),
            patterns: HashSet::new(),
        }
    }

    /// Spends a part of the budget.
    fn spend(&mut self, n: usize) -> Result<(), TooMuch> {
        let n = u32::try_from(n).map_err(|_| TooMuch)?;
        self.left = self.left.checked_sub(n).ok_or(TooMuch)?;
        Ok(())
    }

    /// Collects the patterns of a schema.
    fn note_patterns(&mut self, members: &'a Map<String, Value>) -> Result<(), TooMuch> {
        let own = members.get("pattern").and_then(Value::as_str);
        let of_names = members.get("patternProperties").and_then(Value::as_object);
        let of_names = of_names.into_iter().flat_map(Map::keys).map(String::as_str);
        for pattern in own.into_iter().chain(of_names) {
            if pattern.len() > MAX_PATTERN_BYTES {
                return Err(TooMuch);
            }
            self.patterns.insert(pattern);
        }
        if self.patterns.len() > MAX_PATTERNS {
            return Err(TooMuch);
        }
        Ok(())
    }

    /// Visits one schema at this cost, and its content with `inner`.
    fn step(
        &mut self,
        cost: usize,
        inner: impl FnOnce(&mut Self) -> Result<(), TooMuch>,
    ) -> Result<(), TooMuch> {
        self.spend(cost)?;
        if self.depth >= MAX_DEPTH {
            return Err(TooMuch);
        }
        self.depth += 1;
        let inside = inner(self);
        self.depth -= 1;
        inside
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// Visits all schemas that a schema expands to. A recursive reference is followed once.
    fn expand(&mut self, schema: &'a Value) -> Result<(), TooMuch> {
        self.step(1, |walk| match schema {
            Value::Array(all) => all.iter().try_for_each(|one| walk.expand(one)),
            Value::Object(members) => {
                // A reference may lead to a place that is otherwise no schema.
                check_references(members, std::ptr::eq(schema, walk.root))?;
                walk.note_patterns(members)?;
                for (key, value) in members {
                    match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => {
                            if walk.followed.contains(&reference.as_str()) {
                                continue;
                            }
                            if let Some(target) = walk.target(reference) {
                                walk.followed.push(reference);
                                let followed = walk.expand(target);
                                walk.followed.pop();
                                followed?;
                            }
                        }
                        // Definitions are only used through references.
                        ("$defs" | "definitions", _) => {}
                        (key, _) if DATA.contains(&key) => {}
                        (_, Value::Object(_) | Value::Array(_)) => walk.expand(value)?,
                        _ => {}
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        })
    }

    /// Visits all schemas that a validator of `value` may visit.
    fn visit(&mut self, schema: &'a Value, value: &Value) -> Result<(), TooMuch> {
        let Value::Object(members) = schema else {
            return self.step(VISIT, |_| Ok(()));
        };
        let cost = VISIT + own_cost(members, value);
        // The validator finds unevaluated members by evaluating the other schemas again.
        let is_asked_again = members.contains_key("unevaluatedProperties")
            || members.contains_key("unevaluatedItems");
        self.step(cost, |walk| {
            for _ in 0..=u8::from(is_asked_again) {
                walk.visit_same(members, |walk, _, schema| walk.visit(schema, value))?;
                walk.visit_inner(members, value, |walk, _, schema, (_, inner)| {
                    walk.visit(schema, inner)
                })?;
            }
            Ok(())
        })
    }

    /// Visits the schemas for the value itself. `visit` gets the keyword of each.
    fn visit_same(
        &mut self,
        members: &'a Map<String, Value>,
        mut visit: impl FnMut(&mut Self, &str, &'a Value) -> Result<(), TooMuch>,
    ) -> Result<(), TooMuch> {
        for key in SAME {
            match members.get(key) {
                Some(Value::String(reference)) => {
                    if let Some(target) = self.target(reference) {
                        visit(self, key, target)?;
                    }
                }
                Some(schema) => visit(self, key, schema)?,
                None => {}
            }
        }
        for key in SAME_ALL {
            match members.get(key) {
                Some(Value::Array(all)) => {
                    all.iter().try_for_each(|one| visit(self, key, one))?;
                }
                Some(Value::Object(all)) => {
                    all.values().try_for_each(|one| visit(self, key, one))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Visits the schemas for members or elements. `visit` gets the keyword, the name of the member
    /// and the member itself.
    fn visit_inner(
        &mut self,
        members: &'a Map<String, Value>,
        value: &Value,
        mut visit: impl FnMut(&mut Self, &str, &'a Value, (&str, &Value)) -> Result<(), TooMuch>,
    ) -> Result<(), TooMuch> {
        let inner: Vec<(Option<&str>, &Value)> = match value {
            Value::Array(all) => all.iter().map(|one| (None, one)).collect(),
            Value::Object(all) => (all.iter().map(|(name, one)| (Some(&**name), one))).collect(),
            _ => return Ok(()),
        };
        let properties = members.get("properties").and_then(Value::as_object);
        let patterns = members.get("patternProperties").and_then(Value::as_object);
        let prefix = members.get("prefixItems").or_else(|| members.get("items"));
        let prefix = prefix.and_then(Value::as_array);
        for (position, (name, inner)) in inner.into_iter().enumerate() {
            let by_name = name.and_then(|name| properties?.get(name));
            let by_position = prefix.and_then(|all| all.get(position));
            let by_pattern = patterns.into_iter().flat_map(Map::values);
            let all = by_name.into_iter().chain(by_position).chain(by_pattern);
            let of_each = EACH
                .iter()
                .filter_map(|key| Some((*key, members.get(*key)?)));
            // In old drafts this may be an array with one schema per element.
            let of_each = of_each.filter(|(_, schema)| !schema.is_array());
            for (key, schema) in all.map(|schema| ("properties", schema)).chain(of_each) {
                visit(self, key, schema, (name.unwrap_or_default(), inner))?;
            }
            if let (Some(name), Some(schema)) = (name, members.get("propertyNames")) {
                visit(self, "propertyNames", schema, (name, &Value::from(name)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a schema whose definitions each refer twice to the next one.
    pub(super) fn doubling(n: u32) -> Value {
        let mut definitions = Map::new();
        for at in 0..n {
            let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
            definitions.insert(format!("d{at}"), json!({"anyOf": [next, next]}));
        }
        definitions.insert(format!("d{n}"), json!({"type": "string"}));
        json!({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
    }

    #[test]
    fn references_count_in_each_place() {
        let size = check_schema(&doubling(8)).unwrap();
        assert!((500..5_000).contains(&size.n_schemas), "{size:?}");
        assert_eq!(check_schema(&doubling(27)), Err(TooMuch));
    }

    #[test]
    fn a_schema_may_refer_to_itself() {
        let tree = json!({"type": "object", "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}},
        }});
        assert!(check_schema(&tree).is_ok());
        let value = json!({"name": "a", "children": [{"name": "b", "children": []}]});
        assert_eq!(check_validation(&tree, &value, 1_000), Ok(()));
        assert_eq!(check_validation(&tree, &value, 80), Err(TooMuch));
    }

    #[test]
    fn validation_cost_exponential_in_value_depth_is_refused() {
        let schema = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert!(check_schema(&schema).is_ok());
        let mut value = json!({});
        for _ in 0..30 {
            value = json!({"x": value});
        }
        assert_eq!(check_validation(&schema, &json!({"x": {}}), 1_000), Ok(()));
        assert_eq!(check_validation(&schema, &value, 2_000_000), Err(TooMuch));
    }

    #[test]
    fn a_reference_to_itself_without_a_step_into_the_value_ends() {
        let schema = json!({"allOf": [{"$ref": "#"}]});
        assert_eq!(check_validation(&schema, &json!({}), 100_000), Err(TooMuch));
    }

    #[test]
    fn costly_keywords_on_large_values_are_refused() {
        let names: Vec<String> = (0..4_000).map(|at| format!("name {at}")).collect();
        let all = json!(vec![1; 20_000]);
        let objects = json!(vec![json!({}); 5_000]);
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| (name.clone(), Value::Bool(true)))
            .collect();
        let text = json!({"a": "a".repeat(100_000), "b".repeat(100_000): "a"});
        let deep = (0..60).fold(json!(vec![1; 40_000]), |deep, _| json!([deep]));
        let unique = json!({"uniqueItems": true, "items": {"$ref": "#"}});
        for (schema, value) in [
            (json!({"items": {"enum": names}}), &all),
            (json!({"items": {"const": names}}), &all),
            (json!({"items": {"required": names}}), &objects),
            (json!({"items": {"properties": properties}}), &objects),
            (
                json!({"items": {"dependentRequired": {"a": names}}}),
                &objects,
            ),
            (json!({"properties": {"a": {"pattern": "a*b"}}}), &text),
            (json!({"patternProperties": {"a*b": {}}}), &text),
            (json!({"propertyNames": {"pattern": "a*b"}}), &text),
            (unique, &deep),
        ] {
            assert!(check_schema(&schema).is_ok());
            let checked = check_validation(&schema, value, 2_000_000);
            assert_eq!(checked, Err(TooMuch), "{:.60}", schema.to_string());
        }
    }

    #[test]
    fn schemas_of_unpredictable_cost_are_refused() {
        let mut chain = Map::new();
        for at in 0..500 {
            chain.insert(
                format!("d{at}"),
                json!({"$ref": format!("#/$defs/d{}", at + 1)}),
            );
        }
        let chain = json!({"$ref": "#/$defs/d0", "$defs": chain});
        let patterns: Map<String, Value> = (0..100)
            .map(|n| (format!("p{n}"), json!({"pattern": format!("\\w{{{n}}}")})))
            .collect();
        for schema in [
            chain,
            json!({ "properties": patterns.clone() }),
            json!({"properties": {"a": {"$id": "http://x/y", "$ref": "#/z"}}}),
            json!({"properties": {"a": {"$dynamicRef": "#a"}}}),
            json!({"$ref": "http://127.0.0.1/s.json"}),
            json!({"properties": {"a": {"pattern": "a".repeat(2_000)}}}),
            // In a place where no schema is expected.
            json!({"$ref": "#/default", "default": {"properties": {"a": {"$dynamicRef": "#a"}}}}),
            json!({"allOf": [{"$ref": "#/default"}], "default": { "properties": patterns }}),
        ] {
            assert_eq!(check_schema(&schema), Err(TooMuch), "{schema}");
        }
    }
}
