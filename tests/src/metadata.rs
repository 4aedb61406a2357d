//! The dependencies between the crates of the workspace: the allowed ones and the actual ones.

use std::collections::BTreeMap;

use serde_json::Value;

/// The crates of the workspace, each with the workspace crates that it may depend on.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 17] = [
    ("riglm-domain", &[]),
    ("riglm-ports", &["riglm-domain"]),
    ("riglm-discovery", &["riglm-ports", "riglm-domain"]),
    (
        "riglm-evaluation",
        &["riglm-discovery", "riglm-ports", "riglm-domain"],
    ),
    (
        "riglm-app",
        &["riglm-discovery", "riglm-ports", "riglm-domain"],
    ),
    ("riglm-adapters-clients", &["riglm-ports", "riglm-domain"]),
    ("riglm-adapters-storage", &["riglm-ports", "riglm-domain"]),
    (
        "riglm-adapters-prediction",
        &["riglm-ports", "riglm-domain"],
    ),
    (
        "riglm-adapters-mcp",
        &[
            "riglm-adapters-programs",
            "riglm-app",
            "riglm-ports",
            "riglm-domain",
        ],
    ),
    ("riglm-adapters-programs", &["riglm-ports", "riglm-domain"]),
    (
        "riglm-adapters-http",
        &["riglm-app", "riglm-discovery", "riglm-domain"],
    ),
    ("riglm-adapters-telemetry", &["riglm-ports", "riglm-domain"]),
    (
        "riglm-cli",
        &[
            "riglm-adapters-clients",
            "riglm-adapters-http",
            "riglm-adapters-mcp",
            "riglm-adapters-prediction",
            "riglm-adapters-storage",
            "riglm-adapters-telemetry",
            "riglm-app",
            "riglm-discovery",
            "riglm-domain",
            "riglm-evaluation",
            "riglm-ports",
        ],
    ),
    ("riglm-tests", &[]),
    // Measures any proxy, so it knows none.
    ("riglm-bench", &[]),
    // An example of a tool that has only the library.
    ("list-advisor", &["riglm-domain"]),
    // An example of riglm with a part of its own.
    (
        "riglm-example-predictor",
        &["riglm-cli", "riglm-domain", "riglm-ports"],
    ),
];

/// External crates and the crates that may use them. A `*` at the end matches any name with that
/// prefix.
const ALLOWED_USERS: [(&str, &[&str]); 13] = [
    ("rmcp", &["riglm-adapters-mcp", "riglm-cli", "riglm-tests"]),
    (
        "sqlx*",
        &["riglm-adapters-clients", "riglm-adapters-storage"],
    ),
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
    ("clap*", &["riglm-bench", "riglm-cli", "list-advisor"]),
];

/// One dependency in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The crate of the manifest.
    pub from: String,
    /// The crate that `from` depends on.
    pub to: String,
    /// Whether it is a dev-dependency.
    pub is_dev: bool,
    /// The enabled features.
    pub features: Vec<String>,
}

/// Parses the dependencies in the output of `cargo metadata --no-deps --format-version 1`.
///
/// Build dependencies count as normal ones.
pub fn dependencies(metadata: &str) -> Vec<Dependency> {
    let metadata: Value = serde_json::from_str(metadata)
        .unwrap_or_else(|error| panic!("the metadata is no JSON: {error}"));
    list(&metadata["packages"])
        .flat_map(|package| {
            list(&package["dependencies"]).map(|dependency| Dependency {
                from: text(&package["name"]),
                to: text(&dependency["name"]),
                is_dev: dependency["kind"] == "dev",
                features: list(&dependency["features"]).map(text).collect(),
            })
        })
        .collect()
}

/// Returns one sentence for every dependency that is not allowed.
///
/// As dev-dependencies, every crate may also use `riglm-ports` with its contract suite and fakes,
/// `riglm-domain` and `riglm-tests`. The crate `riglm-tests` may use any crate for its suites.
pub fn violations(arrows: &[Dependency]) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED_DEPENDENCIES.into_iter().collect();
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

fn workspace_violation(arrow: &Dependency, allowed: &BTreeMap<&str, &[&str]>) -> Option<String> {
    let Dependency {
        from, to, is_dev, ..
    } = arrow;
    let Some(targets) = allowed.get(from.as_str()) else {
        return Some(format!("{from} is no known crate of the workspace"));
    };
    if !is_dev
        && arrow
            .features
            .iter()
            .any(|f| f == "fake" || f == "contract" || f == "testing")
    {
        return Some(format!(
            "{from} uses the test features of {to} outside tests"
        ));
    }
    let is_suite = from == "riglm-tests";
    let is_for_tests = to == "riglm-ports" || to == "riglm-domain" || to == "riglm-tests";
    // A crate that depends on itself enables its test features for its own suites.
    let for_tests = *is_dev && (is_suite || is_for_tests || from == to);
    if targets.contains(&to.as_str()) || for_tests {
        return None;
    }
    Some(format!("{from} must not depend on {to}"))
}

fn foreign_violation(arrow: &Dependency) -> Option<String> {
    let (name, places) = ALLOWED_USERS.into_iter().find(|(name, _)| {
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
