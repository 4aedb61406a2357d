//! The canonical form of JSON, one text for all spellings of a value, and keyed hashes of it.
//!
//! The form has no white space. Members are sorted by the canonical text of their keys; of equal
//! keys the last one wins. Strings have the shortest escapes. Whole numbers below 2^53 are
//! integers. Other numbers have a fraction or an exponent, in the shortest decimal form of their
//! `f64`. The form is close to RFC 8785 but keeps integers of any size.

use std::borrow::Cow;
use std::fmt;

#[cfg(feature = "keys")]
use hmac::{Hmac, KeyInit, Mac};
#[cfg(feature = "keys")]
use sha2::Sha256;

/// The maximum depth of nesting.
pub const MAX_DEPTH: usize = 64;

/// 2^53: an `f64` represents every integer up to this one.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The reason for which a JSON text has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`].
    #[error("JSON is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The text is not JSON.
    #[error("text is not JSON")]
    NotJson,
}

/// Writes the canonical form of `json` to `sink`, in pieces.
///
/// # Errors
///
/// Returns [`CanonicalError`] for nesting over [`MAX_DEPTH`] and for text that is not JSON. `sink`
/// has then received nothing. Text that is nearly JSON may be accepted: this function normalises
/// values that were parsed before, and is no validator.
pub fn write_canonical(json: &str, sink: &mut impl FnMut(&[u8])) -> Result<(), CanonicalError> {
    let mut reader = JsonReader { text: json, at: 0 };
    let tree = reader.value(0)?;
    reader.white_space();
    if reader.at != json.len() {
        return Err(CanonicalError::NotJson);
    }
    tree.write(sink);
    Ok(())
}

enum JsonNode<'a> {
    /// Canonical text of a string, number, `true`, `false` or `null`.
    Scalar(Cow<'a, str>),
    Array(Vec<JsonNode<'a>>),
    /// Members with their canonical key text, sorted, unique.
    Object(Vec<(Cow<'a, str>, JsonNode<'a>)>),
}

impl JsonNode<'_> {
    fn write(&self, sink: &mut impl FnMut(&[u8])) {
        match self {
            Self::Scalar(text) => sink(text.as_bytes()),
            Self::Array(items) => {
                sink(b"[");
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        sink(b",");
                    }
                    item.write(sink);
                }
                sink(b"]");
            }
            Self::Object(members) => {
                sink(b"{");
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        sink(b",");
                    }
                    sink(key.as_bytes());
                    sink(b":");
                    value.write(sink);
                }
                sink(b"}");
            }
        }
    }
}

struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn consume(&mut self, byte: u8) -> bool {
        self.white_space();
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self, depth: usize) -> Result<JsonNode<'a>, CanonicalError> {
        if depth > MAX_DEPTH {
            return Err(CanonicalError::TooDeep);
        }
        self.white_space();
        match self.peek().ok_or(CanonicalError::NotJson)? {
            b'"' => self.string().map(JsonNode::Scalar),
            b'[' => {
                self.at += 1;
                self.array(depth)
            }
            b'{' => {
                self.at += 1;
                self.object(depth)
            }
            _ => self.scalar(),
        }
    }

    fn array(&mut self, depth: usize) -> Result<JsonNode<'a>, CanonicalError> {
        let mut items = Vec::new();
        if self.consume(b']') {
            return Ok(JsonNode::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.consume(b']') {
                return Ok(JsonNode::Array(items));
            }
            if !self.consume(b',') {
                return Err(CanonicalError::NotJson);
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<JsonNode<'a>, CanonicalError> {
        let mut members: Vec<(Cow<'a, str>, JsonNode<'a>)> = Vec::new();
        if self.consume(b'}') {
            return Ok(JsonNode::Object(members));
        }
        loop {
            self.white_space();
            let key = self.string()?;
            if !self.consume(b':') {
                return Err(CanonicalError::NotJson);
            }
            let value = self.value(depth + 1)?;
            members.push((key, value));
            if self.consume(b'}') {
                break;
            }
            if !self.consume(b',') {
                return Err(CanonicalError::NotJson);
            }
        }
        // The stable sort of the reversed list puts the last written of equal keys first, and the
        // first one stays.
        members.reverse();
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        members.dedup_by(|later, first| later.0 == first.0);
        Ok(JsonNode::Object(members))
    }

    /// Reads a string and returns its canonical text with quotes.
    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        if self.peek() != Some(b'"') {
            return Err(CanonicalError::NotJson);
        }
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        let mut has_escapes = false;
        loop {
            let found = bytes
                .get(at..)
                .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
                .ok_or(CanonicalError::NotJson)?;
            at += found;
            if bytes[at] == b'"' {
                break;
            }
            has_escapes = true;
            // Skips the escaped character, which may be a quotation mark.
            at += 2;
        }
        self.at = at + 1;
        let text = &self.text[start..self.at];
        if !has_escapes {
            return Ok(Cow::Borrowed(text));
        }
        // A string with a lone surrogate has only its own spelling.
        Ok(
            serde_json::from_str::<String>(text).map_or(Cow::Borrowed(text), |unescaped| {
                Cow::Owned(serde_json::Value::String(unescaped).to_string())
            }),
        )
    }

    fn scalar(&mut self) -> Result<JsonNode<'a>, CanonicalError> {
        let start = self.at;
        while let Some(byte) = self.peek() {
            if matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') {
                break;
            }
            self.at += 1;
        }
        let text = self
            .text
            .get(start..self.at)
            .filter(|text| !text.is_empty())
            .ok_or(CanonicalError::NotJson)?;
        match text {
            "true" | "false" | "null" => Ok(JsonNode::Scalar(Cow::Borrowed(text))),
            number => canonical_number(number).map(JsonNode::Scalar),
        }
    }
}

fn canonical_number(text: &str) -> Result<Cow<'_, str>, CanonicalError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(if text == "-0" {
            Cow::Borrowed("0")
        } else {
            Cow::Borrowed(text)
        });
    }
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return Err(CanonicalError::NotJson);
    }
    let number: f64 = text.parse().map_err(|_| CanonicalError::NotJson)?;
    // A number beyond the range of `f64` keeps its own text.
    if !number.is_finite() {
        return Ok(Cow::Borrowed(text));
    }
    // Adding zero turns -0.0 into 0.0.
    let number = number + 0.0;
    if number.fract() == 0.0 && number.abs() < MAX_SAFE_INTEGER {
        return Ok(Cow::Owned(format!("{number:.0}")));
    }
    Ok(Cow::Owned(format!("{number:e}")))
}

/// The first 128 bits of a keyed hash, printed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyedHash([u8; 16]);

impl KeyedHash {
    /// Returns the hash whose hexadecimal form is `text`.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        u128::from_str_radix(text, 16)
            .ok()
            .map(|bits| Self(bits.to_be_bytes()))
    }

    /// Returns the bytes of the hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the first 52 bits as a number between 0 and 1, both excluded, uniformly distributed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "52 bits fit an f64 exactly")]
    pub fn fraction(&self) -> f64 {
        let bits = u128::from_be_bytes(self.0) >> 76;
        (bits as f64 + 0.5) / (1_u64 << 52) as f64
    }
}

impl fmt::Display for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedHash({self})")
    }
}

impl serde::Serialize for KeyedHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for KeyedHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        Self::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("expected 32 hexadecimal digits"))
    }
}

/// The longest canonical JSON in bytes that is hashed with HMAC-SHA-256.
#[cfg(feature = "keys")]
const MAX_HMAC_BYTES: usize = 4096;

/// The context from which the key of BLAKE3 is derived. It is part of every hash of a long text.
#[cfg(feature = "keys")]
const LONG_TEXT_CONTEXT: &str = "riglm 2026-11 keyed hashes of long JSON";

/// Hashes texts that must be comparable but not readable: tool arguments and client identities.
///
/// It uses HMAC-SHA-256 (RFC 2104) under a key of the installation, and for JSON with more than
/// 4 KiB of canonical text keyed BLAKE3, which is quicker. Without the key a guess
/// cannot be confirmed, so a low-entropy secret in an argument stays secret in the database.
#[cfg(feature = "keys")]
#[derive(Clone)]
pub struct KeyedHasher {
    short: Hmac<Sha256>,
    long: Box<blake3::Hasher>,
}

#[cfg(feature = "keys")]
impl KeyedHasher {
    /// Returns a hasher under `key`.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        // A key shorter than the block of the hash is padded with zeros (RFC 2104 section 2).
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block[..key.len()].copy_from_slice(key);
        let long_key = blake3::derive_key(LONG_TEXT_CONTEXT, key);
        Self {
            short: Hmac::new(&block),
            long: Box::new(blake3::Hasher::new_keyed(&long_key)),
        }
    }

    /// Returns a hasher under another key, derived from the key of this one. Hashes for different
    /// purposes cannot be compared with each other or with those of this hasher.
    #[must_use]
    pub fn for_purpose(&self, purpose: &str) -> Self {
        // Otherwise only long texts are hashed under the key of BLAKE3, so no hash of any text
        // reveals a part of the new key.
        let mut hasher = (*self.long).clone();
        Self::new(hasher.update(purpose.as_bytes()).finalize().as_bytes())
    }

    /// Hashes the canonical form of a JSON text; an absent text counts as `{}`.
    ///
    /// # Errors
    ///
    /// Returns [`CanonicalError`] as [`write_canonical`] does.
    pub fn hash_json(&self, json: Option<&str>) -> Result<KeyedHash, CanonicalError> {
        // The beginning, until the canonical form is known to be long.
        let mut first = Vec::new();
        let mut long: Option<blake3::Hasher> = None;
        write_canonical(json.unwrap_or("{}"), &mut |piece| {
            if let Some(long) = &mut long {
                long.update(piece);
            } else if first.len() + piece.len() <= MAX_HMAC_BYTES {
                first.extend_from_slice(piece);
            } else {
                let hasher = long.insert((*self.long).clone());
                hasher.update(&first).update(piece);
            }
        })?;
        Ok(match long {
            Some(long) => truncate(long.finalize().as_bytes()),
            None => self.hash_bytes(&first),
        })
    }

    /// Hashes the bytes of a text.
    #[must_use]
    pub fn hash_text(&self, text: &str) -> KeyedHash {
        self.hash_bytes(text.as_bytes())
    }

    fn hash_bytes(&self, bytes: &[u8]) -> KeyedHash {
        let mut mac = self.short.clone();
        mac.update(bytes);
        truncate(&mac.finalize().into_bytes().into())
    }
}

#[cfg(feature = "keys")]
impl fmt::Debug for KeyedHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHasher(..)")
    }
}

#[cfg(feature = "keys")]
fn truncate(full: &[u8; 32]) -> KeyedHash {
    let mut first = [0; 16];
    first.copy_from_slice(&full[..16]);
    KeyedHash(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(json: &str) -> String {
        let mut out = Vec::new();
        write_canonical(json, &mut |piece| out.extend_from_slice(piece)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn spellings_of_one_value_agree() {
        assert_eq!(
            canonical(r#" { "b" : [ 1.0 , 1e2 ] , "a" : "\u0041\/" } "#),
            r#"{"a":"A/","b":[1,100]}"#
        );
        assert_eq!(canonical(r#"{"a":1,"a":2}"#), r#"{"a":2}"#);
        assert_eq!(canonical("18446744073709551616"), "18446744073709551616");
        assert_eq!(canonical("-0.0"), "0");
        assert_eq!(canonical("0.10"), canonical("1e-1"));
        assert_eq!(canonical(r#""\ud800""#), r#""\ud800""#);
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(write_canonical(&nested(MAX_DEPTH), &mut |_| ()).is_ok());
        assert_eq!(
            write_canonical(&nested(100_000), &mut |_| ()),
            Err(CanonicalError::TooDeep)
        );
    }

    #[test]
    fn the_hash_depends_on_key_and_value_and_is_128_bits() {
        let one = KeyedHasher::new(&[1; 32]);
        let two = KeyedHasher::new(&[2; 32]);
        let hash = one.hash_json(Some(r#"{"a":1, "b":2}"#)).unwrap();
        assert_eq!(hash, one.hash_json(Some(r#"{"b":2,"a":1.0}"#)).unwrap());
        assert_ne!(hash, one.hash_json(Some(r#"{"a":1,"b":3}"#)).unwrap());
        assert_ne!(hash, two.hash_json(Some(r#"{"a":1,"b":2}"#)).unwrap());
        assert_eq!(hash.to_string().len(), 32);
        assert_eq!(KeyedHash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(one.hash_json(None), one.hash_json(Some("{}")));
    }

    #[test]
    fn hashes_for_different_purposes_differ() {
        let hasher = KeyedHasher::new(&[1; 32]);
        let one = hasher.for_purpose("one").hash_text("x");
        assert_eq!(hasher.for_purpose("one").hash_text("x"), one);
        assert_ne!(hasher.for_purpose("two").hash_text("x"), one);
        assert_ne!(hasher.hash_text("x"), one);
        let other = KeyedHasher::new(&[2; 32]);
        assert_ne!(other.for_purpose("one").hash_text("x"), one);
    }

    #[test]
    fn hashes_of_short_and_of_long_json_stay_the_same_between_versions() {
        // Made with the modules hmac and blake3 of Python.
        let hasher = KeyedHasher::new(&[1; 32]);
        let hash = |json: &str| hasher.hash_json(Some(json)).unwrap().to_string();
        let text = |n_bytes: usize| format!("\"{}\"", "a".repeat(n_bytes - 2));
        assert_eq!(hash("{}"), "f186ad0c607e4207cee70b56dbff8a06");
        assert_eq!(
            hash(&text(MAX_HMAC_BYTES)),
            "2ed76d72547cd9d05d4ff34e2275d558"
        );
        assert_eq!(
            hash(&text(MAX_HMAC_BYTES + 1)),
            "1c4dc20ee8d60b682eb4645d93f9098a"
        );
        let words = format!("[{}]", vec![r#""word""#; 1000].join(" , "));
        let same = format!("[{}]", vec![r#""\u0077ord""#; 1000].join(","));
        assert_eq!(hash(&words), hash(&same));
        assert_ne!(hash(&words), hash(&words.replacen("word", "wort", 1)));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::vec((".{0,4}", inner), 0..6).prop_map(|members| {
                    serde_json::Value::Object(members.into_iter().collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn white_space_and_a_second_pass_change_nothing(value in json()) {
            let once = canonical(&value.to_string());
            prop_assert_eq!(&canonical(&serde_json::to_string_pretty(&value).unwrap()), &once);
            prop_assert_eq!(&canonical(&once), &once);
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text in ".*") {
            let _ = write_canonical(&text, &mut |_| ());
        }
    }
}
