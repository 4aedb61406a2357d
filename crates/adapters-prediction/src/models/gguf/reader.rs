//! Reads the header of a GGUF file, and tensors one by one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::super::field_reader::{FieldError, FieldReader};
use super::block::BlockForm;
use super::{ALIGNMENT, MAGIC, TensorEntry, Texts, Value, value_type};

/// The most dimensions that a tensor has.
const MOST_DIMENSIONS: u32 = 4;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GgufError {
    /// The operating system does not give it.
    #[error("failed to read")]
    Io(#[source] io::Error),
    /// It is not what it should be; what, and where.
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

/// An open file of which the header was read.
#[derive(Debug)]
pub(crate) struct Gguf {
    file: File,
    values: HashMap<String, Value>,
    tensors: HashMap<String, TensorEntry>,
}

impl Gguf {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError`] when it cannot be read, is no GGUF file, or ends before its last
    /// tensor does.
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
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Takes a value out of the header.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.values.remove(key)
    }

    /// Returns a whole number of the header.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError::Content`] when there is none of this name, or something else.
    pub(crate) fn integer(&self, key: &str) -> Result<u64, GgufError> {
        match self.value(key) {
            Some(Value::Integer(number)) => Ok(*number),
            Some(_) => Err(GgufError::Content(format!("{key} is not a whole number"))),
            None => Err(GgufError::Content(format!("{key} is missing"))),
        }
    }

    /// Returns where a tensor lies.
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

type Header = (HashMap<String, Value>, HashMap<String, TensorEntry>);

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
    for _ in 0..reader.room_for(value_count, 13, "the values")? {
        let key = read_text(reader, "the name of a value")?;
        let kind = reader.u32("the type of a value")?;
        values.insert(key, read_value(reader, kind)?);
    }
    let mut tensors = HashMap::new();
    for _ in 0..reader.room_for(tensor_count, 24, "the list of tensors")? {
        let name = read_text(reader, "the name of a tensor")?;
        let entry = read_tensor_entry(reader, &name)?;
        tensors.insert(name, entry);
    }
    let alignment = match values.get("general.alignment") {
        Some(Value::Integer(alignment)) if *alignment > 0 => *alignment,
        _ => ALIGNMENT,
    };
    place_tensors(reader, alignment, &mut tensors)?;
    Ok((values, tensors))
}

/// Makes offsets positions in the file, and checks that the file has all bytes.
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
                    "the file of {} bytes ends before tensor {name} does",
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
            "tensor {name} has {dimensions} dimensions"
        )));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        shape.push(reader.u64("a dimension of a tensor")?);
    }
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
        .ok_or_else(|| GgufError::Content(format!("tensor {name} has no size: {shape:?}")))?;
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

fn read_value<R: Read>(reader: &mut FieldReader<R>, kind: u32) -> Result<Value, GgufError> {
    const WHAT: &str = "a value";
    Ok(match kind {
        0 | 7 => Value::Integer(reader.u8(WHAT)?.into()),
        2 => Value::Integer(reader.u16(WHAT)?.into()),
        value_type::U32 => Value::Integer(reader.u32(WHAT)?.into()),
        value_type::I32 => whole(reader.u32(WHAT)?.cast_signed().into()),
        value_type::F32 => Value::Float(reader.f32(WHAT)?),
        value_type::TEXT => Value::Text(read_text(reader, "a text")?),
        value_type::ARRAY => read_array(reader)?,
        value_type::U64 => Value::Integer(reader.u64(WHAT)?),
        11 => whole(reader.u64(WHAT)?.cast_signed()),
        _ => {
            let size = size_of_scalar(kind, reader.position())?;
            reader.bytes(size, WHAT)?;
            Value::Other
        }
    })
}

fn whole(number: i64) -> Value {
    u64::try_from(number).map_or(Value::Other, Value::Integer)
}

fn read_array<R: Read>(reader: &mut FieldReader<R>) -> Result<Value, GgufError> {
    const WHAT: &str = "an array";
    let kind = reader.u32(WHAT)?;
    let count = reader.u64(WHAT)?;
    Ok(match kind {
        value_type::U32 | value_type::I32 => {
            Value::Integers(reader.words(count, u32::from_le_bytes, WHAT)?)
        }
        value_type::F32 => Value::Floats(reader.words(count, f32::from_le_bytes, WHAT)?),
        value_type::TEXT => read_texts(reader, count)?,
        _ => {
            let size = size_of_scalar(kind, reader.position())?;
            let count = reader.room_for(count, size, WHAT)?;
            reader.bytes(count as u64 * size, WHAT)?;
            Value::Other
        }
    })
}

fn read_texts<R: Read>(reader: &mut FieldReader<R>, count: u64) -> Result<Value, GgufError> {
    const WHAT: &str = "an array of texts";
    let mut texts = Texts::default();
    for _ in 0..reader.room_for(count, 8, WHAT)? {
        let length = reader.u64(WHAT)?;
        reader.append(length, &mut texts.bytes, WHAT)?;
        let end = u32::try_from(texts.bytes.len())
            .map_err(|_| GgufError::Content("an array of texts exceeds 4 GiB".to_owned()))?;
        texts.ends.push(end);
    }
    Ok(Value::Texts(texts))
}

fn size_of_scalar(kind: u32, position: u64) -> Result<u64, GgufError> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        10..=12 => Ok(8),
        _ => Err(GgufError::Content(format!(
            "a value of type {kind} before byte {position} cannot be read"
        ))),
    }
}
