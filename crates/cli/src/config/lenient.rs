//! Deserialization of typed values from a tree with leaves of text.
//!
//! Values of environment variables are text. `60` and `true` become a number and a boolean where
//! one is expected; no other conversions happen. Errors name the expected type, also for enums.

use config::{Map, Value, ValueKind};
use serde::de::value::{Error, MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};

#[derive(Debug)]
pub(super) struct LenientDeserializer(Value);

impl LenientDeserializer {
    /// Creates a deserializer of a table.
    pub(super) fn new(table: Map<String, Value>) -> Self {
        Self(Value::new(None, ValueKind::Table(table)))
    }

    /// Returns a leaf as text, or an error for other values.
    fn text(self, expected: &str) -> Result<String, Error> {
        match self.0.kind {
            ValueKind::String(text) => Ok(text),
            kind @ (ValueKind::Boolean(_)
            | ValueKind::I64(_)
            | ValueKind::U64(_)
            | ValueKind::I128(_)
            | ValueKind::U128(_)
            | ValueKind::Float(_)) => Ok(kind.to_string()),
            ValueKind::Nil => Err(Error::invalid_type(Unexpected::Unit, &expected)),
            ValueKind::Table(_) => Err(Error::invalid_type(Unexpected::Map, &expected)),
            ValueKind::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &expected)),
        }
    }
}

impl IntoDeserializer<'_, Error> for LenientDeserializer {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Deserializes a number, or the text of a number.
macro_rules! number {
    ($method:ident, $visit:ident, $number:ty, $expected:literal) => {
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.kind {
                ValueKind::String(text) => match text.trim().parse::<$number>() {
                    Ok(number) => visitor.$visit(number),
                    Err(_) => Err(Error::invalid_type(Unexpected::Str(&text), &$expected)),
                },
                _ => self.deserialize_any(visitor),
            }
        }
    };
}

impl<'de> Deserializer<'de> for LenientDeserializer {
    type Error = Error;

    number!(deserialize_u8, visit_u64, u64, "a whole number");
    number!(deserialize_u16, visit_u64, u64, "a whole number");
    number!(deserialize_u32, visit_u64, u64, "a whole number");
    number!(deserialize_u64, visit_u64, u64, "a whole number");
    number!(deserialize_i8, visit_i64, i64, "a whole number");
    number!(deserialize_i16, visit_i64, i64, "a whole number");
    number!(deserialize_i32, visit_i64, i64, "a whole number");
    number!(deserialize_i64, visit_i64, i64, "a whole number");
    number!(deserialize_f32, visit_f64, f64, "a number");
    number!(deserialize_f64, visit_f64, f64, "a number");
    number!(deserialize_bool, visit_bool, bool, "true or false");

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.kind {
            ValueKind::Nil => visitor.visit_unit(),
            ValueKind::Boolean(value) => visitor.visit_bool(value),
            ValueKind::I64(number) => visitor.visit_i64(number),
            ValueKind::U64(number) => visitor.visit_u64(number),
            ValueKind::I128(number) => visitor.visit_i128(number),
            ValueKind::U128(number) => visitor.visit_u128(number),
            ValueKind::Float(number) => visitor.visit_f64(number),
            ValueKind::String(text) => visitor.visit_string(text),
            ValueKind::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Self)))
            }
            ValueKind::Table(table) => {
                // Tables are unordered; sorting makes the first error deterministic.
                let mut members: Vec<(String, Value)> = table.into_iter().collect();
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                let members = members.into_iter().map(|(key, value)| (key, Self(value)));
                visitor.visit_map(MapDeserializer::new(members))
            }
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text("text")?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text("text")?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.kind {
            ValueKind::Nil => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let expected = format!("one of {}", variants.join(", "));
        let text: StringDeserializer<Error> = self.text(&expected)?.into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Section {
        number: u16,
        flag: bool,
        share: f64,
        text: String,
        maybe: Option<u32>,
        list: Vec<String>,
        kind: Kind,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        Plain,
        Fancy,
    }

    fn read(key: &str, value: impl Into<Value>) -> Result<Section, String> {
        let table = [(key.to_owned(), value.into())].into_iter().collect();
        Section::deserialize(LenientDeserializer::new(table)).map_err(|error| error.to_string())
    }

    #[test]
    fn text_is_converted_to_the_expected_type() {
        assert_eq!(read("number", "60").unwrap().number, 60);
        assert!(read("flag", "true").unwrap().flag);
        assert!((read("share", "0.5").unwrap().share - 0.5).abs() < f64::EPSILON);
        assert_eq!(read("maybe", "7").unwrap().maybe, Some(7));
        assert_eq!(read("text", 12_i64).unwrap().text, "12");
        assert_eq!(read("kind", "fancy").unwrap().kind, Kind::Fancy);
        assert_eq!(read("list", vec!["a", "b"]).unwrap().list, ["a", "b"]);
    }

    #[test]
    fn errors_name_the_expected_type() {
        let error = |key: &str, value: Value| read(key, value).unwrap_err();
        assert_eq!(
            error("number", "abc".into()),
            r#"invalid type: string "abc", expected a whole number"#
        );
        assert_eq!(
            error("number", 70_000_i64.into()),
            "invalid value: integer `70000`, expected u16"
        );
        assert_eq!(
            error("flag", 1_i64.into()),
            "invalid type: integer `1`, expected a boolean"
        );
        assert_eq!(
            error("kind", "odd".into()),
            "unknown variant `odd`, expected `plain` or `fancy`"
        );
        assert!(
            error("nubmer", 1_i64.into()).starts_with("unknown field `nubmer`, expected one of")
        );
        assert_eq!(
            error("list", "a".into()),
            r#"invalid type: string "a", expected a sequence"#
        );
    }
}
