//! Conversion of quantized weights to the files of the encoder in 32-bit floats. It is for systems
//! that cannot reach the hub. Rounding errors of the quantization remain.

mod tokenizer_json;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor};
use serde_json::json;

use super::super::bert_layout::{BertSizes, BertTensor};
use super::super::gguf::reader::{Gguf, GgufError};
use super::ConvertError;
use crate::encoder::unigram::Vocabulary;

/// Converts a GGUF file with a Unigram vocabulary to `model.safetensors`, `config.json` and
/// `tokenizer.json` in a directory, which is created if necessary.
///
/// The tokenizer returns the same tokens as the encoder of the GGUF file, with two exceptions.
/// Marks of the vocabulary in a text (`<s>`, `<mask>`) become marks here, and stay text in the
/// other one. The library drops a compatibility character before an accent that does not compose
/// with it.
///
/// # Errors
///
/// Returns [`ConvertError`] when the source cannot be read, is damaged or has another vocabulary,
/// or when the files cannot be written.
pub fn safetensors_from_gguf(source: &Path, directory: &Path) -> Result<(), ConvertError> {
    let read = |error| ConvertError::gguf(source, error);
    let mut gguf = Gguf::open(source).map_err(read)?;
    let sizes = BertSizes::of(&gguf).map_err(read)?;
    let mut tensors = HashMap::new();
    for tensor in sizes.tensors() {
        let weights = floats(&gguf, &tensor).map_err(read)?;
        tensors.insert(tensor.safetensors, weights);
    }
    let vocabulary = Vocabulary::take(&mut gguf).map_err(read)?;
    let config = config(&sizes, vocabulary.padding);
    let tokenizer = tokenizer_json::of(&vocabulary)
        .map_err(|error| ConvertError::content(source, error.to_string()))?;

    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        fs::write(&path, content).map_err(|error| ConvertError::write(&path, error))
    };
    fs::create_dir_all(directory).map_err(|error| ConvertError::write(directory, error))?;
    write("config.json", &config)?;
    write("tokenizer.json", &tokenizer)?;
    let weights = directory.join("model.safetensors");
    candle_core::safetensors::save(&tensors, &weights)
        .map_err(|error| ConvertError::write(&weights, std::io::Error::other(error)))
}

fn floats(gguf: &Gguf, wanted: &BertTensor) -> Result<Tensor, GgufError> {
    let name = &wanted.gguf;
    let tensor = gguf
        .tensor(name)
        .filter(|tensor| tensor.shape == wanted.shape)
        .ok_or_else(|| {
            GgufError::Content(format!("tensor {name} is missing, or has other dimensions"))
        })?;
    let mut bytes = Vec::new();
    gguf.read(tensor, &mut bytes)?;
    let shape = wanted
        .shape
        .iter()
        .filter_map(|size| usize::try_from(*size).ok())
        .collect::<Vec<_>>();
    let mut weights = vec![0.0; shape.iter().product()];
    tensor.form.expand(&bytes, &mut weights);
    Tensor::from_vec(weights, shape, &Device::Cpu)
        .map_err(|error| GgufError::Content(format!("tensor {name}: {error}")))
}

fn config(sizes: &BertSizes, padding: u32) -> String {
    let config = json!({
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "position_embedding_type": "absolute",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.feed_forward,
        "vocab_size": sizes.words,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": sizes.token_types,
        "layer_norm_eps": sizes.epsilon,
        "pad_token_id": padding,
        "use_cache": true,
    });
    format!("{config:#}\n")
}
