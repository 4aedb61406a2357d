//! `riglm demo`: recorded agent sessions, played through one proxy in front of built-in servers.

mod control;
mod example;
mod figures;
mod latency;
mod progress;
mod records;
mod screen;
mod session;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use jiff::SignedDuration;
use riglm_adapters_http::ControlAddress;
use riglm_discovery::learning::{LearningPace, LearningTurns};
use tokio::time::{sleep, timeout};

use self::control::{ControlClient, PATIENCE};
use self::figures::{Figures, ListFigures};
use self::progress::Progress;
use self::records::Records;
use self::screen::Keeping;
use self::session::{SessionPlay, play_session, tokens_of};
use super::serve::stop_signal;
use crate::args::DemoArgs;
use crate::compose::{Extensions, ReloadSource, Running};
use crate::config::{Config, Environment, Overrides, ProcessEnv, Watch};
use crate::demo::{DemoClient, DemoClock, DemoServer, Script, ScriptedSession};
use crate::output::{note, print};
use crate::{compose, telemetry};

/// The time from one session to the next one. After an hour, a session is over.
const GAP_MINUTES: i64 = 90;

/// The pause after a turn of learning that left calls out.
const BETWEEN_TURNS: Duration = Duration::from_millis(200);

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
    let turns = Arc::new(LearningTurns::at(LearningPace::OnRequest));
    let extensions = Extensions {
        clock: Some(Arc::clone(&clock) as Arc<_>),
        learning_turns: Some(Arc::clone(&turns)),
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
        turns: &turns,
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
        // From here on it learns like every proxy.
        turns.set_pace(LearningPace::Steady);
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
    let variables = DemoServer::ALL.iter().flat_map(|server| {
        let command = serde_json::json!([program, "__demo-server", server.name()]);
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
///
/// The clients of the sessions would come hours apart, but here they come at once. So that the
/// result is the same on a slow machine, the demonstration decides when riglm learns: first from the
/// sessions for learning, and not from the others before they have been played.
struct Demonstration<'a> {
    config: &'a Config,
    running: &'a Running,
    clock: &'a DemoClock,
    turns: &'a LearningTurns,
    progress: &'a Progress,
}

impl Demonstration<'_> {
    /// Plays all sessions and returns the figures.
    async fn play(&self) -> anyhow::Result<Figures> {
        let script = Script::load()?;
        let url = self.running.mcp_url();
        let address = self.running.control().context("there is no control port")?;
        let control = ControlClient::new(self.config, address)?;
        let (n_first, all) = (script.n_learning, script.sessions.len());
        let n_calls = |n: usize| n_calls_of(&script.sessions[..n]);
        // The task has begun then, and learns nothing on its own.
        self.learn(&control, 0).await?;
        let first = self.play_sessions(&script, 0..n_first).await?;
        self.progress.step("waiting until riglm has learned");
        // The last session is over when the next client comes.
        self.clock.lag(lag_of(n_first, all));
        self.learn(&control, n_calls(n_first)).await?;
        let second = self.play_sessions(&script, n_first..all).await?;
        self.clock.lag(SignedDuration::ZERO);
        self.learn(&control, n_calls(all)).await?;
        self.progress.step("asking for predictions");
        let (example, n_example) = example::show_example(&script, &url, &control).await?;

        let n_calls = n_calls(all) + n_example;
        let plays = first.iter().chain(&second);
        let mut unexpected: Vec<String> = plays.flat_map(|it| it.unexpected.clone()).collect();
        let records = self.records();
        let n_recorded = records
            .check_calls(&script, n_calls, &mut unexpected)
            .await?;
        let definitions = DemoServer::ALL.iter().flat_map(|it| it.definitions());
        let definitions: Vec<_> = definitions.collect();
        let tokens = tokens_of(&definitions)?;
        records.check_tokens(tokens, &mut unexpected).await?;
        self.progress.step("measuring the latency");
        let latency = latency::measure().await?;
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

    fn records(&self) -> Records<'_> {
        Records {
            config: self.config,
        }
    }

    /// Lets riglm learn from all calls so far.
    async fn learn(&self, control: &ControlClient, n_calls: usize) -> anyhow::Result<()> {
        self.records().wait_for(n_calls).await?;
        let turn = async || self.turns.take().await;
        let n_learned = async || control.learned_calls().await;
        take_turns(n_calls, turn, n_learned).await
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
            let n_before = n_calls_of(&script.sessions[..at]);
            self.records().wait_for(n_before).await?;
            self.clock.lag(lag_of(at, n_all));
            self.progress.session(at + 1, n_all, &session.intent);
            let play = play_session(session, script, &self.running.mcp_url()).await;
            let client = session.client.revision();
            plays.push(play.with_context(|| {
                format!("session {:?} of a client of {client}", session.intent)
            })?);
        }
        Ok(plays)
    }
}

/// Repeats `turn`, a turn of learning, until the number of learned calls is `n_calls`. One turn may
/// fail, for example because the database is locked; the next one goes on after it.
///
/// # Errors
///
/// Returns an error if too few calls are learned within [`PATIENCE`], or the error of `n_learned`.
async fn take_turns(
    n_calls: usize,
    turn: impl AsyncFn(),
    n_learned: impl AsyncFn() -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let mut n_known = 0;
    let learning = async {
        loop {
            turn().await;
            n_known = n_learned().await?;
            if usize::try_from(n_known)? >= n_calls {
                return anyhow::Ok(());
            }
            sleep(BETWEEN_TURNS).await;
        }
    };
    let learned = timeout(PATIENCE, learning).await;
    learned.unwrap_or_else(|_| {
        let seconds = PATIENCE.as_secs();
        Err(anyhow!(
            "riglm learned from {n_known} of {n_calls} calls within {seconds} s"
        ))
    })
}

/// Returns the number of calls in sessions.
fn n_calls_of(sessions: &[ScriptedSession]) -> usize {
    sessions.iter().map(|session| session.calls.len()).sum()
}

/// Returns the lag of the clock at the start of a session.
fn lag_of(session: usize, n_all: usize) -> SignedDuration {
    let n_left = i64::try_from(n_all.saturating_sub(session)).unwrap_or(0);
    SignedDuration::from_mins(GAP_MINUTES * n_left)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_turn_of_learning_is_repeated() {
        let n_turns = Cell::new(0);
        let turn = || n_turns.set(n_turns.get() + 1);
        // The first two turns fail.
        let n_learned = || if n_turns.get() < 3 { 4 } else { 9 };
        let enough = take_turns(9, async || turn(), async || Ok(n_learned())).await;
        enough.unwrap();
        assert_eq!(n_turns.get(), 3);
        let too_few = take_turns(10, async || turn(), async || Ok(n_learned())).await;
        let problem = too_few.unwrap_err().to_string();
        assert!(problem.contains("9 of 10 calls"), "{problem}");
        let endless = async || std::future::pending::<()>().await;
        let never = take_turns(0, endless, async || Ok(n_learned())).await;
        assert!(never.is_err());
    }
}
