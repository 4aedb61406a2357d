//! Reader of little-endian fields from a file of known length, with positions in its errors.
//!
//! A length in the file is checked against the rest of the file before memory is allocated.

use std::io::{self, Read};

/// The reason why a field cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldError {
    /// The file ends before the field.
    #[error("the file ends within {what}, which begins at byte {position}")]
    Ends {
        /// The field.
        what: &'static str,
        /// Offset of the field.
        position: u64,
    },
    #[error("failed to read {what} at byte {position}")]
    Io {
        /// The field.
        what: &'static str,
        /// Offset of the field.
        position: u64,
        #[source]
        source: io::Error,
    },
}

/// A reader that tracks its position.
#[derive(Debug)]
pub(crate) struct FieldReader<R> {
    inner: R,
    position: u64,
    length: u64,
}

impl<R: Read> FieldReader<R> {
    /// Returns a reader at the start of a file of `length` bytes.
    pub(crate) fn new(inner: R, length: u64) -> Self {
        Self {
            inner,
            position: 0,
            length,
        }
    }

    /// Returns the number of bytes read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns `count`, or an error if the rest of the file is too short for `count` items of at
    /// least `size` bytes.
    pub(crate) fn room_for(
        &self,
        count: u64,
        size: u64,
        what: &'static str,
    ) -> Result<usize, FieldError> {
        let ends = FieldError::Ends {
            what,
            position: self.position,
        };
        match count.checked_mul(size) {
            Some(bytes) if bytes <= self.length.saturating_sub(self.position) => {
                usize::try_from(count).map_err(|_| ends)
            }
            _ => Err(ends),
        }
    }

    fn fill(&mut self, bytes: &mut [u8], what: &'static str) -> Result<(), FieldError> {
        let position = self.position;
        self.room_for(bytes.len() as u64, 1, what)?;
        self.inner
            .read_exact(bytes)
            .map_err(|source| FieldError::Io {
                what,
                position,
                source,
            })?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn bytes(&mut self, count: u64, what: &'static str) -> Result<Vec<u8>, FieldError> {
        let mut bytes = vec![0; self.room_for(count, 1, what)?];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], FieldError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// Appends the next `count` bytes to `target`.
    pub(crate) fn append(
        &mut self,
        count: u64,
        target: &mut Vec<u8>,
        what: &'static str,
    ) -> Result<(), FieldError> {
        let start = target.len();
        target.resize(start + self.room_for(count, 1, what)?, 0);
        self.fill(&mut target[start..], what)
    }

    /// Returns the next `count` numbers of four bytes, decoded by `convert`.
    pub(crate) fn words<T>(
        &mut self,
        count: u64,
        convert: fn([u8; 4]) -> T,
        what: &'static str,
    ) -> Result<Vec<T>, FieldError> {
        let count = self.room_for(count, 4, what)?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            words.push(convert(self.array(what)?));
        }
        Ok(words)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, FieldError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, FieldError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, FieldError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, FieldError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn f32(&mut self, what: &'static str) -> Result<f32, FieldError> {
        Ok(f32::from_le_bytes(self.array(what)?))
    }
}
