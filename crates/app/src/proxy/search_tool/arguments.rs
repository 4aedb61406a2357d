//! What a call of the tool for searching asks for.

use serde_json::Value;

/// The longest query, in characters.
pub(super) const MAX_QUERY_CHARS: usize = 2_000;
/// The most tools that can be asked for.
pub(super) const MAX_LIMIT: usize = 50;

/// The arguments of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) query: String,
    pub(super) limit: Option<usize>,
}

impl Arguments {
    /// Reads the JSON text of `arguments`. Members that are not known are nobody's concern.
    ///
    /// # Errors
    ///
    /// Returns what is wrong and what is expected, in words for the model that made the call.
    pub(super) fn read(arguments: Option<&str>) -> Result<Self, String> {
        let read = arguments.map_or(Ok(Value::Null), serde_json::from_str);
        let arguments = match read {
            Ok(Value::Object(arguments)) => arguments,
            Ok(Value::Null) => serde_json::Map::new(),
            _ => {
                return Err(
                    r#"arguments must be an object such as {"query": "send an e-mail"}"#.into(),
                );
            }
        };
        let query = match arguments.get("query") {
            Some(Value::String(query)) if !query.trim().is_empty() => query.trim(),
            Some(Value::String(_)) => return Err(expected_query("it is empty")),
            Some(_) => return Err(expected_query("it is not a string")),
            None => return Err(expected_query("it is missing")),
        };
        if query.chars().nth(MAX_QUERY_CHARS).is_some() {
            return Err(expected_query("it is too long"));
        }
        let limit = match arguments.get("limit") {
            None | Some(Value::Null) => None,
            Some(limit) => Some(whole_number(limit).ok_or_else(|| {
                format!("limit must be a whole number from 1 to {MAX_LIMIT}, or left out")
            })?),
        };
        Ok(Self {
            query: query.to_owned(),
            limit,
        })
    }
}

fn expected_query(problem: &str) -> String {
    format!(
        "query must be a string of 1 to {MAX_QUERY_CHARS} characters that says what the tool has to \
         do, for example \"send an e-mail\"; {problem}"
    )
}

/// Returns the number that a value is, written in whatever form, if it may be a limit.
fn whole_number(value: &Value) -> Option<usize> {
    let number = value.as_f64()?;
    (1..=MAX_LIMIT).find(|limit| {
        let limit = u32::try_from(*limit).map_or(f64::NAN, f64::from);
        (limit - number).abs() < f64::EPSILON
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &str) -> Result<Arguments, String> {
        Arguments::read(Some(arguments))
    }

    #[test]
    fn query_and_limit_are_read_and_the_rest_is_ignored() {
        let read = |text: &str| read(text).unwrap();
        assert_eq!(read(r#"{"query":" a b "}"#).query, "a b");
        assert_eq!(read(r#"{"query":"a","x":{}}"#).limit, None);
        assert_eq!(read(r#"{"query":"a","limit":null}"#).limit, None);
        for (limit, expected) in [("1", 1), ("50", 50), ("7.0", 7), ("1e1", 10)] {
            let text = format!(r#"{{"query":"a","limit":{limit}}}"#);
            assert_eq!(read(&text).limit, Some(expected), "{limit}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_expected() {
        let long = format!(r#"{{"query":"{}"}}"#, "x".repeat(MAX_QUERY_CHARS + 1));
        for (arguments, named, problem) in [
            ("{}", "query must", "missing"),
            (r#"{"query":" "}"#, "query must", "empty"),
            (r#"{"query":["a"]}"#, "query must", "not a string"),
            (&long, "query must", "too long"),
            (r#"{"query":"a","limit":0}"#, "limit must", "1 to 50"),
            (r#"{"query":"a","limit":51}"#, "limit must", "1 to 50"),
            (r#"{"query":"a","limit":"5"}"#, "limit must", "1 to 50"),
            (r#"{"query":"a","limit":1.5}"#, "limit must", "1 to 50"),
            ("[1]", "arguments must", "object"),
        ] {
            let error = read(arguments).unwrap_err();
            assert!(
                error.starts_with(named) && error.contains(problem),
                "{error}"
            );
        }
        assert!(Arguments::read(None).unwrap_err().contains("missing"));
    }
}
