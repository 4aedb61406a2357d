use jiff::{SignedDuration, Timestamp};
use riglm_discovery::recommend::scene::{NOW, Scene, request, tool};
use riglm_domain::id::{InvocationId, RunId, SessionId, WorkSessionId};
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::shown::{ListShown, ToolSet};
use riglm_domain::usage::invocation::{Invocation, SessionKey, ToolSource};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_domain::usage::work_session::{IdleGap, WorkSession, WorkSessionKey};
use riglm_ports::analytics::{
    DiscoveryRepository as _, RecordSink as _, WorkSessionRepository as _,
};
use riglm_ports::observer::NoObserver;

use super::*;
use crate::tracking::RecorderOptions;

fn at(second: i64) -> Timestamp {
    NOW + SignedDuration::from_secs(second)
}

fn connection() -> SessionId {
    SessionId::new(NOW, [1; 10])
}

fn work() -> WorkSessionId {
    WorkSessionId::new(at(10), [2; 10])
}

fn list_record(second: i64, names: &[&str]) -> Record {
    Record::ListShown(ListShown {
        session: connection(),
        principal: Principal::from_name("alice"),
        shown_at: at(second),
        epoch: 1,
        policy: "epoch".into(),
        tools: ToolSet::new(names.iter().map(|name| tool(name)).collect()),
        n_available: 9,
        selection: None,
    })
}

/// A session that is ten seconds old when a work session begins in it, with a call of `called`.
async fn scene() -> (Scene, FeedbackService) {
    let scene = Scene::new();
    let hash = KeyedHasher::new(&[7; 32]).hash_text("editor");
    let session = Session {
        id: connection(),
        run: RunId::new(NOW, [0; 10]),
        principal: Principal::from_name("alice"),
        client: hash,
        client_info: ClientInfo::new("editor", "1.0"),
        protocol: Revision::new(Revision::V2025_11_25),
        transport: Transport::StreamableHttp,
        started_at: NOW,
        profile: None,
        metadata: std::collections::BTreeMap::new(),
    };
    let call = Invocation {
        id: InvocationId::new(at(11), [3; 10]),
        session: connection(),
        principal: Principal::from_name("alice"),
        upstream: tool("called").upstream,
        tool: "called".into(),
        arguments_hash: hash,
        arguments: None,
        started_at: at(11),
        sequence: 1,
        source: ToolSource::Hidden,
        request_bytes: 10,
        continues: None,
        work_session: Some(work()),
        list_epoch: None,
        context: None,
    };
    let began = WorkSession {
        id: work(),
        key: WorkSessionKey(hash),
        principal: Principal::from_name("alice"),
        client: hash,
        started_at: at(10),
        last_active_at: at(10),
    };
    let records = [
        Record::SessionOpened(session),
        list_record(1, &["long_ago"]),
        list_record(2, &["listed_before"]),
        Record::CallOpened(call),
        list_record(12, &["listed_since"]),
    ];
    scene.store.apply(&records).await.unwrap();
    let gap = IdleGap::default();
    let began = scene.store.resolve_work_session(&began, gap).await;
    assert_eq!(began.unwrap().id, work());
    let queries = Arc::new(Queries::new(scene.store.clone(), scene.clock.clone()));
    let recorder = Arc::new(Recorder::new(
        scene.store.clone(),
        KeyedHasher::new(&[7; 32]),
        scene.clock.clone(),
        RunId::new(NOW, [0; 10]),
        RecorderOptions::default(),
    ));
    let desk = FeedbackService::new(queries, recorder, Arc::new(NoObserver));
    let desk = desk.with_recommender(Some(Arc::clone(&scene.recommender)));
    (scene, desk)
}

fn feedback_on(session: &str, name: &str) -> FeedbackInput {
    FeedbackInput {
        session: session.into(),
        tool: name.into(),
        upstream: None,
        verdict: Verdict::Helpful,
        rating: None,
        comment: None,
        recommendation: None,
    }
}

/// Returns the recommendations to which feedback is attributed, oldest first.
async fn recorded_recommendations(scene: &Scene) -> Vec<Option<RecommendationId>> {
    let stored = scene.store.feedback(None, None, 99).await.unwrap();
    stored.iter().map(|one| one.recommendation).collect()
}

#[tokio::test]
async fn ratings_refer_to_the_newest_recommendation_of_the_tool() {
    let (scene, desk) = scene().await;
    let session_key = SessionKey::Work(work());
    for session in [connection().to_string(), work().to_string()] {
        let refused = desk.submit(feedback_on(&session, "read_file")).await;
        assert!(matches!(refused, Err(FeedbackError::NotOffered { .. })));
    }
    let mut shown = Vec::new();
    for query in ["read a file", "list letters", "read a file"] {
        scene.clock.advance(std::time::Duration::from_secs(1));
        let call = request(query, connection(), session_key);
        let reply = scene.recommender.recommend(call).await.unwrap();
        let has_tool = reply.tools.iter().any(|one| one.tool == tool("read_file"));
        shown.push((reply.id, has_tool));
    }
    let newest = shown.iter().rev().find(|(_, has_tool)| *has_tool);
    let newest = newest.map(|(id, _)| *id);
    assert_eq!(newest, Some(shown[2].0));
    // The tool was recommended, but never listed or called.
    for session in [connection().to_string(), work().to_string()] {
        scene.clock.advance(std::time::Duration::from_secs(1));
        desk.submit(feedback_on(&session, "read_file"))
            .await
            .unwrap();
    }
    scene.clock.advance(std::time::Duration::from_secs(1));
    let named = FeedbackInput {
        recommendation: Some(shown[0].0),
        ..feedback_on(&work().to_string(), "read_file")
    };
    desk.submit(named).await.unwrap();
    // Feedback on a tool that was never recommended has no recommendation.
    scene.clock.advance(std::time::Duration::from_secs(1));
    let called = feedback_on(&work().to_string(), "called");
    desk.submit(called).await.unwrap();
    let first = Some(shown[0].0);
    assert_eq!(
        recorded_recommendations(&scene).await,
        [newest, newest, first, None]
    );
}

#[tokio::test]
async fn feedback_on_recommendations_of_other_sessions_is_refused() {
    let (scene, desk) = scene().await;
    let other = SessionId::new(NOW, [8; 10]);
    let session_key = SessionKey::Connection(other);
    let call = request("read a file", other, session_key);
    scene.recommender.recommend(call).await.unwrap();
    for session in [connection().to_string(), work().to_string()] {
        let refused = desk.submit(feedback_on(&session, "read_file")).await;
        assert!(matches!(refused, Err(FeedbackError::NotOffered { .. })));
    }
    assert_eq!(recorded_recommendations(&scene).await, []);
}

#[tokio::test]
async fn initial_lists_of_work_sessions_count_as_offered() {
    let (scene, desk) = scene().await;
    let session = work().to_string();
    for name in ["listed_before", "listed_since", "called"] {
        desk.submit(feedback_on(&session, name)).await.unwrap();
    }
    let refused = desk.submit(feedback_on(&session, "long_ago")).await;
    assert!(matches!(refused, Err(FeedbackError::NotOffered { .. })));
    let session = connection().to_string();
    desk.submit(feedback_on(&session, "long_ago"))
        .await
        .unwrap();
    assert_eq!(recorded_recommendations(&scene).await.len(), 4);
}
