mod tiny;

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::encoder::bert::tests::tiny::{Tiny, WORDS};
use crate::models::manifest::ModelForm;

/// Loads a model and returns the error.
fn error_of(model: &Tiny) -> String {
    let directory = model.write();
    load(directory.path(), &model.manifest())
        .unwrap_err()
        .to_string()
        .replace(directory.path().to_str().unwrap(), "DIR")
}

fn encode(model: &Tiny, text: &str) -> Vec<f32> {
    let directory = model.write();
    let mut loaded = load(directory.path(), &model.manifest()).unwrap();
    loaded.encode(text).unwrap()
}

fn apart(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter()
        .zip(right)
        .map(|(left, right)| (left - right).abs())
        .fold(0.0, f32::max)
}

#[test]
fn text_vectors_depend_on_words_and_their_order() {
    let model = Tiny::new(ModelForm::Bert);
    let vector = encode(&model, "a b c");
    assert!(apart(&vector, &encode(&model, "a b c")) <= f32::EPSILON);
    assert!(apart(&vector, &encode(&model, "a b d")) > 1e-3);
    assert!(apart(&vector, &encode(&model, "c b a")) > 1e-3);
    assert!(apart(&vector, &encode(&model, "")) > 1e-3);
}

#[test]
fn xlm_roberta_positions_start_after_the_padding_position() {
    let bert = Tiny::new(ModelForm::Bert);
    let mut roberta = Tiny::new(ModelForm::XlmRoberta);
    roberta.take_weights_of_bert(&bert);
    for text in ["", "a", "a b c d a b"] {
        let vector = encode(&roberta, text);
        assert!(apart(&vector, &encode(&bert, text)) < 1e-6, "{text:?}");
    }
}

#[test]
fn names_of_tensors_may_have_a_prefix() {
    for form in [ModelForm::Bert, ModelForm::XlmRoberta] {
        let mut model = Tiny::new(form);
        let vector = encode(&model, "a b");
        for prefix in ["bert.", "roberta.", "model.", "0.auto_model."] {
            model.prefix = prefix;
            assert!(apart(&vector, &encode(&model, "a b")) <= f32::EPSILON);
        }
    }
}

#[test]
fn texts_are_cut_at_the_maximum_of_the_manifest() {
    let mut model = Tiny::new(ModelForm::Bert);
    model.tokenizer["truncation"] = json!({
        "max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"
    });
    model.tokenizer["padding"] = json!({
        "strategy": { "Fixed": 12 }, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "x"
    });
    let plain = Tiny::new(ModelForm::Bert);
    // Of the ten tokens, two are special.
    let read = "a b c d a b c d";
    let vector = encode(&plain, read);
    assert!(apart(&vector, &encode(&model, read)) <= f32::EPSILON);
    let longer = format!("{read} x x x");
    assert!(apart(&vector, &encode(&model, &longer)) <= f32::EPSILON);
    let shorter = encode(&model, "a b c d a b c");
    assert!(apart(&vector, &shorter) > 1e-3);
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let model = Tiny::new(ModelForm::Bert);
    let directory = model.write();
    let mut loaded = load(directory.path(), &model.manifest()).unwrap();
    for character in ["a", "é", "语", "👩"] {
        loaded.encode(&character.repeat(100_000)).unwrap();
    }
}

#[test]
fn missing_files_are_named() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let model = Tiny::new(ModelForm::Bert);
        let directory = model.write();
        fs::remove_file(directory.path().join(name)).unwrap();
        let error = load(directory.path(), &model.manifest()).unwrap_err();
        assert!(matches!(&error, ModelError::Read { path, .. } if path.ends_with(name)));
    }
}

#[test]
fn a_named_pipe_is_refused_without_waiting() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let model = Tiny::new(ModelForm::Bert);
        let directory = model.write();
        let path = directory.path().join(name);
        fs::remove_file(&path).unwrap();
        let is_made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(is_made.unwrap().success());
        let error = load(directory.path(), &model.manifest()).unwrap_err();
        let reason = format!("{name} is invalid: not a regular file");
        assert!(error.to_string().ends_with(&reason), "{error}");
    }
}

#[test]
fn invalid_files_are_named() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        for content in [
            "",
            "garbage, which is neither long nor short",
            "{}",
            "[1]",
            "null",
        ] {
            let model = Tiny::new(ModelForm::Bert);
            let directory = model.write();
            fs::write(directory.path().join(name), content).unwrap();
            let error = load(directory.path(), &model.manifest()).unwrap_err();
            assert!(
                matches!(&error, ModelError::Content { path, .. } if path.ends_with(name)),
                "{content:?}: {error}"
            );
        }
    }
}

#[test]
fn a_mismatched_configuration_is_refused() {
    let cases = [
        (
            "hidden_size",
            json!(12),
            "hidden_size is 12, but the manifest has dimension 8",
        ),
        (
            "num_attention_heads",
            json!(0),
            "hidden_size 8 cannot be divided among num_attention_heads 0",
        ),
        (
            "num_attention_heads",
            json!(3),
            "hidden_size 8 cannot be divided among num_attention_heads 3",
        ),
        (
            "max_position_embeddings",
            json!(9),
            "max_position_embeddings has room for 9 tokens, but the manifest has max_tokens 10",
        ),
        (
            "model_type",
            json!("xlm-roberta"),
            "model_type is \"xlm-roberta\", but the manifest has bert",
        ),
    ];
    for (member, value, reason) in cases {
        let mut model = Tiny::new(ModelForm::Bert);
        model.config[member] = value;
        assert_eq!(
            error_of(&model),
            format!("DIR/config.json is invalid: {reason}")
        );
    }
    let mut model = Tiny::new(ModelForm::Bert);
    model.config["hidden_act"] = json!("swish");
    assert!(error_of(&model).contains("unknown variant `swish`"));
}

#[test]
fn a_mismatched_tokenizer_is_refused() {
    let mut model = Tiny::new(ModelForm::Bert);
    model.config["vocab_size"] = json!(WORDS.len() - 1);
    assert_eq!(
        error_of(&model),
        "DIR/tokenizer.json is invalid: it has 7 tokens, but config.json has vocab_size 6"
    );
    // The number of tokens fits the network, but one of the numbers is beyond its table.
    let mut model = Tiny::new(ModelForm::Bert);
    model.tokenizer["model"]["vocab"]["c"] = json!(7);
    assert_eq!(
        error_of(&model),
        "DIR/tokenizer.json is invalid: it has a token with number 7, but config.json has \
         vocab_size 7"
    );
    let mut model = Tiny::new(ModelForm::Bert);
    model.tokenizer["post_processor"]["special_tokens"]["</s>"]["ids"] = json!([99]);
    assert_eq!(
        error_of(&model),
        "DIR/tokenizer.json is invalid: it has a token with number 99, but config.json has \
         vocab_size 7"
    );
    let mut model = Tiny::new(ModelForm::Bert);
    model.tokenizer["post_processor"] = json!(null);
    assert_eq!(
        error_of(&model),
        "DIR/tokenizer.json is invalid: it has no token for the empty text"
    );
}

#[test]
fn mismatched_weights_are_refused() {
    let bias = "encoder.layer.1.output.dense.bias";
    let reason = |model: &Tiny| {
        error_of(model)
            .strip_prefix("DIR/model.safetensors is invalid: ")
            .unwrap()
            .to_owned()
    };
    let mut model = Tiny::new(ModelForm::Bert);
    model.tensors.remove(bias);
    assert_eq!(reason(&model), format!("it has no tensor {bias}"));
    let mut model = Tiny::new(ModelForm::Bert);
    model.tensors.get_mut(bias).unwrap().0 = vec![2, 4];
    assert_eq!(
        reason(&model),
        format!("tensor {bias} has shape [2, 4], but config.json needs [8]")
    );
    let mut model = Tiny::new(ModelForm::Bert);
    model.tensors.get_mut(bias).unwrap().1.pop();
    assert!(
        reason(&model).starts_with(&format!("tensor {bias} of shape [8] has invalid offsets "))
    );
    let mut model = Tiny::new(ModelForm::Bert);
    model.dtype = "F16";
    assert!(reason(&model).ends_with("is of type F16, but only F32 is supported"));
    let mut model = Tiny::new(ModelForm::Bert);
    model.cut = 1;
    assert!(reason(&model).starts_with("its tensors take "));
}

#[test]
fn nan_weights_fail_the_encoding() {
    let mut model = Tiny::new(ModelForm::Bert);
    for (_, values) in model.tensors.values_mut() {
        values.fill(f32::NAN);
    }
    let directory = model.write();
    let mut loaded = load(directory.path(), &model.manifest()).unwrap();
    let error = loaded.encode("a").unwrap_err();
    assert!(matches!(error, ModelError::Compute(_)), "{error}");
}

proptest! {
    /// Loading a damaged file and encoding with it may fail, but must not panic.
    #[test]
    fn damaged_weights_cause_no_panic(
        damage in prop::collection::vec((0.0..1.0, any::<u8>()), 1..6),
    ) {
        let model = Tiny::new(ModelForm::Bert);
        let directory = model.write();
        let path = directory.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        let header = 8 + usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        for (place, byte) in damage {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "any place in the header will do"
            )]
            let place = (header as f64 * place) as usize;
            bytes[place] = byte;
        }
        fs::write(&path, bytes).unwrap();
        if let Ok(mut loaded) = load(directory.path(), &model.manifest()) {
            let _ = loaded.encode("a b");
        }
    }
}
