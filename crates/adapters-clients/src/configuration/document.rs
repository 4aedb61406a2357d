//! The documents that clients keep their configuration in: JSON, JSON with comments, TOML and YAML.
//!
//! All are read into the same kind of value. JSON is always read with tolerance, because a file
//! that the client accepts must not be refused here.

pub(crate) mod json;
pub(crate) mod toml;
pub(crate) mod yaml;

use serde_json::Value;

/// The format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// JSON. The client refuses comments.
    Json,
    /// JSON with comments and trailing commas.
    JsonWithComments,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// A place in a text, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Position {
    /// Returns the position of a byte.
    pub(crate) fn of(text: &str, at: usize) -> Self {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// The reason why a document cannot be read. It never quotes the document, which may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text is malformed.
    #[error("line {}, column {}: {problem}", position.line, position.column)]
    Syntax {
        /// The place of the mistake.
        position: Position,
        /// A description of the mistake.
        problem: &'static str,
    },
    /// A YAML file has several documents.
    #[error("it has several YAML documents")]
    SeveralDocuments,
    /// Aliases of a YAML file repeat too many values.
    #[error("it has too many values")]
    TooManyValues,
}

/// The contents of a document.
#[derive(Debug)]
pub(crate) struct DocumentContents {
    /// The value; null for a blank document.
    pub(crate) value: Value,
    /// The paths of keys that occur twice.
    pub(crate) duplicate_keys: Vec<String>,
}

/// Reads a document.
///
/// # Errors
///
/// Returns [`DocumentError`] for malformed text.
pub(crate) fn read(text: &str, format: DocumentFormat) -> Result<DocumentContents, DocumentError> {
    let mut duplicate_keys = Vec::new();
    let value = match format {
        DocumentFormat::Json | DocumentFormat::JsonWithComments => {
            let root = json::scan(text)?;
            if let Some(root) = &root {
                duplicate_keys = root.duplicate_keys();
            }
            root.map_or(Value::Null, |root| root.to_value())
        }
        DocumentFormat::Toml => {
            let document = toml::scan(without_mark(text))?;
            toml::table_to_value(document.as_table())
        }
        DocumentFormat::Yaml => {
            let root = yaml::scan(without_mark(text))?;
            root.map_or(Value::Null, |root| root.to_value())
        }
    };
    Ok(DocumentContents {
        value,
        duplicate_keys,
    })
}

/// Returns the text without a byte order mark.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix(json::BYTE_ORDER_MARK).unwrap_or(text)
}
