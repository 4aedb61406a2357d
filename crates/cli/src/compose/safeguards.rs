//! The safeguards.

use std::sync::Arc;

use riglm_app::proxy::OwnToolNames;
use riglm_app::safeguards::{Limiter, LimiterParts, SafeguardParts, Safeguards};
use riglm_app::selection::ListFilter;
use riglm_discovery::search::ToolSearch;
use riglm_ports::observer::Observer;
use riglm_ports::token_counter::TokenCounter;

use crate::config::Config;

/// Returns the configured safeguards; `None` if all are off.
pub(super) fn safeguards_from(
    config: &Config,
    tools: &OwnToolNames,
    (search, filter): (Option<&Arc<ToolSearch>>, &ListFilter),
    (counter, observer): (Arc<dyn TokenCounter>, Arc<dyn Observer>),
) -> Option<Arc<Safeguards>> {
    let context_tools = [&tools.set_context, &tools.search].into_iter().flatten();
    let limits = &config.safeguards.limits;
    let mut options = limits.options(context_tools.map(ToString::to_string).collect());
    options.own_tools = tools.names().cloned().collect();
    let limiter = Limiter::new(LimiterParts {
        options,
        search: search.cloned(),
        lists: filter.lists().cloned(),
        observer: Arc::clone(&observer),
    });
    let options = config.safeguards.options(&config.profile_safeguards);
    let parts = SafeguardParts { counter, observer };
    Safeguards::new(options, limiter, &parts).map(Arc::new)
}
