//! The dependency arrows of the workspace: which are allowed, and which there are.

use std::collections::BTreeMap;

use serde_json::Value;

/// The crates of the workspace with the workspace crates that each may depend on.
const ARROWS: [(&str, &[&str]); 10] = [
    ("riglm-domain", &[]),
    ("riglm-ports", &["riglm-domain"]),
    ("riglm-app", &["riglm-ports", "riglm-domain"]),
    ("riglm-adapters-storage", &["riglm-ports", "riglm-domain"]),
    (
        "riglm-adapters-prediction",
        &["riglm-ports", "riglm-domain"],
    ),
    (
        "riglm-adapters-mcp",
        &["riglm-app", "riglm-ports", "riglm-domain"],
    ),
    ("riglm-adapters-http", &["riglm-app", "riglm-domain"]),
    ("riglm-adapters-telemetry", &["riglm-ports", "riglm-domain"]),
    (
        "riglm-cli",
        &[
            "riglm-adapters-http",
            "riglm-adapters-mcp",
            "riglm-adapters-prediction",
            "riglm-adapters-storage",
            "riglm-adapters-telemetry",
            "riglm-app",
            "riglm-domain",
            "riglm-ports",
        ],
    ),
    ("riglm-tests", &[]),
];

/// Foreign crates (by the beginning of their name when it ends in `*`) and where they belong.
const PLACES: [(&str, &[&str]); 13] = [
    ("rmcp", &["riglm-adapters-mcp", "riglm-cli", "riglm-tests"]),
    ("sqlx*", &["riglm-adapters-storage"]),
    (
        "axum*",
        &["riglm-adapters-http", "riglm-adapters-mcp", "riglm-tests"],
    ),
    ("candle*", &["riglm-adapters-prediction"]),
    ("tokenizers", &["riglm-adapters-prediction"]),
    ("hf-hub", &["riglm-adapters-prediction"]),
    ("petgraph", &["riglm-domain"]),
    (
        "opentelemetry*",
        &["riglm-adapters-telemetry", "riglm-tests"],
    ),
    ("prost", &["riglm-adapters-telemetry", "riglm-tests"]),
    ("prometheus", &["riglm-adapters-telemetry"]),
    ("utoipa*", &["riglm-adapters-http"]),
    ("config", &["riglm-cli"]),
    ("clap*", &["riglm-cli"]),
];

/// One dependency that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The crate whose manifest it is.
    pub from: String,
    /// The crate that is depended on.
    pub to: String,
    /// Whether only tests use it.
    pub is_dev: bool,
    /// The features that it asks for.
    pub features: Vec<String>,
}

/// Returns the arrows in the output of `cargo metadata --no-deps --format-version 1`.
///
/// Build dependencies count as normal ones.
pub fn arrows(metadata: &str) -> Vec<Arrow> {
    let metadata: Value = serde_json::from_str(metadata)
        .unwrap_or_else(|error| panic!("the metadata is no JSON: {error}"));
    list(&metadata["packages"])
        .flat_map(|package| {
            list(&package["dependencies"]).map(|dependency| Arrow {
                from: text(&package["name"]),
                to: text(&dependency["name"]),
                is_dev: dependency["kind"] == "dev",
                features: list(&dependency["features"]).map(text).collect(),
            })
        })
        .collect()
}

/// Returns one sentence for every arrow that is not allowed.
///
/// Crates for tests (dev-dependencies) may additionally be `riglm-ports` with its contract suite
/// and fakes, and whatever the suites in `riglm-tests` need.
pub fn violations(arrows: &[Arrow]) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    arrows
        .iter()
        .filter_map(|arrow| {
            if arrow.to.starts_with("riglm-") {
                workspace_violation(arrow, &allowed)
            } else {
                foreign_violation(arrow)
            }
        })
        .collect()
}

fn workspace_violation(arrow: &Arrow, allowed: &BTreeMap<&str, &[&str]>) -> Option<String> {
    let Arrow {
        from, to, is_dev, ..
    } = arrow;
    let Some(targets) = allowed.get(from.as_str()) else {
        return Some(format!("{from} is no known crate of the workspace"));
    };
    if !is_dev
        && arrow
            .features
            .iter()
            .any(|f| f == "fake" || f == "contract")
    {
        return Some(format!(
            "{from} uses the test features of {to} outside tests"
        ));
    }
    let is_suite = from == "riglm-tests";
    let is_for_tests = to == "riglm-ports" || to == "riglm-domain" || to == "riglm-tests";
    let for_tests = *is_dev && (is_suite || is_for_tests);
    if targets.contains(&to.as_str()) || for_tests {
        return None;
    }
    Some(format!("{from} must not depend on {to}"))
}

fn foreign_violation(arrow: &Arrow) -> Option<String> {
    let (name, places) = PLACES.into_iter().find(|(name, _)| {
        name.strip_suffix('*')
            .map_or(arrow.to == *name, |start| arrow.to.starts_with(start))
    })?;
    if places.contains(&arrow.from.as_str()) {
        return None;
    }
    Some(format!(
        "{} must not depend on {}: {name} belongs in {}",
        arrow.from,
        arrow.to,
        places.join(", ")
    ))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
