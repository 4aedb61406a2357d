//! How much work a JSON schema may be, counted before anybody does it.
//!
//! Schemas and arguments come from peers. A schema of two kilobytes whose definitions refer to each
//! other twice stands for billions of schemas, and a validator visits them all. What is counted here
//! is an upper bound of these visits; who exceeds the budget is not validated.

use serde_json::{Map, Value};

/// The most schemas that a schema may stand for, with those that it refers to in their places.
const MAX_SCHEMAS: u32 = 20_000;
/// The deepest that schemas may lie in each other, references followed.
const MAX_DEPTH: u32 = 200;
/// The most patterns of a schema: each may take a megabyte when it is made ready.
const MAX_PATTERNS: usize = 64;
/// What the validator looks up in a way that is not followed here: targets by name, not by place.
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
/// Keywords with one schema for the value itself.
const SAME: [&str; 5] = ["not", "if", "then", "else", "$ref"];
/// Keywords with several of them: an array, or an object by name.
const SAME_ALL: [&str; 5] = [
    "allOf",
    "anyOf",
    "oneOf",
    "dependentSchemas",
    "dependencies",
];
/// Keywords with schemas for each member or element.
const EACH: [&str; 8] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
];

/// More work than the budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

/// Checks that a schema can be made ready for validation: that it does not stand for too many
/// schemas, lies not too deep, has not too many patterns, and refers only to places of its own.
///
/// # Errors
///
/// Returns [`TooMuch`] for any other schema.
pub(super) fn check_schema(schema: &Value) -> Result<(), TooMuch> {
    let mut n_patterns = 0;
    survey(schema, true, &mut n_patterns)?;
    if n_patterns > MAX_PATTERNS {
        return Err(TooMuch);
    }
    let mut walk = Walk::new(schema, MAX_SCHEMAS);
    walk.expand(schema)
}

/// Checks that the validation of `value` takes at most `budget` visits of a schema that passed
/// [`check_schema`].
///
/// # Errors
///
/// Returns [`TooMuch`] if it may take more.
pub(super) fn check_validation(schema: &Value, value: &Value, budget: u32) -> Result<(), TooMuch> {
    Walk::new(schema, budget).visit(schema, value)
}

/// Counts patterns and finds what is not followed.
fn survey(schema: &Value, is_root: bool, n_patterns: &mut usize) -> Result<(), TooMuch> {
    match schema {
        Value::Array(all) => all
            .iter()
            .try_for_each(|one| survey(one, false, n_patterns)),
        Value::Object(members) => {
            let is_text = |key: &&str| members.get(*key).is_some_and(Value::is_string);
            // Another base for the references in it.
            let has_base = !is_root && is_text(&"$id");
            if has_base || NOT_FOLLOWED.iter().any(|key| !is_root && is_text(key)) {
                return Err(TooMuch);
            }
            if let Some(Value::String(target)) = members.get("$ref")
                && !(target == "#" || target.starts_with("#/"))
            {
                return Err(TooMuch);
            }
            *n_patterns += usize::from(is_text(&"pattern"));
            let patterns = members.get("patternProperties").and_then(Value::as_object);
            *n_patterns += patterns.map_or(0, Map::len);
            let mut inner = members
                .iter()
                .filter(|(key, _)| !DATA.contains(&key.as_str()));
            inner.try_for_each(|(_, one)| survey(one, false, n_patterns))
        }
        _ => Ok(()),
    }
}

/// A walk over a schema with what is left of its budget.
struct Walk<'a> {
    root: &'a Value,
    left: u32,
    depth: u32,
    /// The targets of the references that are being followed.
    followed: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(root: &'a Value, budget: u32) -> Self {
        Self {
            root,
            left: budget,
            depth: 0,
            followed: Vec::new(),
        }
    }

    /// Visits one more schema, and what lies in it by `inner`.
    fn step(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), TooMuch>,
    ) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(1).ok_or(TooMuch)?;
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

    /// Visits all schemas that a schema stands for, a reference that leads back once.
    fn expand(&mut self, schema: &'a Value) -> Result<(), TooMuch> {
        self.step(|walk| match schema {
            Value::Array(all) => all.iter().try_for_each(|one| walk.expand(one)),
            Value::Object(members) => {
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
                        // Nothing uses definitions but references to them.
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
            return self.step(|_| Ok(()));
        };
        // What is left over by others is found by asking these once more.
        let is_asked_again = members.contains_key("unevaluatedProperties")
            || members.contains_key("unevaluatedItems");
        self.step(|walk| {
            for _ in 0..=u8::from(is_asked_again) {
                walk.visit_same(members, value)?;
                walk.visit_inner(members, value)?;
            }
            Ok(())
        })
    }

    /// Visits the schemas that hold for the value itself.
    fn visit_same(
        &mut self,
        members: &'a Map<String, Value>,
        value: &Value,
    ) -> Result<(), TooMuch> {
        for schema in SAME.iter().filter_map(|key| members.get(*key)) {
            match schema {
                Value::String(reference) => {
                    if let Some(target) = self.target(reference) {
                        self.visit(target, value)?;
                    }
                }
                schema => self.visit(schema, value)?,
            }
        }
        for schemas in SAME_ALL.iter().filter_map(|key| members.get(*key)) {
            match schemas {
                Value::Array(all) => all.iter().try_for_each(|one| self.visit(one, value))?,
                Value::Object(all) => all.values().try_for_each(|one| self.visit(one, value))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Visits the schemas that hold for members or elements.
    fn visit_inner(
        &mut self,
        members: &'a Map<String, Value>,
        value: &Value,
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
            let of_each = EACH.iter().filter_map(|key| members.get(*key));
            // Old drafts have an array there, of which each is for one element.
            let of_each = of_each.filter(|schema| !schema.is_array());
            let all = by_name.into_iter().chain(by_position).chain(by_pattern);
            for schema in all.chain(of_each) {
                self.visit(schema, inner)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A schema whose definitions refer twice to the next one.
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
        assert_eq!(check_schema(&doubling(8)), Ok(()));
        assert_eq!(check_schema(&doubling(27)), Err(TooMuch));
    }

    #[test]
    fn a_schema_may_refer_to_itself() {
        let tree = json!({"type": "object", "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}},
        }});
        assert_eq!(check_schema(&tree), Ok(()));
        let value = json!({"name": "a", "children": [{"name": "b", "children": []}]});
        assert_eq!(check_validation(&tree, &value, 50), Ok(()));
        assert_eq!(check_validation(&tree, &value, 5), Err(TooMuch));
    }

    #[test]
    fn what_doubles_with_the_depth_of_a_value_is_found_with_the_value() {
        let schema = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert_eq!(check_schema(&schema), Ok(()));
        let mut value = json!({});
        for _ in 0..30 {
            value = json!({"x": value});
        }
        assert_eq!(check_validation(&schema, &json!({"x": {}}), 100), Ok(()));
        assert_eq!(check_validation(&schema, &value, 100_000), Err(TooMuch));
    }

    #[test]
    fn a_reference_to_itself_without_a_step_into_the_value_ends() {
        let schema = json!({"allOf": [{"$ref": "#"}]});
        assert_eq!(check_validation(&schema, &json!({}), 100_000), Err(TooMuch));
    }

    #[test]
    fn long_chains_many_patterns_and_other_bases_are_too_much() {
        let mut chain = Map::new();
        for at in 0..500 {
            chain.insert(
                format!("d{at}"),
                json!({"$ref": format!("#/$defs/d{}", at + 1)}),
            );
        }
        let chain = json!({"$ref": "#/$defs/d0", "$defs": chain});
        let patterns: Map<String, Value> = (0..100)
            .map(|n| (format!("p{n}"), json!({"pattern": "\\w{900}"})))
            .collect();
        for schema in [
            chain,
            json!({ "properties": patterns }),
            json!({"properties": {"a": {"$id": "http://x/y", "$ref": "#/z"}}}),
            json!({"properties": {"a": {"$dynamicRef": "#a"}}}),
            json!({"$ref": "http://127.0.0.1/s.json"}),
        ] {
            assert_eq!(check_schema(&schema), Err(TooMuch), "{schema}");
        }
    }
}
