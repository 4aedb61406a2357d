//! Recorded sessions of the store, as input of a replay.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::InvocationId;
use riglm_domain::retrieval::ToolText;
use riglm_domain::usage::invocation::{Outcome, PastCall, SessionKey};
use riglm_ports::analytics::{
    InvocationRepository, StoreError, ToolDefinitionRepository, UsageRepository,
};

use super::session::{ReplayCall, ReplayCatalog, ReplaySession, ReplayTool, SessionSource};

/// Number of calls per page.
const PAGE_SIZE: u32 = 1_000;

/// Returns the tools that were listed or called, ordered by upstream and name.
///
/// # Errors
///
/// Returns [`StoreError`] when the store fails.
pub async fn history_catalog<S>(store: &S) -> Result<(ReplayCatalog, Vec<ToolRef>), StoreError>
where
    S: ToolDefinitionRepository + UsageRepository,
{
    let mut tools: BTreeMap<ToolRef, (Timestamp, String)> = BTreeMap::new();
    for row in store.tool_definitions(None).await? {
        let text = ToolText::of_definition(row.sighting.name.as_str(), &row.sighting.definition);
        let tool = ToolRef {
            upstream: row.upstream,
            tool: row.sighting.name,
        };
        let newest = tools.entry(tool).or_insert((row.last_seen, String::new()));
        if newest.0 <= row.last_seen {
            *newest = (row.last_seen, text.description);
        }
    }
    // Called tools may never have been listed.
    for row in store.frequencies(None, Timestamp::UNIX_EPOCH).await? {
        let unseen = (Timestamp::UNIX_EPOCH, String::new());
        tools.entry(row.tool).or_insert(unseen);
    }
    let catalog = ReplayCatalog {
        tools: (tools.iter())
            .map(|(tool, (_, description))| ReplayTool {
                name: tool.tool.to_string(),
                description: description.clone(),
                server: tool.upstream.to_string(),
            })
            .collect(),
    };
    Ok((catalog, tools.into_keys().collect()))
}

/// A session that may get further calls.
#[derive(Debug)]
struct OpenSession {
    session_key: SessionKey,
    session: ReplaySession,
    last_call: Timestamp,
}

/// Reads the calls of a store page by page and groups them into sessions.
///
/// Calls with the same session key form a session. A pause longer than the gap starts a new
/// session. Sessions are returned in the order of their first calls. Memory holds only the open
/// sessions and the ones that began after the oldest open one. Rounds that continue a call do not
/// count as calls. Tools that the catalog lacks are skipped, because they were called for the first
/// time after the catalog was read.
#[derive(Debug)]
pub struct ReplayHistory<'a, S> {
    store: &'a S,
    positions: HashMap<ToolRef, usize>,
    idle_gap: fn(&SessionKey) -> SignedDuration,
    page: VecDeque<PastCall>,
    read_to: Option<InvocationId>,
    is_read: bool,
    now: Timestamp,
    /// Open sessions in the order of their first calls.
    open: BTreeMap<u64, OpenSession>,
    numbers: HashMap<SessionKey, u64>,
    n_begun: u64,
}

impl<'a, S: InvocationRepository> ReplayHistory<'a, S> {
    /// Returns the history of a store. `tools` has the tools of the catalog, in its order.
    #[must_use]
    pub fn new(
        store: &'a S,
        tools: Vec<ToolRef>,
        idle_gap: fn(&SessionKey) -> SignedDuration,
    ) -> Self {
        Self {
            store,
            positions: tools.into_iter().zip(0..).collect(),
            idle_gap,
            page: VecDeque::new(),
            read_to: None,
            is_read: false,
            now: Timestamp::MIN,
            open: BTreeMap::new(),
            numbers: HashMap::new(),
            n_begun: 0,
        }
    }

    /// Returns the next call, or `None` after the last one.
    async fn next_call(&mut self) -> Result<Option<PastCall>, StoreError> {
        if self.page.is_empty() && !self.is_read {
            self.page = (self.store.past_calls(None, self.read_to, PAGE_SIZE))
                .await?
                .into();
            self.is_read = self.page.is_empty();
        }
        let call = self.page.pop_front();
        if let Some(call) = &call {
            self.read_to = Some(call.id);
        }
        Ok(call)
    }

    /// Adds a call to its session.
    fn add(&mut self, past: &PastCall) {
        self.now = self.now.max(past.started_at);
        let tool = past.tool_ref();
        let position = self.positions.get(&tool).copied();
        let (Some(position), None) = (position, past.continues) else {
            return;
        };
        let session_key = past.session_key();
        let known = self.numbers.get(&session_key).copied();
        let number = known.filter(|number| !self.is_over(*number, past.started_at));
        let number = number.unwrap_or_else(|| self.begin(session_key, past));
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.last_call = open.last_call.max(past.started_at);
        open.session.calls.push(ReplayCall {
            tool: position,
            ok: past.outcome.is_some_and(Outcome::is_success),
            turn: None,
            at: Some(past.started_at),
        });
    }

    fn begin(&mut self, session_key: SessionKey, past: &PastCall) -> u64 {
        let number = self.n_begun;
        self.n_begun += 1;
        self.numbers.insert(session_key, number);
        let session = ReplaySession {
            id: past.id.to_string(),
            principal: Some(past.principal.clone()),
            client: past.client.clone(),
            started_at: Some(past.started_at),
            ..ReplaySession::default()
        };
        let open = OpenSession {
            session_key,
            session,
            last_call: past.started_at,
        };
        self.open.insert(number, open);
        number
    }

    /// Returns whether a session has no further calls after a time.
    fn is_over(&self, number: u64, at: Timestamp) -> bool {
        let open = self.open.get(&number);
        open.is_none_or(|open| {
            let gap = (self.idle_gap)(&open.session_key);
            at.duration_since(open.last_call) > gap
        })
    }

    /// Removes and returns the oldest session if it is over.
    fn take_first(&mut self) -> Option<ReplaySession> {
        let number = *self.open.first_key_value()?.0;
        if !self.is_read && !self.is_over(number, self.now) {
            return None;
        }
        let open = self.open.remove(&number)?;
        if self.numbers.get(&open.session_key) == Some(&number) {
            self.numbers.remove(&open.session_key);
        }
        Some(open.session)
    }
}

impl<S: InvocationRepository> SessionSource for ReplayHistory<'_, S> {
    type Error = StoreError;

    async fn next(&mut self) -> Result<Option<ReplaySession>, StoreError> {
        loop {
            if let Some(session) = self.take_first() {
                return Ok(Some(session));
            }
            match self.next_call().await? {
                Some(call) => self.add(&call),
                None if self.open.is_empty() => return Ok(None),
                None => {}
            }
        }
    }

    async fn restart(&mut self) -> Result<(), StoreError> {
        self.page.clear();
        self.open.clear();
        self.numbers.clear();
        (self.read_to, self.is_read) = (None, false);
        (self.now, self.n_begun) = (Timestamp::MIN, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
