//! Experiments, over HTTP.

use riglm_ports::analytics::{AuditTrail as _, ExperimentRepository as _};
use serde_json::{Value, json};

use super::scene::server;
use super::*;

#[tokio::test]
async fn an_experiment_is_listed_shown_and_stopped() {
    let server = server().await;
    let read = Some(KEYS[1].1);
    let (status, _, listed) = server.send("GET", "/experiments", read, "").await;
    assert_eq!(status, 200);
    let expected = json!({
        "name": "fusions",
        "state": "running",
        "unit": "work_session",
        "metric": "click_through",
        "changes": ["fusion"],
        "control": "control",
        "arms": ["control", "score"],
        "stop": null,
    });
    assert_eq!(listed, json!({"experiments": [expected]}));
    let (status, _, shown) = server.send("GET", "/experiments/fusions", read, "").await;
    assert_eq!(status, 200);
    assert_eq!(shown["experiment"], expected);
    assert_eq!(shown["window_seconds"], 60);
    assert_eq!(shown["arms"][0]["comparison"], Value::Null);
    let score = &shown["arms"][1];
    assert_eq!((&score["units"], &score["mean"]), (&json!(0), &Value::Null));
    assert_eq!(score["comparison"]["verdict"], "undecided");
    assert_eq!(score["comparison"]["lower"], -1.0);

    let path = "/experiments/fusions/stop";
    let control = Some(KEYS[0].1);
    let body = json!({"reason": "it is worse"}).to_string();
    let (status, _, stop) = server.send("POST", path, control, &body).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&stop["stopped_by"], &stop["reason"]),
        (&json!("control"), &json!("it is worse"))
    );
    // A second stop changes nothing.
    let (status, _, again) = server.send("POST", path, control, "{}").await;
    assert_eq!((status, &again), (200, &stop));
    let (_, _, listed) = server.send("GET", "/experiments", read, "").await;
    assert_eq!(listed["experiments"][0]["state"], "stopped");
    assert_eq!(listed["experiments"][0]["stop"], stop);
    assert_eq!(server.store.experiment_stops().await.unwrap().len(), 1);
    let trail = server.store.entries(9).await.unwrap();
    assert_eq!(trail.len(), 1);
    assert_eq!(
        (&*trail[0].action, &*trail[0].target),
        ("experiment.stop", "fusions")
    );
}

#[tokio::test]
async fn invalid_stop_requests_are_refused() {
    let server = server().await;
    let control = Some(KEYS[0].1);
    let path = "/experiments/fusions/stop";
    let (status, _, _) = server.send("POST", path, Some(KEYS[1].1), "{}").await;
    assert_eq!(status, 403);
    let unknown = "/experiments/a%2Fb/stop";
    let (status, _, problem) = server.send("POST", unknown, control, "{}").await;
    assert_eq!((status, &problem["status"]), (404, &json!(404)));
    let (status, _, _) = server.send("GET", "/experiments/none", control, "").await;
    assert_eq!(status, 404);
    let long = json!({"reason": "x".repeat(1_001)}).to_string();
    for body in [long.as_str(), r#"{"why":"x"}"#] {
        let (status, _, _) = server.send("POST", path, control, body).await;
        assert_eq!(status, 422, "{body}");
    }
    assert!(server.store.experiment_stops().await.unwrap().is_empty());
}
