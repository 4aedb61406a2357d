//! The permitted catalog of a client: a catalog without the tools that the operator forbids, and
//! the refusal of calls of forbidden tools.

use std::sync::Arc;

use riglm_domain::id::{SessionId, ToolName, UpstreamName, WorkSessionId};
use riglm_domain::usage::invocation::SessionKey;

use super::client_context::ClientContext;
use super::shared_state::SharedState;
use crate::selection::{ForbidRules, ForbiddenBy, Subject};
use riglm_discovery::search::{Catalog, CatalogTool};

impl SharedState {
    /// Returns the catalog of the session if it is known.
    pub(super) fn catalog_of(&self, client_context: &ClientContext) -> Option<Arc<Catalog>> {
        let whole = client_context.search.complete_catalog()?;
        Some(self.permitted_catalog(client_context, &whole))
    }

    /// Returns the catalog of the last list of the session, which may be outdated.
    pub(super) fn last_catalog_of(&self, client_context: &ClientContext) -> Option<Arc<Catalog>> {
        let whole = client_context.search.last_complete_catalog()?;
        Some(self.permitted_catalog(client_context, &whole))
    }

    /// Returns a catalog without the tools that are forbidden to a client.
    pub(super) fn permitted_catalog(
        &self,
        client_context: &ClientContext,
        whole: &Arc<Catalog>,
    ) -> Arc<Catalog> {
        let rules = self.forbidden_to(client_context);
        if rules.is_empty() {
            return Arc::clone(whole);
        }
        let make = |rules: &ForbidRules| self.without_forbidden(rules, whole);
        client_context.search.permitted_catalog(whole, rules, make)
    }

    /// Returns a catalog without the tools that only apps may call, for answers to models.
    pub(super) fn catalog_for_models(&self, whole: &Arc<Catalog>) -> Arc<Catalog> {
        let app_only = whole.app_only();
        if app_only.is_empty() {
            return Arc::clone(whole);
        }
        let all = 0..whole.tools().len();
        let left_out: Vec<bool> = all.map(|at| app_only.contains(&at)).collect();
        self.without(&left_out, whole)
    }

    /// Returns a catalog without the tools that these rules forbid.
    fn without_forbidden(&self, rules: &ForbidRules, whole: &Arc<Catalog>) -> Arc<Catalog> {
        let is_forbidden = |tool: &CatalogTool| {
            let (upstream, own) = (&tool.tool.upstream, &tool.tool.tool);
            rules.forbids(upstream, own, Some(&tool.name)).is_some()
        };
        let forbidden: Vec<bool> = whole.tools().iter().map(is_forbidden).collect();
        self.without(&forbidden, whole)
    }

    /// Returns a catalog without the tools whose positions are `true` in `left_out`.
    fn without(&self, left_out: &[bool], whole: &Arc<Catalog>) -> Arc<Catalog> {
        if !left_out.contains(&true) {
            return Arc::clone(whole);
        }
        // Catalogs with equal texts have equal ids, even if different tools are hidden. The states
        // of the tools are therefore part of the cache key.
        let states = whole.tools().iter().zip(left_out);
        let states: Vec<u8> = states
            .map(|(tool, is_left_out)| u8::from(tool.is_hidden) | u8::from(*is_left_out) << 1)
            .collect();
        let key: [&[u8]; 3] = [b"permitted", &whole.id(), &states];
        (self.catalog_cache).get(&key, Vec::new(), |_| whole.filter(|at| !left_out[at]))
    }

    /// Returns a catalog without the tools that are forbidden to all clients.
    pub(super) fn permitted_to_all(&self, whole: &Arc<Catalog>) -> Arc<Catalog> {
        let Some(forbidden) = self.selection.forbidden() else {
            return Arc::clone(whole);
        };
        let rules = forbidden.rules(&Subject {
            profile: None,
            client_hash: None,
            connection: None,
            work_session: None,
            now: self.recorder.now(),
        });
        self.without_forbidden(&rules, whole)
    }

    /// Returns the forbid rules of a client now.
    pub(super) fn forbidden_to(&self, client_context: &ClientContext) -> ForbidRules {
        self.rules(
            client_context,
            client_context.known_row(),
            client_context.known_work(),
        )
    }

    /// Registers the current forbid rules of a client at the time of a list.
    pub(super) fn note_listed(&self, client_context: &ClientContext) {
        // The revision is read before the rules. A change in between then leads to a notification
        // later.
        let revision = self.selection.forbid_revision();
        client_context.note_rules(revision, self.forbidden_to(client_context));
    }

    /// Returns the forbid rules for a call on this connection with the session key `together`.
    pub(super) fn forbidden_in(
        &self,
        client_context: &ClientContext,
        connection: SessionId,
        session_key: SessionKey,
    ) -> ForbidRules {
        self.rules(client_context, Some(connection), session_key.work_session())
    }

    fn rules(
        &self,
        client_context: &ClientContext,
        connection: Option<SessionId>,
        work_session: Option<WorkSessionId>,
    ) -> ForbidRules {
        let Some(forbidden) = self.selection.forbidden() else {
            return ForbidRules::default();
        };
        forbidden.rules(&Subject {
            profile: client_context.profile_name(),
            client_hash: Some(client_context.client_hash(&self.recorder)),
            connection,
            work_session,
            now: self.recorder.now(),
        })
    }

    /// Returns the positions of forbidden tools in a list of one upstream.
    pub(super) fn forbidden_of(
        &self,
        client_context: &ClientContext,
        upstream: &UpstreamName,
        names: &[ToolName],
    ) -> Vec<usize> {
        let rules = self.forbidden_to(client_context);
        let all = names.iter().enumerate();
        let forbidden = all.filter(|(_, own)| rules.forbids(upstream, own, None).is_some());
        forbidden.map(|(at, _)| at).collect()
    }
}

/// Returns the text for a model whose call is refused. `name` is the tool name that the model
/// knows.
pub(super) fn refusal(name: &str, by: ForbiddenBy<'_>) -> String {
    let which = match by {
        ForbiddenBy::Configuration => "(filtering.forbid)".to_owned(),
        ForbiddenBy::Override(None) => "(an override)".to_owned(),
        ForbiddenBy::Override(Some(reason)) => format!("(an override: {reason})"),
    };
    format!(
        "The tool {name} is forbidden by the operator {which}. It was not called. A retry will not \
         help."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_tool_and_the_rule() {
        let text = refusal("files__rm", ForbiddenBy::Configuration);
        assert!(
            text.starts_with("The tool files__rm is forbidden by the operator (filtering.forbid).")
        );
        let text = refusal("rm", ForbiddenBy::Override(Some("audit")));
        assert!(text.contains("(an override: audit)"), "{text}");
        assert!(refusal("rm", ForbiddenBy::Override(None)).contains("(an override)."));
    }
}
