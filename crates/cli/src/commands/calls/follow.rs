//! `riglm calls --follow`: calls as they are recorded.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use riglm_adapters_storage::{Store, location_if_unused, open_reader};
use riglm_app::clock::SystemClock;
use riglm_domain::catalog::naming::tool_aliases;
use riglm_domain::id::InvocationId;
use riglm_domain::usage::invocation::{CallState, InvocationSummary};
use riglm_ports::analytics::{InvocationFilter, InvocationRepository as _, StoreError};
use riglm_ports::clock::Clock as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{COLUMNS, call_as_json, filter, row};
use crate::args::CallsArgs;
use crate::commands::table::Column;
use crate::config::Config;
use crate::output::{note, print_line, printable};

/// The poll interval of the store.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The pause after a failed read of the store.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The overlap of successive polls. A row of another process on the same database may appear after
/// the row of a later call.
const LOOK_BACK: Duration = Duration::from_secs(5);

/// The widths of the columns. They are fixed, because later lines are not known.
const WIDTHS: [usize; 7] = [19, 36, 5, 16, 32, 9, 9];

/// Prints the newest matching calls, and then each new one when it ends. If calls in flight are
/// requested, it prints each new one when it begins. Returns on an interrupt, and when the output
/// is closed.
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
    let mut followed = CallFollower::new(arguments);
    if !arguments.format.is_json() && is_pipe_closed(print_line(&header()))? {
        return Ok(());
    }
    let mut is_begun = false;
    let mut was_said = false;
    loop {
        let read = if is_begun {
            followed.new_calls(&store).await
        } else {
            followed.initial_calls(&store).await
        };
        let calls = match read {
            Ok(calls) => calls,
            Err(error) if is_retryable(&error) => {
                if !was_said {
                    let text = format!("failed to read calls, retrying: {error:#}");
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
            let line = if arguments.format.is_json() {
                call_as_json(call).to_string()
            } else {
                align_columns(&row(call))
            };
            if is_pipe_closed(print_line(&line))? {
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns whether a retry may succeed.
fn is_retryable(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(StoreError::Open { .. } | StoreError::Failed { .. })
    )
}

/// Waits until the database exists, and notes that on standard error.
async fn wait_for_store(config: &Config) -> anyhow::Result<()> {
    let mut was_said = false;
    while let Some(place) = location_if_unused(&config.storage, &config.data_dir).await? {
        if !was_said {
            note(&printable(&format!(
                "nothing is recorded yet: no database at {place}; waiting for it"
            )));
            was_said = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Returns whether the reader has closed the output.
fn is_pipe_closed(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        other => other.map(|()| false),
    }
}

fn header() -> String {
    align_columns(&COLUMNS.map(|column| match column {
        Column::Text(heading) | Column::Number(heading) => heading.to_owned(),
    }))
}

fn align_columns(cells: &[String; 7]) -> String {
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

/// The state between polls.
struct CallFollower<'a> {
    arguments: &'a CallsArgs,
    /// The start of the period, if the arguments have one. It is fixed at the start.
    since: Option<Timestamp>,
    /// Calls that began earlier are not new.
    floor: Timestamp,
    /// The start of the newest call seen.
    newest: Timestamp,
    /// The calls since the floor that were already seen.
    seen: BTreeSet<InvocationId>,
    /// The calls that were seen in flight.
    open: BTreeSet<InvocationId>,
}

impl<'a> CallFollower<'a> {
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

    /// Returns the newest recorded calls that match, and marks all present calls as seen.
    async fn initial_calls(&mut self, store: &Store) -> anyhow::Result<Vec<InvocationSummary>> {
        let in_flight = InvocationFilter {
            state: Some(CallState::InFlight),
            ..self.any_tool()
        };
        // Their ends are news, however long ago they began.
        self.mark_seen(store.invocations(&in_flight, u32::MAX).await?);
        self.mark_seen(store.invocations(&self.recent(), u32::MAX).await?);
        let filter = filter(store, self.arguments).await?;
        let mut calls = store.invocations(&filter, self.arguments.limit()).await?;
        calls.retain(|call| self.is_due(call));
        for call in &calls {
            self.seen.insert(call.invocation.id);
            self.open.remove(&call.invocation.id);
        }
        Ok(calls)
    }

    /// Returns the matching calls that ended, or began, since the last poll.
    async fn new_calls(&mut self, store: &Store) -> anyhow::Result<Vec<InvocationSummary>> {
        let open: Vec<InvocationId> = self.open.iter().copied().collect();
        let read = if open.is_empty() {
            Vec::new()
        } else {
            store.calls_by_id(&open).await?
        };
        // The state changes only after all reads, so that a failed poll can be repeated.
        let recent = store.invocations(&self.recent(), u32::MAX).await?;
        let (mut calls, open): (Vec<_>, Vec<_>) =
            read.into_iter().partition(|call| call.end.is_some());
        // A call that is missing now was deleted, and does not end any more.
        self.open = open.iter().map(|call| call.invocation.id).collect();
        calls.extend(self.mark_seen(recent));
        calls.retain(|call| self.is_meant(call) && self.is_due(call));
        calls.sort_by_key(|call| call.invocation.id);
        // The clock of the recording process may be behind this one.
        let present = SystemClock.now().min(self.newest);
        let floor = present.checked_sub(LOOK_BACK).unwrap_or(present);
        self.floor = self.floor.max(floor);
        self.seen = (self.seen).split_off(&InvocationId::new(self.floor, [0; 10]));
        Ok(calls)
    }

    /// Marks calls as seen, and returns those that are new.
    fn mark_seen(&mut self, calls: Vec<InvocationSummary>) -> Vec<InvocationSummary> {
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

    /// Returns whether a call is in a state in which it is printed.
    fn is_due(&self, call: &InvocationSummary) -> bool {
        match self.arguments.state() {
            Some(state) => call.state() == state,
            None => call.end.is_some(),
        }
    }

    /// Returns whether a call matches the tool of the arguments, if they name one.
    fn is_meant(&self, call: &InvocationSummary) -> bool {
        let made = &call.invocation;
        (self.arguments.tool.as_deref())
            .is_none_or(|name| tool_aliases(&made.upstream, &made.tool).contains(&name.into()))
    }

    /// Returns the filter for matching calls of any tool and state.
    fn any_tool(&self) -> InvocationFilter {
        InvocationFilter {
            session: self.arguments.session,
            upstream: self.arguments.upstream.clone(),
            since: self.since,
            ..InvocationFilter::default()
        }
    }

    /// Returns the filter for calls that may be new.
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
    use riglm_domain::id::{SessionId, UpstreamName};
    use riglm_domain::privacy::canonical::KeyedHasher;
    use riglm_domain::privacy::principal::Principal;
    use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome, ToolSource};
    use riglm_domain::usage::record::Record;
    use riglm_ports::analytics::RecordSink as _;

    use super::*;
    use crate::args::{Cli, Command};

    /// A store with a clock: calls are made some milliseconds after its start.
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

    fn start_record(call: &Invocation) -> Record {
        Record::CallOpened(call.clone())
    }

    fn end_record(call: &Invocation, outcome: Outcome) -> Record {
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

    fn assert_positions(calls: &[InvocationSummary], expected: &[u64]) {
        let found = calls.iter().map(|call| call.invocation.sequence);
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn a_call_is_printed_once_when_it_ended() {
        let scene = Scene::new().await;
        let [over, late, next] = [1, 2, 3].map(|n| scene.call(n, "add"));
        scene
            .apply(&[
                start_record(&over),
                end_record(&over, Outcome::Ok),
                start_record(&late),
            ])
            .await;
        let arguments = arguments(&[]);
        let mut followed = CallFollower::new(&arguments);
        assert_positions(&followed.initial_calls(&scene.store).await.unwrap(), &[1]);
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[]);
        scene.apply(&[start_record(&next)]).await;
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[]);
        scene
            .apply(&[
                end_record(&next, Outcome::Ok),
                end_record(&late, Outcome::Error),
            ])
            .await;
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[2, 3]);
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[]);
        // A row of another process on the same database may appear later.
        let earlier = scene.call(0, "add");
        scene
            .apply(&[start_record(&earlier), end_record(&earlier, Outcome::Ok)])
            .await;
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[0]);
    }

    #[test]
    fn only_transient_database_errors_are_retried() {
        let failed = StoreError::Failed {
            operation: "read calls",
            source: "connection reset".into(),
        };
        assert!(is_retryable(&failed.into()));
        let newer = StoreError::NewerSchema { found: 2, known: 1 };
        assert!(!is_retryable(&newer.into()));
        assert!(!is_retryable(&anyhow::anyhow!("anything else")));
    }

    #[tokio::test]
    async fn in_flight_filter_prints_calls_at_their_start() {
        let scene = Scene::new().await;
        let [first, second] = [1, 2].map(|n| scene.call(n, "add"));
        scene.apply(&[start_record(&first)]).await;
        let arguments = arguments(&["--outcome", "in-flight"]);
        let mut followed = CallFollower::new(&arguments);
        assert_positions(&followed.initial_calls(&scene.store).await.unwrap(), &[1]);
        scene
            .apply(&[end_record(&first, Outcome::Ok), start_record(&second)])
            .await;
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[2]);
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[]);
    }

    #[tokio::test]
    async fn only_calls_matching_the_filters_are_printed() {
        let scene = Scene::new().await;
        let arguments = arguments(&["--tool", "notes__add", "--outcome", "error"]);
        let mut followed = CallFollower::new(&arguments);
        assert_positions(&followed.initial_calls(&scene.store).await.unwrap(), &[]);
        let made = [
            (1, "add", Outcome::Error),
            (2, "add", Outcome::Ok),
            (3, "list", Outcome::Error),
        ];
        for (n, tool, outcome) in made {
            let call = scene.call(n, tool);
            scene
                .apply(&[start_record(&call), end_record(&call, outcome)])
                .await;
        }
        assert_positions(&followed.new_calls(&scene.store).await.unwrap(), &[1]);
    }
}
