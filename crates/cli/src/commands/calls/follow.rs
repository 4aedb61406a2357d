//! `riglm calls --follow`: calls as they are recorded.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use riglm_adapters_storage::{Store, open_reader, unused_place};
use riglm_app::clock::SystemClock;
use riglm_domain::id::InvocationId;
use riglm_domain::invocation::{CallState, InvocationSummary};
use riglm_domain::naming::prefixed;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository as _, StoreError};
use riglm_ports::clock::Clock as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{COLUMNS, call_as_json, filter, row};
use crate::args::CallsArgs;
use crate::commands::table::Column;
use crate::config::Config;
use crate::output::{note, print_line, printable};

/// How often the store is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The pause after the store could not be read.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How far back each look reaches: a call may become a row a moment after a later one, of another
/// process that shares the database.
const LOOK_BACK: Duration = Duration::from_secs(5);

/// The widths of the columns: later lines have no table to fit into.
const WIDTHS: [usize; 7] = [19, 36, 5, 16, 32, 9, 9];

/// Prints the newest calls that the arguments ask for, and then each further one when it ended, or, where
/// calls in flight are asked for, when it began. Ends when it is interrupted, and when nobody reads any
/// more.
pub(in crate::commands) async fn follow(
    config: &Config,
    arguments: &CallsArgs,
) -> anyhow::Result<()> {
    let watched = "failed to watch for signals";
    let mut terminate = signal(SignalKind::terminate()).context(watched)?;
    let mut interrupt = signal(SignalKind::interrupt()).context(watched)?;
    tokio::select! {
        followed = print_all(config, arguments) => followed,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

async fn print_all(config: &Config, arguments: &CallsArgs) -> anyhow::Result<()> {
    wait_for_store(config).await?;
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let mut followed = Followed::new(arguments);
    if !arguments.json && is_gone(print_line(&header()))? {
        return Ok(());
    }
    let mut is_begun = false;
    let mut was_said = false;
    loop {
        let read = if is_begun {
            followed.news(&store).await
        } else {
            followed.recorded(&store).await
        };
        let calls = match read {
            Ok(calls) => calls,
            Err(error) if may_pass(&error) => {
                if !was_said {
                    let text = format!("calls cannot be read, which is tried again: {error:#}");
                    note(&printable(&text));
                }
                was_said = true;
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        (is_begun, was_said) = (true, false);
        for call in &calls {
            let line = if arguments.json {
                call_as_json(call).to_string()
            } else {
                aligned(&row(call))
            };
            if is_gone(print_line(&line))? {
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns whether what failed may be done later.
fn may_pass(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(StoreError::Open { .. } | StoreError::Failed { .. })
    )
}

/// Waits until something is recorded, and says so.
async fn wait_for_store(config: &Config) -> anyhow::Result<()> {
    let mut was_said = false;
    while let Some(place) = unused_place(&config.storage, &config.data_dir).await? {
        if !was_said {
            note(&printable(&format!(
                "nothing is recorded yet: there is no database at {place}; waiting for one"
            )));
            was_said = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Returns whether nobody reads what was to be written.
fn is_gone(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        other => other.map(|()| false),
    }
}

fn header() -> String {
    aligned(&COLUMNS.map(|column| match column {
        Column::Text(heading) | Column::Number(heading) => heading.to_owned(),
    }))
}

/// Returns the cells of a line in columns that are the same for each line.
fn aligned(cells: &[String; 7]) -> String {
    let mut line = String::new();
    for ((cell, width), column) in cells.iter().zip(WIDTHS).zip(&COLUMNS) {
        // Writing to a string cannot fail.
        let _ = match column {
            Column::Text(_) => write!(line, "{cell:<width$}  "),
            Column::Number(_) => write!(line, "{cell:>width$}  "),
        };
    }
    line.trim_end().to_owned()
}

/// What is known of the calls that are followed.
struct Followed<'a> {
    arguments: &'a CallsArgs,
    /// Since when calls are meant, where the arguments say so.
    since: Option<Timestamp>,
    /// Calls that began before are no news.
    floor: Timestamp,
    /// When the newest call that was seen began.
    newest: Timestamp,
    /// The calls since the floor that were seen.
    seen: BTreeSet<InvocationId>,
    /// The calls that were seen and had not ended.
    open: BTreeSet<InvocationId>,
}

impl<'a> Followed<'a> {
    fn new(arguments: &'a CallsArgs) -> Self {
        let now = SystemClock.now();
        Self {
            arguments,
            since: (arguments.since).map(|since| since.ago(now)),
            floor: now.checked_sub(LOOK_BACK).unwrap_or(now),
            newest: now,
            seen: BTreeSet::new(),
            open: BTreeSet::new(),
        }
    }

    /// Returns the newest recorded calls that are meant. What comes after them is news.
    async fn recorded(&mut self, store: &Store) -> anyhow::Result<Vec<InvocationSummary>> {
        let in_flight = InvocationFilter {
            state: Some(CallState::InFlight),
            ..self.any_tool()
        };
        self.see(store.invocations(&in_flight, u32::MAX).await?);
        self.see(store.invocations(&self.recent(), u32::MAX).await?);
        let filter = filter(store, self.arguments).await?;
        let mut calls = store.invocations(&filter, self.arguments.limit()).await?;
        calls.retain(|call| self.is_due(call));
        for call in &calls {
            self.seen.insert(call.invocation.id);
            self.open.remove(&call.invocation.id);
        }
        Ok(calls)
    }

    /// Returns the calls that are meant and that ended, or began, since the last look.
    async fn news(&mut self, store: &Store) -> anyhow::Result<Vec<InvocationSummary>> {
        let open: Vec<InvocationId> = self.open.iter().copied().collect();
        let read = if open.is_empty() {
            Vec::new()
        } else {
            store.calls_by_id(&open).await?
        };
        // Nothing is noted before all is read: what fails is done again.
        let recent = store.invocations(&self.recent(), u32::MAX).await?;
        let (mut calls, open): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|call| call.end.is_some());
        // A call that was removed meanwhile does not end any more.
        self.open = open.iter().map(|call| call.invocation.id).collect();
        calls.extend(self.see(recent));
        calls.retain(|call| self.is_meant(call) && self.is_due(call));
        calls.sort_by_key(|call| call.invocation.id);
        let present = SystemClock.now().min(self.newest);
        let floor = present.checked_sub(LOOK_BACK).unwrap_or(present);
        self.floor = self.floor.max(floor);
        self.seen = (self.seen).split_off(&InvocationId::new(self.floor, [0; 10]));
        Ok(calls)
    }

    /// Notes that these calls were read, and returns those of them that are seen for the first time.
    fn see(&mut self, calls: Vec<InvocationSummary>) -> Vec<InvocationSummary> {
        let mut unseen = Vec::new();
        for call in calls {
            let id = call.invocation.id;
            if !self.seen.insert(id) {
                continue;
            }
            self.newest = self.newest.max(call.invocation.started_at);
            if call.end.is_none() {
                self.open.insert(id);
            }
            unseen.push(call);
        }
        unseen
    }

    /// Returns whether a call is to be printed in the state that it is in.
    fn is_due(&self, call: &InvocationSummary) -> bool {
        match self.arguments.state() {
            Some(state) => call.state() == state,
            None => call.end.is_some(),
        }
    }

    /// Returns whether a call is of the tool that the arguments name, if they name one.
    fn is_meant(&self, call: &InvocationSummary) -> bool {
        let made = &call.invocation;
        let own = made.tool.as_str();
        (self.arguments.tool.as_deref())
            .is_none_or(|name| own == name || prefixed(&made.upstream, own) == name)
    }

    /// Returns the calls that are meant, whatever their tool and their state.
    fn any_tool(&self) -> InvocationFilter {
        InvocationFilter {
            session: self.arguments.session,
            upstream: self.arguments.upstream.clone(),
            since: self.since,
            ..InvocationFilter::default()
        }
    }

    /// Returns the calls that may be news.
    fn recent(&self) -> InvocationFilter {
        InvocationFilter {
            since: self.since.max(Some(self.floor)),
            ..self.any_tool()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use riglm_domain::canonical::KeyedHasher;
    use riglm_domain::id::{SessionId, UpstreamName};
    use riglm_domain::invocation::{Invocation, InvocationEnd, Outcome, ToolSource};
    use riglm_domain::principal::Principal;
    use riglm_domain::record::Record;
    use riglm_ports::analytics::RecordSink as _;

    use super::*;
    use crate::args::{Cli, Command};

    /// A store, and a call `millis` milliseconds after the beginning of the scene.
    struct Scene {
        store: Store,
        began: Timestamp,
        _directory: tempfile::TempDir,
    }

    impl Scene {
        async fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let storage = riglm_adapters_storage::StorageConfig::default();
            let store = open_reader(&storage, directory.path(), &SystemClock).await;
            Self {
                store: store.unwrap(),
                began: SystemClock.now(),
                _directory: directory,
            }
        }

        fn call(&self, millis: u8, tool: &str) -> Invocation {
            let started_at = self.began + Duration::from_millis(millis.into());
            Invocation {
                id: InvocationId::new(started_at, [millis; 10]),
                session: SessionId::new(self.began, [9; 10]),
                principal: Principal::local(),
                upstream: UpstreamName::parse("notes").unwrap(),
                tool: tool.into(),
                arguments_hash: KeyedHasher::new(&[0; 32]).hash_text("x"),
                arguments: None,
                started_at,
                sequence: millis.into(),
                source: ToolSource::Shown,
                request_bytes: 100,
                continues: None,
                work_session: None,
                list_epoch: None,
                context: None,
            }
        }

        async fn apply(&self, records: &[Record]) {
            self.store.apply(records).await.unwrap();
        }
    }

    fn opened(call: &Invocation) -> Record {
        Record::CallOpened(call.clone())
    }

    fn closed(call: &Invocation, outcome: Outcome) -> Record {
        Record::CallClosed(InvocationEnd {
            id: call.id,
            outcome,
            duration_us: 5,
            wait_us: 0,
            response_bytes: 1,
            result: None,
        })
    }

    fn arguments(more: &[&str]) -> CallsArgs {
        let all = ["riglm", "calls", "--follow"].iter().chain(more);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Calls(arguments) => arguments,
            other => panic!("not calls: {other:?}"),
        }
    }

    /// Asserts that the calls have these positions.
    fn assert_positions(calls: &[InvocationSummary], expected: &[u64]) {
        let found = calls.iter().map(|call| call.invocation.sequence);
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn a_call_is_printed_once_when_it_ended() {
        let scene = Scene::new().await;
        let [over, late, next] = [1, 2, 3].map(|n| scene.call(n, "add"));
        scene
            .apply(&[opened(&over), closed(&over, Outcome::Ok), opened(&late)])
            .await;
        let arguments = arguments(&[]);
        let mut followed = Followed::new(&arguments);
        assert_positions(&followed.recorded(&scene.store).await.unwrap(), &[1]);
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[]);
        scene.apply(&[opened(&next)]).await;
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[]);
        scene
            .apply(&[closed(&next, Outcome::Ok), closed(&late, Outcome::Error)])
            .await;
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[2, 3]);
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[]);
        // A row of another process that shares the database may come a moment later.
        let earlier = scene.call(0, "add");
        scene
            .apply(&[opened(&earlier), closed(&earlier, Outcome::Ok)])
            .await;
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[0]);
    }

    #[test]
    fn a_database_that_does_not_answer_is_asked_again_and_one_that_is_wrong_is_not() {
        let failed = StoreError::Failed {
            operation: "read calls",
            source: "connection reset".into(),
        };
        assert!(may_pass(&failed.into()));
        let newer = StoreError::NewerSchema { found: 2, known: 1 };
        assert!(!may_pass(&newer.into()));
        assert!(!may_pass(&anyhow::anyhow!("anything else")));
    }

    #[tokio::test]
    async fn calls_in_flight_are_printed_when_they_begin_if_they_are_asked_for() {
        let scene = Scene::new().await;
        let [first, second] = [1, 2].map(|n| scene.call(n, "add"));
        scene.apply(&[opened(&first)]).await;
        let arguments = arguments(&["--outcome", "in-flight"]);
        let mut followed = Followed::new(&arguments);
        assert_positions(&followed.recorded(&scene.store).await.unwrap(), &[1]);
        scene
            .apply(&[closed(&first, Outcome::Ok), opened(&second)])
            .await;
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[2]);
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[]);
    }

    #[tokio::test]
    async fn only_calls_that_are_meant_are_printed() {
        let scene = Scene::new().await;
        let arguments = arguments(&["--tool", "notes__add", "--outcome", "error"]);
        let mut followed = Followed::new(&arguments);
        assert_positions(&followed.recorded(&scene.store).await.unwrap(), &[]);
        let made = [
            (1, "add", Outcome::Error),
            (2, "add", Outcome::Ok),
            (3, "list", Outcome::Error),
        ];
        for (n, tool, outcome) in made {
            let call = scene.call(n, tool);
            scene.apply(&[opened(&call), closed(&call, outcome)]).await;
        }
        assert_positions(&followed.news(&scene.store).await.unwrap(), &[1]);
    }
}
