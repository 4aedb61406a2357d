//! Annotations `x-mcp-header` in the input schema of a tool: the arguments to repeat in headers.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The property of a schema that asks for a header.
const ANNOTATION: &str = "x-mcp-header";
/// Maximum number of annotations of a tool. Each one is a lookup in the arguments of every call.
const MAX_ANNOTATIONS: usize = 64;

/// An argument of a tool that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamAnnotation {
    /// The name of the header after `Mcp-Param-`, as the tool writes it.
    pub header: Box<str>,
    /// The path of member names from the arguments to the value.
    pub path: Box<[Box<str>]>,
}

/// The annotations of a definition are invalid, so that clients over HTTP may not use the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The definition is not JSON, or is nested too deeply.
    #[error("invalid definition")]
    Unreadable,
    /// An annotation is not a string.
    #[error("{ANNOTATION} of {property} is not a string")]
    NotText {
        /// Path of the property.
        property: String,
    },
    /// An annotation is not valid as part of a header name.
    #[error("{ANNOTATION} of {property} is not a token")]
    NotAToken {
        /// Path of the property.
        property: String,
    },
    /// Two annotations have the same header name.
    #[error("{ANNOTATION} of {property} is already used by another property")]
    Taken {
        /// Path of the second property.
        property: String,
    },
    /// The annotated property is not a string, integer or boolean.
    #[error("{property} has {ANNOTATION}, but is not a string, an integer or a boolean")]
    NotPrimitive {
        /// Path of the property.
        property: String,
    },
    /// Too many annotations.
    #[error("more than {MAX_ANNOTATIONS} properties have {ANNOTATION}")]
    TooMany,
    /// An annotation is not on a chain of `properties`, so no argument corresponds to it.
    #[error("{ANNOTATION} is not on a property of the arguments")]
    Misplaced,
}

/// Returns the arguments that a tool requires in headers, in the order of its schema. `definition`
/// is JSON text. A definition without an input schema has none.
///
/// # Errors
///
/// Returns [`AnnotationError`] if an annotation breaks a rule of the specification ("Schema
/// Extension"): a client over HTTP must leave such a tool out of its list.
pub fn annotations(definition: &str) -> Result<Vec<ParamAnnotation>, AnnotationError> {
    // Fast path: most definitions have no annotation and need not be parsed. The name of the
    // annotation may contain escapes.
    if !definition.contains(ANNOTATION) && !definition.contains(r"\u") {
        return Ok(Vec::new());
    }
    let definition: Value =
        serde_json::from_str(definition).map_err(|_| AnnotationError::Unreadable)?;
    let Some(schema) = definition.get("inputSchema").and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    // The root schema is not a property, so an annotation on it is misplaced, too.
    if schema.contains_key(ANNOTATION) || is_misplaced_below(schema, SchemaPlace::OnChain) {
        return Err(AnnotationError::Misplaced);
    }
    let mut found = AnnotationCollector::default();
    found.collect(schema, &mut Vec::new())?;
    Ok(found.annotations)
}

/// Whether a schema is reached from the root through `properties` alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaPlace {
    OnChain,
    OffChain,
}

/// Returns whether an annotation is outside the chain of `properties`, in this schema or below.
fn is_misplaced_below(schema: &Map<String, Value>, place: SchemaPlace) -> bool {
    let of_map = |map: &Value, place| {
        map.as_object()
            .is_some_and(|map| map.values().any(|schema| is_misplaced(schema, place)))
    };
    schema
        .iter()
        .any(|(keyword, value)| match keyword.as_str() {
            ANNOTATION => place == SchemaPlace::OffChain,
            "properties" => of_map(value, place),
            // The keys of these objects are names and not keywords, as in `properties`.
            "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                of_map(value, SchemaPlace::OffChain)
            }
            // Data: the name of the annotation has no meaning here.
            "default" | "const" | "enum" | "examples" => false,
            _ => is_misplaced(value, SchemaPlace::OffChain),
        })
}

fn is_misplaced(value: &Value, place: SchemaPlace) -> bool {
    match value {
        Value::Object(schema) => is_misplaced_below(schema, place),
        Value::Array(schemas) => schemas
            .iter()
            .any(|schema| is_misplaced(schema, SchemaPlace::OffChain)),
        _ => false,
    }
}

#[derive(Default)]
struct AnnotationCollector {
    annotations: Vec<ParamAnnotation>,
    headers: HashSet<String>,
}

impl AnnotationCollector {
    fn collect<'a>(
        &mut self,
        schema: &'a Map<String, Value>,
        path: &mut Vec<&'a str>,
    ) -> Result<(), AnnotationError> {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Ok(());
        };
        for (name, schema) in properties {
            let Some(schema) = schema.as_object() else {
                continue;
            };
            path.push(name);
            if let Some(header) = schema.get(ANNOTATION) {
                self.add(header, schema, path)?;
            }
            self.collect(schema, path)?;
            path.pop();
        }
        Ok(())
    }

    fn add(
        &mut self,
        header: &Value,
        schema: &Map<String, Value>,
        path: &[&str],
    ) -> Result<(), AnnotationError> {
        let property = || path.join(".");
        let Some(header) = header.as_str() else {
            return Err(AnnotationError::NotText {
                property: property(),
            });
        };
        if header.is_empty() || !header.bytes().all(is_token) {
            return Err(AnnotationError::NotAToken {
                property: property(),
            });
        }
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(AnnotationError::NotPrimitive {
                property: property(),
            });
        }
        if !self.headers.insert(header.to_ascii_lowercase()) {
            return Err(AnnotationError::Taken {
                property: property(),
            });
        }
        if self.annotations.len() == MAX_ANNOTATIONS {
            return Err(AnnotationError::TooMany);
        }
        self.annotations.push(ParamAnnotation {
            header: header.into(),
            path: path.iter().map(|&name| name.into()).collect(),
        });
        Ok(())
    }
}

/// Returns whether a byte is allowed in the name of a header (`tchar` of RFC 9110).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
