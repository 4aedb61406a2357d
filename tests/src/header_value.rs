//! The encoding of the `Mcp-Name` and `Mcp-Param-*` headers: plain text where possible, otherwise
//! Base64 between marks (2026-07-28, Streamable HTTP, "Value Encoding").

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const MARK: &str = "=?base64?";
const END: &str = "?=";

/// Encodes a text as a header value.
pub fn encode(text: &str) -> String {
    let is_visible = text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e));
    let is_padded = text.trim_matches([' ', '\t']).len() < text.len();
    let is_marked = text.starts_with(MARK) && text.ends_with(END);
    if is_visible && !is_padded && !is_marked {
        text.to_owned()
    } else {
        format!("{MARK}{}{END}", base64(text.as_bytes()))
    }
}

/// Decodes a header value. Returns `None` for invalid Base64 and for bytes that are not UTF-8.
pub fn decode(value: &str) -> Option<String> {
    let Some(body) = value
        .strip_prefix(MARK)
        .and_then(|rest| rest.strip_suffix(END))
    else {
        return Some(value.to_owned());
    };
    String::from_utf8(bytes_of(body)?).ok()
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            if position > chunk.len() {
                text.push('=');
            } else {
                let index = group >> (18 - 6 * position) & 0x3f;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::new();
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut group = 0_usize;
        for position in 0..4 {
            let digit = match chunk.get(position) {
                Some(byte) => ALPHABET.iter().position(|known| known == byte)?,
                None => 0,
            };
            group = group << 6 | digit;
        }
        let whole = [group >> 16, group >> 8, group];
        for byte in whole.iter().take(chunk.len().checked_sub(1)?) {
            bytes.push(u8::try_from(byte & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specification_examples_round_trip() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("Hello, \u{4e16}\u{754c}", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(text), value);
            assert_eq!(decode(value).as_deref(), Some(text));
        }
    }

    #[test]
    fn broken_base64_is_not_decoded() {
        for value in ["=?base64?A?=", "=?base64?!!!!?=", "=?base64?gA==?="] {
            assert_eq!(decode(value), None, "{value}");
        }
    }
}
