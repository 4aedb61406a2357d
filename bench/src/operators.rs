//! Calls during requests to the control port: metrics, sessions, tools, upstreams and readiness in
//! turn, and one connection to the event stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;

use crate::message::{Case, Era};
use crate::process::{Process, free_address};
use crate::report::print_ratios;
use crate::riglm::{Behind, CaseArgs};
use crate::sequence::Sequence;
use crate::statistics::Figures;
use crate::upstream::Upstream;

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
/// Calls in a round.
const N_CALLS: usize = 4_000;

/// Measures calls of 1 kB, in alternating rounds without and with requests to the control port, and
/// prints the table.
pub(crate) async fn run(arguments: CaseArgs) -> anyhow::Result<()> {
    let control = free_address()?;
    let riglm = arguments.prepare()?.with_control(control);
    let upstream = Upstream::new(Era::Legacy, 100).start()?;
    let process = riglm.start("riglm", &Behind::Http(upstream), arguments.cores())?;
    let operators = ControlClient::start(control, token_of(&process)?)?;
    let mut sequence = Sequence::open("riglm", &process).await?;
    let call = Case::Call(1_000).request(Era::Legacy);
    sequence.run(&call, N_CALLS).await?; // Warms up.
    let mut samples = [const { Vec::new() }; 2];
    for _ in 0..arguments.rounds() {
        for (is_asked, samples) in [false, true].into_iter().zip(&mut samples) {
            operators.ask(is_asked);
            samples.push(sequence.run(&call, N_CALLS).await?);
        }
    }
    let n_answered = operators.n_answered()?;
    let [alone, asked] = samples.map(|samples| Figures::of(&samples));
    let other = format!("while operators ask ({n_answered} answers)");
    print_ratios(&other, &alone, &asked);
    Ok(())
}

/// A client of the control port in its own thread.
struct ControlClient {
    is_asking: Arc<AtomicBool>,
    n_answered: Arc<AtomicU64>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl ControlClient {
    fn start(control: SocketAddr, token: String) -> anyhow::Result<Self> {
        let is_asking = Arc::new(AtomicBool::new(false));
        let n_answered = Arc::new(AtomicU64::new(0));
        let (asking, answered) = (Arc::clone(&is_asking), Arc::clone(&n_answered));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(request_control_port(control, &token, &asking, &answered))
        });
        Ok(Self {
            is_asking,
            n_answered,
            thread,
        })
    }

    fn ask(&self, is_asking: bool) {
        self.is_asking.store(is_asking, Ordering::Relaxed);
    }

    /// Returns the number of responses, or the error that has ended the requests.
    fn n_answered(self) -> anyhow::Result<u64> {
        if self.thread.is_finished()
            && let Ok(result) = self.thread.join()
        {
            result.context("the requests to the control port have ended")?;
        }
        Ok(self.n_answered.load(Ordering::Relaxed))
    }
}

/// Sends requests in an endless loop, as long as `asking` is set.
async fn request_control_port(
    control: SocketAddr,
    token: &str,
    asking: &AtomicBool,
    answered: &AtomicU64,
) -> anyhow::Result<()> {
    let mut connection = connect(control).await?;
    let mut following = None;
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    for path in PATHS.into_iter().cycle() {
        tick.tick().await;
        if !asking.load(Ordering::Relaxed) {
            following = None;
            continue;
        }
        if following.is_none() {
            let mut other = connect(control).await?;
            let events = send(&mut other, "/events", token).await?;
            following = Some(tokio::spawn(async move {
                let mut events = events.into_body();
                while let Some(Ok(_)) = events.frame().await {}
            }));
        }
        let response = send(&mut connection, path, token).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() || body.is_empty() {
            bail!("{path} was answered with status {status}");
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns the token of the control port.
pub(crate) fn token_of(process: &Process) -> anyhow::Result<String> {
    let token = process.data.path().join("control.token");
    let token = std::fs::read_to_string(&token)
        .with_context(|| format!("riglm: no token in {}", token.display()))?;
    Ok(token.trim().to_owned())
}

/// Connects to the control port.
pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<SendRequest<Empty<Bytes>>> {
    let stream = TokioIo::new(tokio::net::TcpStream::connect(address).await?);
    let (connection, driver) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// Sends a request to the control port.
pub(crate) async fn send(
    connection: &mut SendRequest<Empty<Bytes>>,
    path: &str,
    token: &str,
) -> anyhow::Result<hyper::Response<hyper::body::Incoming>> {
    let request = hyper::Request::get(path)
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {token}"))
        .body(Empty::new())?;
    connection.ready().await?;
    Ok(connection.send_request(request).await?)
}
