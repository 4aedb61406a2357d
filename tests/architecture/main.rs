//! The dependency arrows between the crates, foreign crates in their places, the contract suites of
//! the ports, the structure of the modules, and the tidiness of the sources.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ceilings;
mod code_text;
mod contracts;
mod module_graph;
mod public_api;
mod sources;
mod structure;
mod tidy;

use std::process::Command;

use riglm_tests::metadata::{Dependency, dependencies, violations};

fn arrow(from: &str, to: &str) -> Dependency {
    Dependency {
        from: from.into(),
        to: to.into(),
        is_dev: false,
        features: Vec::new(),
    }
}

#[test]
fn every_dependency_of_the_workspace_is_an_allowed_one() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{output:?}");
    let arrows = dependencies(&String::from_utf8_lossy(&output.stdout));
    assert!(
        arrows.iter().any(|arrow| arrow.from == "riglm-ports"),
        "the metadata lists no dependencies"
    );
    assert_eq!(violations(&arrows), Vec::<String>::new());
}

#[test]
fn an_arrow_against_the_direction_is_found() {
    assert_eq!(
        violations(&[arrow("riglm-domain", "riglm-ports")]),
        ["riglm-domain must not depend on riglm-ports"]
    );
    assert_eq!(
        violations(&[arrow("riglm-app", "riglm-adapters-storage")]),
        ["riglm-app must not depend on riglm-adapters-storage"]
    );
}

#[test]
fn only_the_suites_may_put_a_proxy_together() {
    let product = arrow("riglm-tests", "riglm-app");
    assert_eq!(
        violations(std::slice::from_ref(&product)),
        ["riglm-tests must not depend on riglm-app"]
    );
    let suites = Dependency {
        is_dev: true,
        ..product
    };
    assert_eq!(violations(&[suites]), Vec::<String>::new());
}

#[test]
fn a_foreign_crate_outside_its_place_is_found() {
    assert_eq!(
        violations(&[arrow("riglm-app", "rmcp"), arrow("riglm-cli", "sqlx-core")]),
        [
            "riglm-app must not depend on rmcp: rmcp belongs in riglm-adapters-mcp, riglm-cli, riglm-tests",
            "riglm-cli must not depend on sqlx-core: sqlx* belongs in riglm-adapters-clients, riglm-adapters-storage",
        ]
    );
}

#[test]
fn test_features_outside_tests_are_found() {
    let mut fakes = arrow("riglm-app", "riglm-ports");
    fakes.features = vec!["fake".into()];
    assert_eq!(
        violations(std::slice::from_ref(&fakes)),
        ["riglm-app uses the test features of riglm-ports outside tests"]
    );
    fakes.is_dev = true;
    assert_eq!(violations(&[fakes]), Vec::<String>::new());
}
