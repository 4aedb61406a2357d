//! The scope of an upstream session: the client, one of its upstreams, and the services of the proxy.

use std::sync::Arc;

use riglm_domain::catalog::naming::{NamespacePolicy, prefixed_name};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{SessionId, ToolName, UpstreamName};

use crate::proxy::client_context::{AggregationMode, ClientContext};
use crate::proxy::shared_state::SharedState;
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
