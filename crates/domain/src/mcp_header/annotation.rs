//! Which arguments of a tool are repeated in headers: `x-mcp-header` in its input schema.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The property of a schema that asks for a header.
const ANNOTATION: &str = "x-mcp-header";
/// The most arguments of a tool that are repeated in headers: each is looked for in all arguments.
const MAX_ANNOTATIONS: usize = 64;

/// An argument of a tool that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamAnnotation {
    /// The name of the header behind `Mcp-Param-`, as the tool writes it.
    pub header: Box<str>,
    /// The names of the members that lead from the arguments to the value.
    pub path: Box<[Box<str>]>,
}

/// Why a definition is none that a client over HTTP may use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The definition is not JSON, or nested too deeply to be looked at.
    #[error("the definition cannot be read")]
    Unreadable,
    /// An annotation is no string.
    #[error("{ANNOTATION} of {property} is not a string")]
    NotText {
        /// Where it stands.
        property: String,
    },
    /// An annotation cannot be part of the name of a header.
    #[error("{ANNOTATION} of {property} is not a token")]
    NotAToken {
        /// Where it stands.
        property: String,
    },
    /// Two annotations ask for the same header.
    #[error("{ANNOTATION} of {property} is taken by another property")]
    Taken {
        /// Where the second one stands.
        property: String,
    },
    /// The annotated property is no string, integer or boolean.
    #[error("{property} has {ANNOTATION} and is not a string, an integer or a boolean")]
    NotPrimitive {
        /// Where it stands.
        property: String,
    },
    /// So many headers fit into no request.
    #[error("more than {MAX_ANNOTATIONS} properties have {ANNOTATION}")]
    TooMany,
    /// An annotation stands where no argument can be told from it: not in a chain of `properties`.
    #[error("{ANNOTATION} stands outside of the properties of the arguments")]
    Misplaced,
}

/// Returns the arguments that the tool with this definition, JSON text, wants to be repeated in
/// headers, in the order of its schema. A definition without an input schema has none.
///
/// # Errors
///
/// Returns [`AnnotationError`] when an annotation breaks a rule of the specification ("Schema
/// Extension"): a client over HTTP must leave such a tool out of its list.
pub fn annotations(definition: &str) -> Result<Vec<ParamAnnotation>, AnnotationError> {
    // Looking for the name anywhere spares most definitions the reading. It may be written with
    // escapes.
    if !definition.contains(ANNOTATION) && !definition.contains(r"\u") {
        return Ok(Vec::new());
    }
    let definition: Value =
        serde_json::from_str(definition).map_err(|_| AnnotationError::Unreadable)?;
    let Some(schema) = definition.get("inputSchema").and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    if schema.contains_key(ANNOTATION) || is_misplaced_below(schema, Place::OnChain) {
        return Err(AnnotationError::Misplaced);
    }
    let mut found = Found::default();
    found.collect(schema, &mut Vec::new())?;
    Ok(found.annotations)
}

/// Whether a schema is reached from the root through `properties` alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    OnChain,
    OffChain,
}

/// Returns whether an annotation stands off the chain of `properties`, in this schema or below.
fn is_misplaced_below(schema: &Map<String, Value>, place: Place) -> bool {
    let of_map = |map: &Value, place| {
        map.as_object()
            .is_some_and(|map| map.values().any(|schema| is_misplaced(schema, place)))
    };
    schema
        .iter()
        .any(|(keyword, value)| match keyword.as_str() {
            ANNOTATION => place == Place::OffChain,
            "properties" => of_map(value, place),
            // Names stand for themselves here, too, and are no keywords.
            "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                of_map(value, Place::OffChain)
            }
            // Data, in which the name of the annotation means nothing.
            "default" | "const" | "enum" | "examples" => false,
            _ => is_misplaced(value, Place::OffChain),
        })
}

fn is_misplaced(value: &Value, place: Place) -> bool {
    match value {
        Value::Object(schema) => is_misplaced_below(schema, place),
        Value::Array(schemas) => schemas
            .iter()
            .any(|schema| is_misplaced(schema, Place::OffChain)),
        _ => false,
    }
}

#[derive(Default)]
struct Found {
    annotations: Vec<ParamAnnotation>,
    headers: HashSet<String>,
}

impl Found {
    /// Collects the annotations along `properties`.
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

/// Returns whether the name of a header may have this character (`tchar` of RFC 9110).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
