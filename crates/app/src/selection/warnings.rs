//! Warnings for operators about lists. Each is logged once for each profile.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::retrieval::nearest_names;
use riglm_domain::selection::ListChoice;
use riglm_ports::observer::{Event, EventOrigin, Observer};

use super::config::FilteringConfig;
use super::list_request::ListRequest;
use super::lists::ListsParts;
use super::tool_marks::fits_any;
use riglm_discovery::search::Catalog;

/// The warnings that were logged.
#[derive(Debug)]
pub(super) struct ListWarnings {
    observer: Arc<dyn Observer>,
    /// The profiles for which the budget warning was logged.
    of_budget: Mutex<HashSet<String>>,
    /// The profiles whose pins were checked.
    of_pins: Mutex<HashSet<String>>,
}

impl ListWarnings {
    /// Returns the state without a warning. Events go to the observer of the parts.
    pub(super) fn new(parts: &ListsParts) -> Self {
        Self {
            observer: Arc::clone(&parts.observer),
            of_budget: Mutex::default(),
            of_pins: Mutex::default(),
        }
    }

    /// Makes all warnings appear again: new options may have new mistakes.
    pub(super) fn reset(&self) {
        for warned in [&self.of_budget, &self.of_pins] {
            warned.lock().clear();
        }
    }

    /// Reports tools that did not fit into the token budget. Logs if too few tools are left.
    pub(super) fn check_budget(
        &self,
        request: &ListRequest<'_>,
        options: &FilteringConfig,
        choice: &ListChoice,
    ) {
        if choice.n_over_budget == 0 {
            return;
        }
        let origin = EventOrigin::of_session(request.principal, request.session);
        (self.observer).observe_from(&Event::BudgetShort, &origin);
        let is_short = choice.shown.len() < options.min_tools;
        if is_short && is_first(&self.of_budget, request) {
            let profile = request.profile.unwrap_or_default();
            tracing::warn!(
                profile,
                "filtering.token_budget is too small for filtering.min_tools: a list has only {} \
                 tools",
                choice.shown.len()
            );
        }
    }

    /// Logs the pins that match no tool, with the nearest tool name.
    pub(super) fn check_pins(
        &self,
        request: &ListRequest<'_>,
        options: &FilteringConfig,
        catalog: &Catalog,
    ) {
        if options.pins.is_empty() || !is_first(&self.of_pins, request) {
            return;
        }
        let profile = request.profile.unwrap_or_default();
        let tools = catalog.tools();
        for pin in &options.pins {
            let patterns = std::slice::from_ref(pin);
            if tools.iter().any(|tool| fits_any(patterns, tool)) {
                continue;
            }
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let nearest = nearest_names(pin.as_str(), &names, 1);
            let nearest = nearest.first().map_or("none", |at| names[*at]);
            tracing::warn!(
                profile,
                "filtering.pins: no tool matches {}; the nearest name is {nearest}",
                pin.as_str()
            );
        }
    }
}

/// Returns whether this is the first warning of its kind for a profile.
fn is_first(warned: &Mutex<HashSet<String>>, request: &ListRequest<'_>) -> bool {
    let profile = request.profile.unwrap_or_default().to_owned();
    warned.lock().insert(profile)
}
