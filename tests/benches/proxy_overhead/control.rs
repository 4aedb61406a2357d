//! Calls during requests to the control port: metrics, sessions, tools, upstreams and readiness in
//! turn, and one connection to the event stream.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;

use crate::load::{Case, Figures, Target, merge};
use crate::process::{self, Process};

/// Requests to the control port per second.
const PER_SECOND: u64 = 10;
/// The requested paths, in turn.
const PATHS: [&str; 5] = [
    "/metrics",
    "/sessions",
    "/tools",
    "/upstreams",
    "/health/ready",
];

/// Latencies of calls without and with requests to the control port.
pub(crate) struct ControlFigures {
    pub(crate) alone: Figures,
    pub(crate) asked: Figures,
    /// The number of responses from the control port.
    pub(crate) n_answered: u64,
}

/// Measures calls of 1 kB, in alternating rounds without and with requests to the control port.
pub(crate) async fn measure(program: &Path, upstream: SocketAddr, rounds: usize) -> ControlFigures {
    let data = tempfile::tempdir().expect("a temporary directory");
    let control = free_address();
    let strategy = ("none", control.to_string());
    let mut serve = process::serve_command_with_control(
        program,
        upstream,
        data.path(),
        (strategy.0, &strategy.1),
    );
    let riglm = Process::start(&mut serve);
    let token = std::fs::read_to_string(data.path().join("control.token")).expect("a token");
    let operators = ControlClient::start(control, token.trim().to_owned());
    let mut client = Target::connect("riglm", riglm.address, Some(riglm.child.id())).await;
    let case = Case::Call(1_000);
    client.run(case, case.requests()).await; // Warms up.
    let mut samples = [const { Vec::new() }; 2];
    for _ in 0..rounds {
        for (is_asked, samples) in [false, true].into_iter().zip(&mut samples) {
            operators.ask(is_asked);
            samples.push(client.run(case, case.requests()).await);
        }
    }
    let [alone, asked] = samples.map(|samples| merge(&samples));
    ControlFigures {
        alone,
        asked,
        n_answered: operators.n_answered.load(Ordering::Relaxed),
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address")
}

/// A client of the control port in its own thread.
struct ControlClient {
    is_asking: Arc<AtomicBool>,
    n_answered: Arc<AtomicU64>,
}

impl ControlClient {
    fn start(control: SocketAddr, token: String) -> Self {
        let is_asking = Arc::new(AtomicBool::new(false));
        let n_answered = Arc::new(AtomicU64::new(0));
        let (asking, answered) = (Arc::clone(&is_asking), Arc::clone(&n_answered));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(request_control_port(control, &token, &asking, &answered));
        });
        Self {
            is_asking,
            n_answered,
        }
    }

    fn ask(&self, is_asking: bool) {
        self.is_asking.store(is_asking, Ordering::Relaxed);
    }
}

/// Sends requests in an endless loop, as long as `asking` is set.
async fn request_control_port(
    control: SocketAddr,
    token: &str,
    asking: &AtomicBool,
    answered: &AtomicU64,
) {
    let mut connection = connect(control).await;
    let mut following = None;
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    for path in PATHS.into_iter().cycle() {
        tick.tick().await;
        if !asking.load(Ordering::Relaxed) {
            following = None;
            continue;
        }
        if following.is_none() {
            let mut other = connect(control).await;
            let events = send(&mut other, "/events", token).await;
            following = Some(tokio::spawn(async move {
                let mut events = events.into_body();
                while let Some(Ok(_)) = events.frame().await {}
            }));
        }
        let response = send(&mut connection, path, token).await;
        assert!(response.status().is_success(), "{path}");
        let body = response.into_body().collect().await.expect("a body");
        assert!(!body.to_bytes().is_empty());
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn connect(address: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let stream = tokio::net::TcpStream::connect(address).await;
    let stream = TokioIo::new(stream.expect("a connection"));
    let (connection, driver) = hyper::client::conn::http1::handshake(stream)
        .await
        .expect("HTTP");
    tokio::spawn(driver);
    connection
}

async fn send(
    connection: &mut SendRequest<Empty<Bytes>>,
    path: &str,
    token: &str,
) -> hyper::Response<hyper::body::Incoming> {
    let request = hyper::Request::get(path)
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {token}"))
        .body(Empty::new())
        .expect("a request");
    connection.ready().await.expect("an open connection");
    connection.send_request(request).await.expect("an answer")
}
