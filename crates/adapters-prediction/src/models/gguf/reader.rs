//! Reader of GGUF headers and of single tensors.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::super::field_reader::{FieldError, FieldReader};
use super::block::BlockForm;
use super::{ALIGNMENT, ByteStrings, HeaderValue, MAGIC, TensorEntry, value_type};

/// Maximum number of dimensions of a tensor.
const MOST_DIMENSIONS: u32 = 4;

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GgufError {
    /// The file cannot be read.
    #[error("failed to read")]
    Io(#[source] io::Error),
    /// The content is invalid. The text has the problem and its place.
    #[error("{0}")]
    Content(String),
}

impl From<FieldError> for GgufError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Io { source, .. } => Self::Io(source),
            FieldError::Ends { .. } => Self::Content(error.to_string()),
        }
    }
}

/// An open file with its header.
#[derive(Debug)]
pub(crate) struct Gguf {
    file: File,
    values: HashMap<String, HeaderValue>,
    tensors: HashMap<String, TensorEntry>,
}

impl Gguf {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError`] when the file cannot be read, is no GGUF file, or ends before its last
    /// tensor.
    pub(crate) fn open(path: &Path) -> Result<Self, GgufError> {
        let file = File::open(path).map_err(GgufError::Io)?;
        let length = file.metadata().map_err(GgufError::Io)?.len();
        let mut reader = FieldReader::new(BufReader::with_capacity(1 << 16, &file), length);
        let (values, tensors) = read_header(&mut reader)?;
        Ok(Self {
            file,
            values,
            tensors,
        })
    }

    /// Returns a value of the header.
    pub(crate) fn value(&self, key: &str) -> Option<&HeaderValue> {
        self.values.get(key)
    }

    /// Takes a value out of the header.
    pub(crate) fn take(&mut self, key: &str) -> Option<HeaderValue> {
        self.values.remove(key)
    }

    /// Returns an integer of the header.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError::Content`] when the key is missing, or its value is no integer.
    pub(crate) fn integer(&self, key: &str) -> Result<u64, GgufError> {
        match self.value(key) {
            Some(HeaderValue::Integer(number)) => Ok(*number),
            Some(_) => Err(GgufError::Content(format!("{key} is not a whole number"))),
            None => Err(GgufError::Content(format!("{key} is missing"))),
        }
    }

    /// Returns the entry of a tensor.
    pub(crate) fn tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(name)
    }

    /// Appends the bytes of a tensor to `target`.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError::Io`] when they cannot be read.
    pub(crate) fn read(&self, tensor: &TensorEntry, target: &mut Vec<u8>) -> Result<(), GgufError> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(tensor.start))
            .map_err(GgufError::Io)?;
        let count = usize::try_from(tensor.bytes)
            .map_err(|_| GgufError::Content("a tensor is larger than memory".to_owned()))?;
        let start = target.len();
        target.resize(start + count, 0);
        file.read_exact(&mut target[start..]).map_err(GgufError::Io)
    }
}

type Header = (HashMap<String, HeaderValue>, HashMap<String, TensorEntry>);

fn read_header<R: Read>(reader: &mut FieldReader<R>) -> Result<Header, GgufError> {
    if reader.array::<4>("the first four bytes")? != MAGIC {
        return Err(GgufError::Content("it does not begin with GGUF".to_owned()));
    }
    let version = reader.u32("the version")?;
    if !(2..=3).contains(&version) {
        return Err(GgufError::Content(format!(
            "it has version {version} of GGUF, not 2 or 3"
        )));
    }
    let tensor_count = reader.u64("the number of tensors")?;
    let value_count = reader.u64("the number of values")?;
    let mut values = HashMap::new();
    // The smallest value: the length of its key (8 bytes), its type (4), and one byte.
    for _ in 0..reader.room_for(value_count, 13, "the values")? {
        let key = read_text(reader, "the name of a value")?;
        let kind = reader.u32("the type of a value")?;
        values.insert(key, read_value(reader, kind)?);
    }
    let mut tensors = HashMap::new();
    // The smallest entry: the length of the name (8 bytes), the number of dimensions (4), the type
    // (4), and the offset (8).
    for _ in 0..reader.room_for(tensor_count, 24, "the list of tensors")? {
        let name = read_text(reader, "the name of a tensor")?;
        let entry = read_tensor_entry(reader, &name)?;
        tensors.insert(name, entry);
    }
    let alignment = match values.get("general.alignment") {
        Some(HeaderValue::Integer(alignment)) if *alignment > 0 => *alignment,
        _ => ALIGNMENT,
    };
    place_tensors(reader, alignment, &mut tensors)?;
    Ok((values, tensors))
}

/// Converts relative offsets to absolute ones, and checks that the file contains all tensors.
fn place_tensors<R: Read>(
    reader: &FieldReader<R>,
    alignment: u64,
    tensors: &mut HashMap<String, TensorEntry>,
) -> Result<(), GgufError> {
    let data = reader.position().checked_next_multiple_of(alignment);
    for (name, tensor) in tensors {
        let start = data.and_then(|data| data.checked_add(tensor.start));
        let end = start.and_then(|start| start.checked_add(tensor.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= reader.length() => tensor.start = start,
            _ => {
                return Err(GgufError::Content(format!(
                    "the file of {} bytes ends before the end of tensor {name}",
                    reader.length()
                )));
            }
        }
    }
    Ok(())
}

fn read_tensor_entry<R: Read>(
    reader: &mut FieldReader<R>,
    name: &str,
) -> Result<TensorEntry, GgufError> {
    let dimensions = reader.u32("the number of dimensions of a tensor")?;
    if dimensions > MOST_DIMENSIONS {
        return Err(GgufError::Content(format!(
            "tensor {name} has too many dimensions: {dimensions}"
        )));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(reader.u64("a dimension of a tensor")?);
    }
    // GGUF stores the innermost dimension first.
    shape.reverse();
    let number = reader.u32("the form of a tensor")?;
    let form = BlockForm::from_number(number).ok_or_else(|| {
        GgufError::Content(format!(
            "tensor {name} has weights of form {number}, not F32, Q4_0 or Q8_0"
        ))
    })?;
    let start = reader.u64("the place of a tensor")?;
    let bytes = shape
        .iter()
        .try_fold(1_u64, |product, size| product.checked_mul(*size))
        .and_then(|weights| form.bytes_of(weights))
        .ok_or_else(|| {
            GgufError::Content(format!("tensor {name} has an invalid shape: {shape:?}"))
        })?;
    Ok(TensorEntry {
        form,
        shape,
        start,
        bytes,
    })
}

fn read_text<R: Read>(
    reader: &mut FieldReader<R>,
    what: &'static str,
) -> Result<String, GgufError> {
    let position = reader.position();
    let length = reader.u64(what)?;
    String::from_utf8(reader.bytes(length, what)?)
        .map_err(|_| GgufError::Content(format!("{what} at byte {position} is not UTF-8")))
}

fn read_value<R: Read>(reader: &mut FieldReader<R>, kind: u32) -> Result<HeaderValue, GgufError> {
    const WHAT: &str = "a value";
    Ok(match kind {
        // Types without a constant: 0 is u8, 2 is u16, 7 is bool, 11 is i64.
        0 | 7 => HeaderValue::Integer(reader.u8(WHAT)?.into()),
        2 => HeaderValue::Integer(reader.u16(WHAT)?.into()),
        value_type::U32 => HeaderValue::Integer(reader.u32(WHAT)?.into()),
        value_type::I32 => whole(reader.u32(WHAT)?.cast_signed().into()),
        value_type::F32 => HeaderValue::Float(reader.f32(WHAT)?),
        value_type::TEXT => HeaderValue::Text(read_text(reader, "a text")?),
        value_type::ARRAY => read_array(reader)?,
        value_type::U64 => HeaderValue::Integer(reader.u64(WHAT)?),
        11 => whole(reader.u64(WHAT)?.cast_signed()),
        _ => {
            let size = size_of_scalar(kind, reader.position())?;
            reader.bytes(size, WHAT)?;
            HeaderValue::Other
        }
    })
}

fn whole(number: i64) -> HeaderValue {
    u64::try_from(number).map_or(HeaderValue::Other, HeaderValue::Integer)
}

fn read_array<R: Read>(reader: &mut FieldReader<R>) -> Result<HeaderValue, GgufError> {
    const WHAT: &str = "an array";
    let kind = reader.u32(WHAT)?;
    let count = reader.u64(WHAT)?;
    Ok(match kind {
        value_type::U32 | value_type::I32 => {
            HeaderValue::Integers(reader.words(count, u32::from_le_bytes, WHAT)?)
        }
        value_type::F32 => HeaderValue::Floats(reader.words(count, f32::from_le_bytes, WHAT)?),
        value_type::TEXT => read_texts(reader, count)?,
        _ => {
            let size = size_of_scalar(kind, reader.position())?;
            let count = reader.room_for(count, size, WHAT)?;
            reader.bytes(count as u64 * size, WHAT)?;
            HeaderValue::Other
        }
    })
}

fn read_texts<R: Read>(reader: &mut FieldReader<R>, count: u64) -> Result<HeaderValue, GgufError> {
    const WHAT: &str = "an array of texts";
    let mut texts = ByteStrings::default();
    for _ in 0..reader.room_for(count, 8, WHAT)? {
        let length = reader.u64(WHAT)?;
        reader.append(length, &mut texts.bytes, WHAT)?;
        let end = u32::try_from(texts.bytes.len())
            .map_err(|_| GgufError::Content("an array of texts exceeds 4 GiB".to_owned()))?;
        texts.ends.push(end);
    }
    Ok(HeaderValue::Texts(texts))
}

fn size_of_scalar(kind: u32, position: u64) -> Result<u64, GgufError> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        10..=12 => Ok(8),
        _ => Err(GgufError::Content(format!(
            "unknown type {kind} of a value before byte {position}"
        ))),
    }
}
