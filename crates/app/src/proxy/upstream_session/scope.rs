//! The scope of an upstream session: the client, one of its upstreams, and the services of the proxy.

use std::sync::Arc;

use riglm_domain::catalog::naming::{NamespacePolicy, prefixed_name};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;

use crate::proxy::client_context::{AggregationMode, ClientContext};
use crate::proxy::list_template::{ListFetchError, ListTemplate};
use crate::proxy::log_spans::spawn;
use crate::proxy::shared_state::SharedState;
use crate::proxy::upstream_cache::{CachedList, ListKey, digest_of};
use crate::proxy::upstream_set::UpstreamEntry;

/// The state that all layers of an upstream session read.
#[derive(Debug)]
pub(in crate::proxy) struct UpstreamScope {
    pub(in crate::proxy) shared: Arc<SharedState>,
    pub(in crate::proxy) entry: Arc<UpstreamEntry>,
    pub(in crate::proxy) client_context: Arc<ClientContext>,
}

impl UpstreamScope {
    pub(in crate::proxy) fn upstream(&self) -> &UpstreamName {
        self.entry.name()
    }

    /// Returns whether the client sees the upstream as part of one merged server.
    pub(super) fn is_merged(&self) -> bool {
        self.client_context.aggregation() == AggregationMode::Merged
    }

    /// Returns the id of the session row and creates the row first if necessary.
    pub(super) async fn session_id(&self) -> SessionId {
        self.client_context.session_id(&self.shared).await
    }

    /// Returns the key under which a list of the upstream is cached for the client.
    pub(in crate::proxy) fn list_key(&self, template: &ListTemplate) -> ListKey {
        ListKey {
            kind: template.kind,
            principal: self.client_context.principal.clone(),
            capabilities: digest_of(template.capabilities(&self.client_context).as_deref()),
            era: self.entry.era_of(template.era),
        }
    }

    /// Keeps a list of the upstream, and the capabilities that it was asked for with, also for the
    /// next run of the program. Fails if the proxy has no time for a long list.
    pub(in crate::proxy) async fn remember_list(
        &self,
        template: &ListTemplate,
        key: ListKey,
        list: CachedList,
    ) -> Result<Arc<CachedList>, ListFetchError> {
        let entry = Arc::clone(&self.entry);
        if let Some(capabilities) = template.capabilities(&self.client_context)
            && key.principal == Principal::local()
        {
            entry.catalog.note_capabilities(template.era, &capabilities);
        }
        let known = entry.catalog.list(&key).map(|known| known.digest);
        let remembered = if list.is_small() {
            entry.catalog.remember(key, list)
        } else {
            let remembering = move || entry.catalog.remember(key, list);
            let principal = &self.client_context.principal;
            let remembered = self.shared.long_work.run(principal, remembering).await;
            remembered.ok_or(ListFetchError::Unread)?
        };
        if known != Some(remembered.digest) {
            let (shared, entry) = (Arc::clone(&self.shared), Arc::clone(&self.entry));
            spawn(async move { shared.store_knowledge(&entry).await });
        }
        Ok(remembered)
    }

    /// Returns the tool of this upstream with its own name `own`.
    pub(super) fn tool_ref(&self, own: &ToolName) -> ToolRef {
        ToolRef {
            upstream: self.upstream().clone(),
            tool: own.clone(),
        }
    }

    /// Returns the name under which the client knows a tool of this upstream.
    pub(super) fn shown_name(&self, own: &ToolName) -> String {
        let tool = self.tool_ref(own);
        let catalog = self.client_context.search.complete_catalog();
        let offered = catalog.as_ref().and_then(|catalog| {
            let at = catalog.position_of(&tool)?;
            catalog.tools().get(at)
        });
        if let Some(offered) = offered {
            return offered.name.clone();
        }
        let has_several = self.is_merged() && self.shared.upstreams.load().entries.len() > 1;
        if has_several && self.shared.naming == NamespacePolicy::Prefix {
            prefixed_name(self.upstream(), own.as_str())
        } else {
            own.as_str().to_owned()
        }
    }
}
