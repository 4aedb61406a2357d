//! Calls while pages of the control port are open. Each page does as the scripts in
//! `crates/adapters-http/page` do: it follows the event stream, and after an event it loads what its
//! screen shows, with a pause between two loads and for at most a twentieth of the time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use http_body_util::BodyExt as _;
use tokio::sync::Notify;

use crate::message::{Case, Era};
use crate::operators::{connect, send, token_of};
use crate::process::{free_address, raise_file_limit};
use crate::report::{print_ratios, print_table};
use crate::riglm::{Behind, CaseArgs, endpoint};
use crate::sequence::Sequence;
use crate::sessions::{Opened, with_limits};
use crate::statistics::Figures;
use crate::upstream::Upstream;

/// The path of each screen, and the pause between an event and the load of its rows. The screens are
/// now, sessions, tools, learning and paths. Further pages begin again.
const SCREENS: [(&str, Duration); 5] = [
    ("/overview?days=1", Duration::from_secs(1)),
    ("/sessions?limit=100", Duration::from_secs(5)),
    ("/tools?days=30&limit=1000", Duration::from_secs(2)),
    ("/learning?days=30", Duration::from_secs(30)),
    ("/paths?limit=50", Duration::from_secs(2)),
];
/// Calls in a round. A round has to be longer than the pauses of the pages.
const N_CALLS: usize = 20_000;
/// A page waits this many times as long as its last load took.
const REST: u32 = 20;
/// Sessions that are opened at the same time.
const CONCURRENCY: u32 = 50;
/// For pages that are asked to be quiet.
const QUIET: Duration = Duration::from_millis(100);

/// Options of `pages`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PagesArgs {
    /// The options of all such measurements.
    #[command(flatten)]
    case: CaseArgs,
    /// Number of open pages
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    pages: u32,
    /// Number of tools
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    tools: u32,
    /// Number of sessions that are open besides
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    sessions: u32,
}

impl PagesArgs {
    /// Measures calls of 1 kB, in alternating rounds without and with open pages, and prints how
    /// long the screens took to load.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        raise_file_limit();
        let control = free_address()?;
        let riglm = self.case.prepare()?.with_control(control);
        let riglm = with_limits(riglm, self.sessions, Duration::from_hours(1));
        let upstream = Upstream::new(Era::Legacy, self.tools as usize).start()?;
        let process = riglm.start("riglm", &Behind::Http(upstream), self.case.cores())?;
        let token = token_of(&process)?;
        let mut sequence = Sequence::open("riglm", &process).await?;
        let call = Case::Call(1_000).request(Era::Legacy);
        let list = Case::List(self.tools as usize).request(Era::Legacy);
        sequence.run(&list, 1).await?; // So that the tools are known.
        sequence.run(&call, N_CALLS / 10).await?; // Warms up.
        let n_sessions = self.sessions as usize;
        let at = endpoint("riglm", process.address);
        let opened = Opened::open(&at, n_sessions, CONCURRENCY, false).await?;
        if opened.n_opened() < n_sessions {
            bail!("{} of {n_sessions} sessions were opened", opened.n_opened());
        }
        let pages = Pages::open(control, token, self.pages)?;
        let mut samples = [const { Vec::new() }; 2];
        for _ in 0..self.case.rounds() {
            for (is_open, samples) in [false, true].into_iter().zip(&mut samples) {
                pages.set_open(is_open);
                tokio::time::sleep(2 * QUIET).await;
                samples.push(sequence.run(&call, N_CALLS).await?);
            }
        }
        let screens = pages.close()?;
        let [alone, watched] = samples.map(|samples| Figures::of(&samples));
        print_ratios(&format!("with {} pages", self.pages), &alone, &watched);
        self.print_loads(&screens);
        Ok(())
    }

    fn print_loads(&self, screens: &[Screen]) {
        let head = format!(
            "| screen, {} tools, {} sessions | loads | mean ms | longest ms | kB |\n|---|---|---|---|---|",
            self.tools,
            self.sessions + 1
        );
        let rows: Vec<String> = screens.iter().map(Screen::row).collect();
        print_table(&head, &rows);
    }
}

/// The loads of one page.
#[derive(Debug)]
struct Screen {
    path: &'static str,
    n_loads: u32,
    all: Duration,
    longest: Duration,
    n_bytes: usize,
}

impl Screen {
    fn row(&self) -> String {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
        format!(
            "| {} | {} | {:.1} | {:.1} | {} |",
            self.path,
            self.n_loads,
            milliseconds(self.all) / f64::from(self.n_loads.max(1)),
            milliseconds(self.longest),
            self.n_bytes.div_ceil(1_000)
        )
    }
}

/// Open pages, in a thread of their own.
struct Pages {
    is_open: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<anyhow::Result<Vec<Screen>>>,
}

impl Pages {
    fn open(control: SocketAddr, token: String, n: u32) -> anyhow::Result<Self> {
        let is_open = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::new(AtomicBool::new(false));
        let (open, ended) = (Arc::clone(&is_open), Arc::clone(&has_ended));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let pages = SCREENS.into_iter().cycle().take(n as usize);
                let pages = pages.map(|(path, pause)| {
                    let page = Page {
                        control,
                        token: token.clone(),
                        path,
                        pause,
                        is_open: Arc::clone(&open),
                        has_ended: Arc::clone(&ended),
                    };
                    tokio::spawn(page.run())
                });
                let pages: Vec<_> = pages.collect();
                let mut screens = Vec::new();
                for page in pages {
                    screens.push(page.await??);
                }
                Ok(screens)
            })
        });
        Ok(Self {
            is_open,
            has_ended,
            thread,
        })
    }

    fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Returns the loads of all pages, or the error that has ended one of them.
    fn close(self) -> anyhow::Result<Vec<Screen>> {
        self.has_ended.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(screens) => screens.context("a page has ended"),
            Err(_) => bail!("the thread of the pages has ended"),
        }
    }
}

/// One page on one screen.
struct Page {
    control: SocketAddr,
    token: String,
    path: &'static str,
    pause: Duration,
    is_open: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl Page {
    async fn run(self) -> anyhow::Result<Screen> {
        let mut screen = Screen {
            path: self.path,
            n_loads: 0,
            all: Duration::ZERO,
            longest: Duration::ZERO,
            n_bytes: 0,
        };
        let mut stream: Option<EventStream> = None;
        while !self.has_ended.load(Ordering::Relaxed) {
            if !self.is_open.load(Ordering::Relaxed) {
                stream = None;
                tokio::time::sleep(QUIET).await;
                continue;
            }
            match &mut stream {
                // A page loads its screen when it is opened.
                None => stream = Some(EventStream::open(self.control, &self.token).await?),
                Some(events) => {
                    if !events.has_news().await {
                        continue;
                    }
                    self.rest(self.pause).await;
                    events.forget();
                    if !self.is_open.load(Ordering::Relaxed) {
                        continue;
                    }
                }
            }
            let start = Instant::now();
            // The proxy closes connections that were idle for long.
            let mut connection = connect(self.control).await?;
            let response = send(&mut connection, self.path, &self.token).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            if !status.is_success() || body.is_empty() {
                bail!("{} was answered with status {status}", self.path);
            }
            let took = start.elapsed();
            screen.n_loads += 1;
            screen.all += took;
            screen.longest = screen.longest.max(took);
            screen.n_bytes = body.len();
            // The next round of this loop waits for the pause.
            self.rest((took * REST).saturating_sub(self.pause)).await;
        }
        Ok(screen)
    }

    /// Waits as long as the page stays open.
    async fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while self.is_open.load(Ordering::Relaxed) && !self.has_ended.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(QUIET)).await;
        }
    }
}

/// The event stream of one page.
struct EventStream {
    n_events: Arc<AtomicU64>,
    n_seen: u64,
    news: Arc<Notify>,
    reader: tokio::task::JoinHandle<()>,
}

impl EventStream {
    async fn open(control: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let mut connection = connect(control).await?;
        let mut events = send(&mut connection, "/events", token).await?.into_body();
        let n_events = Arc::new(AtomicU64::new(0));
        let news = Arc::new(Notify::new());
        let (n, notify) = (Arc::clone(&n_events), Arc::clone(&news));
        let reader = tokio::spawn(async move {
            // Kept open as long as its answer is read.
            let _connection = connection;
            while let Some(Ok(frame)) = events.frame().await {
                // Comments begin with a colon.
                if frame.data_ref().is_some_and(|data| !data.starts_with(b":")) {
                    n.fetch_add(1, Ordering::Relaxed);
                    notify.notify_one();
                }
            }
        });
        Ok(Self {
            n_events,
            n_seen: 0,
            news,
            reader,
        })
    }

    /// Waits a moment for an event, and returns whether there was one.
    async fn has_news(&self) -> bool {
        if self.n_events.load(Ordering::Relaxed) > self.n_seen {
            return true;
        }
        tokio::time::timeout(QUIET, self.news.notified())
            .await
            .is_ok()
    }

    /// Takes the events so far as seen.
    fn forget(&mut self) {
        self.n_seen = self.n_events.load(Ordering::Relaxed);
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
