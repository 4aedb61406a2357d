//! The cost of validation errors, estimated before they are collected.
//!
//! A validator creates an error for each missing name and each value of a wrong type. If a value
//! fits none of several schemas, each error in them holds a copy of the value. A schema of some
//! kilobytes can thus require gigabytes. The estimate is an upper bound.

use serde_json::{Map, Value};

use super::{TooMuch, VISIT, Walk, n_bytes_read, n_values, own_cost};

/// The cost of one error, in units of 16 bytes.
const ERROR: usize = 32;
/// The cost of copying one value, in units of 16 bytes.
const COPIED: usize = 8;
/// The number of path bytes of an error that cost one unit.
const PLACE_BYTES: usize = 8;
/// Keywords without a check of their own. Their content is visited, or there is none.
const NO_CHECKS: [&str; 10] = [
    "$comment",
    "$defs",
    "$schema",
    "default",
    "definitions",
    "description",
    "examples",
    "format",
    "properties",
    "title",
];
/// Keywords whose errors repeat the value in the schema.
const REPEATED: [&str; 4] = ["enum", "const", "not", "pattern"];

/// The errors to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy::own_tools) enum CollectedErrors {
    All,
    /// The first error, with all nested errors.
    First,
}

/// A place where an error may occur.
#[derive(Clone, Copy)]
struct ErrorPlace {
    /// Whether all errors of the place are kept.
    is_kept: bool,
    /// Whether each error has a copy of its value.
    is_copied: bool,
    /// The number of further values that each error copies.
    n_beside: usize,
    /// The length of its paths in the value and in the schema, in bytes.
    n_path_bytes: usize,
}

/// Limits the cost of collecting the errors of `value`, with a schema that passed
/// [`check_schema`](super::check_schema), to `budget` units of about 10 nanoseconds or 16 bytes.
///
/// # Errors
///
/// Returns [`TooMuch`] if it may cost more.
pub(in crate::proxy::own_tools) fn check_errors(
    schema: &Value,
    value: &Value,
    gathered: CollectedErrors,
    budget: u32,
) -> Result<(), TooMuch> {
    let place = ErrorPlace {
        is_kept: gathered == CollectedErrors::All,
        is_copied: false,
        n_beside: 0,
        n_path_bytes: 0,
    };
    Walk::new(schema, budget).collect(schema, value, place)
}

impl<'a> Walk<'a> {
    /// Visits all schemas whose errors for `value` may be collected.
    fn collect(
        &mut self,
        schema: &'a Value,
        value: &Value,
        place: ErrorPlace,
    ) -> Result<(), TooMuch> {
        let Value::Object(members) = schema else {
            return self.step(VISIT + errors_cost(1, 0, value, place), |_| Ok(()));
        };
        let (n_errors, n_repeated) = own_errors(members, value);
        let of_errors = errors_cost(n_errors, n_repeated, value, place);
        let cost = VISIT.saturating_add(own_cost(members, value));
        self.step(cost.saturating_add(of_errors), |walk| {
            if members.contains_key("unevaluatedProperties")
                || members.contains_key("unevaluatedItems")
            {
                // The validator finds unevaluated members by evaluating the other schemas again.
                walk.visit(schema, value)?;
            }
            walk.visit_same(members, |walk, key, inner| {
                match key {
                    "not" => return walk.visit(inner, value),
                    // The validator first tests whether the value fits, again on each level.
                    "if" | "anyOf" | "oneOf" => walk.visit(inner, value)?,
                    _ => {}
                }
                let reference = members.get("$ref").and_then(Value::as_str);
                match key {
                    "if" => Ok(()),
                    "$ref" => walk.collect(
                        inner,
                        value,
                        ErrorPlace {
                            n_path_bytes: place.n_path_bytes + reference.map_or(0, str::len),
                            ..place
                        },
                    ),
                    "anyOf" | "oneOf" => walk.collect(
                        inner,
                        value,
                        ErrorPlace {
                            is_kept: true,
                            is_copied: true,
                            ..place
                        },
                    ),
                    _ => walk.collect(inner, value, place),
                }
            })?;
            walk.visit_inner(members, value, |walk, key, schema, (name, inner)| {
                let n_path_bytes = place.n_path_bytes + name.len();
                let inside = ErrorPlace {
                    n_path_bytes,
                    ..place
                };
                match key {
                    "contains" => walk.visit(schema, inner),
                    "propertyNames" => {
                        // An error for a name copies the complete object.
                        let n_copied = if place.is_copied { n_values(value) } else { 0 };
                        walk.spend(n_copied)?;
                        walk.collect(
                            schema,
                            inner,
                            ErrorPlace {
                                is_copied: true,
                                n_beside: place.n_beside.saturating_add(n_copied),
                                ..inside
                            },
                        )
                    }
                    _ => walk.collect(schema, inner, inside),
                }
            })
        })
    }
}

/// Returns the number of errors that a schema may produce for a value by itself, and the number of
/// schema values and member names that they repeat.
fn own_errors(members: &Map<String, Value>, value: &Value) -> (usize, usize) {
    let checks = members
        .keys()
        .filter(|key| !NO_CHECKS.contains(&key.as_str()));
    let repeated = REPEATED.iter().filter_map(|key| members.get(*key));
    let repeated: usize = repeated.map(n_values).sum();
    let Value::Object(of_value) = value else {
        return (checks.count(), repeated);
    };
    let n_listed = |value: &Value| value.as_array().map_or(0, Vec::len);
    let by_name = ["dependentRequired", "dependencies"].iter();
    let by_name = by_name.filter_map(|key| members.get(*key)?.as_object());
    let by_name: usize = by_name.flat_map(Map::values).map(n_listed).sum();
    let required = members.get("required").map_or(0, n_listed);
    let is_named = ["additionalProperties", "unevaluatedProperties"].iter();
    let unexpected = if is_named.into_iter().any(|key| members.contains_key(*key)) {
        of_value.keys().map(|name| 1 + n_bytes_read(name)).sum()
    } else {
        0
    };
    (checks.count() + required + by_name, repeated + unexpected)
}

/// Returns the cost of `n_errors` errors, which together repeat `n_repeated` values of the schema.
fn errors_cost(n_errors: usize, n_repeated: usize, value: &Value, place: ErrorPlace) -> usize {
    if !place.is_kept {
        return 0;
    }
    let n_copied = if place.is_copied { n_values(value) } else { 0 };
    let of_each = COPIED
        .saturating_mul(n_copied.saturating_add(place.n_beside))
        .saturating_add(ERROR + place.n_path_bytes / PLACE_BYTES);
    let repeated = COPIED.saturating_mul(n_repeated);
    n_errors.saturating_mul(of_each).saturating_add(repeated)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::check_validation;
    use super::*;

    const BUDGET: u32 = 4_000_000;

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|at| format!("{at:04}")).collect()
    }

    #[test]
    fn usual_errors_cost_little() {
        let schema = json!({"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string", "description": "Where it is."},
            "mode": {"anyOf": [{"type": "string", "enum": ["r", "w"]}, {"type": "integer"}]},
            "edits": {"type": "array", "items": {"type": "object", "required": ["old", "new"]}},
        }});
        let edits = vec![json!({"old": "a"}); 100];
        let value = json!({"mode": [1], "edits": edits});
        assert_eq!(
            check_errors(&schema, &value, CollectedErrors::All, 50_000),
            Ok(())
        );
        assert_eq!(
            check_errors(&schema, &value, CollectedErrors::First, 10_000),
            Ok(())
        );
    }

    #[test]
    fn copies_for_each_error_count_with_the_size_of_the_value() {
        let large = json!({"a": vec![1; 100_000]});
        let many = json!({"required": names(10_000)});
        let deep = (0..100).fold(
            json!({"type": "string"}),
            |deep, _| json!({"anyOf": [deep]}),
        );
        let not_objects = json!({"items": {"type": "object", "required": ["b"]}});
        let in_names = json!({"propertyNames": {"maxLength": 1}});
        let named = |n: usize| -> Value {
            let members = names(n).into_iter();
            members.map(|name| (name, json!([1, 2, 3]))).collect()
        };
        for (schema, value) in [
            (json!({"anyOf": [many]}), &large),
            (json!({"oneOf": [many, true]}), &large),
            (
                json!({"properties": {"a": {"anyOf": [{"items": not_objects}]}}}),
                &json!({"a": vec![json!([1, 2]); 40_000]}),
            ),
            (deep, &large),
            (json!({"anyOf": [in_names]}), &named(2_000)),
        ] {
            assert_eq!(
                check_validation(&schema, value, BUDGET),
                Ok(()),
                "{schema:.60}"
            );
            for gathered in [CollectedErrors::All, CollectedErrors::First] {
                let checked = check_errors(&schema, value, gathered, BUDGET);
                assert_eq!(checked, Err(TooMuch), "{:.60}", schema.to_string());
            }
        }
    }

    #[test]
    fn only_collecting_all_errors_exceeds_the_budget() {
        let objects = json!(vec![json!({}); 300]);
        let options = json!({"items": {"enum": names(1_000)}});
        let long = json!({"a".repeat(100_000): vec![1; 1_000]});
        for (schema, value) in [
            (json!({"items": {"required": names(10_000)}}), &objects),
            (options, &json!(vec![1; 3_000])),
            (
                json!({"additionalProperties": {"items": {"type": "string"}}}),
                &long,
            ),
        ] {
            assert_eq!(check_validation(&schema, value, BUDGET), Ok(()));
            let check = |gathered| check_errors(&schema, value, gathered, BUDGET);
            assert_eq!(
                check(CollectedErrors::All),
                Err(TooMuch),
                "{:.60}",
                schema.to_string()
            );
            assert_eq!(
                check(CollectedErrors::First),
                Ok(()),
                "{:.60}",
                schema.to_string()
            );
        }
    }
}
