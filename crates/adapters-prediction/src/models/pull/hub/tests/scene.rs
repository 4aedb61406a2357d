//! A hub with a model, and a data directory that it is pulled into.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::server::{Hub, Served};
use crate::models::job::{Job, Stop};
use crate::models::manifest::ModelManifest;
use crate::models::pull::{
    HubSettings, PipSettings, Pull, PullError, Pulled, Source, pull, sample,
};
use crate::models::shelf::ModelShelf;

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

/// Weights of some 400,000 bytes; another byte gives others.
pub(super) fn weights(byte: u8) -> Vec<u8> {
    sample::weights(DIMENSION, N_POSITIONS, byte)
}

pub(super) fn sha256(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub(super) fn served(content: Vec<u8>) -> Served {
    Served {
        etag: sha256(&content),
        content,
        ..Served::default()
    }
}

/// A hub with the model, and a data directory.
pub(super) struct Scene {
    pub(super) hub: Hub,
    pub(super) data_dir: TempDir,
    pub(super) pull: Pull,
    pub(super) said: Arc<Mutex<Vec<String>>>,
}

pub(super) fn scene() -> Scene {
    let hub = Hub::start();
    let data_dir = tempfile::tempdir().unwrap();
    // Small files are called by another digest, which says nothing that can be checked.
    let small = |content: Vec<u8>| Served {
        content,
        etag: "8f3b2a".repeat(6),
        ..Served::default()
    };
    hub.put("config.json", small(config()));
    hub.put(
        "tokenizer.json",
        Served {
            etag: "77".into(),
            ..small(tokenizer())
        },
    );
    hub.put(WEIGHTS, served(weights(1)));
    let pull = Pull {
        name: Some(NAME.parse().unwrap()),
        source: Source::Hub,
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
        ..Pull::default()
    };
    Scene {
        hub,
        data_dir,
        pull,
        said: Arc::default(),
    }
}

impl Scene {
    pub(super) fn shelf(&self) -> ModelShelf {
        ModelShelf::new(self.data_dir.path())
    }

    pub(super) fn pull(&self) -> Result<ModelManifest, PullError> {
        let said = self.said.clone();
        let job = Job::new(Stop::default(), false, move |line| {
            said.lock().unwrap().push(line.to_owned());
        });
        pull(&self.shelf(), &self.pull, &job).map(Pulled::into_manifest)
    }

    /// Returns what a pull fails with, with all causes.
    pub(super) fn failure(&self) -> String {
        crate::models::with_causes(&self.pull().unwrap_err())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.shelf().directory_of(&NAME.parse().unwrap()).join(name)
    }

    pub(super) fn has_weights(&self, byte: u8) {
        let problems = self.shelf().verify(&NAME.parse().unwrap(), &Job::silent());
        assert_eq!(problems.unwrap(), []);
        assert!(std::fs::read(self.path(WEIGHTS)).unwrap() == weights(byte));
    }
}
