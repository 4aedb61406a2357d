use std::error::Error;
use std::fs;
use std::panic::catch_unwind;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};

use super::super::{ConvertError, safetensors_from_gguf};
use super::gguf_from_e5s1;
use super::sample::{HIDDEN, WORDS, sample};

fn convert_bytes(bytes: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("packed.bin");
    let target = directory.path().join("model.gguf");
    fs::write(&source, bytes).unwrap();
    gguf_from_e5s1(&source, &target)?;
    Ok(fs::read(target).unwrap())
}

fn near(tensor: &Tensor, weights: &[f64]) -> bool {
    let ours = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    ours.len() == weights.len()
        && ours
            .iter()
            .zip(weights)
            .all(|(one, other)| (f64::from(*one) - other).abs() < 1e-6)
}

#[test]
fn converted_files_load_in_candle_with_the_packed_weights() {
    let sample = sample();
    let written = convert_bytes(&sample.bytes).unwrap();
    let mut reader = std::io::Cursor::new(&written);
    let content = Content::read(&mut reader).unwrap();
    assert_eq!(
        content.metadata["general.architecture"]
            .to_string()
            .unwrap(),
        "bert"
    );
    for (gguf, packed) in [
        ("token_embd.weight", "emb.word"),
        ("position_embd.weight", "emb.pos"),
        ("blk.1.ffn_down.weight", "l1.fo.w"),
        ("blk.0.attn_output_norm.bias", "l0.aln.b"),
    ] {
        let tensor = content.tensor(&mut reader, gguf, &Device::Cpu).unwrap();
        let tensor = tensor.dequantize(&Device::Cpu).unwrap();
        assert!(near(&tensor, &sample.weights[packed]), "{gguf}");
    }
}

#[test]
fn the_files_of_floats_have_the_weights_of_the_packed_file() {
    let sample = sample();
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("packed.bin");
    let target = directory.path().join("model.gguf");
    fs::write(&source, &sample.bytes).unwrap();
    gguf_from_e5s1(&source, &target).unwrap();
    let files = directory.path().join("f32");
    safetensors_from_gguf(&target, &files).unwrap();
    let tensors =
        candle_core::safetensors::load(files.join("model.safetensors"), &Device::Cpu).unwrap();
    assert_eq!(tensors.len(), sample.weights.len());
    let words = &tensors["embeddings.word_embeddings.weight"];
    assert_eq!(words.dims(), [WORDS, HIDDEN]);
    assert!(near(words, &sample.weights["emb.word"]));
    assert!(near(
        &tensors["encoder.layer.1.attention.self.key.weight"],
        &sample.weights["l1.k.w"]
    ));
    let config = fs::read(files.join("config.json")).unwrap();
    let config = serde_json::from_slice::<serde_json::Value>(&config).unwrap();
    assert_eq!(config["hidden_size"], HIDDEN);
    assert_eq!(config["model_type"], "bert");
}

#[test]
fn a_truncated_file_is_refused() {
    let whole = sample().bytes;
    for length in (0..1_500).chain((1_500..whole.len()).step_by(97)) {
        let error = convert_bytes(&whole[..length]).expect_err("a part is no model");
        let said = error.to_string();
        assert!(
            said.contains("packed.bin") && said.contains("end"),
            "at {length}: {said}, {:?}",
            error.source()
        );
    }
    let last = whole.len() - 1;
    assert!(convert_bytes(&whole[..last]).is_err());
}

#[test]
fn damaged_bytes_never_cause_a_panic() {
    let whole = sample().bytes;
    for (place, flip) in (0..2_500).zip([0x01, 0x80, 0xff].into_iter().cycle()) {
        let mut damaged = whole.clone();
        damaged[place] ^= flip;
        let outcome = catch_unwind(|| convert_bytes(&damaged).map(|bytes| bytes.len()));
        assert!(outcome.is_ok(), "byte {place} ^ {flip:#x}");
    }
}

#[test]
fn the_error_names_the_fault_of_a_file() {
    let whole = sample().bytes;
    let said = |place: usize, byte: u8| {
        let mut damaged = whole.clone();
        damaged[place] = byte;
        convert_bytes(&damaged).unwrap_err().to_string()
    };
    assert!(said(0, b'X').contains("does not begin with E5S1"));
    assert!(said(4, 9).contains("has version 9, not 1"));
    assert!(said(16, 5).contains("cannot be divided among 5 heads"));
    assert!(said(40, 16).contains("its blocks have 16 weights, not 32"));
    let name = whole.windows(8).position(|w| w == b"emb.type").unwrap();
    assert!(said(name, b'x').contains("tensor emb.type is missing"));
    assert!(said(name + 9, 1).contains("tensor emb.type has 1 weights, not 128"));
}

#[test]
fn a_refused_file_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("packed.bin");
    let whole = sample().bytes;
    fs::write(&source, &whole[..whole.len() / 2]).unwrap();
    gguf_from_e5s1(&source, &directory.path().join("model.gguf")).unwrap_err();
    let names = fs::read_dir(directory.path()).unwrap();
    assert_eq!(names.count(), 1);
}
