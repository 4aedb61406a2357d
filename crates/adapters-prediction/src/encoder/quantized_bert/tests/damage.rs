//! Tests of files that are missing, truncated or damaged.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::models::convert::sample::{HIDDEN, sample};

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = load(directory.path(), &manifest(HIDDEN)).unwrap_err();
    assert!(matches!(error, ModelError::Read { .. }));
    assert!(error.to_string().contains(GGUF_FILE));
}

#[test]
fn a_dimension_different_from_the_manifest_is_refused() {
    let directory = directory_of(&sample().bytes);
    let error = load(directory.path(), &manifest(384)).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("its vectors have dimension 64, but the manifest has 384")
    );
}

#[test]
fn a_truncated_file_is_refused() {
    let directory = directory_of(&sample().bytes);
    let path = directory.path().join(GGUF_FILE);
    let whole = fs::read(&path).unwrap();
    for length in (0..3_000)
        .step_by(7)
        .chain((3_000..whole.len() - 32).step_by(509))
    {
        fs::write(&path, &whole[..length]).unwrap();
        let error = load(directory.path(), &manifest(HIDDEN)).unwrap_err();
        assert!(error.to_string().contains("ends"), "at {length}: {error}");
    }
}

#[test]
fn damage_never_causes_a_panic() {
    let directory = directory_of(&sample().bytes);
    let path = directory.path().join(GGUF_FILE);
    let whole = fs::read(&path).unwrap();
    for place in (0..9_000)
        .step_by(11)
        .chain((9_000..whole.len()).step_by(997))
    {
        let mut damaged = whole.clone();
        damaged[place] ^= 0xff;
        fs::write(&path, &damaged).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut model = load(directory.path(), &manifest(HIDDEN)).ok()?;
            model.encode("hello 日本 xyz").ok()
        }));
        let vector = outcome.unwrap_or_else(|_| panic!("byte {place}"));
        assert!(vector.is_none_or(|vector| vector.iter().all(|x| x.is_finite())));
    }
}

#[test]
fn missing_fields_and_tensors_are_named() {
    let directory = directory_of(&sample().bytes);
    let path = directory.path().join(GGUF_FILE);
    let whole = fs::read(&path).unwrap();
    for name in [
        "bert.block_count",
        "tokenizer.ggml.scores",
        "riglm.normalizer.lengths",
        "blk.1.ffn_up.bias",
    ] {
        let mut damaged = whole.clone();
        let place = whole.windows(name.len()).position(|w| w == name.as_bytes());
        damaged[place.unwrap()] = b'x';
        fs::write(&path, &damaged).unwrap();
        let error = load(directory.path(), &manifest(HIDDEN)).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}
