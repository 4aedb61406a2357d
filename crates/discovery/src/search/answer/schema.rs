//! Extraction of input schemas from tool definitions.

use riglm_domain::mcp::edit::member;
use serde_json::value::RawValue;

/// Returns the input schema in a definition as compact JSON. Returns `None` if there is no schema,
/// or if it exceeds `max_bytes` in this form.
pub fn input_schema(definition: &str, max_bytes: u64) -> Option<Box<RawValue>> {
    let schema = member(definition, "inputSchema").filter(|schema| schema.starts_with('{'))?;
    RawValue::from_string(compact(schema, max_bytes)?).ok()
}

/// Removes the whitespace between JSON tokens. Returns `None` if the result exceeds `max_bytes`. At
/// most that much of the input is read in vain.
fn compact(json: &str, max_bytes: u64) -> Option<String> {
    let mut compact = String::new();
    let (mut kept_from, mut is_in_string, mut is_escaped) = (0, false, false);
    for (at, byte) in json.bytes().enumerate() {
        if (compact.len() + at - kept_from) as u64 > max_bytes {
            return None;
        }
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_string,
            b'"' => is_in_string = !is_in_string,
            b' ' | b'\t' | b'\r' | b'\n' if !is_in_string => {
                compact.push_str(&json[kept_from..at]);
                kept_from = at + 1;
            }
            _ => {}
        }
    }
    compact.push_str(&json[kept_from..]);
    (compact.len() as u64 <= max_bytes).then_some(compact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_preserves_the_json_value() {
        for text in [
            "",
            " a ",
            "\"",
            "\\",
            "\\\" ,{",
            "\\\\ : \n",
            "a\" b \" c",
            "漢 字",
        ] {
            let value = serde_json::json!({"a b": [text, {"c": 1.5}, text], "d": {}});
            let spaced = serde_json::to_string_pretty(&value).unwrap();
            let expected = value.to_string();
            let n_bytes = expected.len() as u64;
            assert_eq!(compact(&spaced, n_bytes - 1), None);
            assert_eq!(compact(&spaced, n_bytes), Some(expected));
        }
    }
}
