//! Sessions that call once and leave, as frameworks open them for each call.

use std::time::{Duration, Instant};

use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport};
use riglm_tests::kit::{Proxy, ProxyBuilder, proxy, server};
use riglm_tests::messages::{call, initialize};
use riglm_tests::process::{command_line, descendants, eventually};

use crate::answers;

const SERVERS: [&str; 4] = ["docs", "files", "mail", "wiki"];
const N_SESSIONS: usize = 100;
/// The most processes of one server after the last session.
const MOST_PROCESSES: usize = 2;
/// The longest time of a session through the proxy, in those of a session with a server over HTTP.
/// It is generous, because other tests run at the same time and nothing is optimized.
const MOST_TIMES: f64 = 25.0;

/// The end of a session by its client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Delete,
    Leave,
}

/// Opens a session, calls a tool and leaves. Returns the time that it took.
async fn visit(client: RawClient, tool: &str, ending: Ending) -> Duration {
    let begun = Instant::now();
    client.initialize(&initialize("0", "2025-11-25")).await;
    let answer = client.request(&call("1", tool, "{}")).await.text;
    assert!(answer.contains("ran tool-000"), "{answer}");
    if ending == Ending::Delete {
        client.delete().await;
    }
    client.drop_streams();
    drop(client);
    begun.elapsed()
}

/// Returns the median time of a visit, after as many visits as there are servers.
async fn median(mut visit: impl AsyncFnMut(usize) -> Duration) -> Duration {
    for n in 0..SERVERS.len() {
        visit(n).await;
    }
    let mut times = Vec::new();
    for n in 0..N_SESSIONS {
        times.push(visit(n).await);
    }
    times.sort_unstable();
    times[N_SESSIONS / 2]
}

/// Returns the number of processes of the server that has most.
fn most_processes(proxy: &Proxy) -> usize {
    let children = descendants(proxy.riglm.process.pid());
    let lines: Vec<String> = children.into_iter().map(command_line).collect();
    let n_of = |name: &&str| {
        let server = format!("--name {name}");
        lines.iter().filter(|line| line.contains(&server)).count()
    };
    SERVERS.iter().map(n_of).max().unwrap_or_default()
}

async fn sessions_cost_little(ending: Ending) {
    let program = binary::odd_server().display().to_string();
    let tools = ["--tools", "3", "--name", "direct"].map(str::to_owned);
    let direct = Server::OddWith(program.into(), tools.to_vec());
    let direct = direct.start(Transport::Streamable).await;
    let directly = median(async |_| {
        let client = direct.client(answers()).await;
        visit(client, "tool-000", ending).await
    })
    .await;
    let all = SERVERS.map(|name| server(name).tools(3));
    let proxy = all.iter().fold(proxy(), ProxyBuilder::server);
    let proxy = proxy.with_control().start().await;
    let through = median(async |n| {
        let tool = format!("{}__tool-000", SERVERS[n % SERVERS.len()]);
        visit(proxy.riglm.client(answers()), &tool, ending).await
    })
    .await;
    let n_at_once = most_processes(&proxy);
    let times = through.as_secs_f64() / directly.as_secs_f64();
    eprintln!(
        "{ending:?}: median {through:?}, directly {directly:?} ({times:.1} times), \
         {n_at_once} processes of a server at once after the last one"
    );
    let few = || (most_processes(&proxy) <= MOST_PROCESSES).then_some(());
    let left = eventually(Duration::from_secs(10), few).await;
    assert!(left.is_some(), "{} processes", most_processes(&proxy));
    assert!(times < MOST_TIMES, "{times}");
}

#[tokio::test]
async fn sessions_that_call_once_and_delete_cost_little() {
    sessions_cost_little(Ending::Delete).await;
}

#[tokio::test]
async fn sessions_that_call_once_and_leave_cost_little() {
    sessions_cost_little(Ending::Leave).await;
}
