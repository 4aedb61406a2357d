//! `riglm lists --session`: each list of a session, and the reason for its selection.

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::selection::shown::{ListShown, SelectionReason, explain_selection};
use serde_json::{Value, json};

use crate::commands::table::{Column, foreign_cell, table, time_cell};

/// Returns the lists as JSON. Scripts rely on this format. Values that older versions did not
/// record are `null`.
pub(super) fn as_json(lists: &[ListShown]) -> Value {
    lists.iter().map(list_as_json).collect()
}

fn list_as_json(list: &ListShown) -> Value {
    let selection = list.selection.as_ref();
    json!({
        "shown_at": list.shown_at,
        "policy": list.policy,
        "epoch": list.epoch,
        "mode": selection.map(|selection| selection.mode),
        "is_fallback": selection.map(|selection| selection.is_fallback),
        "reason": selection.and_then(|selection| selection.reason),
        "size_choice": selection.and_then(|selection| selection.size_choice.as_ref()),
        "expected_coverage": selection.and_then(|selection| selection.expected_coverage),
        "because": selection.map(|selection| explain_selection(selection.mode, selection.reason)),
        "pool": selection.map(|selection| selection.pool.tools()),
        "selected": list.tools.tools(),
        "added": list.added_to_pool(),
        "removed": list.removed_from_pool(),
        "available_tools": list.n_available,
        "shown_tokens": selection.map(|selection| selection.shown_tokens),
        "available_tokens": selection.map(|selection| selection.available_tokens),
    })
}

pub(super) fn as_table(lists: &[ListShown]) -> String {
    if lists.is_empty() {
        return "no lists are recorded for this session".into();
    }
    let columns = [
        Column::Text("SHOWN (UTC)"),
        Column::Text("POLICY"),
        Column::Number("EPOCH"),
        Column::Text("CHOSEN BY"),
        Column::Text("REASON"),
        Column::Number("POOL"),
        Column::Number("SELECTED"),
        Column::Number("ADDED"),
        Column::Number("REMOVED"),
        Column::Number("TOKENS"),
        Column::Number("OF"),
    ];
    let unknown = || "-".to_owned();
    let n = |tools: Option<Vec<&ToolRef>>| tools.map_or_else(unknown, |all| all.len().to_string());
    let rows = lists.iter().map(|list| {
        let selection = list.selection.as_ref();
        let number = |of: Option<u64>| of.map_or_else(unknown, |of| of.to_string());
        let reason = selection.and_then(|selection| selection.reason);
        vec![
            time_cell(list.shown_at),
            foreign_cell(&list.policy),
            list.epoch.to_string(),
            selection.map_or_else(unknown, |selection| {
                let fallback = if selection.is_fallback {
                    " (fallback)"
                } else {
                    ""
                };
                format!("{}{fallback}", selection.mode.as_str())
            }),
            reason.map_or("", SelectionReason::as_str).to_owned(),
            selection.map_or_else(unknown, |selection| {
                selection.pool.tools().len().to_string()
            }),
            list.tools.tools().len().to_string(),
            n(list.added_to_pool()),
            n(list.removed_from_pool()),
            number(selection.map(|selection| selection.shown_tokens)),
            number(selection.map(|selection| selection.available_tokens)),
        ]
    });
    let shown = table(&columns, rows.collect());
    let because = lists.iter().rev().find_map(|list| {
        let selection = list.selection.as_ref()?;
        Some(explain_selection(selection.mode, selection.reason))
    });
    match because {
        Some(because) => format!("{shown}\n\nThe newest list: {because}"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_domain::id::{SessionId, UpstreamName};
    use riglm_domain::privacy::principal::Principal;
    use riglm_domain::selection::ExpectedCoverage;
    use riglm_domain::selection::shown::{SelectionDetails, SelectionMode, ToolSet};

    use super::*;

    fn set(names: &[&str]) -> ToolSet {
        let upstream = UpstreamName::parse("notes").unwrap();
        let tools = names.iter().map(|name| ToolRef {
            upstream: upstream.clone(),
            tool: (*name).into(),
        });
        ToolSet::new(tools.collect())
    }

    fn list(selection: Option<SelectionDetails>) -> ListShown {
        let shown_at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        ListShown {
            session: SessionId::new(shown_at, [1; 10]),
            principal: Principal::local(),
            shown_at,
            epoch: 2,
            policy: "epoch".into(),
            tools: set(&["a", "c"]),
            n_available: 9,
            selection,
        }
    }

    fn sample_list() -> ListShown {
        list(Some(SelectionDetails {
            mode: SelectionMode::Frequency,
            is_fallback: true,
            reason: Some(SelectionReason::PredictorFailed),
            size_choice: None,
            expected_coverage: ExpectedCoverage::try_from(0.25).ok(),
            pool: set(&["a", "b", "d"]),
            shown_tokens: 40,
            available_tokens: 900,
        }))
    }

    #[test]
    fn json_output_has_added_and_removed_tools() {
        let json = as_json(&[sample_list(), list(None)]);
        let names = |key: &str| -> Vec<&str> {
            let tools = json[0][key].as_array().unwrap().iter();
            tools.map(|tool| tool["tool"].as_str().unwrap()).collect()
        };
        assert_eq!(names("pool"), ["a", "b", "d"]);
        assert_eq!(names("selected"), ["a", "c"]);
        assert_eq!(names("added"), ["c"]);
        assert_eq!(names("removed"), ["b", "d"]);
        assert_eq!(json[0]["mode"], "frequency");
        assert_eq!(json[0]["reason"], "predictor_failed");
        assert_eq!(json[0]["is_fallback"], true);
        assert_eq!(json[0]["expected_coverage"], 0.25);
        assert!(json[1]["mode"].is_null() && json[1]["added"].is_null());
    }

    #[test]
    fn the_table_has_a_line_for_each_list() {
        let shown = as_table(&[sample_list(), list(None)]);
        let lines: Vec<Vec<&str>> = (shown.lines())
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected = [
            "epoch",
            "2",
            "frequency",
            "(fallback)",
            "predictor_failed",
            "3",
            "2",
            "1",
            "2",
            "40",
            "900",
        ];
        assert_eq!(lines[1][2..], expected);
        assert!(shown.ends_with(": the predictor failed."), "{shown}");
        assert_eq!(lines.len(), 5);
        assert!(as_table(&[]).contains("no lists"));
    }
}
