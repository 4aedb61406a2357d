//! Digests of access keys. riglm stores the digest of a key, not the key.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "sha256:";
/// The shortest key, in characters: 16 random characters out of 64 are 96 bits.
const MIN_CHARS: usize = 16;

/// The reason for which a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyDigestError {
    /// The text after `sha256:` is no digest.
    #[error("expected 64 hexadecimal digits after sha256:")]
    Digest,
    /// The key is so short that it could be guessed.
    #[error("expected a key of at least {MIN_CHARS} characters, or sha256: and its digest")]
    Short,
}

/// The SHA-256 of a key. The key itself is not stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// Returns the digest of a key.
    ///
    /// # Errors
    ///
    /// Returns [`KeyDigestError::Short`] for a key of less than 16 characters.
    pub fn of(key: &str) -> Result<Self, KeyDigestError> {
        if key.chars().count() < MIN_CHARS {
            return Err(KeyDigestError::Short);
        }
        Ok(Self(Sha256::digest(key.as_bytes()).into()))
    }

    /// Returns the digest for a text of the configuration: `sha256:` and 64 hexadecimal digits, or
    /// a key.
    ///
    /// # Errors
    ///
    /// Returns [`KeyDigestError`] for a text that is neither.
    pub fn parse(text: &str) -> Result<Self, KeyDigestError> {
        let Some(digits) = text.strip_prefix(PREFIX) else {
            return Self::of(text);
        };
        let mut digest = [0; 32];
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if digits.len() != 2 * digest.len() || !is_hex {
            return Err(KeyDigestError::Digest);
        }
        for (position, byte) in digest.iter_mut().enumerate() {
            let pair = &digits[2 * position..2 * position + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| KeyDigestError::Digest)?;
        }
        Ok(Self(digest))
    }

    /// Returns whether a text of the configuration is written as a digest, rather than as a key.
    #[must_use]
    pub fn is_digest(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Returns whether this is the digest of the presented key. The time that it takes depends on
    /// the length of the key, not on its content.
    #[must_use]
    pub fn matches_key(&self, presented: &str) -> bool {
        let digest = <[u8; 32]>::from(Sha256::digest(presented.as_bytes()));
        self.0.ct_eq(&digest).into()
    }
}

/// Writes the form that [`KeyDigest::parse`] reads.
impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(self.0))
    }
}

/// Hides the digest. It is no secret, but logs do not need it.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_digest_are_parsed_to_one_digest() {
        let key = "the key of alice";
        let digest = KeyDigest::of(key).unwrap();
        assert_eq!(KeyDigest::parse(key).unwrap(), digest);
        assert_eq!(KeyDigest::parse(&digest.to_string()).unwrap(), digest);
        assert!(digest.matches_key(key));
        for other in [
            "",
            "the key of alice ",
            "the key of alic",
            &digest.to_string(),
        ] {
            assert!(!digest.matches_key(other), "{other}");
        }
    }

    #[test]
    fn the_digest_is_sha256_and_hidden_in_debug_output() {
        let digest = KeyDigest::of("abcdefghijklmnopqrstuvwxyz").unwrap();
        let expected = "sha256:71c480df93d6ae2f1efad1447c66c9525e316218cf51fc8d9ed832f2daf18b73";
        assert_eq!(digest.to_string(), expected);
        assert_eq!(format!("{digest:?}"), "KeyDigest");
    }

    #[test]
    fn short_keys_and_malformed_digests_are_refused() {
        for text in ["", "short", "fifteen letters"] {
            assert_eq!(KeyDigest::parse(text), Err(KeyDigestError::Short), "{text}");
        }
        for text in [
            "sha256:",
            "sha256:12",
            &format!("sha256:{}", "é".repeat(32)),
        ] {
            assert_eq!(
                KeyDigest::parse(text),
                Err(KeyDigestError::Digest),
                "{text}"
            );
        }
    }
}
