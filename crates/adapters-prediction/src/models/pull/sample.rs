//! Test fixture: files of a model without layers that can be loaded.

use serde_json::{Value, json};

const WORDS: [&str; 4] = ["<s>", "<pad>", "</s>", "a"];

/// Returns a `config.json`.
pub(super) fn config(model_type: &str, dimension: usize, n_positions: usize) -> Value {
    json!({
        "model_type": model_type, "vocab_size": WORDS.len(), "hidden_size": dimension,
        "num_hidden_layers": 0, "num_attention_heads": 2, "intermediate_size": 4,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": n_positions, "type_vocab_size": 1, "initializer_range": 0.02,
        "layer_norm_eps": 1e-12, "pad_token_id": 1, "position_embedding_type": "absolute"
    })
}

/// Returns a `tokenizer.json`.
pub(super) fn tokenizer() -> Value {
    let special = json!({
        "<s>": { "id": "<s>", "ids": [0], "tokens": ["<s>"] },
        "</s>": { "id": "</s>", "ids": [2], "tokens": ["</s>"] }
    });
    let single = json!([
        { "SpecialToken": { "id": "<s>", "type_id": 0 } },
        { "Sequence": { "id": "A", "type_id": 0 } },
        { "SpecialToken": { "id": "</s>", "type_id": 0 } }
    ]);
    let vocabulary: serde_json::Map<String, Value> = (0..)
        .zip(WORDS)
        .map(|(number, word): (u32, _)| (word.to_owned(), number.into()))
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": single,
            "special_tokens": special
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "a" }
    })
}

/// Returns a matching `model.safetensors`, whose numbers depend on the seed.
pub(super) fn weights(dimension: usize, n_positions: usize, seed: u8) -> Vec<u8> {
    let shapes = [
        ("embeddings.LayerNorm.bias", vec![dimension]),
        ("embeddings.LayerNorm.weight", vec![dimension]),
        (
            "embeddings.position_embeddings.weight",
            vec![n_positions, dimension],
        ),
        (
            "embeddings.token_type_embeddings.weight",
            vec![1, dimension],
        ),
        (
            "embeddings.word_embeddings.weight",
            vec![WORDS.len(), dimension],
        ),
    ];
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    let mut value = seed;
    for (name, shape) in shapes {
        let start = data.len();
        for _ in 0..shape.iter().product() {
            value = value.wrapping_mul(5).wrapping_add(seed | 1);
            data.extend((f32::from(value) / 256.0).to_le_bytes());
        }
        let place = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.into(), place);
    }
    let header = Value::Object(header).to_string();
    let mut content = (header.len() as u64).to_le_bytes().to_vec();
    content.extend(header.as_bytes());
    content.extend(data);
    content
}
