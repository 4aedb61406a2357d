use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::feedback::Rating;

use super::*;
use crate::recommend::scene::{NOW, Scene, request, tool};

/// Returns the explanation for `read_file` in the answer to a query, and whether the ranking was
/// cached.
async fn explanation(scene: &Scene, query: &str) -> (String, bool) {
    let session = SessionId::new(NOW, [1; 10]);
    let call = request(query, session, SessionKey::Connection(session));
    let reply = scene.recommender.recommend(call).await.unwrap();
    let mut tools = reply.tools.into_iter();
    let read_file = tools.find(|one| one.tool == tool("read_file")).unwrap();
    (read_file.explanation, reply.was_cached)
}

#[tokio::test]
async fn a_cached_ranking_is_explained_with_current_ratings() {
    let scene = Scene::new();
    let (before, was_cached) = explanation(&scene, "read a file").await;
    assert!(!was_cached && !before.contains("Rated"), "{before}");
    let rated = Feedback {
        id: scene.log.feedback_id(),
        principal: Principal::from_name("bob"),
        session: None,
        work_session: None,
        tool: tool("read_file"),
        verdict: Verdict::Helpful,
        rating: Rating::try_from(4_u8).ok(),
        recommendation: None,
        invocation: None,
        given_at: NOW,
        comment: None,
    };
    scene.log.record_feedback(rated).await;
    scene.clock.advance(Duration::from_mins(2));
    let (other, was_cached) = explanation(&scene, "write and read a file").await;
    assert!(
        !was_cached && other.contains("Rated 4.0 of 5 by 1"),
        "{other}"
    );
    let (again, was_cached) = explanation(&scene, "Read a  file").await;
    assert!(
        was_cached && again.contains("Rated 4.0 of 5 by 1"),
        "{again}"
    );
}

#[tokio::test]
async fn abbreviations_in_another_case_miss_the_cache() {
    let scene = Scene::new();
    let mut was_cached = Vec::new();
    for query in [
        "read a file of the XQZ",
        "read a file of the xqz",
        "Read a file of the XQZ",
    ] {
        was_cached.push(explanation(&scene, query).await.1);
    }
    assert_eq!(was_cached, [false, false, true]);
}
