//! Tests of the names that enums have in the database and in metrics. They are published, so none
//! of them may change.

use crate::analytics::{MaintenanceTask, Topic};
use crate::encoder::TextRole;
use crate::observer::{
    CallLimit, ModelKind, ModelOutcome, ModelPurpose, ResourceLimit, SearchScope,
};

fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().copied().map(name).collect()
}

#[test]
fn stored_names_are_stable() {
    assert_eq!(
        names(Topic::ALL, Topic::as_str),
        [
            "overrides",
            "weights",
            "list_epochs",
            "snapshots",
            "erasures",
            "experiments"
        ]
    );
    assert_eq!(
        names(
            &[
                MaintenanceTask::Retention,
                MaintenanceTask::Learning,
                MaintenanceTask::WeightTuning
            ],
            MaintenanceTask::as_str
        ),
        ["retention", "learning", "weight_tuning"]
    );
    assert_eq!(
        names(&[TextRole::Query, TextRole::Passage], TextRole::as_str),
        ["query", "passage"]
    );
}

#[test]
fn names_of_metrics_are_stable() {
    assert_eq!(
        names(ModelPurpose::ALL, ModelPurpose::as_str),
        ["expansion", "reranking"]
    );
    assert_eq!(
        names(ModelKind::ALL, ModelKind::as_str),
        ["endpoint", "client"]
    );
    assert_eq!(
        names(ModelOutcome::ALL, ModelOutcome::as_str),
        [
            "used",
            "unchanged",
            "late",
            "unavailable",
            "refused",
            "nonsense",
            "resting",
            "over_budget"
        ]
    );
    assert_eq!(
        names(ResourceLimit::ALL, ResourceLimit::as_str),
        ["sessions", "in_flight", "connections", "requests"]
    );
    assert_eq!(
        names(CallLimit::ALL, CallLimit::as_str),
        ["rate", "concurrent", "context"]
    );
    assert_eq!(
        names(SearchScope::ALL, SearchScope::as_str),
        ["tools", "upstream"]
    );
}
