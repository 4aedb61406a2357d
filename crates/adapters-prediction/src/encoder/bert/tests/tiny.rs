//! A model with two layers and dimension eight, which tests write and damage.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::models::manifest::{ModelFile, ModelForm, ModelManifest};

/// Words of the vocabulary. The second one is padding.
pub(super) const WORDS: [&str; 7] = ["<s>", "<pad>", "</s>", "a", "b", "c", "d"];

const DIMENSION: usize = 8;
const MAX_TOKENS: usize = 10;
/// Positions that XLM-RoBERTa does not use: 0, and the position of padding.
const UNUSED_POSITIONS: usize = 2;

/// The files of a model before they are written.
pub(super) struct Tiny {
    form: ModelForm,
    pub(super) config: Value,
    pub(super) tokenizer: Value,
    pub(super) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// Prefix of the names of tensors.
    pub(super) prefix: &'static str,
    /// Type of the numbers according to the header.
    pub(super) dtype: &'static str,
    /// The number of bytes to cut off at the end.
    pub(super) cut: usize,
}

impl Tiny {
    pub(super) fn new(form: ModelForm) -> Self {
        let positions = match form {
            ModelForm::XlmRoberta => MAX_TOKENS + UNUSED_POSITIONS,
            _ => MAX_TOKENS,
        };
        Self {
            form,
            config: config(form, positions),
            tokenizer: tokenizer(),
            tensors: tensors(positions),
            prefix: "",
            dtype: "F32",
            cut: 0,
        }
    }

    /// Copies the weights of a BERT, and moves the positions to those of XLM-RoBERTa.
    pub(super) fn take_weights_of_bert(&mut self, bert: &Self) {
        let positions = "embeddings.position_embeddings.weight";
        self.tensors = bert.tensors.clone();
        let (shape, values) = self.tensors.get_mut(positions).unwrap();
        shape[0] += UNUSED_POSITIONS;
        values.splice(0..0, [9.0; UNUSED_POSITIONS * DIMENSION]);
    }

    pub(super) fn manifest(&self) -> ModelManifest {
        ModelManifest {
            name: "tiny".to_owned(),
            form: self.form,
            dimension: DIMENSION,
            max_tokens: MAX_TOKENS,
            query_prefix: String::new(),
            passage_prefix: String::new(),
            licence: "MIT".to_owned(),
            source: String::new(),
            files: Vec::<ModelFile>::new(),
        }
    }

    /// Writes the files into a new directory.
    pub(super) fn write(&self) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join("config.json"), self.config.to_string()).unwrap();
        fs::write(path.join("tokenizer.json"), self.tokenizer.to_string()).unwrap();
        fs::write(path.join("model.safetensors"), self.weights()).unwrap();
        directory
    }

    fn weights(&self) -> Vec<u8> {
        let mut header = Map::new();
        header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
        let mut data = Vec::new();
        for (name, (shape, values)) in &self.tensors {
            let start = data.len();
            data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            let place = json!({
                "dtype": self.dtype, "shape": shape, "data_offsets": [start, data.len()]
            });
            header.insert(format!("{}{name}", self.prefix), place);
        }
        data.truncate(data.len() - self.cut);
        let header = Value::Object(header).to_string();
        let mut bytes = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }
}

fn config(form: ModelForm, positions: usize) -> Value {
    json!({
        "model_type": if form == ModelForm::XlmRoberta { "xlm-roberta" } else { "bert" },
        "vocab_size": WORDS.len(), "hidden_size": DIMENSION, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 16, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": positions, "type_vocab_size": 1, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": 1, "position_embedding_type": "absolute"
    })
}

fn tokenizer() -> Value {
    let vocabulary: Map<String, Value> = (0..)
        .zip(WORDS)
        .map(|(number, word): (u32, _)| (word.to_owned(), number.into()))
        .collect();
    let special =
        |name: &str, number: u32| json!({ "id": name, "ids": [number], "tokens": [name] });
    let single = json!([
        { "SpecialToken": { "id": "<s>", "type_id": 0 } },
        { "Sequence": { "id": "A", "type_id": 0 } },
        { "SpecialToken": { "id": "</s>", "type_id": 0 } }
    ]);
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": { "<s>": special("<s>", 0), "</s>": special("</s>", 2) }
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "d" }
    })
}

fn tensors(positions: usize) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let mut shapes = vec![
        (
            "embeddings.word_embeddings.weight".to_owned(),
            vec![WORDS.len(), DIMENSION],
        ),
        (
            "embeddings.position_embeddings.weight".to_owned(),
            vec![positions, DIMENSION],
        ),
        (
            "embeddings.token_type_embeddings.weight".to_owned(),
            vec![1, DIMENSION],
        ),
        ("embeddings.LayerNorm.weight".to_owned(), vec![DIMENSION]),
        ("embeddings.LayerNorm.bias".to_owned(), vec![DIMENSION]),
    ];
    for layer in 0..2 {
        for (name, output, input) in [
            ("attention.self.query", DIMENSION, Some(DIMENSION)),
            ("attention.self.key", DIMENSION, Some(DIMENSION)),
            ("attention.self.value", DIMENSION, Some(DIMENSION)),
            ("attention.output.dense", DIMENSION, Some(DIMENSION)),
            ("attention.output.LayerNorm", DIMENSION, None),
            ("intermediate.dense", 16, Some(DIMENSION)),
            ("output.dense", DIMENSION, Some(16)),
            ("output.LayerNorm", DIMENSION, None),
        ] {
            let name = format!("encoder.layer.{layer}.{name}");
            let weight = [output].into_iter().chain(input).collect();
            shapes.push((format!("{name}.weight"), weight));
            shapes.push((format!("{name}.bias"), vec![output]));
        }
    }
    let mut state = 1_u32;
    shapes
        .into_iter()
        .map(|(name, shape)| {
            let values = (0..shape.iter().product())
                .map(|_| next(&mut state))
                .collect();
            (name, (shape, values))
        })
        .collect()
}

/// Returns deterministic pseudo-random numbers between -1 and 1.
fn next(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let high = u16::try_from(*state >> 16).unwrap();
    f32::from(high) / 32_768.0 - 1.0
}
