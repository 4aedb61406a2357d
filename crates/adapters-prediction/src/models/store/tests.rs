//! Tests of the store: only complete models, one pull at a time, and precise reports of damage.

use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;
use crate::models::job::StopSignal;
use crate::models::manifest::{ModelFile, ModelForm};

/// SHA-256 of "weights 1" and "weights 2".
const DIGESTS: [&str; 2] = [
    "3bb63c501a2cb9b43bfbf09f0b02a7f12408e1922617522b8441afd37272b915",
    "a8989317cf9287850260df63e5c4946861b8092ff02634fb4b3dab4f9fb1da56",
];

struct Scene {
    data_dir: TempDir,
    model_store: ModelStore,
    name: ModelName,
}

fn scene() -> Scene {
    let data_dir = tempfile::tempdir().unwrap();
    Scene {
        model_store: ModelStore::new(data_dir.path()),
        name: "small".parse().unwrap(),
        data_dir,
    }
}

fn manifest(digest: &str) -> ModelManifest {
    ModelManifest {
        name: "small".into(),
        form: ModelForm::QuantizedBert,
        dimension: 4,
        max_tokens: 16,
        query_prefix: String::new(),
        passage_prefix: String::new(),
        licence: "MIT".into(),
        source: "a test".into(),
        files: vec![ModelFile {
            name: "model.gguf".into(),
            bytes: 9,
            sha256: digest.into(),
        }],
    }
}

impl Scene {
    /// Stages a file with this content and installs it under a manifest.
    fn install(&self, content: &str, manifest: &ModelManifest) -> Result<(), ModelStoreError> {
        let staging = self.model_store.stage(&self.name)?;
        fs::write(staging.ready().join("model.gguf"), content).unwrap();
        staging.install(manifest, &Job::silent())
    }

    fn weights(&self) -> String {
        fs::read_to_string(self.model_store.directory_of(&self.name).join("model.gguf")).unwrap()
    }

    fn problems(&self) -> Vec<String> {
        let faults = self.model_store.verify(&self.name, &Job::silent()).unwrap();
        let text = |fault: DamagedFile| format!("{}: {}", fault.file, fault.problem);
        faults.into_iter().map(text).collect()
    }
}

#[test]
fn a_model_is_installed_listed_verified_and_removed() {
    let scene = scene();
    assert!(scene.model_store.list().unwrap().is_empty());
    assert_eq!(scene.model_store.find(&scene.name).unwrap(), None);
    scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
    assert_eq!(
        scene.model_store.find(&scene.name).unwrap(),
        Some(manifest(DIGESTS[0]))
    );
    let listed = scene.model_store.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, scene.name);
    assert_eq!(scene.problems(), Vec::<String>::new());
    scene.install("weights 2", &manifest(DIGESTS[1])).unwrap();
    assert_eq!(scene.weights(), "weights 2");
    scene.model_store.remove(&scene.name).unwrap();
    assert!(scene.model_store.list().unwrap().is_empty());
    let error = scene.model_store.remove(&scene.name).unwrap_err();
    assert!(matches!(error, ModelStoreError::NotThere { .. }), "{error}");
}

#[test]
fn only_the_owner_can_read_the_model_store() {
    let scene = scene();
    scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let model_store = scene.data_dir.path().join("models");
    let model = scene.model_store.directory_of(&scene.name);
    assert_eq!((mode(&model_store), mode(&model)), (0o700, 0o700));
    assert_eq!(mode(&model.join(MANIFEST_FILE)), 0o600);
}

#[test]
fn invalid_or_missing_files_do_not_replace_the_old_model() {
    let scene = scene();
    scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
    for content in ["weights 3", "weights", "weights 2 and more"] {
        let error = scene.install(content, &manifest(DIGESTS[1])).unwrap_err();
        assert!(error.to_string().contains("model.gguf"), "{error}");
        assert_eq!(scene.weights(), "weights 1");
    }
    let staging = scene.model_store.stage(&scene.name).unwrap();
    let error = staging
        .install(&manifest(DIGESTS[1]), &Job::silent())
        .unwrap_err();
    assert!(matches!(error, ModelStoreError::NotWhole { .. }), "{error}");
    assert_eq!(scene.problems(), Vec::<String>::new());
}

#[test]
fn a_damaged_file_is_named() {
    let scene = scene();
    scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
    let file = scene
        .model_store
        .directory_of(&scene.name)
        .join("model.gguf");
    fs::write(&file, "weights 2").unwrap();
    assert!(
        scene.problems()[0].contains("SHA-256"),
        "{:?}",
        scene.problems()
    );
    fs::write(&file, "w").unwrap();
    assert!(
        scene.problems()[0].contains("1 bytes instead of 9"),
        "{:?}",
        scene.problems()
    );
    fs::remove_file(&file).unwrap();
    assert!(
        scene.problems()[0].starts_with("model.gguf: failed to read"),
        "{:?}",
        scene.problems()
    );
    fs::write(file.with_file_name(MANIFEST_FILE), "{}").unwrap();
    assert!(
        scene.problems()[0].starts_with("manifest.json: "),
        "{:?}",
        scene.problems()
    );
    assert!(scene.model_store.find(&scene.name).is_err());
    assert!(scene.model_store.list().unwrap()[0].manifest.is_err());
}

#[test]
fn a_second_pull_of_the_same_model_is_refused() {
    let scene = scene();
    let first = scene.model_store.stage(&scene.name).unwrap();
    assert!(matches!(
        scene.model_store.stage(&scene.name),
        Err(ModelStoreError::Busy(_))
    ));
    assert!(matches!(
        scene.model_store.remove(&scene.name),
        Err(ModelStoreError::Busy(_))
    ));
    scene.model_store.stage(&"other".parse().unwrap()).unwrap();
    drop(first);
    scene.model_store.stage(&scene.name).unwrap();
}

#[test]
fn downloads_outlive_an_abandoned_pull_but_not_the_model() {
    let scene = scene();
    let staging = scene.model_store.stage(&scene.name).unwrap();
    fs::write(staging.downloads().join("half"), "we").unwrap();
    fs::write(staging.ready().join("model.gguf"), "stale").unwrap();
    drop(staging);
    assert!(scene.model_store.list().unwrap().is_empty());
    let staging = scene.model_store.stage(&scene.name).unwrap();
    assert!(staging.downloads().join("half").exists());
    assert!(!staging.ready().join("model.gguf").exists());
    drop(staging);
    scene.model_store.remove(&scene.name).unwrap();
    let left: Vec<_> = fs::read_dir(scene.data_dir.path().join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".small.lock"]);
}

#[test]
fn a_model_moved_aside_is_restored_after_a_crash() {
    let scene = scene();
    scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
    let place = scene.model_store.directory_of(&scene.name);
    fs::rename(&place, scene.model_store.auxiliary_path(&scene.name, "old")).unwrap();
    drop(scene.model_store.stage(&scene.name).unwrap());
    assert_eq!(scene.weights(), "weights 1");
}

#[test]
fn other_files_in_place_of_a_model_are_replaced() {
    let put: [fn(&Path); 3] = [
        |place| std::os::unix::fs::symlink("nowhere", place).unwrap(),
        |place| std::os::unix::fs::symlink("..", place).unwrap(),
        |place| fs::write(place, "a file").unwrap(),
    ];
    for put in put {
        let scene = scene();
        drop(scene.model_store.stage(&scene.name).unwrap().discard());
        let place = scene.model_store.directory_of(&scene.name);
        put(&place);
        scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
        assert_eq!(scene.weights(), "weights 1");
        scene.model_store.remove(&scene.name).unwrap();
        put(&place);
        scene.model_store.remove(&scene.name).unwrap();
        assert!(place.symlink_metadata().is_err());
        assert!(scene.data_dir.path().join("models").is_dir());
    }
}

#[test]
fn an_interrupted_verification_reports_the_interruption() {
    let scene = scene();
    scene.install("weights 1", &manifest(DIGESTS[0])).unwrap();
    let stop = StopSignal::default();
    stop.request();
    let job = Job::new(stop, false, |_| ());
    let error = scene.model_store.verify(&scene.name, &job).unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
}
