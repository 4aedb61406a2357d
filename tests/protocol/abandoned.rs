//! Clients that come and never say goodbye: what they leave behind goes away by itself.

use std::time::Duration;

use riglm_tests::client::RawClient;
use riglm_tests::fixture::Upstream;
use riglm_tests::messages::{call, initialize};
use riglm_tests::modern::Meta;
use riglm_tests::process::{command_line, descendants, eventually, n_descriptors, resident_kib};
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;

use crate::answers;

/// How many sessions are opened and left.
const SESSIONS: usize = 200;

/// How many are opened at once.
const AT_ONCE: usize = 10;

/// More descriptors than a proxy without sessions has.
const AT_REST: usize = 60;

/// How long the proxy has to clean up after the last one: many times its own limits.
const CLEANED_UP: Duration = Duration::from_mins(1);

/// By how many percent the memory may have grown, compared with what it was after as many sessions
/// before: an allocator keeps what it once needed.
const MEMORY_GROWTH: u64 = 40;

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footprint {
    servers: usize,
    descriptors: usize,
    memory_kib: u64,
}

impl Footprint {
    fn of(riglm: &Riglm) -> Self {
        let pid = riglm.process.pid();
        let servers = descendants(pid)
            .into_iter()
            .filter(|pid| command_line(*pid).contains("odd-server"))
            .count();
        Self {
            servers,
            descriptors: n_descriptors(pid),
            memory_kib: resident_kib(pid),
        }
    }
}

async fn start(era: &str) -> (Riglm, TempDir) {
    let program = env!("CARGO_BIN_EXE_odd-server");
    let configuration = format!(
        "[upstreams.one]\ncommand = [\"{program}\", \"stdio\", \"--era\", \"{era}\"]\n\
         isolation = \"per_session\"\nidle_timeout = \"1s\"\nmax_connections = 300\n\
         [limits]\nidle_timeout = \"2s\"\n"
    );
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let options = Options::configured(&configuration);
    let riglm = Riglm::serve(&Upstream::configured(), data_dir.path(), &options).await;
    (riglm, data_dir)
}

/// Opens a session, uses its server, and leaves without a word.
async fn visit(riglm: &Riglm) {
    let client = riglm.client(answers());
    client.initialize(&initialize("0", "2025-11-25")).await;
    let answer = client
        .request(&call("1", "echo", r#"{"text":"here"}"#))
        .await;
    assert!(answer.text.contains("here"), "{}", answer.text);
}

/// The same of a client without sessions, under a name that nobody else has.
async fn visit_modern(riglm: &Riglm, number: usize) {
    let client = RawClient::modern(&riglm.url);
    client.set_header("X-Riglm-Session", &format!("visitor-{number}"));
    let text = Meta::default().call("1", "echo", r#"{"text":"here"}"#);
    let answer = client.request(&text).await;
    assert!(answer.text.contains("here"), "{}", answer.text);
}

async fn assert_cleaned_up(riglm: &Riglm, before: Footprint) {
    let cleaned = eventually(CLEANED_UP, || {
        let now = Footprint::of(riglm);
        (now.servers <= before.servers && now.descriptors <= before.descriptors).then_some(now)
    })
    .await;
    let after = cleaned.unwrap_or_else(|| {
        panic!(
            "{before:?} became {:?}; the proxy printed:\n{}",
            Footprint::of(riglm),
            riglm.process.output()
        )
    });
    eprintln!("{before:?} became {after:?}");
    assert!(
        after.memory_kib * 100 <= before.memory_kib * (100 + MEMORY_GROWTH),
        "{before:?} became {after:?}"
    );
}

/// Returns what the proxy holds once the first visitors have come and are gone.
async fn settled(riglm: &Riglm) -> Footprint {
    let quiet = eventually(CLEANED_UP, || {
        let now = Footprint::of(riglm);
        (now.servers == 0 && now.descriptors < AT_REST).then_some(now)
    })
    .await;
    quiet.unwrap_or_else(|| panic!("the servers of the first visitors stay"))
}

#[tokio::test]
async fn two_hundred_abandoned_sessions_leave_nothing_behind() {
    let (riglm, _data_dir) = start("legacy").await;
    let visits = async || {
        for _ in 0..SESSIONS / AT_ONCE {
            futures_util::future::join_all((0..AT_ONCE).map(|_| visit(&riglm))).await;
        }
    };
    visits().await;
    let before = settled(&riglm).await;
    visits().await;
    assert_cleaned_up(&riglm, before).await;
}

#[tokio::test]
async fn two_hundred_clients_without_sessions_leave_nothing_behind() {
    for era in ["legacy", "modern"] {
        let (riglm, _data_dir) = start(era).await;
        let visits = async |first: usize| {
            for batch in 0..SESSIONS / AT_ONCE {
                let first = first + batch * AT_ONCE;
                let visitors = (first..first + AT_ONCE).map(|number| visit_modern(&riglm, number));
                futures_util::future::join_all(visitors).await;
            }
        };
        visits(0).await;
        let before = settled(&riglm).await;
        visits(SESSIONS).await;
        assert_cleaned_up(&riglm, before).await;
    }
}
