//! Changes of lists by calls and searches.

use super::*;

#[tokio::test]
async fn conformal_lists_add_called_hidden_tools() {
    let local = Principal::local();
    let options = FilteringConfig {
        policy: Some(ListPolicyName::Conformal),
        ..FilteringConfig::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let catalog = catalog_of(0..N);
    let request = request(&local, 1);
    let shown = lists.list(&request, &catalog).await;
    let hidden = (0..N).find(|n| !shown.shows(&tool(*n))).unwrap();
    lists.record_call(&request, &tool(hidden));
    assert!(lists.has_changed(&request, |_| false).await);
    let shown = lists.list(&request, &catalog).await;
    assert!(shown.shows(&tool(hidden)));
    assert!(shown.positions().len() <= ListBounds::default().max_tools);
}

#[tokio::test]
async fn searched_tools_count_as_misses_even_if_listed_later() {
    let local = Principal::local();
    let options = FilteringConfig {
        policy: Some(ListPolicyName::Conformal),
        ..FilteringConfig::default()
    };
    let catalog = catalog_of(0..N);
    let request = request(&local, 1);
    let threshold = async |was_searched: bool| {
        let lists = lists_with(None, &[3, 7, 11], options.clone(), &Arc::default());
        let shown = lists.list(&request, &catalog).await;
        let found = [tool(50), tool(3)];
        assert!(shown.hides(&found[0]) && shown.shows(&found[1]));
        if was_searched {
            lists.record_search(&request, &found);
        }
        // The found tool gets into the list, for example because it is likely now.
        lists
            .scopes
            .get(request.scope(ListPolicyName::Conformal))
            .state
            .lock()
            .note_use(&found[0], NOW);
        let shown = lists.list(&request, &catalog).await;
        assert!(shown.shows(&found[0]));
        lists.record_call(&request, &found[0]);
        let options = lists.settings.options(None);
        let threshold = || lists.conformal.threshold(&request, &options, N, |_| {});
        let after_one = threshold().unwrap().threshold();
        lists.record_call(&request, &found[0]);
        let after_two = threshold().unwrap().threshold();
        assert!(after_two < after_one, "another call of it is no miss");
        after_one
    };
    assert!(threshold(true).await > threshold(false).await);
}

#[tokio::test]
async fn used_tools_of_a_work_session_survive_restarts() {
    let local = Principal::local();
    let store = Arc::new(MemoryStore::default());
    let work = WorkSessionId::new(NOW, [4; 10]);
    let before = session(run(1), 1);
    let call = Invocation {
        work_session: Some(work),
        upstream: tool(50).upstream,
        tool: tool(50).tool,
        ..call(before.id, 2)
    };
    let records = [Record::SessionOpened(before), Record::CallOpened(call)];
    store.apply(&records).await.unwrap();
    let options = FilteringConfig {
        policy: Some(ListPolicyName::Conformal),
        ..FilteringConfig::default()
    };
    let lists = lists_with(Some(&store), &[3, 7, 11], options, &Arc::default());
    let catalog = catalog_of(0..N);
    let elsewhere = lists.list(&request(&local, 1), &catalog).await;
    assert!(!elsewhere.shows(&tool(50)));
    let goes_on = ListRequest {
        session: SessionKey::Work(work),
        ..request(&local, 2)
    };
    for used in 51..55 {
        assert!(lists.list(&goes_on, &catalog).await.shows(&tool(50)));
        lists.record_call(&goes_on, &tool(used));
    }
}

#[tokio::test]
async fn marks_for_loading_at_once_leave_the_list_whole() {
    let local = Principal::local();
    let options = FilteringConfig {
        policy: Some(ListPolicyName::Hints),
        ..FilteringConfig::default()
    };
    let lists = lists_with(None, &[3, 7, 11], options, &Arc::default());
    let catalog = catalog_of(0..N);
    let shown = lists.list(&request(&local, 1), &catalog).await;
    assert!(shown.is_whole());
    let text = format!("[{}]", shown.page(0, N));
    let tools: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(tools.len(), N);
    assert_eq!(tools[3]["_meta"]["anthropic/alwaysLoad"], true);
    let marked = tools
        .iter()
        .filter(|tool| tool.get("_meta").is_some())
        .count();
    assert!((3..=20).contains(&marked), "{marked}");
    assert_eq!(text.matches(&*catalog.tools()[40].definition).count(), 1);
    // If a catalog is too small for hiding tools, all of them are loaded at once.
    let few = lists.list(&request(&local, 2), &catalog_of(0..8)).await;
    let text = few.page(0, N);
    assert_eq!(text.matches("alwaysLoad").count(), 8, "{text}");
}
