//! A receiver of OTLP over HTTP on the loopback interface. It remembers what it accepted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use parking_lot::Mutex;
use prost::Message as _;

/// The number of spans that the receiver rejects of each batch, where it rejects some.
const N_REJECTED: i64 = 7;
/// The time that a slow receiver takes for one batch.
const SLOW: Duration = Duration::from_millis(500);

/// The way that the receiver answers. It is a part of the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Accepts every batch at once.
    Accepts,
    /// Nothing listens at the port.
    Away,
    /// Accepts connections and reads, but never answers.
    Silent,
    /// Accepts a batch after half a second.
    Slow,
    /// Answers with status 503.
    Busy,
    /// Rejects seven spans of each batch.
    Rejects,
}

impl Answers {
    /// The ways of a receiver with which spans are lost.
    pub(crate) const FAULTY: [Self; 5] = [
        Self::Away,
        Self::Silent,
        Self::Slow,
        Self::Busy,
        Self::Rejects,
    ];

    /// Returns the name in paths and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepts => "accepts",
            Self::Away => "away",
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Busy => "busy",
            Self::Rejects => "rejects",
        }
    }
}

/// The data that one measured process has sent.
#[derive(Debug, Default)]
pub(crate) struct Received {
    ids: HashSet<Vec<u8>>,
    n_rejected: usize,
    n_batches: usize,
    headers: Vec<String>,
    resources: BTreeSet<String>,
    names: Vec<String>,
}

impl Received {
    /// Returns the number of accepted spans. A span that arrived twice counts once.
    pub(crate) fn n_spans(&self) -> usize {
        self.ids.len() - self.n_rejected
    }

    /// Returns the number of accepted batches.
    pub(crate) fn n_batches(&self) -> usize {
        self.n_batches
    }

    /// Returns all that the configuration decides: the headers, the resource, the number of
    /// batches, and the spans without their ids and times.
    pub(crate) fn shape(&self) -> String {
        let mut names = self.names.clone();
        names.sort_unstable();
        format!(
            "{:?} {:?} {} {names:?}",
            self.headers, self.resources, self.n_batches
        )
    }

    fn add(&mut self, head: &str, batch: ExportTraceServiceRequest, keeps_shape: bool) {
        self.n_batches += 1;
        if self.headers.is_empty() {
            let headers = head.lines().skip(1);
            self.headers = headers
                .filter(|line| !line.starts_with("host:") && !line.starts_with("content-length:"))
                .map(str::to_owned)
                .collect();
            self.headers.sort_unstable();
        }
        for of_resource in batch.resource_spans {
            if keeps_shape {
                // They come in no order.
                let attributes = of_resource.resource.unwrap_or_default().attributes;
                let attributes = attributes.iter().map(|of| format!("{of:?}"));
                self.resources.extend(attributes);
            }
            for span in of_resource
                .scope_spans
                .into_iter()
                .flat_map(|scope| scope.spans)
            {
                if keeps_shape {
                    let attributes = span.attributes;
                    self.names
                        .push(format!("{} {} {attributes:?}", span.name, span.kind));
                }
                self.ids.insert(span.span_id);
            }
        }
    }
}

/// A receiver in threads of this process.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    free: SocketAddr,
    runs: Arc<Mutex<HashMap<String, Received>>>,
}

impl Receiver {
    /// Starts to listen at a free port.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = free.local_addr().unwrap();
        let runs: Arc<Mutex<HashMap<String, Received>>> = Arc::default();
        let known = Arc::clone(&runs);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let runs = Arc::clone(&known);
                // A client may close its connection at any time.
                std::thread::spawn(move || serve(stream, &runs).unwrap_or_default());
            }
        });
        Self {
            address,
            free,
            runs,
        }
    }

    /// Returns the base URL for one measured process.
    pub(crate) fn base_url(&self, run: &str, answers: Answers) -> String {
        let address = match answers {
            Answers::Away => self.free,
            _ => self.address,
        };
        format!("http://{address}/{}/{run}", answers.name())
    }

    /// Returns and forgets the data that a measured process has sent.
    pub(crate) fn take(&self, run: &str) -> Received {
        self.runs.lock().remove(run).unwrap_or_default()
    }
}

fn serve(mut stream: TcpStream, runs: &Mutex<HashMap<String, Received>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut read)? {
        let mut path = head.split(' ').nth(1).unwrap().split('/').skip(1);
        let (answers, run) = (path.next().unwrap(), path.next().unwrap());
        let mut answer = ExportTraceServiceResponse::default();
        let mut status = "200 OK";
        match answers {
            // Waits for the end of the connection.
            "silent" => {
                stream.read_to_end(&mut read)?;
                return Ok(());
            }
            "busy" => status = "503 Service Unavailable",
            _ => {
                let batch = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
                let mut runs = runs.lock();
                let received = runs.entry(run.to_owned()).or_default();
                received.add(&head, batch, run.starts_with("env"));
                if answers == "rejects" {
                    received.n_rejected += usize::try_from(N_REJECTED).unwrap();
                    answer.partial_success = Some(ExportTracePartialSuccess {
                        rejected_spans: N_REJECTED,
                        error_message: String::new(),
                    });
                }
            }
        }
        if answers == "slow" {
            std::thread::sleep(SLOW);
        }
        let answer = answer.encode_to_vec();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(&[head.as_bytes(), &answer].concat())?;
    }
    Ok(())
}

/// Returns the head and the body of the next request; `None` at the end of the connection.
fn read_request(
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut chunk = vec![0; 64 << 10];
    let mut read_more = |read: &mut Vec<u8>| -> std::io::Result<bool> {
        let n = stream.read(&mut chunk)?;
        read.extend_from_slice(&chunk[..n]);
        Ok(n > 0)
    };
    let end = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if !read_more(read)? {
            return Ok(None);
        }
    };
    let rest = read.split_off(end);
    let head = String::from_utf8(std::mem::replace(read, rest)).unwrap();
    let head = head.trim_end().to_lowercase();
    let length = head.split_once("content-length: ").unwrap().1;
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    while read.len() < length {
        if !read_more(read)? {
            return Ok(None);
        }
    }
    let rest = read.split_off(length);
    Ok(Some((head, std::mem::replace(read, rest))))
}
