//! The records of the demonstration, and their checks.

use std::time::{Duration, Instant};

use anyhow::ensure;
use riglm_adapters_storage::{Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_domain::usage::invocation::{InvocationSummary, Outcome};
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, ListRepository as _, SessionRepository as _,
};

use super::control::PATIENCE;
use crate::config::Config;
use crate::demo::{ExpectedResult, Script};

/// More than the demonstration records.
const LIMIT: u32 = 10_000;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) struct Records<'a> {
    pub(super) config: &'a Config,
}

impl Records<'_> {
    /// Opens the store. All calls that were answered are in it then.
    async fn open(self) -> anyhow::Result<Store> {
        let (storage, data_dir) = (&self.config.storage, &self.config.data_dir);
        Ok(open_reader(storage, data_dir, &SystemClock).await?)
    }

    /// Waits until this number of calls is recorded with their ends, and returns them. Searches and
    /// learning read the records, so the result of the demonstration depends on them.
    ///
    /// # Errors
    ///
    /// Returns the error of the store, and an error if calls are missing.
    pub(super) async fn wait_for(self, n_calls: usize) -> anyhow::Result<Vec<InvocationSummary>> {
        let begun = Instant::now();
        loop {
            let store = self.open().await?;
            let calls = store
                .invocations(&InvocationFilter::default(), LIMIT)
                .await?;
            store.close().await;
            if calls.len() >= n_calls && calls.iter().all(|call| call.end.is_some()) {
                return Ok(calls);
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "only {} of {n_calls} calls are recorded, or some without their end, after {} s",
                calls.len(),
                PATIENCE.as_secs()
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Compares the records with the calls that were made, and returns the number of records.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::wait_for`].
    pub(super) async fn check_calls(
        self,
        script: &Script,
        n_calls: usize,
        unexpected: &mut Vec<String>,
    ) -> anyhow::Result<usize> {
        let recorded = self.wait_for(n_calls).await?;
        if recorded.len() != n_calls {
            unexpected.push(format!(
                "{} calls are recorded, but {n_calls} were made",
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

    /// Compares the tokens of all definitions with those that the proxy recorded with its newest
    /// list.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub(super) async fn check_tokens(
        self,
        tokens: u64,
        unexpected: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let store = self.open().await?;
        let sessions = store.sessions(1).await?;
        let mut recorded = None;
        if let Some(newest) = sessions.last() {
            let lists = store.lists_shown(newest.session.id, 1).await?;
            let selection = lists.last().and_then(|list| list.selection.as_ref());
            recorded = selection.map(|selection| selection.available_tokens);
        }
        store.close().await;
        if recorded != Some(tokens) {
            unexpected.push(format!(
                "all definitions have {tokens} tokens, but {recorded:?} are recorded"
            ));
        }
        Ok(())
    }
}
