//! The measured process: ends spans in one way, and prints its figures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::mcp::protocol::Revision;
use riglm_ports::contract::scene;
use riglm_ports::tracer::{
    RequestTarget, SpanAttribute, SpanOperation, SpanStatus, TracedRequest, Tracer,
};
use rustix::time::{ClockId, clock_gettime};

use crate::losses::{LossLog, SdkMetrics};
use crate::ways::{Exporting, Way};

/// The spans of one call: the request, the request to the upstream, and the write to the spool.
pub(crate) const SPANS_OF_A_CALL: u32 = 3;
/// The longest time that the end of a process is awaited.
pub(crate) const MAX_CLOSE: Duration = Duration::from_secs(5);

/// The calls before the measured ones. Their spans fill a batch, so that it is sent at once.
const FIRST_CALLS: u32 = 171;
/// The time for sending this batch.
const WARM_WITHIN: Duration = Duration::from_millis(200);

/// Tasks that make calls: some at once, and then a pause. If it is warm, there is a connection
/// already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The name in arguments.
    pub(crate) name: &'static str,
    /// The description in tables.
    pub(crate) title: &'static str,
    n_tasks: u32,
    n_bursts: u32,
    calls_of_a_burst: u32,
    pause: Duration,
    is_warm: bool,
}

/// Single calls of one task.
pub(crate) const STEADY: Load = Load {
    name: "steady",
    title: "1 task, single calls",
    n_tasks: 1,
    n_bursts: 1_000,
    calls_of_a_burst: 1,
    pause: Duration::from_millis(1),
    is_warm: true,
};
/// Bursts of one task.
pub(crate) const BURSTS: Load = Load {
    name: "bursts",
    title: "1 task, bursts",
    n_tasks: 1,
    n_bursts: 300,
    calls_of_a_burst: 16,
    pause: Duration::from_millis(4),
    is_warm: true,
};
/// Bursts of eight tasks, with 100,000 spans in all.
pub(crate) const MANY: Load = Load {
    name: "many",
    title: "8 tasks, bursts",
    n_tasks: 8,
    n_bursts: 260,
    calls_of_a_burst: 16,
    pause: Duration::from_millis(9),
    is_warm: true,
};
/// More spans than a queue takes, while the receiver fails.
pub(crate) const FAULT: Load = Load {
    name: "fault",
    title: "a faulty receiver",
    n_tasks: 1,
    n_bursts: 200,
    calls_of_a_burst: 16,
    pause: Duration::from_millis(9),
    is_warm: false,
};
/// A few spans.
pub(crate) const FEW: Load = Load {
    name: "few",
    title: "a few spans",
    n_tasks: 1,
    n_bursts: 1,
    calls_of_a_burst: 20,
    pause: Duration::ZERO,
    is_warm: false,
};

impl Load {
    /// The loads for which a receiver accepts everything.
    pub(crate) const HEALTHY: [Self; 3] = [STEADY, BURSTS, MANY];

    /// Returns the load of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [STEADY, BURSTS, MANY, FAULT, FEW]
            .into_iter()
            .find(|load| load.name == name)
    }

    /// Returns the number of measured spans.
    pub(crate) fn n_measured(self) -> u32 {
        self.n_tasks * self.n_bursts * self.calls_of_a_burst * SPANS_OF_A_CALL
    }

    /// Returns the number of all spans.
    pub(crate) fn n_spans(self) -> u32 {
        let first = if self.is_warm { FIRST_CALLS } else { 0 };
        self.n_measured() + first * SPANS_OF_A_CALL
    }
}

/// Measures one way under one load and prints the figures, one a line.
pub(crate) fn measure(way: Way, load: Load, base_url: &str) {
    let log = LossLog::install();
    let metrics = SdkMetrics::install();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // The measured times, on pages that the process has already.
        let of_task = load.n_measured() / load.n_tasks;
        let times: Vec<Vec<u32>> = (0..load.n_tasks)
            .map(|_| vec![u32::MAX; of_task as usize])
            .collect();
        let (threads, resident) = (n_threads(), resident_kib());
        let exporting = Exporting::start(way, base_url);
        let tracer = &exporting.tracer;
        if load.is_warm {
            for _ in 0..FIRST_CALLS {
                Caller::new().end_call(tracer.as_ref());
            }
            tokio::time::sleep(WARM_WITHIN).await;
        }
        let cpu = process_cpu();
        let tasks: Vec<_> = times
            .into_iter()
            .map(|times| tokio::spawn(end_spans(Arc::clone(tracer), load, times)))
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await.unwrap());
        }
        print("threads", n_threads() - threads);
        print("resident_kib", resident_kib().saturating_sub(resident));
        let began = Instant::now();
        let closed = tokio::time::timeout(MAX_CLOSE, exporting.close()).await;
        print("close_ms", began.elapsed().as_millis());
        print("is_closed", u8::from(closed.is_ok()));
        print("has_error", u8::from(closed == Ok(false)));
        print("cpu_ns", process_cpu().saturating_sub(cpu).as_nanos());
        times.sort_unstable();
        print("p50_ns", times[times.len() / 2]);
        print("p99_ns", times[times.len() * 99 / 100]);
        print("max_ns", times[times.len() - 1]);
        print("in_log", log.n_lost());
        print("in_metrics", metrics.n_lost().unwrap_or(f64::NAN));
        print("failed", exporting.n_failed());
    });
    // A shutdown without a limit may go on.
    std::process::exit(0);
}

/// Ends the spans of one task. Returns the nanoseconds that the end of each took.
async fn end_spans(tracer: Arc<dyn Tracer>, load: Load, mut times: Vec<u32>) -> Vec<u32> {
    let caller = Caller::new();
    let mut n = 0;
    for _ in 0..load.n_bursts {
        for _ in 0..load.calls_of_a_burst {
            for time in caller.end_call(tracer.as_ref()) {
                times[n] = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
                n += 1;
            }
        }
        tokio::time::sleep(load.pause).await;
    }
    times
}

/// The upstream, session and revision in the spans of calls.
struct Caller {
    upstream: UpstreamName,
    session: SessionId,
    revision: Revision,
}

impl Caller {
    fn new() -> Self {
        Self {
            upstream: UpstreamName::parse("files").unwrap(),
            session: scene::session(scene::run(1), 1).id,
            revision: Revision::new("2025-11-25"),
        }
    }

    /// Makes the spans of a `tools/call`. Returns the time that the end of each took.
    fn end_call(&self, tracer: &dyn Tracer) -> [Duration; SPANS_OF_A_CALL as usize] {
        let call = TracedRequest {
            method: "tools/call",
            target: Some(RequestTarget::Tool("read_text_file")),
        };
        let mut request = tracer.begin(&SpanOperation::Request(call), None);
        let store = tracer.begin(&SpanOperation::Store, Some(request.context()));
        let asked = SpanOperation::Upstream(&self.upstream, call);
        let mut asked = tracer.begin(&asked, Some(request.context()));
        asked.set_status(SpanStatus::Ok);
        request.set_attribute(SpanAttribute::Revision(&self.revision));
        request.set_attribute(SpanAttribute::Session(self.session));
        request.set_status(SpanStatus::Ok);
        [store, asked, request].map(|span| {
            let began = Instant::now();
            drop(span);
            began.elapsed()
        })
    }
}

#[expect(clippy::print_stdout, reason = "the bench reads it")]
fn print(name: &str, value: impl std::fmt::Display) {
    println!("{name}={value}");
}

fn process_cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

fn n_threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Returns the resident memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = resident.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}
