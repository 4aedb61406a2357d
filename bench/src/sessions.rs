//! Many sessions: how long they take to open, and what they leave in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use http::HeaderValue;
use serde::Serialize;

use crate::client::{Endpoint, Session};
use crate::message::Era;
use crate::process::raise_file_limit;
use crate::report::{ResultFile, megabytes, print_table};
use crate::riglm::Riglm;
use crate::statistics::{count, percentile, ratio};
use crate::usage::Memory;
use crate::ways::{Setting, Transport, Way, WayArgs};

/// The time after the idle timeout in which a proxy ends its sessions.
const AFTER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after the last DELETE until memory is read.
const AFTER_CLOSING: Duration = Duration::from_secs(3);

const HEAD: &str = "| way | opened, errors | opening p50 / p99 us | sessions/s | RSS (anonymous) MB before, open, ended | kB per session | ending |
|---|---|---|---|---|---|---|";

/// Options of `sessions`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionsArgs {
    /// The measured ways.
    #[command(flatten)]
    ways: WayArgs,
    /// Number of sessions
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Sessions that are opened at the same time
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Abandon the sessions instead of ending each with a DELETE
    #[arg(long)]
    abandon: bool,
    /// Keep a TCP connection for each session while it is open, instead of one for many
    #[arg(long)]
    keep_connections: bool,
    /// Seconds until riglm ends an idle session, and until abandoned sessions of other proxies
    /// have ended
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    idle_seconds: u64,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The results of one way.
#[derive(Debug, Serialize)]
struct Row {
    way: String,
    opened: usize,
    /// The errors, each with how often it came.
    errors: BTreeMap<String, usize>,
    open_p50_us: f64,
    open_p99_us: f64,
    open_per_second: f64,
    before: Option<Memory>,
    open: Option<Memory>,
    ended: Option<Memory>,
    /// Resident memory of an open session in kB, over all of them.
    kb_per_session: Option<f64>,
    ending: String,
}

/// The sessions that one worker or all of them have opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    latencies: Vec<Duration>,
    ids: Vec<HeaderValue>,
    errors: BTreeMap<String, usize>,
    /// Connections that stay open: one for each session, or the last one, which is used again.
    connections: Vec<Session>,
    keeps_connections: bool,
}

impl SessionsArgs {
    /// Measures all ways and prints the table.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let file = ResultFile::create(self.json.as_deref())?;
        raise_file_limit();
        let mut launcher = self.ways.clone().prepare()?;
        let idle = Duration::from_secs(self.idle_seconds);
        launcher.set_up_riglm(|riglm| with_limits(riglm, self.count, idle));
        let scene = launcher.start(Setting {
            transport: Transport::Http,
            era: Era::Legacy,
            n_tools: 100,
        })?;
        let mut rows = Vec::new();
        for way in &scene.ways {
            eprintln!("{}: {} sessions", way.endpoint.name, self.count);
            rows.push(self.measure(way).await?);
        }
        let lines: Vec<String> = rows.iter().map(Row::markdown).collect();
        print_table(HEAD, &lines);
        file.write(&rows)?;
        let mut n_errors = 0;
        for row in &rows {
            for (error, n) in &row.errors {
                eprintln!("{}: {n} times: {error}", row.way);
                n_errors += n;
            }
        }
        if n_errors > 0 {
            bail!("{n_errors} errors");
        }
        Ok(())
    }

    async fn measure(&self, way: &Way) -> anyhow::Result<Row> {
        // Warms up: the first session loads code and connects to the upstream.
        Session::open(&way.endpoint, Era::Legacy)
            .await?
            .close()
            .await?;
        way.settle(way.cpu()).await;
        let before = way.memory();
        let start = Instant::now();
        let mut opened = Opened::open(
            &way.endpoint,
            self.count as usize,
            self.concurrency,
            self.keep_connections,
        )
        .await?;
        let elapsed = start.elapsed();
        way.settle(way.cpu()).await;
        let open = way.memory();
        opened.latencies.sort_unstable();
        let ending = if self.abandon {
            self.abandon_all(&mut opened).await
        } else {
            self.delete_all(&way.endpoint, &mut opened).await?
        };
        way.settle(way.cpu()).await;
        let n = opened.latencies.len();
        Ok(Row {
            way: way.endpoint.name.clone(),
            opened: n,
            open_p50_us: percentile(&opened.latencies, 50),
            open_p99_us: percentile(&opened.latencies, 99),
            open_per_second: ratio(count(n), elapsed.as_secs_f64()),
            before,
            open,
            ended: way.memory(),
            kb_per_session: kilobytes_per_session(before, open, n),
            ending,
            errors: opened.errors,
        })
    }

    /// Drops all connections and waits until the sessions must have ended.
    async fn abandon_all(&self, opened: &mut Opened) -> String {
        opened.connections.clear();
        let wait = Duration::from_secs(self.idle_seconds) + AFTER_TIMEOUT;
        tokio::time::sleep(wait).await;
        format!("abandoned, {} s later", wait.as_secs())
    }

    /// Ends all sessions with a DELETE each, several at a time.
    async fn delete_all(&self, endpoint: &Endpoint, opened: &mut Opened) -> anyhow::Result<String> {
        opened.connections.clear();
        let share = opened.ids.len().div_ceil(self.concurrency as usize).max(1);
        let start = Instant::now();
        let workers: Vec<_> = opened
            .ids
            .chunks(share)
            .map(|ids| tokio::spawn(delete(endpoint.clone(), ids.to_vec())))
            .collect();
        let mut latencies = Vec::new();
        for worker in workers {
            let (some, error) = worker.await?;
            latencies.extend(some);
            if let Some(error) = error {
                *opened.errors.entry(format!("{error:#}")).or_default() += 1;
            }
        }
        let elapsed = start.elapsed();
        latencies.sort_unstable();
        tokio::time::sleep(AFTER_CLOSING).await;
        Ok(format!(
            "DELETE p50 / p99 {:.0} / {:.0} us, {:.0}/s",
            percentile(&latencies, 50),
            percentile(&latencies, 99),
            ratio(count(latencies.len()), elapsed.as_secs_f64())
        ))
    }
}

impl Opened {
    /// Opens `n` sessions, several at a time.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        n: usize,
        concurrency: u32,
        keeps_connections: bool,
    ) -> anyhow::Result<Self> {
        let next = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..concurrency)
            .map(|_| {
                let (endpoint, next) = (endpoint.clone(), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut opened = Self {
                        keeps_connections,
                        ..Self::default()
                    };
                    while next.fetch_add(1, Ordering::Relaxed) < n {
                        opened.open_one(&endpoint).await;
                    }
                    opened
                })
            })
            .collect();
        let mut all = Self::default();
        for worker in workers {
            all.add(worker.await?);
        }
        Ok(all)
    }

    /// Returns the number of sessions that were opened.
    pub(crate) fn n_opened(&self) -> usize {
        self.latencies.len()
    }

    /// Opens one session, over a connection of its own or over the last one.
    async fn open_one(&mut self, endpoint: &Endpoint) {
        let start = Instant::now();
        let last = if self.keeps_connections {
            None
        } else {
            self.connections.pop()
        };
        let session = match last {
            Some(mut session) => session.renew().await.map(|()| session),
            None => Session::open(endpoint, Era::Legacy).await,
        };
        match session {
            Ok(session) => {
                self.latencies.push(start.elapsed());
                self.ids.extend(session.id().cloned());
                self.connections.push(session);
            }
            Err(error) => *self.errors.entry(format!("{error:#}")).or_default() += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.ids.extend(other.ids);
        self.connections.extend(other.connections);
        for (error, n) in other.errors {
            *self.errors.entry(error).or_default() += n;
        }
    }
}

/// Raises the limits of riglm to a number of sessions, and sets its idle timeout.
pub(crate) fn with_limits(riglm: Riglm, n_sessions: u32, idle: Duration) -> Riglm {
    let n = u64::from(n_sessions) + 1_000;
    let (n, connections) = (n.to_string(), n.max(16_384).to_string());
    riglm
        .with_variable("RIGLM__LIMITS__SESSIONS", &n)
        .with_variable("RIGLM__LIMITS__SESSIONS_PER_PRINCIPAL", &n)
        .with_variable("RIGLM__LIMITS__CONNECTIONS", &connections)
        .with_variable(
            "RIGLM__LIMITS__IDLE_TIMEOUT",
            &format!("{}s", idle.as_secs()),
        )
}

/// Ends sessions over one connection. Returns the latencies, and the error that has ended it.
async fn delete(
    endpoint: Endpoint,
    ids: Vec<HeaderValue>,
) -> (Vec<Duration>, Option<anyhow::Error>) {
    let mut latencies = Vec::new();
    // Of the era without a handshake, so that it has no session of its own.
    let mut connection = match Session::open(&endpoint, Era::Modern).await {
        Ok(connection) => connection,
        Err(error) => return (latencies, Some(error)),
    };
    for id in ids {
        let start = Instant::now();
        let result = connection.delete(id).await;
        if let Err(error) = result.context("the sessions cannot be ended") {
            return (latencies, Some(error));
        }
        latencies.push(start.elapsed());
    }
    (latencies, None)
}

fn kilobytes_per_session(
    before: Option<Memory>,
    open: Option<Memory>,
    n_sessions: usize,
) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^52")]
    let of = |memory: Option<Memory>| Some(memory?.rss_kib as f64 * 1.024);
    let (before, open) = (of(before)?, of(open)?);
    (n_sessions > 0).then(|| (open - before) / count(n_sessions))
}

impl Row {
    fn markdown(&self) -> String {
        let memory = |memory: Option<Memory>| memory.map_or("-".into(), megabytes);
        format!(
            "| {} | {}, {} | {:.0} / {:.0} | {:.0} | {}, {}, {} | {} | {} |",
            self.way,
            self.opened,
            self.errors.values().sum::<usize>(),
            self.open_p50_us,
            self.open_p99_us,
            self.open_per_second,
            memory(self.before),
            memory(self.open),
            memory(self.ended),
            self.kb_per_session
                .map_or("-".into(), |kilobytes| format!("{kilobytes:.1}")),
            self.ending
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_by_the_sessions() {
        let memory = |rss_kib| {
            Some(Memory {
                rss_kib,
                anonymous_kib: 0,
            })
        };
        let per_session = kilobytes_per_session(memory(1_000), memory(3_000), 100);
        assert!((per_session.unwrap() - 20.48).abs() < 1e-9);
        assert_eq!(kilobytes_per_session(memory(1), memory(2), 0), None);
        assert_eq!(kilobytes_per_session(None, memory(2), 1), None);
    }
}
