//! Tests of the user's own models and of copies of others.

use tempfile::TempDir;

use super::*;
use crate::models::pull::{PullOutcome, PullSource, pull, sample};

fn config() -> serde_json::Value {
    sample::config("xlm-roberta", 8, 514)
}

fn weights() -> Vec<u8> {
    sample::weights(8, 514, 1)
}

struct Scene {
    data_dir: TempDir,
    /// Source directory of the model.
    folder: TempDir,
}

fn scene() -> Scene {
    let scene = Scene {
        data_dir: tempfile::tempdir().unwrap(),
        folder: tempfile::tempdir().unwrap(),
    };
    scene.put("config.json", config().to_string().as_bytes());
    scene.put("tokenizer.json", sample::tokenizer().to_string().as_bytes());
    scene.put("model.safetensors", &weights());
    scene
}

impl Scene {
    fn put(&self, name: &str, content: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn pull_from(&self, path: &Path, name: Option<&str>) -> Result<ModelManifest, PullError> {
        let request = PullRequest {
            name: name.map(|name| name.parse().unwrap()),
            source: PullSource::Directory(path.to_owned()),
            query_prefix: (name == Some("own")).then(|| "ask: ".into()),
            ..PullRequest::default()
        };
        let models = ModelStore::new(self.data_dir.path());
        pull(&models, &request, &Job::silent()).map(PullOutcome::into_manifest)
    }

    fn pull(&self, name: Option<&str>) -> Result<ModelManifest, PullError> {
        self.pull_from(self.folder.path(), name)
    }

    fn failure(&self) -> String {
        crate::models::with_causes(&self.pull(Some("own")).unwrap_err())
    }
}

#[test]
fn a_custom_model_is_described_by_its_configuration() {
    let scene = scene();
    let manifest = scene.pull(Some("own")).unwrap();
    assert_eq!(manifest.form.as_str(), "xlm-roberta");
    assert_eq!((manifest.dimension, manifest.max_tokens), (8, 512));
    assert_eq!(manifest.query_prefix, "ask: ");
    assert_eq!(
        (manifest.passage_prefix.as_str(), manifest.licence.as_str()),
        ("", "NOASSERTION")
    );
    assert_eq!(manifest.files[2].bytes, weights().len() as u64);
    assert!(
        scene.folder.path().join("model.safetensors").exists(),
        "it is copied"
    );
    scene.put("sentence_bert_config.json", br#"{"max_seq_length":128}"#);
    assert_eq!(scene.pull(Some("own")).unwrap().max_tokens, 128);
    let error = scene.pull(None).unwrap_err();
    assert!(matches!(error, PullError::NameNeeded), "{error}");
}

#[test]
fn unusable_files_are_named_with_the_reason() {
    for (name, content, reason) in [
        (
            "model.safetensors",
            &weights()[..20],
            "ends within its header",
        ),
        (
            "model.safetensors",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            "is too large",
        ),
        ("tokenizer.json", b"{", "tokenizer.json is invalid"),
        (
            "config.json",
            br#"{"model_type":"t5","hidden_size":8,"max_position_embeddings":9}"#,
            "\"t5\" is not supported",
        ),
        (
            "config.json",
            br#"{"model_type":"bert"}"#,
            "missing field `hidden_size`",
        ),
        (
            "config.json",
            br#"{"model_type":"bert","hidden_size":0,"max_position_embeddings":99}"#,
            "dimension",
        ),
        (
            "config.json",
            br#"{"model_type":"bert","hidden_size":8,"max_position_embeddings":1}"#,
            "max_tokens",
        ),
        (
            "1_Pooling/config.json",
            br#"{"pooling_mode_mean_tokens":false}"#,
            "only models with mean pooling",
        ),
        (
            "1_Pooling/config.json",
            br#"{"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true,"x":1}"#,
            "pooling_mode_cls_token",
        ),
    ] {
        let scene = scene();
        scene.put(name, content);
        let error = scene.failure();
        assert!(error.contains(reason), "{name}: {error}");
        let model_store = ModelStore::new(scene.data_dir.path());
        assert!(model_store.list().unwrap().is_empty());
    }
}

/// Returns the weights after replacing a text by another one of the same length.
fn weights_with_change(from: &str, to: &str) -> Vec<u8> {
    let mut content = weights();
    let places = (0..content.len()).filter(|at| content[*at..].starts_with(from.as_bytes()));
    for place in places.collect::<Vec<_>>() {
        content[place..place + to.len()].copy_from_slice(to.as_bytes());
    }
    content
}

#[test]
fn an_unloadable_model_does_not_replace_the_old_one() {
    let with = |mut value: serde_json::Value, member: &str, other: serde_json::Value| {
        value[member] = other;
        value.to_string().into_bytes()
    };
    let mut numbers = weights();
    let start = numbers.len() - 4 * 8 * 4;
    for number in numbers[start..].chunks_exact_mut(4) {
        number.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    let mut tokens = sample::tokenizer();
    tokens["model"]["vocab"]["a"] = 4000.into();
    for (name, content, reason) in [
        (
            "model.safetensors",
            weights_with_change("\"F32\"", "\"I32\""),
            "is of type I32, but only F32 is supported",
        ),
        (
            "model.safetensors",
            weights_with_change("word_emb", "work_emb"),
            "it has no tensor",
        ),
        ("model.safetensors", numbers, "a vector has length NaN"),
        (
            "config.json",
            with(config(), "num_attention_heads", 0.into()),
            "num_attention_heads 0",
        ),
        (
            "config.json",
            with(config(), "vocab_size", 3.into()),
            "it has 4 tokens",
        ),
        (
            "config.json",
            with(config(), "num_hidden_layers", 1.into()),
            "it has no tensor",
        ),
        (
            "tokenizer.json",
            b"null".to_vec(),
            "tokenizer.json is invalid",
        ),
        (
            "tokenizer.json",
            tokens.to_string().into_bytes(),
            "a token with number 4000",
        ),
    ] {
        let scene = scene();
        let before = scene.pull(Some("own")).unwrap();
        scene.put(name, &content);
        let error = scene.failure();
        assert!(error.contains("is invalid"), "{name}: {error}");
        assert!(error.contains(reason), "{name}: {error}");
        let model_store = ModelStore::new(scene.data_dir.path());
        let own = "own".parse().unwrap();
        assert_eq!(model_store.find(&own).unwrap(), Some(before));
        assert_eq!(model_store.verify(&own, &Job::silent()).unwrap(), []);
    }
}

#[test]
fn an_incomplete_gguf_file_is_refused() {
    let scene = scene();
    let gguf = [&b"GGUF\x03\0\0\0"[..], &[0; 36]].concat();
    scene.put("model.gguf", &gguf);
    let digest = verify(
        &scene.folder.path().join("model.gguf"),
        FileExpectation::default(),
        &Job::silent(),
    );
    let manifest = serde_json::json!({
        "name": "own", "form": "quantized-bert", "dimension": 4, "max_tokens": 16,
        "licence": "MIT", "files": [digest.unwrap()],
    });
    scene.put("manifest.json", manifest.to_string().as_bytes());
    let error = crate::models::with_causes(&scene.pull(None).unwrap_err());
    assert!(error.contains("model.gguf is invalid"), "{error}");
    let model_store = ModelStore::new(scene.data_dir.path());
    assert!(model_store.list().unwrap().is_empty());
}

#[test]
fn missing_files_are_named_with_the_required_ones() {
    let scene = scene();
    fs::remove_file(scene.folder.path().join("model.safetensors")).unwrap();
    let error = scene.failure();
    assert!(
        error.contains("has no model.safetensors: a model of the form xlm-roberta has"),
        "{error}"
    );
    let nowhere = scene.folder.path().join("nowhere");
    let error = scene.pull_from(&nowhere, None).unwrap_err().to_string();
    assert!(error.ends_with("nowhere is not a directory"), "{error}");
}

#[test]
fn a_model_of_another_data_directory_keeps_its_manifest() {
    let one = scene();
    let manifest = one.pull(Some("own")).unwrap();
    let pulled = one.data_dir.path().join("models/own");
    let other = scene();
    let copied = other.pull_from(&pulled, None).unwrap();
    assert_eq!(copied.files, manifest.files);
    assert_eq!(
        (copied.name.as_str(), copied.query_prefix.as_str()),
        ("own", "ask: ")
    );
    fs::write(pulled.join("tokenizer.json"), "[]").unwrap();
    let error = other.pull_from(&pulled, None).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json is damaged"), "{error}");
}

#[test]
fn a_folder_of_the_hub_cache_has_name_and_snapshot() {
    let scene = scene();
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("models--org--tiny-embedder");
    let snapshot = folder.join("snapshots/abc");
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(folder.join("refs/main"), "abc\n").unwrap();
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let target = scene.folder.path().join(name);
        std::os::unix::fs::symlink(target, snapshot.join(name)).unwrap();
    }
    let manifest = scene.pull_from(&folder, None).unwrap();
    assert_eq!(manifest.name, "tiny-embedder");
    assert_eq!(manifest.dimension, 8);
}

#[test]
fn files_of_another_model_are_refused_under_a_known_name() {
    let scene = scene();
    let error = scene
        .pull(Some("all-MiniLM-L6-v2"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("form xlm-roberta and dimension 8, expected form bert and dimension 384"),
        "{error}"
    );
}
