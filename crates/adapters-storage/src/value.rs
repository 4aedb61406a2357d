//! Values in the parameters and rows of statements.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A time as whole microseconds since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) Timestamp);

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0.as_microsecond())
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let micros = i64::deserialize(deserializer)?;
        Timestamp::from_microsecond(micros)
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// Returns a count as the databases store it. A count that does not fit becomes the largest value.
pub(crate) fn saturating_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hex(pub(crate) Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(text)
            .map(Self)
            .map_err(|_| D::Error::custom("expected hexadecimal digits"))
    }
}

/// Returns the components of a vector as the bytes of 32-bit floats, little-endian.
pub(crate) fn bytes_of(vector: &[f32]) -> Hex {
    Hex(vector
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect())
}

/// Returns the components of a vector that [`bytes_of`] wrote; `None` for an invalid number of
/// bytes.
pub(crate) fn vector_of(bytes: &Hex) -> Option<Vec<f32>> {
    let (values, rest) = bytes.0.as_chunks::<4>();
    rest.is_empty().then(|| {
        values
            .iter()
            .map(|value| f32::from_le_bytes(*value))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_vectors_round_trip() {
        let vector = [0.0, -1.5, f32::MIN_POSITIVE];
        let json = serde_json::to_string(&bytes_of(&vector)).unwrap();
        let bytes: Hex = serde_json::from_str(&json.to_uppercase()).unwrap();
        assert_eq!(vector_of(&bytes).unwrap(), vector);
        assert!(serde_json::from_str::<Hex>("\"0\"").is_err());
        assert!(serde_json::from_str::<Hex>("\"0g\"").is_err());
        assert_eq!(vector_of(&Hex(vec![0; 5])), None);
    }
}
