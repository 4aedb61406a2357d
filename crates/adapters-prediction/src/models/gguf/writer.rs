//! Writes GGUF files: the header at once, then the tensors in the order of their list.

use std::io::{self, Write};

use super::block::BlockForm;
use super::{ALIGNMENT, MAGIC, Texts, Value, value_type};

/// A tensor that is going to be written.
#[derive(Clone, Debug)]
pub(crate) struct PlannedTensor {
    /// Its name.
    pub(crate) name: String,
    /// Its dimensions, the outermost first.
    pub(crate) shape: Vec<u64>,
    /// How its weights are stored.
    pub(crate) form: BlockForm,
    /// How many bytes they take.
    pub(crate) bytes: u64,
}

/// Writes a file from its beginning to its end.
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
    /// Fails when the bytes cannot be written, or where a value cannot be expressed.
    pub(crate) fn begin(
        inner: W,
        values: &[(&str, Value)],
        tensors: &[PlannedTensor],
    ) -> io::Result<Self> {
        let mut writer = Self { inner, position: 0 };
        writer.put(&MAGIC)?;
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

    /// Writes the bytes of the next tensor, as many as were planned.
    ///
    /// # Errors
    ///
    /// Fails when they cannot be written.
    pub(crate) fn tensor(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes)?;
        self.pad()
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// Fails when what is buffered cannot be written.
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

    fn value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::Integer(number) => {
                if let Ok(number) = u32::try_from(*number) {
                    self.kind(value_type::U32)?;
                    self.put(&number.to_le_bytes())
                } else {
                    self.kind(value_type::U64)?;
                    self.put(&number.to_le_bytes())
                }
            }
            Value::Float(number) => {
                self.kind(value_type::F32)?;
                self.put(&number.to_le_bytes())
            }
            Value::Text(text) => {
                self.kind(value_type::TEXT)?;
                self.text(text.as_bytes())
            }
            Value::Texts(texts) => self.texts(texts),
            Value::Floats(numbers) => {
                self.array(value_type::F32, numbers.len())?;
                numbers
                    .iter()
                    .try_for_each(|number| self.put(&number.to_le_bytes()))
            }
            Value::Integers(numbers) => {
                self.array(value_type::U32, numbers.len())?;
                numbers
                    .iter()
                    .try_for_each(|number| self.put(&number.to_le_bytes()))
            }
            Value::Other => Err(io::Error::other("a value that was not read")),
        }
    }

    fn texts(&mut self, texts: &Texts) -> io::Result<()> {
        self.array(value_type::TEXT, texts.len())?;
        texts.iter().try_for_each(|text| self.text(text))
    }
}
