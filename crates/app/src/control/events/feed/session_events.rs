//! Published form of events about budgets and searches of work sessions.

use riglm_ports::observer::{BudgetEvent, DiminishingReturnsEvent};
use serde_json::{Value, json};

pub(super) fn of_budget(event: BudgetEvent) -> (&'static str, Value) {
    match event {
        BudgetEvent::Entered { state } => {
            ("token_budget_entered", json!({ "state": state.as_str() }))
        }
        BudgetEvent::Refused => ("token_budget_refused", json!({})),
    }
}

pub(super) fn of_searches(event: &DiminishingReturnsEvent) -> (&'static str, Value) {
    match event {
        DiminishingReturnsEvent::Searched(what) => {
            ("search_noted", json!({ "searched": what.as_str() }))
        }
        DiminishingReturnsEvent::Followed(what) => {
            ("search_followed", json!({ "searched": what.as_str() }))
        }
        DiminishingReturnsEvent::Warned { advice, sign } => (
            "circles_warned",
            json!({ "advice": advice.as_str(), "sign": sign }),
        ),
        DiminishingReturnsEvent::Answered { has_stopped } => {
            ("circles_answered", json!({ "has_stopped": has_stopped }))
        }
        DiminishingReturnsEvent::SessionOver { n_searches } => {
            ("searches_over", json!({ "n_searches": n_searches }))
        }
    }
}
