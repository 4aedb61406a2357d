//! The sessions of requests without a session id.

use reqwest::StatusCode;
use riglm_app::limits::Limits;

use crate::scene::{Scene, read, request, with_meta};

async fn discover(scene: &Scene, text: String, headers: &[(&str, &str)]) -> StatusCode {
    let mut post = scene.post(text);
    for (name, value) in headers {
        post = post.header(*name, *value);
    }
    read(post).await.status
}

async fn scene(limits: Limits) -> Scene {
    let scene = Scene::with_limits(limits).await;
    scene.upstream.reply_to("server/discover", r#""result":{}"#);
    scene
}

fn plain() -> String {
    request("1", "server/discover", "")
}

#[tokio::test]
async fn requests_of_one_client_have_one_session() {
    let scene = scene(Limits::default()).await;
    for _ in 0..3 {
        assert_eq!(discover(&scene, plain(), &[]).await, StatusCode::OK);
    }
    assert_eq!(
        (scene.proxy.n_sessions(), scene.upstream.connections()),
        (1, (1, 0))
    );
    let other = plain().replace("\"version\":\"7\"", "\"version\":\"8\"");
    assert_eq!(discover(&scene, other, &[]).await, StatusCode::OK);
    assert_eq!(scene.proxy.n_sessions(), 2);
    let key = [("authorization", "Bearer somebody")];
    assert_eq!(discover(&scene, plain(), &key).await, StatusCode::OK);
    assert_eq!(scene.proxy.n_sessions(), 3);
    let label = [("X-Riglm-Session", "mine")];
    assert_eq!(discover(&scene, plain(), &label).await, StatusCode::OK);
    assert_eq!(scene.proxy.n_sessions(), 4);
    for text in [&plain(), &scene.sent_texts()[0]] {
        assert_eq!(*text, plain());
    }
}

#[tokio::test]
async fn session_labels_in_metadata_are_used_and_removed() {
    let scene = scene(Limits::default()).await;
    let label = r#","io.github.riglm/session":"mine""#;
    let text = with_meta("1", "server/discover", label, "\"n\":1.0");
    assert_eq!(discover(&scene, text, &[]).await, StatusCode::OK);
    assert_eq!(
        scene.sent_texts(),
        [request("1", "server/discover", "\"n\":1.0")]
    );
    assert_eq!(discover(&scene, plain(), &[]).await, StatusCode::OK);
    assert_eq!(scene.proxy.n_sessions(), 2);
    let header = [("X-Riglm-Session", "mine")];
    assert_eq!(discover(&scene, plain(), &header).await, StatusCode::OK);
    assert_eq!(scene.proxy.n_sessions(), 2);
}

#[tokio::test]
async fn ended_sessions_are_recreated_by_the_next_request() {
    let limits = Limits {
        idle_timeout: std::time::Duration::ZERO,
        ..Limits::default()
    };
    let scene = scene(limits).await;
    assert_eq!(discover(&scene, plain(), &[]).await, StatusCode::OK);
    scene.proxy.sweep(std::time::Instant::now());
    scene
        .until(|upstream| upstream.connections() == (1, 1))
        .await;
    assert_eq!(discover(&scene, plain(), &[]).await, StatusCode::OK);
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test]
async fn at_the_limit_another_session_of_the_same_principal_serves() {
    let limits = Limits {
        sessions: 2,
        sessions_per_principal: 1,
        ..Limits::default()
    };
    let scene = scene(limits).await;
    let labelled = |label: &'static str| [("X-Riglm-Session", label)];
    for label in ["a", "b", "a"] {
        assert_eq!(
            discover(&scene, plain(), &labelled(label)).await,
            StatusCode::OK
        );
    }
    assert_eq!(scene.proxy.n_sessions(), 1);
    let of = |name: &'static str| [("authorization", name)];
    assert_eq!(
        discover(&scene, plain(), &of("Bearer one")).await,
        StatusCode::OK
    );
    let post = scene.post(plain()).header("authorization", "Bearer two");
    let refusal = read(post).await;
    assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refusal.header("retry-after"), "1");
    assert_eq!(refusal.error(), (-31005, "1".into()));
}
