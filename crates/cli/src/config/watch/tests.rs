//! Real files, changed in all the usual ways.

use std::fs;

use tempfile::TempDir;

use super::*;

/// Far longer than the detection of a change takes.
const DEADLINE: Duration = Duration::from_secs(20);

struct Scene {
    directory: TempDir,
    watch: Watch,
}

fn scene(text: &str) -> Scene {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("riglm.toml"), text).unwrap();
    let surroundings = ProcessEnv {
        working_directory: directory.path().into(),
        data_directory: Some("/data".into()),
        home_directory: None,
        ..ProcessEnv::default()
    };
    let mut watch = Watch::new(Overrides::default(), surroundings);
    watch.every = Duration::from_millis(20);
    watch.load().unwrap();
    Scene { directory, watch }
}

fn sessions(n: usize) -> String {
    format!("[limits]\nsessions = {n}\n")
}

impl Scene {
    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    /// Waits for a change, and returns a value of the new configuration.
    async fn next(&mut self) -> Result<usize, String> {
        tokio::time::timeout(DEADLINE, self.watch.wait_for_change())
            .await
            .expect("a change is noticed");
        let loaded = self.watch.load();
        loaded
            .map(|loaded| loaded.config.limits.sessions)
            .map_err(|error| error.to_string())
    }
}

#[tokio::test]
async fn rewritten_and_replaced_files_are_detected() {
    let mut scene = scene(&sessions(1));
    scene.write("riglm.toml", &sessions(22));
    assert_eq!(scene.next().await, Ok(22));
    let path = |name: &str| scene.directory.path().join(name);
    scene.write("riglm.toml~", &sessions(33));
    fs::rename(path("riglm.toml~"), path("riglm.toml")).unwrap();
    assert_eq!(scene.next().await, Ok(33));
    // A different content of the same size.
    scene.write(".tmp", &sessions(44));
    let path = |name: &str| scene.directory.path().join(name);
    fs::rename(path(".tmp"), path("riglm.toml")).unwrap();
    assert_eq!(scene.next().await, Ok(44));
}

#[tokio::test]
async fn changed_symbolic_links_are_detected() {
    let mut scene = scene(&sessions(1));
    let path = |name: &str| scene.directory.path().join(name);
    let (file, link) = (path("riglm.toml"), path("new"));
    scene.write("two", &sessions(2));
    std::os::unix::fs::symlink(path("two"), &link).unwrap();
    fs::rename(link, file).unwrap();
    assert_eq!(scene.next().await, Ok(2));
}

#[tokio::test]
async fn removed_and_added_configuration_files_are_detected() {
    let mut scene = scene(&sessions(1));
    let path = scene.directory.path().join("riglm.toml");
    fs::remove_file(&path).unwrap();
    let default = riglm_app::limits::Limits::default().sessions;
    assert_eq!(scene.next().await, Ok(default));
    scene.write("riglm.yaml", "limits: {sessions: 5}");
    assert_eq!(scene.next().await, Ok(5));
    scene.write("riglm.toml", &sessions(6));
    assert_eq!(scene.next().await, Ok(6));
}

#[tokio::test]
async fn an_invalid_file_is_an_error_until_corrected() {
    let mut scene = scene(&sessions(1));
    scene.write("riglm.toml", "[limits]\nsessions = \"many\"\n");
    let refusal = scene.next().await.unwrap_err();
    assert!(refusal.contains("limits.sessions"), "{refusal}");
    scene.write("riglm.toml", &sessions(7));
    assert_eq!(scene.next().await, Ok(7));
}

#[tokio::test]
async fn unchanged_files_are_not_reported() {
    let mut scene = scene(&sessions(1));
    let many_looks = Duration::from_millis(300);
    let changed = tokio::time::timeout(many_looks, scene.watch.wait_for_change()).await;
    assert!(changed.is_err());
}
