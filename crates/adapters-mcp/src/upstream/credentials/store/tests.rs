use std::os::unix::fs::PermissionsExt;

use super::*;

fn credentials(client: &str) -> StoredCredentials {
    StoredCredentials::new(client.into(), None, vec!["a".into()], Some(7))
}

fn store(data_dir: &Path, resource: &str) -> FileCredentialStore {
    FileCredentialStore::new(data_dir, &UpstreamName::parse("test").unwrap(), resource)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o777
}

#[tokio::test]
async fn saved_credentials_are_loaded_and_private_to_the_owner() {
    let data_dir = tempfile::tempdir().unwrap();
    let first = store(data_dir.path(), "http://a/");
    assert!(first.load().await.unwrap().is_none());
    assert!(
        !data_dir.path().join("credentials").exists(),
        "reading creates nothing"
    );
    first.save(credentials("c1")).await.unwrap();
    first.save(credentials("c2")).await.unwrap();
    let again = store(data_dir.path(), "http://a/");
    assert_eq!(again.load().await.unwrap().unwrap().client_id, "c2");
    let directory = data_dir.path().join("credentials");
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("test.json")), 0o600);
    let names = std::fs::read_dir(&directory).unwrap();
    assert_eq!(names.count(), 1, "no draft stays behind");
    again.clear().await.unwrap();
    again.clear().await.unwrap();
    assert!(first.load().await.unwrap().is_none());
}

#[tokio::test]
async fn tokens_for_another_server_are_not_found() {
    let data_dir = tempfile::tempdir().unwrap();
    store(data_dir.path(), "http://a/")
        .save(credentials("c"))
        .await
        .unwrap();
    assert!(
        store(data_dir.path(), "http://b/")
            .load()
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn credentials_readable_by_others_are_refused() {
    let data_dir = tempfile::tempdir().unwrap();
    let store = store(data_dir.path(), "http://a/");
    store.save(credentials("c")).await.unwrap();
    let directory = data_dir.path().join("credentials");
    let file = directory.join("test.json");
    for (path, loose, strict) in [(&file, 0o640, 0o600), (&directory, 0o755, 0o700)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(loose)).unwrap();
        let refused = store.read().await.err().unwrap();
        assert!(
            matches!(&refused, CredentialStoreError::Shared { path: at, mode } if at == path && *mode == strict),
            "{refused}"
        );
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(strict)).unwrap();
    }
    assert!(store.read().await.unwrap().is_some());
}

#[tokio::test]
async fn errors_of_invalid_files_omit_their_content() {
    let data_dir = tempfile::tempdir().unwrap();
    let store = store(data_dir.path(), "http://a/");
    store.save(credentials("c")).await.unwrap();
    let file = data_dir.path().join("credentials/test.json");
    std::fs::write(&file, r#"{"resource":"hunter2"}"#).unwrap();
    let error = store.read().await.err().unwrap();
    assert!(
        matches!(error, CredentialStoreError::Garbled { .. }),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn the_secret_of_a_registration_stays_with_its_client() {
    let data_dir = tempfile::tempdir().unwrap();
    let login = store(data_dir.path(), "http://a/");
    login.set_registered_secret(Some("s".into()));
    login.save(credentials("c")).await.unwrap();
    let later = store(data_dir.path(), "http://a/");
    later.save(credentials("c")).await.unwrap();
    let secret = later.read().await.unwrap().unwrap().client_secret;
    assert_eq!(secret.as_deref(), Some("s"));
    later.save(credentials("other")).await.unwrap();
    assert_eq!(later.read().await.unwrap().unwrap().client_secret, None);
}

#[tokio::test]
async fn the_lock_is_held_by_one_at_a_time() {
    let data_dir = tempfile::tempdir().unwrap();
    let store = store(data_dir.path(), "http://a/");
    let held = store.lock().await.unwrap();
    let mut second = Box::pin(store.lock());
    let waits = tokio::time::timeout(Duration::from_millis(60), &mut second).await;
    assert!(waits.is_err(), "it was given to two");
    drop(held);
    second.await.unwrap();
}
