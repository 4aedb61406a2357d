//! The safeguards.

use std::sync::Arc;

use riglm_app::proxy::OwnToolNames;
use riglm_app::safeguards::{Limiter, LimiterParts, SafeguardParts, Safeguards};
use riglm_app::selection::ListFilter;
use riglm_discovery::search::ToolSearch;

use super::foundation::Foundation;

/// Returns the configured safeguards; `None` if all are off.
pub(super) fn safeguards_from(
    base: &Foundation<'_>,
    tools: &OwnToolNames,
    search: Option<&Arc<ToolSearch>>,
    filter: &ListFilter,
) -> Option<Arc<Safeguards>> {
    let config = base.config;
    let context_tools = [&tools.set_context, &tools.search].into_iter().flatten();
    let limiter = Limiter::new(LimiterParts {
        config: config.safeguards.limits.clone(),
        context_tools: context_tools.map(ToString::to_string).collect(),
        own_tools: tools.names().cloned().collect(),
        search: search.cloned(),
        lists: filter.lists().cloned(),
        observer: base.observer(),
    });
    let parts = SafeguardParts {
        counter: Arc::clone(&base.counter),
        observer: base.observer(),
    };
    let profiles = &config.profile_safeguards;
    Safeguards::new(&config.safeguards, profiles, limiter, &parts).map(Arc::new)
}
