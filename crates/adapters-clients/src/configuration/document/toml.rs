//! TOML documents as values.

use serde_json::{Map, Number, Value};
use toml_edit::{Document, Item, Table, Value as TomlValue};

use super::{DocumentError, Position};

/// Reads a document, with the places of its values.
///
/// # Errors
///
/// Returns [`DocumentError::Syntax`] with the place of the first mistake.
pub(crate) fn scan(text: &str) -> Result<Document<&str>, DocumentError> {
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        DocumentError::Syntax {
            position: Position::of(text, at),
            problem: "it is not valid TOML",
        }
    })
}

/// Returns the value of a table.
pub(crate) fn table_to_value(table: &Table) -> Value {
    let members = table
        .iter()
        .map(|(key, item)| (key.to_owned(), item_to_value(item)));
    Value::Object(members.collect())
}

fn item_to_value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => value_to_value(value),
        Item::Table(table) => table_to_value(table),
        Item::ArrayOfTables(tables) => Value::Array(tables.iter().map(table_to_value).collect()),
    }
}

fn value_to_value(value: &TomlValue) -> Value {
    match value {
        TomlValue::String(text) => Value::String(text.value().clone()),
        TomlValue::Integer(number) => Value::from(*number.value()),
        TomlValue::Float(number) => {
            Number::from_f64(*number.value()).map_or(Value::Null, Value::Number)
        }
        TomlValue::Boolean(value) => Value::Bool(*value.value()),
        TomlValue::Datetime(time) => Value::String(time.value().to_string()),
        TomlValue::Array(values) => Value::Array(values.iter().map(value_to_value).collect()),
        TomlValue::InlineTable(table) => {
            let members = table
                .iter()
                .map(|(key, value)| (key.to_owned(), value_to_value(value)));
            Value::Object(members.collect::<Map<String, Value>>())
        }
    }
}
