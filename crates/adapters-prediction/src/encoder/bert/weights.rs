//! Reader of single tensors of a safetensors file.
//!
//! A file is as large as all the weights. Reading or mapping the whole file would keep them in
//! memory twice during loading.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::Init;
use candle_nn::var_builder::SimpleBackend;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::encoder::model::{self, ModelError};

/// Maximum size of the header. The largest encoders have some ten thousand bytes.
const MAX_HEADER: u64 = 16 << 20;
/// Size of a read in bytes.
const BLOCK: usize = 64 << 10;
/// A tensor that every encoder has, without the prefix.
const WORDS: &str = "embeddings.word_embeddings.weight";
/// Prefix of the tensors that are used as lookup tables of rows.
const TABLES: &str = "embeddings.";

/// The tensors of a file of weights, by name.
#[derive(Debug)]
pub(super) struct Weights {
    file: Mutex<File>,
    tensors: HashMap<String, TensorLocation>,
    /// Common prefix of all names, such as `bert.`.
    prefix: String,
    /// Offset of the tensor data in the file.
    data: u64,
}

/// Description of a tensor in the header.
#[derive(Debug, Deserialize)]
struct TensorLocation {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl TensorLocation {
    /// Returns the number of bytes of a tensor of this shape, or `None` on overflow.
    fn bytes_by_shape(&self) -> Option<u64> {
        self.shape.iter().try_fold(4_u64, |bytes, size| {
            bytes.checked_mul(u64::try_from(*size).ok()?)
        })
    }
}

impl Weights {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] when the file cannot be read, has another length than its header
    /// says, or has no word table.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, ModelError> {
        let wrong = |reason: String| ModelError::Content {
            path: path.to_owned(),
            reason,
        };
        let unreadable = |source| ModelError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = model::open(path)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length < 8 {
            return Err(wrong(format!(
                "it has {length} bytes, too few for a header"
            )));
        }
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(unreadable)?;
        let size = u64::from_le_bytes(size);
        if size > MAX_HEADER || size > length - 8 {
            return Err(wrong(format!(
                "its header size is {size} bytes, but the file has {length}"
            )));
        }
        let mut header = Vec::new();
        (&mut file)
            .take(size)
            .read_to_end(&mut header)
            .map_err(unreadable)?;
        let tensors = parse(&header).map_err(|error| wrong(format!("its header: {error}")))?;
        let data = 8 + size;
        // Another length means that the file is truncated.
        let (end, expected) = (end_of(&tensors), length - data);
        if end != expected {
            return Err(wrong(format!(
                "its tensors take {end} bytes, but there are {expected} after the header"
            )));
        }
        let prefix = tensors
            .keys()
            .find_map(|name| name.strip_suffix(WORDS))
            .ok_or_else(|| wrong(format!("it has no tensor {WORDS}")))?
            .to_owned();
        Ok(Self {
            file: Mutex::new(file),
            tensors,
            prefix,
            data,
        })
    }

    fn location_of(&self, name: &str) -> Result<&TensorLocation> {
        let name = format!("{}{name}", self.prefix);
        let place = self
            .tensors
            .get(&name)
            .ok_or_else(|| Error::Msg(format!("it has no tensor {name}")))?;
        if place.dtype != "F32" {
            return Err(Error::Msg(format!(
                "tensor {name} is of type {}, but only F32 is supported",
                place.dtype
            )));
        }
        let (from, to) = place.data_offsets;
        if place.bytes_by_shape() != to.checked_sub(from) {
            return Err(Error::Msg(format!(
                "tensor {name} of shape {:?} has invalid offsets {from} to {to}",
                place.shape
            )));
        }
        Ok(place)
    }

    /// Reads a tensor without a second copy of its numbers.
    fn tensor(&self, place: &TensorLocation, device: &Device) -> Result<Tensor> {
        let mut numbers = Vec::with_capacity(place.shape.iter().product());
        self.read(place, |number| numbers.push(number))?;
        Tensor::from_vec(numbers, place.shape.as_slice(), device)
    }

    /// Reads a matrix into column order. With row order, each product with a text would begin with
    /// such a copy.
    fn by_columns(&self, place: &TensorLocation, device: &Device) -> Result<Tensor> {
        let [rows, columns] = place.shape[..] else {
            return self.tensor(place, device);
        };
        let mut numbers = vec![0.0; rows * columns];
        let mut places =
            (0..rows).flat_map(|row| (0..columns).map(move |column| column * rows + row));
        self.read(place, |number| {
            if let Some(place) = places.next() {
                numbers[place] = number;
            }
        })?;
        Tensor::from_vec(numbers, (columns, rows), device)?.t()
    }

    /// Calls `take` with the numbers of a tensor, in the order of the file.
    fn read(&self, place: &TensorLocation, mut take: impl FnMut(f32)) -> Result<()> {
        let mut file = self.file.lock();
        file.seek(SeekFrom::Start(self.data + place.data_offsets.0))?;
        let mut block = vec![0; BLOCK];
        let mut left = place.shape.iter().product::<usize>() * 4;
        while left > 0 {
            let part = &mut block[..left.min(BLOCK)];
            file.read_exact(part)?;
            let (values, _) = part.as_chunks::<4>();
            for bytes in values {
                take(f32::from_le_bytes(*bytes));
            }
            left -= part.len();
        }
        Ok(())
    }
}

/// Parses the header: an object of tensors. Its member `__metadata__` is skipped.
fn parse(header: &[u8]) -> serde_json::Result<HashMap<String, TensorLocation>> {
    let members: HashMap<String, Box<RawValue>> = serde_json::from_slice(header)?;
    members
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, text)| Ok((name, serde_json::from_str(text.get())?)))
        .collect()
}

/// Returns the end of the last tensor.
fn end_of(tensors: &HashMap<String, TensorLocation>) -> u64 {
    let ends = tensors.values().map(|place| place.data_offsets.1);
    ends.max().unwrap_or(0)
}

impl SimpleBackend for Weights {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        _: Init,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let place = self.location_of(name)?;
        if place.shape != shape.dims() {
            return Err(Error::Msg(format!(
                "tensor {}{name} has shape {:?}, but config.json needs {:?}",
                self.prefix,
                place.shape,
                shape.dims()
            )));
        }
        let tensor = if name.starts_with(TABLES) {
            self.tensor(place, device)
        } else {
            self.by_columns(place, device)
        };
        tensor?.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let place = self.location_of(name)?;
        self.tensor(place, device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(&format!("{}{name}", self.prefix))
    }
}
