//! `riglm demo`: recorded agent sessions, played through one proxy in front of built-in servers.

mod control;
mod example;
mod figures;
mod latency;
mod progress;
mod screen;
mod session;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use jiff::SignedDuration;
use riglm_adapters_http::ControlAddress;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, ListRepository as _, SessionRepository as _,
};

use self::control::ControlClient;
use self::figures::{Figures, ListFigures};
use self::progress::Progress;
use self::screen::Keeping;
use self::session::{SessionPlay, play_session, tokens_of};
use super::serve::stop_signal;
use crate::args::DemoArgs;
use crate::compose::{Extensions, ReloadSource, Running};
use crate::config::{Config, Environment, Overrides, ProcessEnv, Watch};
use crate::demo::{DemoClient, DemoClock, DemoServer, ExpectedResult, Script};
use crate::output::{note, print};
use crate::{compose, telemetry};

/// More than the demonstration records.
const LIMIT: u32 = 10_000;
/// The time from one session to the next one. After an hour, a session is over.
const GAP_MINUTES: i64 = 90;

/// Runs the demonstration in a temporary directory.
///
/// # Errors
///
/// Returns an error if a step fails or has an unexpected result.
pub(super) async fn run(arguments: DemoArgs) -> anyhow::Result<()> {
    let stopped = stop_signal()?;
    tokio::pin!(stopped);
    let directory = tempfile::tempdir().context("failed to create a temporary directory")?;
    let mut watch = watch_in(directory.path())?;
    let loaded = watch.load()?;
    let config = loaded.config.clone();
    telemetry::start(&config.logging);
    let clock = Arc::new(DemoClock::default());
    let extensions = Extensions {
        clock: Some(Arc::clone(&clock) as Arc<_>),
        ..Extensions::default()
    };
    let progress = Progress::start();
    progress.step("starting the proxy and its servers");
    // With it, the control port shows the configuration and the set-up, as that of every proxy.
    let following = ReloadSource {
        loaded,
        watch,
        asked: Arc::default(),
    };
    let running = compose::start(config.clone(), Some(following), extensions)
        .await
        .context("failed to start the proxy")?;
    let demonstration = Demonstration {
        config: &config,
        running: &running,
        clock: &clock,
        progress: &progress,
    };
    let played = tokio::select! {
        figures = demonstration.play() => figures.map(Some),
        () = &mut stopped => Ok(None),
    };
    if matches!(played, Err(_) | Ok(None)) {
        progress.end();
    }
    let shown = played.and_then(|figures| match figures {
        Some(figures) => show(&figures, arguments).map(Some),
        None => Ok(None),
    });
    if arguments.keep && matches!(shown, Ok(Some(_))) {
        stopped.await;
    }
    running.shutdown().await;
    match shown? {
        Some(n_unexpected) => ensure!(
            n_unexpected == 0,
            "{n_unexpected} steps had an unexpected result"
        ),
        None => note("interrupted"),
    }
    Ok(())
}

/// Returns the sources of the configuration of a proxy in front of all servers. All other keys have
/// their defaults; files and environment variables of the user are ignored.
fn watch_in(data_dir: &Path) -> anyhow::Result<Watch> {
    let program =
        std::env::current_exe().context("failed to find the path of the riglm program")?;
    let sandbox = data_dir.join("sandbox");
    let variables = DemoServer::ALL.iter().flat_map(|server| {
        let command = serde_json::json!([program, "__demo-server", server.name(), sandbox]);
        let key = |key: &str| format!("RIGLM__UPSTREAMS__{}__{key}", server.name());
        [
            (key("COMMAND"), command.to_string()),
            // One process for all sessions.
            (key("ISOLATION"), "shared".to_owned()),
        ]
    });
    let others = [
        ("RIGLM__LOGGING__LEVEL", "warn"),
        ("RIGLM__FILTERING__STRATEGY", "prediction"),
    ];
    let others = others.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let environment: Environment = variables.chain(others).collect();
    let local = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let overrides = Overrides {
        data_dir: Some(data_dir.into()),
        listen: Some(local),
        control: Some(ControlAddress::At(local)),
        ..Overrides::default()
    };
    let surroundings = ProcessEnv {
        environment,
        working_directory: data_dir.into(),
        // The clients of the user are not connected to the demonstration.
        home_directory: Some(data_dir.into()),
        ..ProcessEnv::default()
    };
    Ok(Watch::new(overrides, surroundings))
}

/// A demonstration with a running proxy.
struct Demonstration<'a> {
    config: &'a Config,
    running: &'a Running,
    clock: &'a DemoClock,
    progress: &'a Progress,
}

impl Demonstration<'_> {
    /// Plays all sessions and returns the figures.
    async fn play(&self) -> anyhow::Result<Figures> {
        let script = Script::load()?;
        let url = self.running.mcp_url();
        let address = self.running.control().context("there is no control port")?;
        let control = ControlClient::new(self.config, address)?;
        let n_first = script.n_learning;
        let first = self.play_sessions(&script, 0..n_first).await?;
        self.progress.step("waiting until riglm has learned");
        let n_calls = |sessions: std::ops::Range<usize>| {
            let sessions = &script.sessions[sessions];
            sessions.iter().map(|session| session.calls.len()).sum()
        };
        control.wait_until_learned(n_calls(0..n_first)).await?;
        let all = script.sessions.len();
        let second = self.play_sessions(&script, n_first..all).await?;
        control.wait_until_learned(n_calls(0..all)).await?;
        self.clock.lag(SignedDuration::ZERO);
        self.progress.step("asking for predictions");
        let (example, n_example) = example::show_example(&script, &url, &control).await?;
        self.progress.step("measuring the latency");
        let latency = latency::measure(&url).await?;

        let n_calls = n_calls(0..all) + n_example + latency.n_proxied();
        let plays = first.iter().chain(&second);
        let mut unexpected: Vec<String> = plays.flat_map(|it| it.unexpected.clone()).collect();
        let n_recorded = self
            .check_records(&script, n_calls, &mut unexpected)
            .await?;
        let definitions = DemoServer::ALL.iter().flat_map(|it| it.definitions());
        let definitions: Vec<_> = definitions.collect();
        let tokens = tokens_of(&definitions)?;
        self.check_tokens(tokens, &mut unexpected).await?;
        Ok(Figures {
            n_servers: DemoServer::ALL.len(),
            n_tools: definitions.len(),
            tokens,
            learning: ListFigures::of(&first),
            after: ListFigures::of(&second),
            latency,
            n_calls,
            n_recorded,
            revisions: DemoClient::ALL.iter().map(|it| it.revision()).collect(),
            example,
            unexpected,
            seconds: self.progress.end(),
            mcp_url: url,
            control: address,
            data_dir: self.config.data_dir.clone(),
        })
    }

    async fn play_sessions(
        &self,
        script: &Script,
        sessions: std::ops::Range<usize>,
    ) -> anyhow::Result<Vec<SessionPlay>> {
        let n_all = script.sessions.len();
        let mut plays = Vec::new();
        for at in sessions {
            let session = &script.sessions[at];
            let n_left = i64::try_from(n_all - at).unwrap_or(0);
            self.clock
                .lag(SignedDuration::from_mins(GAP_MINUTES * n_left));
            self.progress.session(at + 1, n_all, &session.intent);
            let play = play_session(session, script, &self.running.mcp_url()).await;
            let client = session.client.revision();
            plays.push(play.with_context(|| {
                format!("session {:?} of a client of {client}", session.intent)
            })?);
        }
        Ok(plays)
    }

    /// Compares the tokens of all definitions with those that the proxy recorded with its newest
    /// list.
    async fn check_tokens(&self, tokens: u64, unexpected: &mut Vec<String>) -> anyhow::Result<()> {
        let (storage, data_dir) = (&self.config.storage, &self.config.data_dir);
        let store = open_reader(storage, data_dir, &SystemClock).await?;
        let sessions = store.sessions(LIMIT).await?;
        let mut recorded = None;
        // The connection that measures the latency has no list.
        for session in sessions.iter().rev().map(|summary| summary.session.id) {
            let lists = store.lists_shown(session, 1).await?;
            let selection = lists.last().and_then(|list| list.selection.as_ref());
            recorded = selection.map(|selection| selection.available_tokens);
            if recorded.is_some() {
                break;
            }
        }
        if recorded != Some(tokens) {
            unexpected.push(format!(
                "all definitions have {tokens} tokens, but {recorded:?} are recorded"
            ));
        }
        Ok(())
    }

    /// Compares the records with the calls that were made, and returns the number of records.
    async fn check_records(
        &self,
        script: &Script,
        n_calls: usize,
        unexpected: &mut Vec<String>,
    ) -> anyhow::Result<usize> {
        let (storage, data_dir) = (&self.config.storage, &self.config.data_dir);
        let store = open_reader(storage, data_dir, &SystemClock).await?;
        let filter = InvocationFilter::default();
        let mut recorded = store.invocations(&filter, LIMIT).await?;
        // Rows appear with a short delay.
        for _ in 0..100 {
            if recorded.len() >= n_calls && recorded.iter().all(|call| call.end.is_some()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            recorded = store.invocations(&filter, LIMIT).await?;
        }
        if recorded.len() != n_calls {
            unexpected.push(format!(
                "{} of {n_calls} calls are recorded",
                recorded.len()
            ));
        }
        let calls = script.sessions.iter().flat_map(|session| &session.calls);
        for (call, row) in calls.zip(&recorded) {
            let expected = match call.expected {
                ExpectedResult::Text(_) => Outcome::Ok,
                ExpectedResult::Failure(_) => Outcome::Error,
            };
            let outcome = row.end.as_ref().map(|end| end.outcome);
            let (server, tool) = (&row.invocation.upstream, &row.invocation.tool);
            if (server.as_str(), tool.as_str(), outcome)
                != (call.server.name(), call.tool.as_str(), Some(expected))
            {
                unexpected.push(format!(
                    "the record of {} is of {}, tool {}, outcome {outcome:?}",
                    call.name(),
                    server.as_str(),
                    tool.as_str()
                ));
            }
        }
        Ok(recorded.len())
    }
}

/// Prints the figures; returns the number of unexpected results.
fn show(figures: &Figures, arguments: DemoArgs) -> anyhow::Result<usize> {
    if arguments.json {
        print(&figures.json().to_string())?;
        return Ok(figures.unexpected.len());
    }
    print(&screen::screen(figures))?;
    let keeping = if arguments.keep {
        Keeping::Runs
    } else {
        Keeping::Ends
    };
    print(&screen::places(figures, keeping))?;
    Ok(figures.unexpected.len())
}
