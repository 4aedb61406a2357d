//! Open streams end when their key is revoked.

use std::path::Path;
use std::time::Duration;

use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::initialize;
use riglm_tests::modern::{Meta, REVISION};
use riglm_tests::plain_http;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;
use url::Url;

use crate::odd_over_stdio;

/// A generous deadline for a change of the configuration.
const SOON: Duration = Duration::from_secs(30);

/// Returns a configuration with these keys for one client and one operator, and constant keys for
/// others.
fn configuration(of_ann: &str, of_reader: &str) -> String {
    format!(
        "[auth.keys]\nann = \"{of_ann}\"\nbob = \"key-of-bob-0123456789\"\n\
         [control.keys.reader]\nkey = \"{of_reader}\"\nscopes = [\"read\"]\n\
         [control.keys.other]\nkey = \"key-of-other-0123456789\"\nscopes = [\"read\"]\n"
    )
}

struct OpenStream {
    what: String,
    response: Response<Incoming>,
}

impl OpenStream {
    async fn open(
        what: &str,
        method: Method,
        url: &Url,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let headers: Vec<(String, String)> = (headers.iter())
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let response = plain_http::open(method, url, &headers, body.to_owned()).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 200, "{what}");
        Self {
            what: what.to_owned(),
            response,
        }
    }

    /// Returns whether the stream ends within this time.
    async fn ends_within(&mut self, limit: Duration) -> bool {
        let end = async { while let Some(Ok(_)) = self.response.body_mut().frame().await {} };
        tokio::time::timeout(limit, end).await.is_ok()
    }
}

/// Opens every kind of stream of a client.
async fn streams_of(riglm: &Riglm, name: &str, key: &str) -> Vec<OpenStream> {
    let bearer = format!("Bearer {key}");
    let client: RawClient = riglm.client(Answers::default());
    client.set_header("authorization", &bearer);
    client.initialize(&initialize("0", "2025-11-25")).await;
    let session = client.session_id().unwrap();
    let accept = ("accept", "application/json, text/event-stream");
    let authorization = ("authorization", &*bearer);
    let listen = Meta::default().listen("\"l\"", r#"{"toolsListChanged":true}"#);
    let of = |kind: &str| format!("{kind} of {name}");
    vec![
        OpenStream::open(
            &of("GET /mcp"),
            Method::GET,
            &riglm.url,
            &[accept, authorization, ("mcp-session-id", &session)],
            "",
        )
        .await,
        OpenStream::open(
            &of("GET /sse"),
            Method::GET,
            &riglm.at("/sse"),
            &[accept, authorization],
            "",
        )
        .await,
        OpenStream::open(
            &of("subscriptions/listen"),
            Method::POST,
            &riglm.url,
            &[
                accept,
                authorization,
                ("content-type", "application/json"),
                ("mcp-protocol-version", REVISION),
                ("mcp-method", "subscriptions/listen"),
            ],
            &listen,
        )
        .await,
    ]
}

async fn events_for(control: &Url, key: &str) -> OpenStream {
    let bearer = format!("Bearer {key}");
    let url = control.join("/events").unwrap();
    let headers = [("authorization", &*bearer)];
    OpenStream::open("GET /events", Method::GET, &url, &headers, "").await
}

async fn serve(data_dir: &Path, configuration: &str) -> (Riglm, Url) {
    let address = format!("127.0.0.1:{}", free_port());
    let options = Options {
        arguments: vec!["--control".into(), address.clone()],
        ..Options::with_configuration(configuration)
    };
    let riglm = Riglm::serve(&odd_over_stdio(), data_dir, &options).await;
    (riglm, format!("http://{address}").parse().unwrap())
}

#[tokio::test]
async fn revoked_keys_end_only_their_own_streams() {
    let data = TempDir::new().unwrap();
    let (ann, bob, reader) = (
        "key-of-ann-0123456789",
        "key-of-bob-0123456789",
        "key-of-reader-0123456789",
    );
    let (mut riglm, control) = serve(data.path(), &configuration(ann, reader)).await;
    let mut of_ann = streams_of(&riglm, "ann", ann).await;
    let mut of_bob = streams_of(&riglm, "bob", bob).await;
    of_ann.push(events_for(&control, reader).await);
    of_bob.push(events_for(&control, "key-of-other-0123456789").await);
    let rotated = configuration("another-key-of-ann-01234", "another-key-of-reader-01");
    std::fs::write(data.path().join("test.toml"), rotated).unwrap();
    for stream in &mut of_ann {
        assert!(stream.ends_within(SOON).await, "{} goes on", stream.what);
    }
    for stream in &mut of_bob {
        let has_ended = stream.ends_within(Duration::from_millis(300)).await;
        assert!(!has_ended, "{} has ended", stream.what);
    }
    drop((of_ann, of_bob));
    assert_eq!(riglm.stop().await, Some(0));
}
