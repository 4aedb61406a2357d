//! What is said of budgets and searches of work sessions.

use riglm_ports::observer::{BudgetEvent, CirclesEvent};
use serde_json::{Value, json};

/// Returns the kind of an event, and what is said of it.
pub(super) fn of_budget(event: BudgetEvent) -> (&'static str, Value) {
    match event {
        BudgetEvent::Entered { state } => {
            ("token_budget_entered", json!({ "state": state.as_str() }))
        }
        BudgetEvent::Refused => ("token_budget_refused", json!({})),
    }
}

/// Returns the kind of an event, and what is said of it.
pub(super) fn of_searches(event: &CirclesEvent) -> (&'static str, Value) {
    match event {
        CirclesEvent::Searched(what) => ("search_noted", json!({ "searched": what.as_str() })),
        CirclesEvent::Followed(what) => ("search_followed", json!({ "searched": what.as_str() })),
        CirclesEvent::Warned { advice, sign } => (
            "circles_warned",
            json!({ "advice": advice.as_str(), "sign": sign }),
        ),
        CirclesEvent::Answered { has_stopped } => {
            ("circles_answered", json!({ "has_stopped": has_stopped }))
        }
        CirclesEvent::SessionOver { n_searches } => {
            ("searches_over", json!({ "n_searches": n_searches }))
        }
    }
}
