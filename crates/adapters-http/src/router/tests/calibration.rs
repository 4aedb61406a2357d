//! The expected and the actual coverage of lists over HTTP.

use riglm_domain::selection::ExpectedCoverage;
use riglm_domain::selection::shown::{ListShown, SelectionDetails, SelectionMode, ToolSet};
use riglm_domain::usage::invocation::ToolSource;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::RecordSink as _;
use serde_json::{Value, json};

use super::observing::{at, call, session};
use super::scene::{Server, server};

/// Returns the records of the `n`th connection: a list, and then a call from each source.
fn connection(n: u8, expected: Option<f64>, sources: &[ToolSource]) -> Vec<Record> {
    let opened = session(n);
    let list = ListShown {
        session: opened.id,
        principal: opened.principal.clone(),
        shown_at: at(n.into()),
        epoch: 1,
        policy: "epoch".into(),
        tools: ToolSet::new(Vec::new()),
        n_available: 9,
        selection: Some(SelectionDetails {
            mode: SelectionMode::Prediction,
            is_fallback: false,
            reason: None,
            size_choice: None,
            expected_coverage: expected.map(|share| ExpectedCoverage::try_from(share).unwrap()),
            pool: ToolSet::new(Vec::new()),
            shown_tokens: 100,
            available_tokens: 900,
        }),
    };
    let calls = (n + 1..)
        .zip(sources)
        .flat_map(|(second, source)| call(&opened, second, "read", *source));
    let calls: Vec<Record> = calls.collect();
    [Record::SessionOpened(opened), Record::ListShown(list)]
        .into_iter()
        .chain(calls)
        .collect()
}

async fn calibration(server: &Server) -> Value {
    let (status, mut body) = server.get("/learning?days=7").await;
    assert_eq!(status, 200, "{body}");
    body["calibration"].take()
}

#[tokio::test]
async fn the_calibration_has_ten_bins_and_the_sums() {
    const SHOWN: ToolSource = ToolSource::Shown;
    let server = server().await;
    for records in [
        connection(10, Some(0.92), &[SHOWN, SHOWN, ToolSource::Found]),
        connection(20, Some(0.5), &[SHOWN, ToolSource::Unlisted]),
        connection(30, Some(0.05), &[]),
        // Without an expected coverage, calls do not count.
        connection(40, None, &[ToolSource::Hidden]),
    ] {
        server.store.apply(&records).await.unwrap();
    }
    let mut calibration = calibration(&server).await;
    assert_eq!(
        (&calibration["lists"], &calibration["calls"]),
        (&json!(3), &json!(4))
    );
    let close = |value: &Value, to: f64| (value.as_f64().unwrap() - to).abs() < 1e-9;
    assert!(
        close(&calibration["expected"], (3.0 * 0.92 + 0.5) / 4.0),
        "{calibration}"
    );
    assert!(close(&calibration["actual"], 0.75), "{calibration}");
    let Value::Array(bins) = calibration["bins"].take() else {
        panic!("{calibration}");
    };
    let used: Vec<usize> = (0..bins.len()).filter(|n| bins[*n]["calls"] != 0).collect();
    assert_eq!((bins.len(), used), (10, vec![5, 9]));
    let none = json!({
        "from": 0.0, "to": 0.1, "lists": 1, "calls": 0, "expected": null, "actual": null,
    });
    assert_eq!(bins[0], none);
    let middle = json!({
        "from": 0.5, "to": 0.6, "lists": 1, "calls": 1, "expected": 0.5, "actual": 1.0,
    });
    assert_eq!(bins[5], middle);
    assert!(
        close(&bins[9]["expected"], 0.92) && close(&bins[9]["actual"], 2.0 / 3.0),
        "{bins:?}"
    );
}

#[tokio::test]
async fn without_calls_the_coverage_is_unknown() {
    let calibration = calibration(&server().await).await;
    assert_eq!(
        (&calibration["lists"], &calibration["calls"]),
        (&json!(0), &json!(0))
    );
    assert!(calibration["expected"].is_null() && calibration["actual"].is_null());
    assert_eq!(calibration["bins"].as_array().map(Vec::len), Some(10));
}
