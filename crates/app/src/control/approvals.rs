//! Approval of tool definitions: changes by an upstream are hidden until an operator approves them.
//!
//! The first complete list of an upstream is trusted. Later, a changed tool is shown with its
//! approved definition, and a new tool is left out. If the store fails and no approvals are known,
//! no tool is shown.

mod page;
mod upstream_approvals;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::catalog::tool_approval::{FIRST_LIST, ToolApproval};
use riglm_domain::id::{AuditId, ToolName, UpstreamName};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{StoreError, ToolApprovalRepository};
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, Observer};
use serde_json::json;

use page::{ToolListPage, UnreadableList};
use riglm_discovery::entropy::EntropySource;
use upstream_approvals::{UpstreamApprovals, Verdict};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChangeKind {
    /// The definition differs from the approved one.
    Changed,
    /// No tool of this name is approved.
    New,
}

impl ToolChangeKind {
    /// Returns the published name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::New => "new",
        }
    }
}

/// A change that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldChange {
    /// The name of the tool.
    pub tool: ToolName,
    /// The kind of the change.
    pub kind: ToolChangeKind,
    /// The content hash of the new definition.
    pub hash: String,
    /// The content hash of the approved definition.
    pub approved_hash: Option<String>,
    /// The time at which this process saw the change first.
    pub seen_at: Timestamp,
}

/// A change that waits for approval, with the definitions before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDefinition {
    /// The change.
    pub change: HeldChange,
    /// The JSON text of the new definition; `None` if it is too long to store.
    pub definition: Option<String>,
    /// The JSON text of the approved definition; `None` for a new tool, and if it is not known or
    /// was too long to store.
    pub approved_definition: Option<String>,
}

/// A request for approval: the changes to approve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The tool to approve; `None` for all tools of the upstream.
    pub tool: Option<ToolName>,
    /// Approve only the definition with this hash.
    pub hash: Option<String>,
}

/// The reason why nothing was approved.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// No such upstream.
    #[error("unknown upstream {0}")]
    UnknownUpstream(String),
    /// The tool has no change that waits for approval.
    #[error("tool {0} has no change that waits for approval")]
    NothingHeld(String),
    /// The change is another one than the requested one.
    #[error("the held definition has another hash; review the tool again")]
    OtherHash,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Hides changes of tools until they are approved.
#[derive(Debug)]
pub struct Approvals {
    /// Without a store approvals last as long as the process.
    store: Option<Arc<dyn ToolApprovalRepository>>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
    // The key is the name of the upstream, so that approvals survive a change of its address.
    lines: Mutex<HashMap<UpstreamName, Arc<UpstreamApprovals>>>,
}

impl Approvals {
    /// Creates the service, with a store or else in memory.
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

    /// Returns the result to show instead of a page of tools, which was requested with `cursor`;
    /// `None` if the page needs no change.
    pub(crate) async fn shown_page(
        &self,
        upstream: &UpstreamName,
        result: &str,
        cursor: Option<&str>,
    ) -> Option<String> {
        let line = self.line(upstream);
        if let Some(known) = line.cached_page(result)
            && (known.held.is_empty() || !line.is_due())
        {
            self.report(
                upstream,
                line.record_changes(&known, cursor, self.clock.now()),
            );
            return known.shown.as_deref().map(str::to_owned);
        }
        let page = match ToolListPage::read(upstream, result) {
            Ok(Some(page)) => page,
            Ok(None) => return None,
            Err(UnreadableList) => {
                tracing::warn!(
                    upstream = %upstream,
                    "upstream sent an invalid tool list: no tools are listed"
                );
                return Some(page::NO_TOOLS.into());
            }
        };
        let is_open =
            !matches!(line.compare(&page), Verdict::Judged(judged) if judged.held.is_empty());
        if is_open && line.is_due() {
            let _alone = line.reading.lock().await;
            // Another request may have read them while this one waited for the lock.
            if line.is_due() {
                self.read(upstream, &line).await;
            }
        }
        if matches!(line.compare(&page), Verdict::First) {
            self.approve_first_list(upstream, &line, &page, cursor)
                .await;
        }
        match line.compare(&page) {
            Verdict::Unknown => Some(page.with(&[])),
            Verdict::First => page.as_listed(),
            Verdict::Judged(judged) => {
                let judged = line.cache_page(judged);
                self.report(
                    upstream,
                    line.record_changes(&judged, cursor, self.clock.now()),
                );
                judged.shown.as_deref().map(str::to_owned)
            }
        }
    }

    /// Returns the changes of an upstream that wait for approval, by the name of the tool.
    #[must_use]
    pub fn pending_changes(&self, upstream: &UpstreamName) -> Vec<HeldChange> {
        self.line(upstream).pending_changes()
    }

    /// Returns the first 100 changes of an upstream that wait for approval with their definitions,
    /// by the name of the tool. [`Self::pending_changes`] has all of them, without definitions.
    #[must_use]
    pub fn held_definitions(&self, upstream: &UpstreamName) -> Vec<HeldDefinition> {
        self.line(upstream).held_definitions()
    }

    /// Approves changes. Returns the approvals.
    ///
    /// # Errors
    ///
    /// Returns [`ApprovalError`]; nothing is approved then.
    pub async fn approve(
        &self,
        upstream: &UpstreamName,
        wanted: &ApprovalRequest,
        actor: &Principal,
    ) -> Result<Vec<ToolApproval>, ApprovalError> {
        let line = self.line(upstream);
        // A read during the approval could return the state before it.
        let _alone = line.reading.lock().await;
        let at = self.clock.now();
        let sightings = line.matching_changes(wanted)?;
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
            "approved changed tool definitions"
        );
        line.approve(&approvals);
        Ok(approvals)
    }

    fn line(&self, upstream: &UpstreamName) -> Arc<UpstreamApprovals> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(upstream) {
            return Arc::clone(line);
        }
        let line = Arc::<UpstreamApprovals>::default();
        lines.insert(upstream.clone(), Arc::clone(&line));
        line
    }

    /// Reads the approvals of an upstream, including those of other processes.
    async fn read(&self, upstream: &UpstreamName, line: &UpstreamApprovals) {
        let Some(store) = &self.store else {
            return line.begin();
        };
        let unsaved = line.unsaved_approvals();
        let reading = async {
            if !unsaved.is_empty() {
                store.approve_first(upstream, &unsaved).await?;
            }
            store.approvals(upstream).await
        };
        match reading.await {
            Ok(approvals) => line.replace(approvals),
            Err(error) => {
                line.record_failed_read();
                tracing::warn!(upstream = %upstream, "failed to read approvals: {error}");
            }
        }
    }

    /// Approves the tools of the first list, once all its pages were seen.
    async fn approve_first_list(
        &self,
        upstream: &UpstreamName,
        line: &UpstreamApprovals,
        page: &ToolListPage<'_>,
        cursor: Option<&str>,
    ) {
        let _alone = line.reading.lock().await;
        if !matches!(line.compare(page), Verdict::First) {
            return;
        }
        let at = self.clock.now();
        let approvals: Vec<ToolApproval> = (line.collect(page, cursor).into_iter())
            .map(|sighting| ToolApproval {
                sighting,
                approved_at: at,
                approved_by: Principal::from_name(FIRST_LIST),
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
            // Another process approved its first list before.
            Ok(false) => self.read(upstream, line).await,
            Err(error) => {
                tracing::warn!(
                    upstream = %upstream,
                    "failed to store the approvals of the first tool list: {error}"
                );
                line.approve_unsaved(approvals);
            }
        }
    }

    /// Logs and reports new changes.
    fn report(&self, upstream: &UpstreamName, tools: Vec<ToolName>) {
        for tool in tools {
            tracing::warn!(
                upstream = %upstream, tool = %tool,
                "upstream {upstream}: changed definition of tool {tool} is held until it is \
                 approved"
            );
            let tool = &tool;
            self.observer.observe(&Event::ChangeHeld { upstream, tool });
        }
    }
}

#[cfg(test)]
mod tests;
