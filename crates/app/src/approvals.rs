//! Tools are shown as they were approved: what an upstream changes about them is held back until
//! somebody approves it.
//!
//! The first whole list of an upstream is trusted. Later, a tool whose definition is another one is
//! shown as it was approved, and a tool that is new is left out. Where that cannot be found out,
//! because the store does not answer, no tool is shown.

mod line;
mod page;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::id::{AuditId, ToolName, UpstreamName};
use riglm_domain::principal::Principal;
use riglm_domain::tool_approval::{FIRST_LIST, ToolApproval};
use riglm_ports::analytics::{StoreError, ToolApprovalRepository};
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, Observer};
use serde_json::json;

use crate::tracking::EntropySource;
use line::{Line, Verdict};
use page::{Page, Unreadable};

/// What is different about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It has another definition than the approved one.
    Changed,
    /// No tool of its name is approved.
    New,
}

impl ChangeKind {
    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::New => "new",
        }
    }
}

/// A change of a tool that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldChange {
    /// The name of the tool.
    pub tool: ToolName,
    /// What is different.
    pub kind: ChangeKind,
    /// The content hash of the definition that is held back.
    pub hash: String,
    /// That of the approved one.
    pub approved_hash: Option<String>,
    /// When it was first seen by this process.
    pub seen_at: Timestamp,
}

/// Which changes are to be approved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// That of this tool; without it, all of the upstream.
    pub tool: Option<ToolName>,
    /// Only the one with this hash.
    pub hash: Option<String>,
}

/// Why nothing is approved.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// There is no such upstream.
    #[error("there is no upstream {0}")]
    UnknownUpstream(String),
    /// Nothing is held back of the tool.
    #[error("nothing is held back of a tool {0}")]
    NothingHeld(String),
    /// Another definition is held back than the one that was looked at.
    #[error("another definition of the tool is held back by now; look at it again")]
    OtherHash,
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Decides how the tools of upstreams are shown whose changes are held back.
#[derive(Debug)]
pub struct Approvals {
    /// Without a store approvals last as long as the process.
    store: Option<Arc<dyn ToolApprovalRepository>>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
    /// By the name of the upstream: what is approved outlives a change of how it is reached.
    lines: Mutex<HashMap<UpstreamName, Arc<Line>>>,
}

impl Approvals {
    /// Returns a service over a store; `None` where nothing is stored.
    #[must_use]
    pub fn new(
        store: Option<Arc<dyn ToolApprovalRepository>>,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            observer,
            clock,
            entropy: EntropySource::new(),
            lines: Mutex::default(),
        }
    }

    /// Returns the result to show in the place of a page of tools that was asked for with `cursor`;
    /// `None` when it is shown as it is.
    pub(crate) async fn shown(
        &self,
        upstream: &UpstreamName,
        result: &str,
        cursor: Option<&str>,
    ) -> Option<String> {
        let line = self.line(upstream);
        if let Some(known) = line.remembered(result)
            && (known.held.is_empty() || !line.is_due())
        {
            self.tell(upstream, line.note(&known, cursor, self.clock.now()));
            return known.shown.as_deref().map(str::to_owned);
        }
        let page = match Page::read(upstream, result) {
            Ok(Some(page)) => page,
            Ok(None) => return None,
            Err(Unreadable) => {
                tracing::warn!(upstream = %upstream, "a list of tools cannot be read: none is shown");
                return Some(page::NO_TOOLS.into());
            }
        };
        let is_open =
            !matches!(line.judge(&page), Verdict::Judged(judged) if judged.held.is_empty());
        if is_open && line.is_due() {
            let _alone = line.reading.lock().await;
            if line.is_due() {
                self.read(upstream, &line).await;
            }
        }
        if matches!(line.judge(&page), Verdict::First) {
            self.trust(upstream, &line, &page, cursor).await;
        }
        match line.judge(&page) {
            Verdict::Unknown => Some(page.with(&[])),
            Verdict::First => page.as_listed(),
            Verdict::Judged(judged) => {
                let judged = line.remember(judged);
                self.tell(upstream, line.note(&judged, cursor, self.clock.now()));
                judged.shown.as_deref().map(str::to_owned)
            }
        }
    }

    /// Returns the changes of an upstream that are held back, by the name of the tool.
    #[must_use]
    pub fn held(&self, upstream: &UpstreamName) -> Vec<HeldChange> {
        self.line(upstream).held()
    }

    /// Approves changes that are held back. Returns what was approved.
    ///
    /// # Errors
    ///
    /// Returns [`ApprovalError`]; nothing is approved then.
    pub async fn approve(
        &self,
        upstream: &UpstreamName,
        wanted: &Wanted,
        actor: &Principal,
    ) -> Result<Vec<ToolApproval>, ApprovalError> {
        let line = self.line(upstream);
        // What is read meanwhile would be from before.
        let _alone = line.reading.lock().await;
        let at = self.clock.now();
        let sightings = line.wanted(wanted)?;
        let approvals: Vec<ToolApproval> = (sightings.into_iter())
            .map(|sighting| ToolApproval {
                sighting,
                approved_at: at,
                approved_by: actor.clone(),
            })
            .collect();
        if approvals.is_empty() {
            return Ok(approvals);
        }
        if let Some(store) = &self.store {
            let tools: Vec<_> = (approvals.iter())
                .map(|approval| {
                    let ToolApproval { sighting, .. } = approval;
                    json!({"tool": sighting.name, "hash": sighting.content_hash})
                })
                .collect();
            let audit = AuditEntry {
                id: AuditId::new(at, self.entropy.next()),
                at,
                actor: actor.clone(),
                action: "tools.approve".into(),
                target: upstream.as_str().into(),
                detail: Some(json!({ "tools": tools }).to_string()),
            };
            store.approve(upstream, &approvals, &audit).await?;
        }
        tracing::info!(
            upstream = %upstream, actor = %actor, n_tools = approvals.len(),
            "changes of tools were approved"
        );
        line.approve(&approvals);
        Ok(approvals)
    }

    fn line(&self, upstream: &UpstreamName) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(upstream) {
            return Arc::clone(line);
        }
        let line = Arc::<Line>::default();
        lines.insert(upstream.clone(), Arc::clone(&line));
        line
    }

    /// Reads what is approved, whoever approved it.
    async fn read(&self, upstream: &UpstreamName, line: &Line) {
        let Some(store) = &self.store else {
            return line.begin();
        };
        let unsaved = line.unsaved();
        let reading = async {
            if !unsaved.is_empty() {
                store.approve_first(upstream, &unsaved).await?;
            }
            store.approvals(upstream).await
        };
        match reading.await {
            Ok(approvals) => line.replace(approvals),
            Err(error) => {
                line.attempted();
                tracing::warn!(upstream = %upstream, "what is approved cannot be read: {error}");
            }
        }
    }

    /// Approves the tools of the first list, once the whole of it was seen.
    async fn trust(
        &self,
        upstream: &UpstreamName,
        line: &Line,
        page: &Page<'_>,
        cursor: Option<&str>,
    ) {
        let _alone = line.reading.lock().await;
        if !matches!(line.judge(page), Verdict::First) {
            return;
        }
        let at = self.clock.now();
        let approvals: Vec<ToolApproval> = (line.collect(page, cursor).into_iter())
            .map(|sighting| ToolApproval {
                sighting,
                approved_at: at,
                approved_by: Principal::named(FIRST_LIST),
            })
            .collect();
        if approvals.is_empty() {
            return;
        }
        let stored = match &self.store {
            Some(store) => store.approve_first(upstream, &approvals).await,
            None => Ok(true),
        };
        match stored {
            Ok(true) => line.approve(&approvals),
            // Another process saw its list before.
            Ok(false) => self.read(upstream, line).await,
            Err(error) => {
                tracing::warn!(upstream = %upstream, "the first list cannot be written: {error}");
                line.approve_unsaved(approvals);
            }
        }
    }

    /// Tells of changes that were not held back before.
    fn tell(&self, upstream: &UpstreamName, tools: Vec<ToolName>) {
        for tool in tools {
            tracing::warn!(
                upstream = %upstream, tool = %tool,
                "a change of tool {tool} of upstream {upstream} is held back until it is approved"
            );
            let tool = &tool;
            self.observer.observe(&Event::ChangeHeld { upstream, tool });
        }
    }
}

#[cfg(test)]
mod tests;
