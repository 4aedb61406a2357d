//! Test fixture: a hub with a model, and a data directory for the pull.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::server::{Hub, ServedFile};
use crate::models::job::{Job, StopSignal};
use crate::models::manifest::ModelManifest;
use crate::models::pull::{
    HubSettings, PipSettings, PullError, PullOutcome, PullRequest, PullSource, pull, sample,
};
use crate::models::store::ModelStore;

pub(super) const NAME: &str = "all-MiniLM-L6-v2";
pub(super) const WEIGHTS: &str = "model.safetensors";
const DIMENSION: usize = 384;
const N_POSITIONS: usize = 256;

pub(super) fn config() -> Vec<u8> {
    sample::config("bert", DIMENSION, N_POSITIONS)
        .to_string()
        .into_bytes()
}

pub(super) fn tokenizer() -> Vec<u8> {
    sample::tokenizer().to_string().into_bytes()
}

/// Returns weights of some 400,000 bytes, which depend on the given byte.
pub(super) fn weights(byte: u8) -> Vec<u8> {
    sample::weights(DIMENSION, N_POSITIONS, byte)
}

pub(super) fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

pub(super) fn large_file(content: Vec<u8>) -> ServedFile {
    ServedFile {
        etag: sha256(&content),
        content,
        ..ServedFile::default()
    }
}

/// A hub with the model, and a data directory.
pub(super) struct Scene {
    pub(super) hub: Hub,
    pub(super) data_dir: TempDir,
    pub(super) pull: PullRequest,
    pub(super) said: Arc<Mutex<Vec<String>>>,
}

pub(super) fn scene() -> Scene {
    let hub = Hub::start();
    let data_dir = tempfile::tempdir().unwrap();
    // The ETag of a small file is another hash, which cannot be checked.
    let small = |content: Vec<u8>| ServedFile {
        content,
        etag: "8f3b2a".repeat(6),
        ..ServedFile::default()
    };
    hub.put("config.json", small(config()));
    hub.put(
        "tokenizer.json",
        ServedFile {
            etag: "77".into(),
            ..small(tokenizer())
        },
    );
    hub.put(WEIGHTS, large_file(weights(1)));
    let pull = PullRequest {
        name: Some(NAME.parse().unwrap()),
        source: PullSource::Hub,
        is_forced: true,
        hub: HubSettings {
            endpoint: Some(hub.endpoint.clone()),
            patience: Duration::from_secs(20),
            ..HubSettings::default()
        },
        pip: PipSettings {
            python: Some(data_dir.path().join("no-python")),
            ..PipSettings::default()
        },
        ..PullRequest::default()
    };
    Scene {
        hub,
        data_dir,
        pull,
        said: Arc::default(),
    }
}

impl Scene {
    pub(super) fn model_store(&self) -> ModelStore {
        ModelStore::new(self.data_dir.path())
    }

    pub(super) fn pull(&self) -> Result<ModelManifest, PullError> {
        let said = self.said.clone();
        let job = Job::new(StopSignal::default(), false, move |line| {
            said.lock().push(line.to_owned());
        });
        pull(&self.model_store(), &self.pull, &job).map(PullOutcome::into_manifest)
    }

    /// Returns the error of a pull with all causes.
    pub(super) fn failure(&self) -> String {
        crate::models::with_causes(&self.pull().unwrap_err())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.model_store()
            .directory_of(&NAME.parse().unwrap())
            .join(name)
    }

    pub(super) fn has_weights(&self, byte: u8) {
        let problems = self
            .model_store()
            .verify(&NAME.parse().unwrap(), &Job::silent());
        assert_eq!(problems.unwrap(), []);
        assert!(std::fs::read(self.path(WEIGHTS)).unwrap() == weights(byte));
    }
}
