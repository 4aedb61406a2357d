//! Check that a `model.safetensors` is complete: its header must match its size.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;

use crate::models::files::{FileError, open};

/// Maximum size of the header in bytes. Headers of known models are below 100 kB.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// Description of a tensor in the header.
#[derive(Debug, Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The reason why a file is refused. The inner text has the problem.
#[derive(Debug)]
pub(super) enum SafetensorsProblem {
    File(FileError),
    Content(String),
}

/// Verifies that a file has a header, and exactly the data that the header describes.
///
/// # Errors
///
/// Returns [`SafetensorsProblem`] when the file cannot be read, or does not match.
pub(super) fn check(path: &Path) -> Result<(), SafetensorsProblem> {
    let mut file = open(path).map_err(SafetensorsProblem::File)?;
    let length = file
        .metadata()
        .map_err(|error| SafetensorsProblem::File(FileError::io(path)(error)))?
        .len();
    let read = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(
            SafetensorsProblem::Content("it ends within its header".into()),
        ),
        other => other.map_err(|error| SafetensorsProblem::File(FileError::io(path)(error))),
    };
    let mut size = [0; 8];
    read(file.read_exact(&mut size))?;
    let header_bytes = u64::from_le_bytes(size);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(SafetensorsProblem::Content(format!(
            "its header is too large: {header_bytes} bytes"
        )));
    }
    let mut header = vec![0; usize::try_from(header_bytes).unwrap_or_default()];
    read(file.read_exact(&mut header))?;
    let end = data_end(&header)?;
    let expected = (8 + header_bytes).checked_add(end);
    if expected != Some(length) {
        return Err(SafetensorsProblem::Content(format!(
            "it has {length} bytes, but its header describes {}",
            expected.map_or("more".into(), |expected| expected.to_string())
        )));
    }
    Ok(())
}

/// Returns the end of the data of the last tensor. Returns an error if there are gaps or overlaps.
fn data_end(header: &[u8]) -> Result<u64, SafetensorsProblem> {
    let wrong = SafetensorsProblem::Content;
    let entries: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(header).map_err(|error| wrong(format!("its header: {error}")))?;
    let mut ranges = Vec::new();
    for (name, entry) in entries {
        if name == "__metadata__" {
            continue;
        }
        let tensor: Tensor = serde_json::from_value(entry)
            .map_err(|error| wrong(format!("tensor {name:?} in its header: {error}")))?;
        let (from, to) = tensor.data_offsets;
        if bytes_of(&tensor).is_none_or(|bytes| from.checked_add(bytes) != Some(to)) {
            return Err(wrong(format!(
                "the size of tensor {name:?} does not match its shape"
            )));
        }
        ranges.push((from, to));
    }
    if ranges.is_empty() {
        return Err(wrong("it has no tensors".into()));
    }
    ranges.sort_unstable();
    ranges.iter().try_fold(0, |end, (from, to)| {
        if *from == end {
            Ok(*to)
        } else {
            Err(wrong(format!(
                "its data has a gap or an overlap at byte {end}"
            )))
        }
    })
}

fn bytes_of(tensor: &Tensor) -> Option<u64> {
    let width: u64 = match tensor.dtype.as_str() {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        "I8" | "U8" | "BOOL" => 1,
        _ => return None,
    };
    let mut dimensions = tensor.shape.iter();
    dimensions.try_fold(width, |bytes, n| bytes.checked_mul(*n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(header: &str, n_data: usize) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut content = (header.len() as u64).to_le_bytes().to_vec();
        content.extend(header.as_bytes());
        content.resize(content.len() + n_data, 0);
        std::fs::write(file.path(), content).unwrap();
        match check(file.path()) {
            Ok(()) => None,
            Err(SafetensorsProblem::Content(reason)) => Some(reason),
            Err(SafetensorsProblem::File(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn only_files_matching_their_header_are_complete() {
        let two = r#"{"__metadata__":{"format":"pt"},
            "a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
            "b":{"dtype":"I64","shape":[],"data_offsets":[24,32]}}"#;
        assert_eq!(problem(two, 32), None);
        for (header, n_data, reason) in [
            (two, 31, "its header describes"),
            (two, 33, "its header describes"),
            (
                &two.replace("[2,3]", "[2,4]"),
                32,
                "does not match its shape",
            ),
            (&two.replace("F32", "F4"), 32, "does not match its shape"),
            (&two.replace("[24,32]", "[16,24]"), 24, "overlap"),
            (
                &two.replace("[2,3]", "[18446744073709551615,3]"),
                32,
                "does not match its shape",
            ),
            ("{}", 0, "no tensors"),
            ("[1]", 0, "its header"),
            (r#"{"a":1}"#, 0, r#"tensor "a""#),
        ] {
            let found = problem(header, n_data).unwrap_or_default();
            assert!(found.contains(reason), "{header}: {found}");
        }
    }

    #[test]
    fn impossible_headers_are_refused_without_reading_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, reason) in [
            (vec![0xff; 8], "is too large"),
            (vec![9, 0, 0, 0, 0, 0, 0, 0, b'{'], "ends within its header"),
            (vec![1, 2], "ends within its header"),
        ] {
            std::fs::write(file.path(), content).unwrap();
            let Err(SafetensorsProblem::Content(found)) = check(file.path()) else {
                panic!("not refused: {reason}");
            };
            assert!(found.contains(reason), "{found}");
        }
    }
}
