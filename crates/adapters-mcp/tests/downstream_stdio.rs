//! A client over standard input and output: its responses at the end of its session.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_mcp::downstream::stdio::{self, StdioError};
use riglm_app::limits::Limits;
use riglm_app::proxy::{ClientIdentity, Proxy, Upstream};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::ScriptedUpstream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const NO_MESSAGE: &str = "neither JSON nor a message\n";

/// A client whose output has a buffer of `capacity` bytes.
struct Scene {
    upstream: Arc<ScriptedUpstream>,
    input: DuplexStream,
    output: BufReader<DuplexStream>,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), StdioError>>,
}

fn scene(capacity: usize) -> Scene {
    let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
    let proxy = Proxy::new(testing::proxy_parts(vec![Upstream::new(upstream.clone())]));
    let (input, served_input) = tokio::io::duplex(64 << 10);
    let (served_output, output) = tokio::io::duplex(capacity);
    let stop = CancellationToken::new();
    let token = stop.clone();
    let serving = tokio::spawn(async move {
        stdio::serve(
            &proxy,
            &ClientIdentity::from(&Principal::local()),
            served_input,
            served_output,
            token,
        )
        .await
    });
    Scene {
        upstream,
        input,
        output: BufReader::new(output),
        stop,
        serving,
    }
}

impl Scene {
    /// Sends a request and waits until the upstream has received it.
    async fn ask(&mut self) {
        self.input.write_all(PING.as_bytes()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
        while self.upstream.sent_messages().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let reading = self.output.read_line(&mut line);
        let read = tokio::time::timeout(Duration::from_mins(2), reading).await;
        read.expect("no line came").unwrap();
        line
    }

    async fn end(self) {
        tokio::time::timeout(Duration::from_mins(2), self.serving)
            .await
            .expect("serving hangs")
            .unwrap()
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_at_end_of_input_are_answered() {
    let mut scene = scene(64 << 10);
    scene.ask().await;
    scene.input.shutdown().await.unwrap();
    tokio::time::sleep(Limits::default().drain_timeout / 2).await;
    scene.upstream.send_to_client(PONG, None).await;
    assert_eq!(scene.line().await, format!("{PONG}\n"));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_open_requests_with_complete_lines() {
    let mut scene = scene(8);
    scene.ask().await;
    scene.stop.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.upstream.send_to_client(PONG, None).await;
    // The output has room for only the beginning of the line, until the client reads.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut rest = String::new();
    let reading = scene.output.read_to_string(&mut rest);
    let read = tokio::time::timeout(Duration::from_mins(2), reading).await;
    read.expect("the output does not end").unwrap();
    assert_eq!(rest, format!("{PONG}\n"));
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_disconnects_stalled_clients() {
    let mut scene = scene(8);
    let lines = NO_MESSAGE.repeat(200);
    scene.input.write_all(lines.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.stop.cancel();
    scene.end().await;
}

#[tokio::test(start_paused = true)]
async fn clients_with_closed_output_are_not_waited_for() {
    let mut scene = scene(8);
    scene.ask().await;
    let lines = NO_MESSAGE.repeat(200);
    scene.input.write_all(lines.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let Scene {
        output, serving, ..
    } = scene;
    drop(output);
    let limit = Limits::default().drain_timeout / 2;
    let served = tokio::time::timeout(limit, serving).await;
    served.expect("serving hangs").unwrap().unwrap();
}
