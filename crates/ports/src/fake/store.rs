//! A usage store in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::exchange::Exchange;
use riglm_domain::id::{ExchangeId, InvocationId, RunId, SessionId};
use riglm_domain::invocation::{InvocationEnd, InvocationSummary, Outcome};
use riglm_domain::record::Record;
use riglm_domain::session::{Session, SessionSummary};
use riglm_domain::tool::ToolListing;

use crate::analytics::{
    ExchangeRepository, InvocationFilter, InvocationRepository, Journal, RecordSink,
    SessionRepository, StoreError,
};

/// Sessions, calls and other requests in memory. As a journal it applies each record at once.
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: Mutex<Rows>,
    is_failing: AtomicBool,
}

#[derive(Debug, Default)]
struct Rows {
    records: Vec<Record>,
    sessions: BTreeMap<SessionId, (Session, Option<Timestamp>)>,
    listings: HashMap<String, ToolListing>,
    listed: BTreeSet<(SessionId, String)>,
    calls: BTreeMap<InvocationId, InvocationSummary>,
    exchanges: BTreeMap<ExchangeId, Exchange>,
}

impl MemoryStore {
    /// Makes every append and every application fail from now on; reading goes on.
    pub fn start_failing(&self) {
        self.is_failing.store(true, Ordering::SeqCst);
    }

    /// Takes records again.
    pub fn stop_failing(&self) {
        self.is_failing.store(false, Ordering::SeqCst);
    }

    /// Returns every record that was taken, in order, repetitions included.
    pub fn records(&self) -> Vec<Record> {
        self.rows().records.clone()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, records: &[Record]) -> Result<(), StoreError> {
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(StoreError::Failed {
                operation: "write to the failing store",
                source: "it was told to fail".into(),
            });
        }
        let mut rows = self.rows();
        for record in records {
            rows.apply(record);
        }
        Ok(())
    }
}

impl Rows {
    fn apply(&mut self, record: &Record) {
        self.records.push(record.clone());
        match record {
            Record::SessionOpened(session) => {
                let row = || (session.clone(), None);
                self.sessions.entry(session.id).or_insert_with(row);
            }
            Record::SessionClosed { session, ended_at } => {
                if let Some((_, end)) = self.sessions.get_mut(session) {
                    end.get_or_insert(*ended_at);
                }
            }
            Record::ToolsSeen { listing, .. } => {
                self.listings.insert(listing.id.clone(), listing.clone());
            }
            Record::ToolsListed {
                session, listing, ..
            } => {
                self.listed.insert((*session, listing.clone()));
            }
            Record::CallOpened(call) => {
                let row = || InvocationSummary {
                    invocation: call.clone(),
                    end: None,
                    request_tokens: None,
                    response_tokens: None,
                };
                self.calls.entry(call.id).or_insert_with(row);
            }
            Record::CallClosed(end) => self.close_call(end),
            Record::CallMeasured(tokens) => {
                if let Some(call) = self.calls.get_mut(&tokens.id) {
                    call.request_tokens = call.request_tokens.or(tokens.request);
                    call.response_tokens = call.response_tokens.or(tokens.response);
                }
            }
            Record::Exchanged(exchange) => {
                let row = || exchange.clone();
                self.exchanges.entry(exchange.id).or_insert_with(row);
            }
            Record::ListShown(_)
            | Record::Searched(_)
            | Record::ContextGiven(_)
            | Record::Recommended(_)
            | Record::FeedbackGiven(_) => {}
            Record::RunLost { run, noticed_at } => self.lose(*run, *noticed_at),
        }
    }

    fn close_call(&mut self, end: &InvocationEnd) {
        let Some(call) = self.calls.get_mut(&end.id) else {
            return;
        };
        let is_known = |end: &InvocationEnd| end.outcome != Outcome::Unknown;
        if call
            .end
            .as_ref()
            .is_none_or(|first| !is_known(first) && is_known(end))
        {
            call.end = Some(end.clone());
        }
    }

    fn lose(&mut self, run: RunId, noticed_at: Timestamp) {
        for call in self.calls.values_mut() {
            let session = self.sessions.get(&call.invocation.session);
            if session.is_some_and(|(session, _)| session.run == run) {
                call.end.get_or_insert(InvocationEnd {
                    id: call.invocation.id,
                    outcome: Outcome::Unknown,
                    duration_us: 0,
                    response_bytes: 0,
                    result: None,
                });
            }
        }
        for (session, end) in self.sessions.values_mut() {
            if session.run == run {
                end.get_or_insert(noticed_at);
            }
        }
    }

    fn summary(&self, session: &Session, ended_at: Option<Timestamp>) -> SessionSummary {
        let calls = self.calls.values();
        let tools: BTreeSet<String> = self
            .listed
            .iter()
            .filter(|(listed_to, _)| *listed_to == session.id)
            .filter_map(|(_, listing)| self.listings.get(listing))
            .flat_map(|listing| listing.tools.iter().map(|tool| tool.name.to_string()))
            .collect();
        SessionSummary {
            session: session.clone(),
            ended_at,
            n_calls: calls
                .filter(|call| call.invocation.session == session.id)
                .count() as u64,
            tools_available: tools.into_iter().collect(),
        }
    }

    fn fitting(&self, filter: &InvocationFilter) -> Vec<InvocationSummary> {
        let fits = |call: &&InvocationSummary| {
            let session = filter
                .session
                .is_none_or(|id| id == call.invocation.session);
            let tool = filter
                .tool
                .as_ref()
                .is_none_or(|tool| *tool == call.invocation.tool);
            session && tool
        };
        self.calls.values().filter(fits).cloned().collect()
    }
}

/// Returns the newest rows, oldest first.
fn newest<T, K: Ord>(mut rows: Vec<T>, limit: u32, age: impl Fn(&T) -> K) -> Vec<T> {
    rows.sort_by_key(age);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    rows.split_off(rows.len().saturating_sub(limit))
}

#[async_trait]
impl Journal for MemoryStore {
    async fn append(&self, record: &Record) -> Result<(), StoreError> {
        self.take(std::slice::from_ref(record))
    }
}

#[async_trait]
impl RecordSink for MemoryStore {
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError> {
        self.take(records)
    }
}

#[async_trait]
impl SessionRepository for MemoryStore {
    async fn sessions(&self, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
        let rows = self.rows();
        let all = rows.sessions.values();
        let all = all
            .map(|(session, ended_at)| rows.summary(session, *ended_at))
            .collect();
        Ok(newest(all, limit, |row: &SessionSummary| {
            (row.session.started_at, row.session.id)
        }))
    }
}

#[async_trait]
impl InvocationRepository for MemoryStore {
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(newest(self.rows().fitting(filter), limit, |row| {
            (row.invocation.started_at, row.invocation.id)
        }))
    }

    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError> {
        Ok(self.rows().fitting(filter).len() as u64)
    }
}

#[async_trait]
impl ExchangeRepository for MemoryStore {
    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError> {
        let rows = self.rows();
        let all = rows.exchanges.values();
        let all = all
            .filter(|exchange| exchange.session == session)
            .cloned()
            .collect();
        Ok(newest(all, limit, |row: &Exchange| {
            (row.started_at, row.id)
        }))
    }
}
