//! What is known of one upstream: its approved tools, and the changes that are held back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::id::ToolName;
use riglm_domain::tool::ToolSighting;
use riglm_domain::tool_approval::ToolApproval;

use super::page::Page;
use super::{ApprovalError, ChangeKind, HeldChange, Wanted};
use crate::names::quoted;

/// How often it is looked what others approved, at most.
const READ_EVERY: Duration = Duration::from_secs(2);
/// How many pages are remembered.
const MAX_PAGES: usize = 64;
/// How many bytes they may have in all.
const MAX_BYTES: usize = 16 << 20;
/// The most pages of a first list.
const MAX_FIRST_PAGES: usize = 1_000;
/// The most changes that can be approved at a time; further ones are left out all the same.
const MAX_HELD: usize = 1_000;
/// The most changes of which it is remembered that they were told; beyond it that begins anew.
const MAX_TOLD: usize = 10_000;

/// A page that was compared with what is approved.
#[derive(Debug)]
pub(super) struct Judged {
    result: Box<str>,
    /// What was approved then.
    revision: u64,
    pub(super) shown: Option<Box<str>>,
    names: Vec<ToolName>,
    has_next: bool,
    pub(super) held: Vec<Change>,
}

/// How a tool differs from the approved one.
#[derive(Clone, Debug)]
pub(super) struct Change {
    kind: ChangeKind,
    sighting: ToolSighting,
    approved_hash: Option<String>,
}

/// What becomes of a page.
pub(super) enum Verdict {
    /// It is not known what is approved.
    Unknown,
    /// Nothing is approved yet.
    First,
    /// This.
    Judged(Judged),
}

/// One upstream.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Held by who reads or writes the store.
    pub(super) reading: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until it was read.
    approved: Option<HashMap<ToolName, ToolSighting>>,
    /// Counts its changes.
    revision: u64,
    read_at: Option<Instant>,
    /// The first list, where the store does not have it yet.
    unsaved: Vec<ToolApproval>,
    first: FirstList,
    held: BTreeMap<ToolName, (Change, Timestamp)>,
    /// The hashes of changes that were told.
    told: HashSet<String>,
    pages: Vec<Arc<Judged>>,
}

/// The pages so far of a list that nothing was approved before.
#[derive(Debug, Default)]
struct FirstList {
    tools: BTreeMap<ToolName, ToolSighting>,
    /// The cursors that these pages gave out.
    cursors: HashSet<String>,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it may be looked again what is approved.
    pub(super) fn is_due(&self) -> bool {
        let read_at = self.state().read_at;
        read_at.is_none_or(|read_at| read_at.elapsed() >= READ_EVERY)
    }

    /// Returns how a page was judged, if nothing else was approved since.
    pub(super) fn remembered(&self, result: &str) -> Option<Arc<Judged>> {
        let mut state = self.state();
        let revision = state.revision;
        let is_it = |page: &Arc<Judged>| page.revision == revision && *page.result == *result;
        let at = state.pages.iter().position(is_it)?;
        // The page used last stands first, and the one unused for longest is forgotten.
        state.pages[..=at].rotate_right(1);
        state.pages.first().cloned()
    }

    pub(super) fn remember(&self, judged: Judged) -> Arc<Judged> {
        let judged = Arc::new(judged);
        let mut state = self.state();
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

    /// Compares a page with what is approved.
    pub(super) fn judge(&self, page: &Page<'_>) -> Verdict {
        let state = self.state();
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
            held.push(Change {
                kind: approved.map_or(ChangeKind::New, |_| ChangeKind::Changed),
                sighting: tool.clone(),
                approved_hash: approved.map(|approved| approved.content_hash.clone()),
            });
            // One that is too long to be kept is left out, and so is one that is there already.
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
        Verdict::Judged(Judged {
            result: page.result.into(),
            revision: state.revision,
            shown: text.map(Into::into),
            names: page.tools.iter().map(|tool| tool.name.clone()).collect(),
            has_next: page.next.is_some(),
            held,
        })
    }

    /// Notes the changes on a page that was asked for with `cursor`. Returns the tools whose change
    /// was not told yet.
    pub(super) fn note(
        &self,
        page: &Judged,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Vec<ToolName> {
        let mut state = self.state();
        // A tool that is as it was approved, or gone from the whole list, has no change any more.
        if !state.held.is_empty() {
            let names: HashSet<&ToolName> = page.names.iter().collect();
            let changed: HashSet<&ToolName> = page
                .held
                .iter()
                .map(|change| &change.sighting.name)
                .collect();
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

    pub(super) fn held(&self) -> Vec<HeldChange> {
        let state = self.state();
        let held = state
            .held
            .iter()
            .map(|(tool, (change, seen_at))| HeldChange {
                tool: tool.clone(),
                kind: change.kind,
                hash: change.sighting.content_hash.clone(),
                approved_hash: change.approved_hash.clone(),
                seen_at: *seen_at,
            });
        held.collect()
    }

    /// Returns the definitions that somebody wants to approve.
    pub(super) fn wanted(&self, wanted: &Wanted) -> Result<Vec<ToolSighting>, ApprovalError> {
        let state = self.state();
        let Some(tool) = &wanted.tool else {
            let all = state.held.values();
            return Ok(all.map(|(change, _)| change.sighting.clone()).collect());
        };
        let held = state.held.get(tool);
        let (change, _) = held.ok_or_else(|| ApprovalError::NothingHeld(quoted(tool.as_str())))?;
        let hash = &change.sighting.content_hash;
        if wanted.hash.as_ref().is_some_and(|wanted| wanted != hash) {
            return Err(ApprovalError::OtherHash);
        }
        Ok(vec![change.sighting.clone()])
    }

    /// Adds a page to the first list. Returns all of its tools when the last page came.
    pub(super) fn collect(&self, page: &Page<'_>, cursor: Option<&str>) -> Vec<ToolSighting> {
        let mut state = self.state();
        let first = &mut state.first;
        if cursor.is_some_and(|cursor| !first.cursors.contains(cursor)) {
            return Vec::new();
        }
        let tools = page.tools.iter();
        first
            .tools
            .extend(tools.map(|tool| (tool.name.clone(), tool.clone())));
        if let Some(next) = &page.next
            && first.cursors.len() < MAX_FIRST_PAGES
        {
            first.cursors.insert(next.clone());
            return Vec::new();
        }
        std::mem::take(first).tools.into_values().collect()
    }

    /// Takes note that nothing is stored anywhere.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        state.approved.get_or_insert_default();
        state.read_at = Some(Instant::now());
    }

    /// Takes note that it was tried to read what is approved.
    pub(super) fn attempted(&self) {
        self.state().read_at = Some(Instant::now());
    }

    /// Returns what the store does not have yet.
    pub(super) fn unsaved(&self) -> Vec<ToolApproval> {
        self.state().unsaved.clone()
    }

    /// Takes over what is stored.
    pub(super) fn replace(&self, approvals: Vec<ToolApproval>) {
        let mut state = self.state();
        state.read_at = Some(Instant::now());
        state.unsaved.clear();
        let approved: HashMap<_, _> = (approvals.into_iter())
            .map(|approval| (approval.sighting.name.clone(), approval.sighting))
            .collect();
        if state.approved.as_ref() != Some(&approved) {
            state.approved = Some(approved);
            state.changed();
        }
    }

    /// Takes over what was approved just now.
    pub(super) fn approve(&self, approvals: &[ToolApproval]) {
        let mut state = self.state();
        let sightings = approvals.iter().map(|approval| &approval.sighting);
        let approved = state.approved.get_or_insert_default();
        approved.extend(sightings.map(|tool| (tool.name.clone(), tool.clone())));
        state.changed();
    }

    /// The same of a first list that the store does not take: it has to be written later.
    pub(super) fn approve_unsaved(&self, approvals: Vec<ToolApproval>) {
        self.approve(&approvals);
        self.state().unsaved = approvals;
    }
}

impl State {
    /// Forgets what was found out by what was approved before.
    fn changed(&mut self) {
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
