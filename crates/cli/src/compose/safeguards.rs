//! The safeguards.

use std::sync::Arc;

use riglm_app::proxy::OwnToolNames;
use riglm_app::safeguards::{Limiter, LimiterParts, SafeguardParts, Safeguards};
use riglm_app::selection::ListFilter;
use riglm_discovery::search::ToolSearch;

use super::foundation::Foundation;
use super::unlisted_own_tools;
use crate::config::Config;

/// Builds safeguards from the configuration, at the start and when it changes.
#[derive(Debug)]
pub(super) struct SafeguardsFactory {
    parts: SafeguardParts,
    own_tools: OwnToolNames,
    search: Arc<ToolSearch>,
    filter: ListFilter,
}

impl SafeguardsFactory {
    pub(super) fn new(
        base: &Foundation<'_>,
        own_tools: &OwnToolNames,
        search: &Arc<ToolSearch>,
        filter: &ListFilter,
    ) -> Self {
        Self {
            parts: SafeguardParts {
                counter: base.counter.clone(),
                observer: base.observer(),
            },
            own_tools: own_tools.clone(),
            search: Arc::clone(search),
            filter: filter.clone(),
        }
    }

    /// Returns the configured safeguards; `None` if all are off.
    pub(super) fn build(&self, config: &Config) -> Option<Arc<Safeguards>> {
        self.build_new(config).map(Arc::new)
    }

    /// Returns the configured safeguards with the state of the earlier ones, as far as their
    /// configuration is the same; `None` if all are off.
    pub(super) fn rebuild(
        &self,
        config: &Config,
        before: Option<&Safeguards>,
    ) -> Option<Arc<Safeguards>> {
        let new = self.build_new(config)?;
        Some(Arc::new(match before {
            Some(before) => new.with_state_of(before),
            None => new,
        }))
    }

    fn build_new(&self, config: &Config) -> Option<Safeguards> {
        // A rule for a tool that is off matches nothing.
        let own_tools = self.own_tools.without(unlisted_own_tools(config));
        let limiter = Limiter::new(LimiterParts {
            config: config.safeguards.limits.clone(),
            context_tools: self.context_tools(config),
            own_tools: own_tools.names().cloned().collect(),
            search: Some(Arc::clone(&self.search)),
            filter: self.filter.clone(),
            observer: Arc::clone(&self.parts.observer),
        });
        let profiles = &config.profile_safeguards;
        Safeguards::new(&config.safeguards, profiles, limiter, &self.parts)
    }

    /// Returns the names of the own tools with which a client changes its context.
    fn context_tools(&self, config: &Config) -> Vec<String> {
        let (search, tools) = (&config.search, &self.own_tools);
        let set_context = tools.set_context.as_ref().filter(|_| search.set_context);
        let names = [set_context, tools.search.as_ref()].into_iter().flatten();
        let names = names.filter(|_| search.enabled);
        names.map(ToString::to_string).collect()
    }
}
