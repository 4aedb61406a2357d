//! The sessions that the store has.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::id::InvocationId;
use riglm_domain::invocation::{CallSession, Outcome, PastCall};
use riglm_domain::retrieval::ToolText;
use riglm_domain::tool::ToolRef;
use riglm_ports::analytics::{
    InvocationRepository, StoreError, ToolDefinitionRepository, UsageRepository,
};

use super::session::{ReplayCall, ReplayCatalog, ReplaySession, ReplayTool, SessionSource};

/// How many calls are read at once.
const PAGE: u32 = 1_000;

/// Returns the tools that were listed or called, ordered by upstream and name.
///
/// # Errors
///
/// Returns [`StoreError`] when the store does not answer.
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
    // Tools may be called that were never listed.
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

/// A session that may have further calls.
#[derive(Debug)]
struct Open {
    together: CallSession,
    session: ReplaySession,
    last_call: Timestamp,
}

/// Reads the calls of a store page by page and makes sessions of them.
///
/// Calls of one work session belong together, and where none was derived, those of one connection;
/// a silence that is longer than the gap begins another session. Sessions come in the order of
/// their first calls. Only those are in memory that are still open, or began after one that is.
/// Rounds that continue a call are no calls of their own, and tools that the catalog does not have
/// are left out: somebody called them for the first time just now.
#[derive(Debug)]
pub struct History<'a, S> {
    store: &'a S,
    positions: HashMap<ToolRef, usize>,
    idle_gap: fn(&CallSession) -> SignedDuration,
    page: VecDeque<PastCall>,
    read_to: Option<InvocationId>,
    is_read: bool,
    now: Timestamp,
    /// By the order of their first calls.
    open: BTreeMap<u64, Open>,
    numbers: HashMap<CallSession, u64>,
    n_begun: u64,
}

impl<'a, S: InvocationRepository> History<'a, S> {
    /// Returns the history of a store. `tools` are those of the catalog, in its order.
    #[must_use]
    pub fn new(
        store: &'a S,
        tools: Vec<ToolRef>,
        idle_gap: fn(&CallSession) -> SignedDuration,
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

    /// Returns the next call; `None` after the last one.
    async fn next_call(&mut self) -> Result<Option<PastCall>, StoreError> {
        if self.page.is_empty() && !self.is_read {
            self.page = self.store.past_calls(self.read_to, PAGE).await?.into();
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
        let together = past.belongs_to();
        let known = self.numbers.get(&together).copied();
        let number = known.filter(|number| !self.is_over(*number, past.started_at));
        let number = number.unwrap_or_else(|| self.begin(together, past));
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

    fn begin(&mut self, together: CallSession, past: &PastCall) -> u64 {
        let number = self.n_begun;
        self.n_begun += 1;
        self.numbers.insert(together, number);
        let session = ReplaySession {
            id: past.id.to_string(),
            principal: Some(past.principal.clone()),
            client: past.client.clone(),
            started_at: Some(past.started_at),
            ..ReplaySession::default()
        };
        let open = Open {
            together,
            session,
            last_call: past.started_at,
        };
        self.open.insert(number, open);
        number
    }

    /// Returns whether a session has no calls any more at a moment.
    fn is_over(&self, number: u64, at: Timestamp) -> bool {
        let open = self.open.get(&number);
        open.is_none_or(|open| {
            let gap = (self.idle_gap)(&open.together);
            at.duration_since(open.last_call) > gap
        })
    }

    /// Takes the first session out, if it is over.
    fn take_first(&mut self) -> Option<ReplaySession> {
        let number = *self.open.first_key_value()?.0;
        if !self.is_read && !self.is_over(number, self.now) {
            return None;
        }
        let open = self.open.remove(&number)?;
        if self.numbers.get(&open.together) == Some(&number) {
            self.numbers.remove(&open.together);
        }
        Some(open.session)
    }
}

impl<S: InvocationRepository> SessionSource for History<'_, S> {
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
