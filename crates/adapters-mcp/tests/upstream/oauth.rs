//! OAuth tokens: login, presentation, refresh and secrecy.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::{LoginError, OAuthGrant, login};
use riglm_ports::upstream::UpstreamError;

use crate::http_modern::modern;
use crate::oauth_server::{Scene, browse, form, mode};
use crate::support::{Connection, Event, Log, Server, name, number, result, status};

async fn open(scene: &Scene) -> Connection {
    Connection::open(scene.connector().as_ref()).await.unwrap()
}

async fn ask(connection: &Connection, id: u32) -> Event {
    connection
        .send(&modern(id, "tools/list", ""))
        .await
        .unwrap();
    connection.event().await
}

fn unauthorized_error(reason: &str) -> UpstreamError {
    UpstreamError::Unauthorized {
        reason: reason.into(),
    }
}

const NEEDS_LOGIN: &str = "login needed: run `riglm login test`";
const NO_TOKEN: UpstreamError = UpstreamError::Unreachable {
    reason: "its authorization server issued no token",
};

#[tokio::test]
async fn a_login_is_kept_for_its_owner_and_serves_later_connections() {
    let (log, _logging) = Log::of_this_thread(tracing::Level::TRACE);
    let scene = Scene::new(|_| {}).await;
    scene.login().await.unwrap();
    assert_eq!(mode(&scene.file()), 0o600);
    assert_eq!(mode(scene.file().parent().unwrap()), 0o700);

    let upstream = scene.connector();
    let connection = Connection::open(upstream.as_ref()).await.unwrap();
    for id in 1..=2 {
        assert_eq!(ask(&connection, id).await.text(), result(id));
    }
    assert_eq!(
        scene.presented_tokens(),
        ["Bearer access-1", "Bearer access-1"]
    );
    let (_, exchange) = scene.grants("authorization_code").remove(0);
    assert_eq!(exchange["resource"], scene.server.url("/mcp"));

    let log = log.text();
    let shown = format!("{log} {upstream:?} {connection:?} {:?}", scene.config);
    assert!(log.contains("TRACE"), "nothing was logged");
    for secret in [
        "access-1",
        "refresh-1",
        "one-time-code",
        "registered-secret",
        "hunter2",
    ] {
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}

#[tokio::test]
async fn requests_without_a_login_get_instructions() {
    let scene = Scene::new(|_| {}).await;
    let connection = open(&scene).await;
    let (request, error) = ask(&connection, 1).await.unwrap_unanswered();
    assert_eq!(
        (request, &error),
        (number(1), &unauthorized_error(NEEDS_LOGIN))
    );
    assert!(
        scene.server.received_requests().is_empty(),
        "nothing is sent"
    );
    scene.login().await.unwrap();
    assert_eq!(ask(&connection, 2).await.text(), result(2));
}

#[tokio::test]
async fn expired_tokens_are_renewed_once_for_all_requests() {
    let scene = Scene::new(|_| {}).await;
    scene.change(|behaviour| behaviour.expires_in = 0);
    scene.login().await.unwrap();
    scene.change(|behaviour| behaviour.expires_in = 3600);
    let connection = open(&scene).await;
    // The first request detects the transport of the server.
    assert_eq!(ask(&connection, 1).await.text(), result(1));
    let requests: Vec<String> = (2..=6).map(|id| modern(id, "tools/list", "")).collect();
    join_all(requests.iter().map(|request| connection.send(request))).await;
    for _ in &requests {
        connection.event().await.text();
    }
    assert_eq!(scene.presented_tokens(), vec!["Bearer access-2"; 6]);
    let refreshed = scene.grants("refresh_token");
    assert_eq!(refreshed.len(), 1);
    assert_eq!(refreshed[0].1["refresh_token"], "refresh-1");
    // A client with a secret has to present it.
    let header = refreshed[0].0.header("authorization");
    assert!(header.starts_with("Basic "), "{header}");
    assert!(
        std::fs::read_to_string(scene.file())
            .unwrap()
            .contains("refresh-2")
    );
    assert_eq!(mode(&scene.file()), 0o600);
}

#[tokio::test]
async fn refused_tokens_are_refreshed_once_and_requests_retried() {
    let scene = Scene::new(|_| {}).await;
    scene.login().await.unwrap();
    let connection = open(&scene).await;
    assert_eq!(ask(&connection, 1).await.text(), result(1));
    scene.revoke();
    let requests: Vec<String> = (2..=4).map(|id| modern(id, "tools/call", "")).collect();
    join_all(requests.iter().map(|request| connection.send(request))).await;
    for _ in &requests {
        connection.event().await.text();
    }
    assert_eq!(scene.grants("refresh_token").len(), 1);
    let mut presented = scene.presented_tokens();
    presented.sort();
    let count = |token: &str| presented.iter().filter(|found| *found == token).count();
    assert_eq!(count("Bearer access-2"), 3);
    assert!((2..=4).contains(&count("Bearer access-1")), "{presented:?}");
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn tokens_refused_after_refresh_are_not_refreshed_again() {
    let scene = Scene::new(|_| {}).await;
    scene.login().await.unwrap();
    scene.change(|behaviour| behaviour.takes_tokens = false);
    let connection = open(&scene).await;
    let refused = unauthorized_error("the server answered with HTTP status 401");
    for id in 1..=3 {
        let (request, error) = ask(&connection, id).await.unwrap_unanswered();
        assert_eq!((request, &error), (number(id), &refused));
    }
    assert_eq!(scene.grants("refresh_token").len(), 1);
    // Two for the first request, one for each of the others.
    assert_eq!(scene.presented_tokens().len(), 4);
}

#[tokio::test]
async fn refused_refresh_tokens_require_another_login() {
    let scene = Scene::new(|_| {}).await;
    scene.login().await.unwrap();
    scene.revoke();
    scene.change(|behaviour| behaviour.refreshes = false);
    let connection = open(&scene).await;
    for id in 1..=2 {
        let (_, error) = ask(&connection, id).await.unwrap_unanswered();
        assert_eq!(error, unauthorized_error(NEEDS_LOGIN));
    }
    assert_eq!(scene.grants("refresh_token").len(), 1);
    assert!(!scene.file().exists());
    scene.login().await.unwrap();
    assert_eq!(ask(&connection, 3).await.text(), result(3));
}

#[tokio::test]
async fn an_account_of_the_proxy_needs_no_login() {
    let scene = Scene::with_account().await;
    let connection = open(&scene).await;
    assert_eq!(ask(&connection, 1).await.text(), result(1));
    let asked = scene.grants("client_credentials").remove(0).1;
    assert_eq!(asked["client_id"], "account");
    assert_eq!(asked["scope"], "tools");
    assert_eq!(asked["resource"], scene.server.url("/mcp"));
    assert_eq!(mode(&scene.file()), 0o600);

    let later = open(&scene).await;
    assert_eq!(ask(&later, 2).await.text(), result(2));
    assert_eq!(scene.grants("client_credentials").len(), 1, "it was kept");
    scene.revoke();
    assert_eq!(ask(&later, 3).await.text(), result(3));
    assert_eq!(scene.grants("client_credentials").len(), 2);
    let refused = scene.login().await.unwrap_err();
    assert!(matches!(refused, LoginError::NotNeeded { .. }), "{refused}");
}

#[tokio::test]
async fn preregistered_clients_skip_registration() {
    let scene = Scene::new(|credentials| {
        credentials.client_id = Some("known".into());
        credentials.client_secret = Some("known-secret".into());
        credentials.scopes = vec!["special".into()];
    })
    .await;
    let address = Arc::new(Mutex::new(String::new()));
    let opened = address.clone();
    login(&name(), &scene.config, scene.data_dir.path(), |url| {
        url.clone_into(&mut opened.lock());
        browse(url);
    })
    .await
    .unwrap();
    let address = address.lock().clone();
    let wanted = form(address.split_once('?').unwrap().1);
    assert_eq!(wanted["client_id"], "known");
    assert_eq!(wanted["scope"], "special");
    assert!(wanted["redirect_uri"].starts_with("http://127.0.0.1:"));
    let is_registration = |path: &str| path == "/as/register";
    let asked = scene.server.received_requests();
    assert!(!asked.iter().any(|asked| is_registration(&asked.path)));
    let stored = std::fs::read_to_string(scene.file()).unwrap();
    assert!(
        !stored.contains("known-secret"),
        "it is configured, not kept"
    );
}

#[tokio::test]
async fn denied_logins_give_the_reason() {
    let scene = Scene::new(|_| {}).await;
    scene.change(|behaviour| behaviour.denial = Some("access_denied%1B%5B2J"));
    let error = scene.login().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r"login was denied: access_denied\u{1b}[2J"
    );
    assert!(!scene.file().exists());
}

#[tokio::test]
async fn a_callback_without_the_login_state_is_refused() {
    let scene = Scene::new(|_| {}).await;
    let (turned_away, answers) = tokio::sync::oneshot::channel();
    login(&name(), &scene.config, scene.data_dir.path(), |url| {
        let wanted = form(url.split_once('?').unwrap().1);
        let url = url.to_owned();
        tokio::spawn(async move {
            let forged = format!("{}?code=forged&state=wrong", wanted["redirect_uri"]);
            let answer = reqwest::get(forged).await.unwrap();
            let _ = turned_away.send(answer.status());
            browse(&url);
        });
    })
    .await
    .unwrap();
    assert_eq!(answers.await.unwrap(), 400);
    assert_eq!(scene.grants("authorization_code").len(), 1);
}

#[tokio::test]
async fn tokens_are_requested_only_from_permitted_endpoints() {
    let elsewhere = Server::start(|_| status(200)).await;
    let metadata = "http://169.254.169.254/token".to_owned();
    for (endpoint, redirect) in [
        (Some(metadata), None),
        (None, Some(elsewhere.url("/as/token"))),
    ] {
        let scene = Scene::with_account().await;
        scene.change(|behaviour| {
            behaviour.token_endpoint = endpoint;
            behaviour.redirect = redirect;
        });
        let connection = open(&scene).await;
        for id in 1..=2 {
            assert_eq!(ask(&connection, id).await.unwrap_unanswered().1, NO_TOKEN);
        }
        assert!(scene.presented_tokens().is_empty());
        // The second request may reuse the failure of the first.
        assert!(scene.grants("client_credentials").len() <= 1);
    }
    assert!(elsewhere.received_requests().is_empty());
}

#[tokio::test]
async fn world_readable_tokens_are_not_used() {
    let scene = Scene::new(|_| {}).await;
    scene.login().await.unwrap();
    let open_to_all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(scene.file(), open_to_all).unwrap();
    let connection = open(&scene).await;
    let (_, error) = ask(&connection, 1).await.unwrap_unanswered();
    assert_eq!(error, unauthorized_error("failed to use the stored token"));
    assert!(scene.presented_tokens().is_empty());
}

#[tokio::test]
async fn a_token_of_another_client_is_not_presented() {
    let mut scene = Scene::new(|_| {}).await;
    scene.login().await.unwrap();
    let credentials = scene.config.credentials.as_mut().unwrap();
    credentials.client_id = Some("another".into());
    credentials.grant = Some(OAuthGrant::AuthorizationCode);
    let connection = open(&scene).await;
    let (_, error) = ask(&connection, 1).await.unwrap_unanswered();
    assert_eq!(error, unauthorized_error(NEEDS_LOGIN));
    assert!(scene.presented_tokens().is_empty());
}

#[tokio::test]
async fn disallowed_login_urls_are_not_opened() {
    for endpoint in [
        "file:///bin/sh",
        "javascript:alert(1)",
        "http://169.254.169.254/",
    ] {
        let scene = Scene::new(|_| {}).await;
        scene.change(|behaviour| behaviour.authorization_endpoint = Some(endpoint));
        let opener = |url: &str| panic!("opened {url}");
        let outcome = login(&name(), &scene.config, scene.data_dir.path(), opener).await;
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "authorization server of the upstream: its login URL is not allowed"
        );
    }
}

#[tokio::test]
async fn http_sse_presents_tokens_too() {
    let mut scene = Scene::new(|_| {}).await;
    scene.config.url = Some(format!("sse+{}", scene.server.url("/mcp")));
    let refused = Connection::open(scene.connector().as_ref()).await;
    assert_eq!(refused.unwrap_err(), unauthorized_error(NEEDS_LOGIN));
    scene.login().await.unwrap();
    // The server accepts the token, but opens no event stream.
    let refused = Connection::open(scene.connector().as_ref()).await;
    let opened_none = UpstreamError::Unreachable {
        reason: "no event stream",
    };
    assert_eq!(refused.unwrap_err(), opened_none);
}
