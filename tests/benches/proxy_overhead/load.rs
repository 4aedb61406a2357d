//! A client that sends one request at a time and waits for each response.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;

#[derive(Clone, Copy)]
pub(crate) enum Case {
    /// `tools/call` with arguments and a result of this size in bytes.
    Call(usize),
    /// `tools/list` of this many tools.
    List(usize),
    Whole,
}

impl Case {
    pub(crate) const ALL: [Self; 5] = [
        Self::Call(1_000),
        Self::Call(100_000),
        Self::Call(1_000_000),
        Self::List(100),
        Self::List(1_000),
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Call(bytes) if bytes >= 1_000_000 => {
                format!("tools/call {} MB", bytes / 1_000_000)
            }
            Self::Call(bytes) => format!("tools/call {} kB", bytes / 1_000),
            Self::List(n_tools) => format!("tools/list {n_tools} tools"),
            Self::Whole => "tools/list".into(),
        }
    }

    /// Returns the number of requests in a round.
    pub(crate) fn requests(self) -> usize {
        match self {
            Self::Call(1_000) | Self::Whole => 4_000,
            Self::Call(100_000) | Self::List(100) => 800,
            Self::Call(_) | Self::List(_) => 100,
        }
    }

    fn body(self, id: u64) -> String {
        match self {
            Self::Call(bytes) => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{}"}}}}}}"#,
                "lorem ipsum ".repeat(bytes / 12)
            ),
            Self::List(n_tools) => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"cursor":"{n_tools}"}}}}"#
            ),
            Self::Whole => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#),
        }
    }
}

pub(crate) struct Sample {
    latencies: Vec<Duration>,
    cpu: Duration,
}

/// Statistics over all rounds, in microseconds.
pub(crate) struct Figures {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// CPU time of the hop per request.
    pub(crate) cpu: f64,
}

impl Sample {
    /// Returns a sample of latencies that were measured elsewhere.
    pub(crate) fn new(latencies: Vec<Duration>, cpu: Duration) -> Self {
        Self { latencies, cpu }
    }

    /// Returns the median latency in microseconds.
    pub(crate) fn p50(&self) -> f64 {
        let mut all = self.latencies.clone();
        all.sort_unstable();
        all[all.len() / 2].as_secs_f64() * 1e6
    }
}

pub(crate) fn merge(samples: &[Sample]) -> Figures {
    let cpu: Duration = samples.iter().map(|sample| sample.cpu).sum();
    let mut all: Vec<Duration> = samples
        .iter()
        .flat_map(|sample| sample.latencies.iter().copied())
        .collect();
    all.sort_unstable();
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let at = |percent: usize| micros(all[(all.len() - 1) * percent / 100]);
    let n_requests = u32::try_from(all.len()).expect("fewer requests than 2^32");
    Figures {
        p50: at(50),
        p99: at(99),
        cpu: micros(cpu / n_requests),
    }
}

/// An open session with a server, a relay or a proxy.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    connection: SendRequest<Full<Bytes>>,
    session: Option<String>,
    process: Option<u32>,
    last_id: u64,
    /// The session key in the header `x-riglm-session`, if any.
    work: Option<String>,
}

impl Target {
    pub(crate) async fn connect(
        name: &'static str,
        address: SocketAddr,
        process: Option<u32>,
    ) -> Self {
        Self::connect_for(name, address, process, None).await
    }

    /// Connects a client with a session key.
    pub(crate) async fn connect_for(
        name: &'static str,
        address: SocketAddr,
        process: Option<u32>,
        work: Option<String>,
    ) -> Self {
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP");
        tokio::spawn(driver);
        let mut target = Self {
            name,
            connection,
            session: None,
            process,
            last_id: 0,
            work,
        };
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
        target.post(hello.into()).await;
        target
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.into())
            .await;
        target
    }

    /// Sends requests one after the other.
    pub(crate) async fn run(&mut self, case: Case, n_requests: usize) -> Sample {
        let cpu_before = self.cpu();
        let mut latencies = Vec::with_capacity(n_requests);
        for _ in 0..n_requests {
            latencies.push(self.time(case).await);
        }
        // The CPU time of a hop after its response belongs to the request too. Records are
        // collected for a tenth of a second before they become rows.
        tokio::time::sleep(Duration::from_millis(150)).await;
        Sample {
            latencies,
            cpu: self.cpu().saturating_sub(cpu_before),
        }
    }

    /// Sends a request and returns its latency.
    pub(crate) async fn time(&mut self, case: Case) -> Duration {
        self.last_id += 1;
        let body = case.body(self.last_id);
        let size = body.len();
        let start = Instant::now();
        let answer = self.post(body).await;
        let latency = start.elapsed();
        let is_whole = answer.len() + 200
            > if matches!(case, Case::Call(_)) {
                size
            } else {
                0
            };
        assert!(is_whole && !answer.is_empty(), "{}: {answer:?}", self.name);
        latency
    }

    pub(crate) async fn call(&mut self, tool: &str) {
        self.last_id += 1;
        let id = self.last_id;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"field_0":"x"}}}}}}"#
        );
        self.post(body).await;
    }

    /// Returns the number of tools of the server in the list.
    pub(crate) async fn n_listed(&mut self) -> usize {
        self.last_id += 1;
        let answer = self.post(Case::Whole.body(self.last_id)).await;
        let text = String::from_utf8_lossy(&answer);
        text.matches("\"name\":\"tool_").count()
    }

    async fn post(&mut self, body: String) -> Bytes {
        let mut request = hyper::Request::post("/mcp")
            .header("host", "127.0.0.1")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if let Some(work) = &self.work {
            request = request.header("x-riglm-session", work);
        }
        let request = request.body(Full::from(body)).expect("a request");
        self.connection.ready().await.expect("an open connection");
        let response = self
            .connection
            .send_request(request)
            .await
            .expect("an answer");
        assert!(
            response.status().is_success(),
            "{}: {}",
            self.name,
            response.status()
        );
        if let Some(session) = response.headers().get("mcp-session-id") {
            self.session = Some(session.to_str().expect("ASCII").to_owned());
        }
        response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes()
    }

    /// Returns the CPU time of the process of this target.
    pub(crate) fn cpu(&self) -> Duration {
        let Some(process) = self.process else {
            return Duration::ZERO;
        };
        // In nanoseconds, from the scheduler of the kernel. `stat` has a resolution of only 10 ms.
        let mut nanos = 0;
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process");
        for task in tasks.flatten() {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanos += text
                .split(' ')
                .next()
                .and_then(|n| n.parse::<u64>().ok())
                .unwrap_or(0);
        }
        Duration::from_nanos(nanos)
    }
}
