//! Tests of the encoder against a server with correct, wrong, late and missing responses.

mod server;

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use server::{Answer, Server};

const KEY: &str = "sk-hunter2";

fn config(url: &str) -> RemoteConfig {
    let json = serde_json::json!({
        "url": url,
        "model": "m",
        "api_key": KEY,
        "timeout": "2s",
        "query_prefix": "query: ",
    });
    serde_json::from_value(json).unwrap()
}

fn encoder(server: &Server) -> RemoteEncoder {
    RemoteEncoder::new(config(&server.url)).unwrap()
}

async fn contract_encoder() -> Box<RemoteEncoder> {
    let server = Server::always(Answer::Words).await;
    let mut config = config(&server.url);
    config.query_prefix = String::new();
    config.timeout = Duration::from_secs(20);
    Box::new(RemoteEncoder::new(config).unwrap())
}

riglm_ports::encoder_contract!(contract, contract_encoder());

fn reply(body: &str) -> Answer {
    Answer::Reply(200, "", body.into())
}

async fn passages(encoder: &RemoteEncoder, texts: &[&str]) -> Result<Vec<Vec<f32>>, EncoderError> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    encoder.encode(texts, TextRole::Passage).await
}

/// Returns the message of an error with all its causes.
fn chain(error: &EncoderError) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.join(": ")
}

/// Returns the vector that the server gives for a text of this length.
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn vector_of_length(n_bytes: usize) -> Vec<f32> {
    let length = (n_bytes as f32).hypot(1.0);
    vec![n_bytes as f32 / length, 1.0 / length]
}

fn is_near(left: &[f32], right: &[f32]) -> bool {
    let mut pairs = left.iter().zip(right);
    left.len() == right.len() && pairs.all(|(left, right)| (left - right).abs() < 1e-5)
}

#[tokio::test]
async fn requests_follow_the_configuration_and_texts_have_their_prefix() {
    let server = Server::start([]).await;
    let mut config = config(&format!("{}/", server.url));
    config.dimensions = Some(2);
    let encoder = RemoteEncoder::new(config).unwrap();
    let texts = vec!["weather".into(), String::new()];
    let vectors = encoder.encode(texts, TextRole::Query).await.unwrap();
    assert!(is_near(
        &vectors[0],
        &vector_of_length("query: weather".len())
    ));
    let requests = server.requests();
    let head = requests[0].head.to_lowercase();
    assert!(
        head.starts_with("post /v1/embeddings http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains(&format!("authorization: bearer {KEY}\r\n")),
        "{head}"
    );
    let expected = serde_json::json!({
        "model": "m", "input": ["query: weather", "."], "encoding_format": "float", "dimensions": 2,
    });
    assert_eq!(requests[0].body, expected);
}

#[tokio::test]
async fn many_texts_go_in_batches_and_keep_their_order() {
    let server = Server::start([]).await;
    let texts: Vec<String> = (1..=150).map(|length| "x".repeat(length)).collect();
    let vectors = encoder(&server)
        .encode(texts, TextRole::Passage)
        .await
        .unwrap();
    assert_eq!(vectors.len(), 150);
    for (n_bytes, vector) in (1..).zip(&vectors) {
        assert!(is_near(vector, &vector_of_length(n_bytes)), "{n_bytes}");
    }
    let sizes = server
        .requests()
        .iter()
        .map(|request| request.inputs().len())
        .collect::<Vec<_>>();
    assert_eq!(sizes, [64, 64, 22]);
}

#[tokio::test]
async fn long_texts_are_cut_between_characters() {
    let server = Server::start([]).await;
    let text = "漢".repeat(400_000);
    passages(&encoder(&server), &[&text]).await.unwrap();
    let mut config = config(&server.url);
    config.max_text_bytes = 1_000;
    let shorter = RemoteEncoder::new(config).unwrap();
    passages(&shorter, &[&text]).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].inputs(), ["漢".repeat(8_192 / 3)]);
    assert_eq!(requests[1].inputs(), ["漢".repeat(1_000 / 3)]);
}

#[tokio::test]
async fn number_and_base64_vectors_are_ordered_by_index() {
    // The base64 text is [0.0, 2.0].
    let server = Server::start([reply(
        r#"{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":"AAAAAAAAAEA="}],"usage":{}}"#,
    )])
    .await;
    let vectors = passages(&encoder(&server), &["a", "b"]).await.unwrap();
    assert!(is_near(&vectors[0], &[0.0, 1.0]));
    assert!(is_near(&vectors[1], &[0.6, 0.8]));
}

#[tokio::test]
async fn answers_without_valid_vectors_are_failures_not_outages() {
    let cases = [
        (r#"{"data":[]}"#, "0 vectors for 2 texts"),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]}"#,
            "3 vectors for 2",
        ),
        (
            r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
            "index 0",
        ),
        (
            r#"{"data":[{"index":0,"embedding":[1]},{"index":9,"embedding":[1]}]}"#,
            "index 9",
        ),
        (
            r#"{"data":[{"embedding":[1,2]},{"embedding":[1]}]}"#,
            "dimension 1 instead of 2",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[NaN]}]}"#,
            "not a list of vectors",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[null]}]}"#,
            "not a list of vectors",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[1e39]}]}"#,
            "vector 1 of the answer is not",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":"AADAfw=="}]}"#,
            "vector 1 of the answer is not",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":"AADAfwA="}]}"#,
            "an incomplete number",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[0]}]}"#,
            "length 0",
        ),
        (
            r#"{"data":[{"embedding":[1]},{"embedding":[]}]}"#,
            "length 0",
        ),
        ("<html>", "not a list of vectors"),
    ];
    for (body, complaint) in cases {
        let server = Server::start([reply(body)]).await;
        let encoder = encoder(&server);
        let error = passages(&encoder, &["a", "b"]).await.unwrap_err();
        assert!(
            matches!(error, EncoderError::Failed { .. }),
            "{body}: {error:?}"
        );
        assert!(
            chain(&error).contains(complaint),
            "{body}: {}",
            chain(&error)
        );
    }
}

#[tokio::test]
async fn vectors_of_another_dimension_are_refused() {
    let server = Server::start([
        Answer::Lengths,
        reply(r#"{"data":[{"embedding":[1,2,3]}]}"#),
    ])
    .await;
    let encoder = encoder(&server);
    passages(&encoder, &["a"]).await.unwrap();
    let error = passages(&encoder, &["a"]).await.unwrap_err();
    assert!(
        chain(&error).contains("dimension 3 instead of 2"),
        "{}",
        chain(&error)
    );
    passages(&encoder, &["a"]).await.unwrap();
}

#[tokio::test]
async fn an_answer_beyond_the_maximum_length_is_refused() {
    let server = Server::start([reply(&" ".repeat(17 << 20))]).await;
    let error = passages(&encoder(&server), &["a"]).await.unwrap_err();
    assert!(
        chain(&error).contains("longer than 16777216 bytes"),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn a_busy_server_gets_a_second_request() {
    for status in [429, 503] {
        let busy = Answer::Reply(status, "retry-after: 1\r\n", String::new());
        let server = Server::start([busy.clone()]).await;
        passages(&encoder(&server), &["a"]).await.unwrap();
        assert_eq!(server.requests().len(), 2);

        let server = Server::start([busy.clone(), busy]).await;
        let error = passages(&encoder(&server), &["a"]).await.unwrap_err();
        assert!(
            matches!(error, EncoderError::Unavailable { .. }),
            "{error:?}"
        );
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_second_request_past_the_deadline_is_not_sent() {
    let busy = Answer::Reply(503, "retry-after: 60\r\n", String::new());
    let server = Server::start([busy]).await;
    let start = Instant::now();
    let error = passages(&encoder(&server), &["a"]).await.unwrap_err();
    assert!(chain(&error).contains("status 503"), "{}", chain(&error));
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_hanging_server_times_out_and_has_a_back_off() {
    let server = Server::start([Answer::Hang]).await;
    let encoder = encoder(&server);
    let start = Instant::now();
    let error = passages(&encoder, &["a"]).await.unwrap_err();
    assert!(
        chain(&error).contains("longer than 2000 ms"),
        "{}",
        chain(&error)
    );
    assert!(start.elapsed() < Duration::from_secs(4));
    let start = Instant::now();
    let error = passages(&encoder, &["a"]).await.unwrap_err();
    assert!(
        matches!(error, EncoderError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(
        chain(&error).contains("back-off for another"),
        "{}",
        chain(&error)
    );
    assert!(start.elapsed() < Duration::from_millis(500));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_refused_text_does_not_start_the_back_off() {
    let server = Server::start([Answer::Reply(400, "", "{}".into())]).await;
    let encoder = encoder(&server);
    let error = passages(&encoder, &["a"]).await.unwrap_err();
    assert!(matches!(error, EncoderError::Failed { .. }), "{error:?}");
    passages(&encoder, &["a"]).await.unwrap();
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::start([]).await;
    let location = format!("location: {}/embeddings\r\n", other.url).leak();
    let server = Server::start([Answer::Reply(307, location, String::new())]).await;
    let error = passages(&encoder(&server), &["a"]).await.unwrap_err();
    assert!(chain(&error).contains("status 307"), "{}", chain(&error));
    assert!(other.requests().is_empty());
}

/// The log output as text.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn an_outage_is_logged_once_without_the_key() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let echo = || Answer::Reply(500, "", format!("wrong key {KEY}"));
    let server = Server::start([echo(), echo()]).await;
    let mut config = config(&server.url);
    config.url.set_query(Some(&format!("key={KEY}")));
    let encoder = RemoteEncoder::new(config).unwrap();

    let mut told = format!("{encoder:?}");
    for _ in 0..2 {
        for _ in 0..3 {
            let error = passages(&encoder, &["a"]).await.unwrap_err();
            told.push_str(&chain(&error));
            write!(told, "{error:?}").unwrap();
        }
        // The clock stands still only for the leap over the back-off: while it is paused, it would
        // also leap to the deadline of each request that waits for a socket.
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(1)).await;
        tokio::time::resume();
    }
    for _ in 0..3 {
        passages(&encoder, &["a"]).await.unwrap();
    }
    told += &String::from_utf8(log.0.lock().clone()).unwrap();
    assert_eq!(server.requests().len(), 5);
    assert_eq!(
        told.matches("the encoder server is unavailable").count(),
        1,
        "{told}"
    );
    assert_eq!(
        told.matches("the encoder server is available again")
            .count(),
        1,
        "{told}"
    );
    assert!(!told.contains("hunter2"), "{told}");
}

#[tokio::test]
async fn an_unreachable_server_is_reported_without_its_url() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1?key={KEY}", listener.local_addr().unwrap());
    drop(listener);
    let error = passages(&RemoteEncoder::new(config(&url)).unwrap(), &["a"])
        .await
        .unwrap_err();
    assert!(
        matches!(error, EncoderError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}
