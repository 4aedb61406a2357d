//! The instruments for token budgets and searches of work sessions.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use riglm_domain::safeguards::budget::BudgetState;
use riglm_domain::safeguards::diminishing_returns::{DiminishingAdvice, DiminishingSign};
use riglm_ports::observer::{BudgetEvent, DiminishingReturnsEvent, SearchScope};

/// The bucket bounds of the number of searches of a work session.
const SEARCHES: [f64; 8] = [0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0];

pub(super) struct WorkSessionInstruments {
    budget_states: Counter<u64>,
    budget_refusals: Counter<u64>,
    searches: Counter<u64>,
    followed: Counter<u64>,
    warnings: Counter<u64>,
    answers: Counter<u64>,
    searches_of_session: Histogram<u64>,
}

impl WorkSessionInstruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        Self {
            budget_states: counter(
                "riglm_token_budget_states",
                "How often the token budget of a work session entered a state.",
            ),
            budget_refusals: counter(
                "riglm_token_budget_refused_calls",
                "Tool calls that were refused because a token budget was used up.",
            ),
            searches: counter(
                "riglm_work_session_searches",
                "Searches of work sessions: for tools, or with upstream tools that search.",
            ),
            followed: counter(
                "riglm_work_session_searches_followed",
                "How often a tool call followed one or more searches.",
            ),
            warnings: counter(
                "riglm_search_warnings",
                "Warnings to a session that its searches make no progress.",
            ),
            answers: counter(
                "riglm_search_warnings_answered",
                "The next step of these sessions: they stopped, or searched again.",
            ),
            searches_of_session: meter
                .u64_histogram("riglm_searches_per_work_session")
                .with_description("Number of searches for tools in a finished work session.")
                .with_boundaries(SEARCHES.to_vec())
                .build(),
        }
    }

    // Creates the series with few labels with zeros.
    pub(super) fn create_series(&self) {
        self.budget_refusals.add(0, &[]);
        for &state in BudgetState::ALL {
            self.budget_states.add(0, &[of_state(state)]);
        }
        for &what in SearchScope::ALL {
            self.searches.add(0, &[of_search(what)]);
            self.followed.add(0, &[of_search(what)]);
        }
        for &advice in DiminishingAdvice::ALL {
            for &sign in DiminishingSign::NAMES {
                self.warnings.add(0, &of_warning(advice, sign));
            }
        }
        for has_stopped in [true, false] {
            self.answers.add(0, &[of_answer(has_stopped)]);
        }
    }

    pub(super) fn count_budget(&self, event: BudgetEvent) {
        match event {
            BudgetEvent::Entered { state } => self.budget_states.add(1, &[of_state(state)]),
            BudgetEvent::Refused => self.budget_refusals.add(1, &[]),
        }
    }

    pub(super) fn count_searches(&self, event: &DiminishingReturnsEvent) {
        match event {
            DiminishingReturnsEvent::Searched(what) => self.searches.add(1, &[of_search(*what)]),
            DiminishingReturnsEvent::Followed(what) => self.followed.add(1, &[of_search(*what)]),
            DiminishingReturnsEvent::Warned { advice, sign } => {
                self.warnings.add(1, &of_warning(*advice, sign));
            }
            DiminishingReturnsEvent::Answered { has_stopped } => {
                self.answers.add(1, &[of_answer(*has_stopped)]);
            }
            DiminishingReturnsEvent::SessionOver { n_searches } => {
                self.searches_of_session
                    .record(super::histogram_value(*n_searches), &[]);
            }
        }
    }
}

fn of_state(state: BudgetState) -> KeyValue {
    KeyValue::new("state", state.as_str())
}

fn of_search(what: SearchScope) -> KeyValue {
    KeyValue::new("searched", what.as_str())
}

fn of_warning(advice: DiminishingAdvice, sign: &'static str) -> [KeyValue; 2] {
    [
        KeyValue::new("advice", advice.as_str()),
        KeyValue::new("sign", sign),
    ]
}

fn of_answer(has_stopped: bool) -> KeyValue {
    KeyValue::new("stopped", has_stopped)
}
