//! Writer of GGUF files: the complete header first, then the tensors in the order of the plan.

use std::io::{self, Write};

use super::block::BlockForm;
use super::{ALIGNMENT, ByteStrings, HeaderValue, MAGIC, value_type};

/// A tensor to be written.
#[derive(Clone, Debug)]
pub(crate) struct PlannedTensor {
    pub(crate) name: String,
    /// Dimensions, the outermost first.
    pub(crate) shape: Vec<u64>,
    pub(crate) form: BlockForm,
    /// Size in bytes.
    pub(crate) bytes: u64,
}

/// Writes a file sequentially.
#[derive(Debug)]
pub(crate) struct GgufWriter<W> {
    inner: W,
    position: u64,
}

impl<W: Write> GgufWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// Returns an error when writing fails, or when a value cannot be encoded.
    pub(crate) fn begin(
        inner: W,
        values: &[(&str, HeaderValue)],
        tensors: &[PlannedTensor],
    ) -> io::Result<Self> {
        let mut writer = Self { inner, position: 0 };
        writer.put(&MAGIC)?;
        // The version of the format.
        writer.put(&3_u32.to_le_bytes())?;
        writer.put(&(tensors.len() as u64).to_le_bytes())?;
        writer.put(&(values.len() as u64).to_le_bytes())?;
        for (key, value) in values {
            writer.text(key.as_bytes())?;
            writer.value(value)?;
        }
        let mut offset = 0_u64;
        for tensor in tensors {
            writer.text(tensor.name.as_bytes())?;
            let dimensions = u32::try_from(tensor.shape.len()).map_err(io::Error::other)?;
            writer.put(&dimensions.to_le_bytes())?;
            // GGUF stores the innermost dimension first.
            for size in tensor.shape.iter().rev() {
                writer.put(&size.to_le_bytes())?;
            }
            writer.put(&tensor.form.number().to_le_bytes())?;
            writer.put(&offset.to_le_bytes())?;
            offset += tensor.bytes.next_multiple_of(ALIGNMENT);
        }
        writer.pad()?;
        Ok(writer)
    }

    /// Writes the bytes of the next tensor. Their number must be the planned one.
    ///
    /// # Errors
    ///
    /// Returns an error when writing fails.
    pub(crate) fn tensor(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)?;
        self.pad()
    }

    /// Flushes the file.
    ///
    /// # Errors
    ///
    /// Returns an error when writing fails.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.inner.flush()?;
        Ok(self.inner)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.inner.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        while !self.position.is_multiple_of(ALIGNMENT) {
            self.put(&[0])?;
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.put(&(text.len() as u64).to_le_bytes())?;
        self.put(text)
    }

    fn kind(&mut self, kind: u32) -> io::Result<()> {
        self.put(&kind.to_le_bytes())
    }

    fn array(&mut self, kind: u32, count: usize) -> io::Result<()> {
        self.kind(value_type::ARRAY)?;
        self.kind(kind)?;
        self.put(&(count as u64).to_le_bytes())
    }

    fn value(&mut self, value: &HeaderValue) -> io::Result<()> {
        match value {
            HeaderValue::Integer(number) => {
                if let Ok(number) = u32::try_from(*number) {
                    self.kind(value_type::U32)?;
                    self.put(&number.to_le_bytes())
                } else {
                    self.kind(value_type::U64)?;
                    self.put(&number.to_le_bytes())
                }
            }
            HeaderValue::Float(number) => {
                self.kind(value_type::F32)?;
                self.put(&number.to_le_bytes())
            }
            HeaderValue::Text(text) => {
                self.kind(value_type::TEXT)?;
                self.text(text.as_bytes())
            }
            HeaderValue::Texts(texts) => self.texts(texts),
            HeaderValue::Floats(numbers) => {
                self.array(value_type::F32, numbers.len())?;
                numbers
                    .iter()
                    .try_for_each(|number| self.put(&number.to_le_bytes()))
            }
            HeaderValue::Integers(numbers) => {
                self.array(value_type::U32, numbers.len())?;
                numbers
                    .iter()
                    .try_for_each(|number| self.put(&number.to_le_bytes()))
            }
            HeaderValue::Other => Err(io::Error::other("a value that was not read")),
        }
    }

    fn texts(&mut self, texts: &ByteStrings) -> io::Result<()> {
        self.array(value_type::TEXT, texts.len())?;
        texts.iter().try_for_each(|text| self.text(text))
    }
}
