//! State of one upstream: its approved tools, and the changes that wait for approval.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolSighting;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::id::ToolName;

use super::page::ToolListPage;
use super::{ApprovalError, ApprovalRequest, HeldChange, HeldDefinition, ToolChangeKind};
use crate::control::name_lookup::quote;

/// The least interval for reading approvals of other processes.
const READ_EVERY: Duration = Duration::from_secs(2);
/// The most pages in the cache.
const MAX_PAGES: usize = 64;
/// The most bytes of all pages in the cache.
const MAX_BYTES: usize = 16 << 20;
/// The most pages of a first list.
const MAX_FIRST_PAGES: usize = 1_000;
// Bounds the memory. Further changes are hidden as well, but can be approved only later.
const MAX_HELD: usize = 1_000;
/// The most held changes that are returned with their definitions.
const MAX_HELD_DEFINITIONS: usize = 100;
// Bounds the memory. Beyond it all changes are reported again.
const MAX_TOLD: usize = 10_000;

/// A page with the result of its comparison.
#[derive(Debug)]
pub(super) struct ComparedPage {
    result: Box<str>,
    /// The revision of the approvals that it was compared with.
    revision: u64,
    pub(super) shown: Option<Box<str>>,
    names: Vec<ToolName>,
    has_next: bool,
    pub(super) held: Vec<PendingChange>,
}

/// The difference between a tool and its approved definition.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    kind: ToolChangeKind,
    sighting: ToolSighting,
    approved_hash: Option<String>,
}

impl PendingChange {
    fn to_held_change(&self, seen_at: Timestamp) -> HeldChange {
        HeldChange {
            tool: self.sighting.name.clone(),
            kind: self.kind,
            hash: self.sighting.content_hash.clone(),
            approved_hash: self.approved_hash.clone(),
            seen_at,
        }
    }
}

/// The result of comparing a page with the approvals.
pub(super) enum Verdict {
    /// The approvals are unknown.
    Unknown,
    /// Nothing is approved yet.
    First,
    Judged(ComparedPage),
}

#[derive(Debug, Default)]
pub(super) struct UpstreamApprovals {
    /// Held while the store is read or written.
    pub(super) reading: tokio::sync::Mutex<()>,
    state: Mutex<ApprovalState>,
}

#[derive(Debug, Default)]
struct ApprovalState {
    /// `None` until the first read.
    approved: Option<HashMap<ToolName, ToolSighting>>,
    /// Counts the changes of `approved`.
    revision: u64,
    read_at: Option<Instant>,
    /// The first list, while the store does not have it.
    unsaved: Vec<ToolApproval>,
    first: FirstList,
    held: BTreeMap<ToolName, (PendingChange, Timestamp)>,
    /// The hashes of the reported changes.
    told: HashSet<String>,
    pages: Vec<Arc<ComparedPage>>,
}

/// The pages so far of a first list.
#[derive(Debug, Default)]
struct FirstList {
    tools: BTreeMap<ToolName, ToolSighting>,
    /// The cursors in these pages. Other cursors belong to other lists.
    cursors: HashSet<String>,
}

impl UpstreamApprovals {
    /// Returns whether the approvals may be read again.
    pub(super) fn is_due(&self) -> bool {
        let read_at = self.state.lock().read_at;
        read_at.is_none_or(|read_at| read_at.elapsed() >= READ_EVERY)
    }

    /// Returns the cached comparison of a page, if the approvals have not changed.
    pub(super) fn cached_page(&self, result: &str) -> Option<Arc<ComparedPage>> {
        let mut state = self.state.lock();
        let revision = state.revision;
        let is_it = |page: &Arc<ComparedPage>| page.revision == revision && *page.result == *result;
        let at = state.pages.iter().position(is_it)?;
        // The most recently used page stands first; the least recently used one is dropped.
        state.pages[..=at].rotate_right(1);
        state.pages.first().cloned()
    }

    pub(super) fn cache_page(&self, judged: ComparedPage) -> Arc<ComparedPage> {
        let judged = Arc::new(judged);
        let mut state = self.state.lock();
        let revision = state.revision;
        state.pages.insert(0, Arc::clone(&judged));
        state.pages.truncate(MAX_PAGES);
        let mut n_bytes = 0;
        state.pages.retain(|page| {
            n_bytes += page.result.len() + page.shown.as_ref().map_or(0, |shown| shown.len());
            page.revision == revision && n_bytes <= MAX_BYTES
        });
        judged
    }

    /// Compares a page with the approvals.
    pub(super) fn compare(&self, page: &ToolListPage<'_>) -> Verdict {
        let state = self.state.lock();
        let Some(approved) = &state.approved else {
            return Verdict::Unknown;
        };
        if approved.is_empty() {
            return Verdict::First;
        }
        let is_approved = |tool: &&ToolSighting| {
            let approved = approved.get(&tool.name);
            approved.is_some_and(|approved| approved.content_hash == tool.content_hash)
        };
        let mut shown: HashSet<&ToolName> = (page.tools.iter())
            .filter(is_approved)
            .map(|tool| &tool.name)
            .collect();
        let mut texts = Vec::with_capacity(page.tools.len());
        let mut held = Vec::new();
        for (position, tool) in page.tools.iter().enumerate() {
            let approved = approved.get(&tool.name);
            if approved.is_some_and(|approved| approved.content_hash == tool.content_hash) {
                texts.push(page.text(position));
                continue;
            }
            held.push(PendingChange {
                kind: approved.map_or(ToolChangeKind::New, |_| ToolChangeKind::Changed),
                sighting: tool.clone(),
                approved_hash: approved.map(|approved| approved.content_hash.clone()),
            });
            // An approved definition that was too long to store is left out, and so is a duplicate.
            if let Some(approved) = approved.filter(|approved| !approved.definition.is_empty())
                && shown.insert(&approved.name)
            {
                texts.push(&approved.definition);
            }
        }
        let text = if held.is_empty() {
            page.as_listed()
        } else {
            Some(page.with(&texts))
        };
        Verdict::Judged(ComparedPage {
            result: page.result.into(),
            revision: state.revision,
            shown: text.map(Into::into),
            names: page.tools.iter().map(|tool| tool.name.clone()).collect(),
            has_next: page.next.is_some(),
            held,
        })
    }

    /// Records the changes of a page, which was requested with `cursor`. Returns the tools with new
    /// changes.
    pub(super) fn record_changes(
        &self,
        page: &ComparedPage,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Vec<ToolName> {
        let mut state = self.state.lock();
        // The change of a tool ends when the tool has its approved definition again, or is missing
        // in the whole list.
        if !state.held.is_empty() {
            let names: HashSet<&ToolName> = page.names.iter().collect();
            let changed = page.held.iter().map(|change| &change.sighting.name);
            let changed: HashSet<&ToolName> = changed.collect();
            let is_whole = cursor.is_none() && !page.has_next;
            state
                .held
                .retain(|tool, _| changed.contains(tool) || (!names.contains(tool) && !is_whole));
        }
        let mut untold = Vec::new();
        for change in &page.held {
            let ToolSighting {
                name, content_hash, ..
            } = &change.sighting;
            let known = state.held.get(name);
            if known.is_none_or(|(known, _)| known.sighting.content_hash != *content_hash)
                && (known.is_some() || state.held.len() < MAX_HELD)
            {
                state.held.insert(name.clone(), (change.clone(), now));
            }
            if state.told.len() >= MAX_TOLD {
                state.told.clear();
            }
            if state.told.insert(content_hash.clone()) {
                untold.push(name.clone());
            }
        }
        untold
    }

    pub(super) fn pending_changes(&self) -> Vec<HeldChange> {
        let state = self.state.lock();
        let held = state.held.values();
        held.map(|(change, seen_at)| change.to_held_change(*seen_at))
            .collect()
    }

    pub(super) fn held_definitions(&self) -> Vec<HeldDefinition> {
        let state = self.state.lock();
        let text = |tool: &ToolSighting| {
            let definition = &tool.definition;
            (!definition.is_empty()).then(|| definition.clone())
        };
        // The approvals can be newer than the comparison. A definition is only shown beside its own
        // hash.
        let approved_definition = |change: &PendingChange| {
            let approved = state.approved.as_ref()?.get(&change.sighting.name)?;
            let is_same = change.approved_hash.as_ref() == Some(&approved.content_hash);
            text(approved).filter(|_| is_same)
        };
        // The lock is on the way of lists, and a definition may have 64 KiB.
        let held = state.held.values().take(MAX_HELD_DEFINITIONS);
        held.map(|(change, seen_at)| HeldDefinition {
            change: change.to_held_change(*seen_at),
            definition: text(&change.sighting),
            approved_definition: approved_definition(change),
        })
        .collect()
    }

    /// Returns the definitions that a request approves.
    pub(super) fn matching_changes(
        &self,
        wanted: &ApprovalRequest,
    ) -> Result<Vec<ToolSighting>, ApprovalError> {
        let state = self.state.lock();
        let Some(tool) = &wanted.tool else {
            let all = state.held.values();
            return Ok(all.map(|(change, _)| change.sighting.clone()).collect());
        };
        let held = state.held.get(tool);
        let (change, _) = held.ok_or_else(|| ApprovalError::NothingHeld(quote(tool.as_str())))?;
        let hash = &change.sighting.content_hash;
        if wanted.hash.as_ref().is_some_and(|wanted| wanted != hash) {
            return Err(ApprovalError::OtherHash);
        }
        Ok(vec![change.sighting.clone()])
    }

    /// Adds a page to the first list. Returns all of its tools with the last page.
    pub(super) fn collect(
        &self,
        page: &ToolListPage<'_>,
        cursor: Option<&str>,
    ) -> Vec<ToolSighting> {
        let mut state = self.state.lock();
        let first = &mut state.first;
        if cursor.is_some_and(|cursor| !first.cursors.contains(cursor)) {
            return Vec::new();
        }
        let tools = page.tools.iter();
        (first.tools).extend(tools.map(|tool| (tool.name.clone(), tool.clone())));
        if let Some(next) = &page.next
            && first.cursors.len() < MAX_FIRST_PAGES
        {
            first.cursors.insert(next.clone());
            return Vec::new();
        }
        std::mem::take(first).tools.into_values().collect()
    }

    /// Starts with empty approvals, since there is no store.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.approved.get_or_insert_default();
        state.read_at = Some(Instant::now());
    }

    /// Records a failed read, so that the next one is delayed.
    pub(super) fn record_failed_read(&self) {
        self.state.lock().read_at = Some(Instant::now());
    }

    pub(super) fn unsaved_approvals(&self) -> Vec<ToolApproval> {
        self.state.lock().unsaved.clone()
    }

    pub(super) fn replace(&self, approvals: Vec<ToolApproval>) {
        let mut state = self.state.lock();
        state.read_at = Some(Instant::now());
        state.unsaved.clear();
        let approved: HashMap<_, _> = (approvals.into_iter())
            .map(|approval| (approval.sighting.name.clone(), approval.sighting))
            .collect();
        if state.approved.as_ref() != Some(&approved) {
            state.approved = Some(approved);
            state.on_approvals_changed();
        }
    }

    pub(super) fn approve(&self, approvals: &[ToolApproval]) {
        let mut state = self.state.lock();
        let sightings = approvals.iter().map(|approval| &approval.sighting);
        let approved = state.approved.get_or_insert_default();
        approved.extend(sightings.map(|tool| (tool.name.clone(), tool.clone())));
        state.on_approvals_changed();
    }

    /// Adds the approvals of a first list that the store failed to take; they are written later.
    pub(super) fn approve_unsaved(&self, approvals: Vec<ToolApproval>) {
        self.approve(&approvals);
        self.state.lock().unsaved = approvals;
    }
}

impl ApprovalState {
    /// Drops results that depend on the earlier approvals.
    fn on_approvals_changed(&mut self) {
        self.revision += 1;
        self.pages.clear();
        self.first = FirstList::default();
        let Some(approved) = &self.approved else {
            return;
        };
        self.held.retain(|tool, (change, _)| {
            let approved = approved.get(tool);
            approved.is_none_or(|known| known.content_hash != change.sighting.content_hash)
        });
    }
}
