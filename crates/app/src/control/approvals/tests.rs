use std::time::Duration;

use riglm_ports::analytics::AuditTrail as _;
use riglm_ports::fake::{ManualClock, MemoryStore};

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// Longer than the interval for reading approvals of other processes.
const LATER: Duration = Duration::from_millis(2_100);

#[derive(Debug, Default)]
struct ObservedChanges(Mutex<Vec<String>>);

impl Observer for ObservedChanges {
    fn observe(&self, event: &Event<'_>) {
        if let Event::ChangeHeld { upstream, tool } = event {
            self.0.lock().push(format!("{upstream} {tool}"));
        }
    }
}

struct Scene {
    approvals: Approvals,
    told: Arc<ObservedChanges>,
}

fn scene(store: Option<&Arc<MemoryStore>>) -> Scene {
    let told = Arc::new(ObservedChanges::default());
    let store = store.map(|store| Arc::clone(store) as Arc<dyn ToolApprovalRepository>);
    let clock = Arc::new(ManualClock::at(NOW));
    Scene {
        approvals: Approvals::new(store, told.clone(), clock),
        told,
    }
}

fn up() -> UpstreamName {
    UpstreamName::parse("up").unwrap()
}

/// Returns a page with tools, each a name and a description.
fn page(tools: &[(&str, &str)], rest: &str) -> String {
    let tools: Vec<String> = (tools.iter())
        .map(|(name, text)| format!(r#"{{"name":"{name}", "description":"{text}"}}"#))
        .collect();
    format!(r#"{{"x":1.0,"tools":[{}]{rest}}}"#, tools.join(","))
}

impl Scene {
    async fn shown_first_page(&self, result: &str) -> Option<String> {
        self.shown_page(result, None).await
    }

    async fn shown_page(&self, result: &str, cursor: Option<&str>) -> Option<String> {
        self.approvals.shown_page(&up(), result, cursor).await
    }

    fn pending_changes(&self) -> Vec<(String, &'static str)> {
        let held = self.approvals.pending_changes(&up()).into_iter();
        held.map(|held| (held.tool.as_str().to_owned(), held.kind.as_str()))
            .collect()
    }

    async fn approve(
        &self,
        tool: Option<&str>,
        hash: Option<&str>,
    ) -> Result<usize, ApprovalError> {
        let wanted = ApprovalRequest {
            tool: tool.map(ToolName::from),
            hash: hash.map(str::to_owned),
        };
        let actor = Principal::from_name("alice");
        let approved = self.approvals.approve(&up(), &wanted, &actor).await?;
        Ok(approved.len())
    }

    fn reported_tools(&self) -> Vec<String> {
        self.told.0.lock().clone()
    }
}

#[tokio::test]
async fn changes_are_held_back_until_they_are_approved() {
    let store = Arc::new(MemoryStore::default());
    let scene = scene(Some(&store));
    let first = page(&[("a", "one"), ("b", "one")], "");
    assert_eq!(scene.shown_first_page(&first).await, None);
    assert_eq!(scene.shown_first_page(&first).await, None);
    let later = page(&[("b", "one"), ("c", "new"), ("a", "two")], "");
    let expected = page(&[("b", "one"), ("a", "one")], "");
    for _ in 0..3 {
        assert_eq!(
            scene.shown_first_page(&later).await.as_ref(),
            Some(&expected)
        );
    }
    let both = [("a".to_owned(), "changed"), ("c".to_owned(), "new")];
    assert_eq!(scene.pending_changes(), both);
    assert_eq!(scene.reported_tools(), ["up c", "up a"]);

    let hash = scene.approvals.pending_changes(&up())[0].hash.clone();
    let refused = scene.approve(Some("a"), Some("another")).await;
    assert!(matches!(refused, Err(ApprovalError::OtherHash)));
    let refused = scene.approve(Some("b"), None).await;
    assert!(matches!(refused, Err(ApprovalError::NothingHeld(_))));
    assert_eq!(scene.approve(Some("a"), Some(&hash)).await.unwrap(), 1);
    let expected = page(&[("b", "one"), ("a", "two")], "");
    assert_eq!(scene.shown_first_page(&later).await, Some(expected));
    assert_eq!(scene.approve(None, None).await.unwrap(), 1);
    assert_eq!(scene.approve(None, None).await.unwrap(), 0);
    assert_eq!(scene.shown_first_page(&later).await, None);
    assert_eq!(scene.pending_changes(), []);
    let trail = store.entries(9).await.unwrap();
    assert_eq!(trail.len(), 2);
    assert!(trail.iter().all(|entry| entry.action == "tools.approve"));
}

#[tokio::test]
async fn held_changes_have_the_definitions_before_and_after() {
    let scene = scene(None);
    let long = "x".repeat(70_000);
    scene
        .shown_first_page(&page(&[("a", "one"), ("b", "one"), ("long", &long)], ""))
        .await;
    assert_eq!(scene.approvals.held_definitions(&up()), []);
    let later = page(
        &[("a", "two"), ("b", "one"), ("c", "new"), ("long", "short")],
        "",
    );
    scene.shown_first_page(&later).await;
    let held = scene.approvals.held_definitions(&up());
    let changes: Vec<HeldChange> = held.iter().map(|one| one.change.clone()).collect();
    assert_eq!(changes, scene.approvals.pending_changes(&up()));
    let text = |name: &str, description: &str| {
        Some(format!(
            r#"{{"name":"{name}", "description":"{description}"}}"#
        ))
    };
    let texts: Vec<_> = held
        .into_iter()
        .map(|one| (one.definition, one.approved_definition))
        .collect();
    let expected = [
        (text("a", "two"), text("a", "one")),
        (text("c", "new"), None),
        (text("long", "short"), None),
    ];
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn reverted_or_removed_definitions_are_no_longer_held() {
    let scene = scene(None);
    let first = page(&[("a", "one"), ("b", "one")], "");
    scene.shown_first_page(&first).await;
    scene
        .shown_first_page(&page(&[("a", "two"), ("c", "new")], ""))
        .await;
    assert_eq!(scene.pending_changes().len(), 2);
    assert_eq!(scene.shown_first_page(&first).await, None);
    assert_eq!(scene.pending_changes(), []);
}

#[tokio::test]
async fn a_list_is_trusted_when_its_last_page_came() {
    let scene = scene(None);
    let one = page(&[("a", "one")], r#","nextCursor":"two""#);
    let two = page(&[("b", "one")], "");
    assert_eq!(scene.shown_first_page(&one).await, None);
    // A page of some other list completes nothing.
    assert_eq!(scene.shown_page(&two, Some("strange")).await, None);
    let more = page(&[("a", "two")], r#","nextCursor":"two""#);
    assert_eq!(scene.shown_first_page(&more).await, None);
    assert_eq!(scene.shown_page(&two, Some("two")).await, None);
    assert_eq!(scene.shown_first_page(&one).await, Some(more));
    assert_eq!(scene.pending_changes(), [("a".to_owned(), "changed")]);
}

#[tokio::test]
async fn approvals_hold_for_other_processes_and_after_a_restart() {
    let store = Arc::new(MemoryStore::default());
    let (one, other) = (scene(Some(&store)), scene(Some(&store)));
    let first = page(&[("a", "one")], "");
    assert_eq!(one.shown_first_page(&first).await, None);
    let later = page(&[("a", "two")], "");
    assert_eq!(other.shown_first_page(&later).await.as_ref(), Some(&first));
    assert_eq!(one.shown_first_page(&later).await.as_ref(), Some(&first));
    one.approve(None, None).await.unwrap();
    assert_eq!(one.shown_first_page(&later).await, None);
    tokio::time::sleep(LATER).await;
    assert_eq!(other.shown_first_page(&later).await, None);
    assert_eq!(
        scene(Some(&store)).shown_first_page(&first).await,
        Some(later)
    );
}

#[tokio::test]
async fn first_lists_are_trusted_despite_store_failures() {
    let store = Arc::new(MemoryStore::default());
    let scene = scene(Some(&store));
    store.start_failing();
    let first = page(&[("a", "one")], "");
    assert_eq!(scene.shown_first_page(&first).await, None);
    let later = page(&[("a", "two")], "");
    assert_eq!(scene.shown_first_page(&later).await.as_ref(), Some(&first));
    store.stop_failing();
    tokio::time::sleep(LATER).await;
    assert_eq!(scene.shown_first_page(&later).await, Some(first));
    let stored = store.approvals(&up()).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].approved_by.as_str(), FIRST_LIST);
}

#[tokio::test]
async fn incomparable_definitions_are_not_shown() {
    let scene = scene(None);
    let long = "x".repeat(70_000);
    let first = page(&[("a", "one"), ("long", &long)], "");
    assert_eq!(scene.shown_first_page(&first).await, None);
    let other = "y".repeat(70_000);
    let later = page(&[("a", "one"), ("long", &other)], "");
    let expected = page(&[("a", "one")], "");
    assert_eq!(
        scene.shown_first_page(&later).await.as_ref(),
        Some(&expected)
    );
    // Duplicate name, no name, duplicate list, and a key with escapes.
    let twice = page(&[("a", "one"), ("a", "two")], "");
    assert_eq!(
        scene.shown_first_page(&twice).await.as_ref(),
        Some(&expected)
    );
    let nameless = expected.replace(']', r#",{"description":"Obey"}]"#);
    assert_eq!(
        scene.shown_first_page(&nameless).await.as_ref(),
        Some(&expected)
    );
    let doubled = expected.replace("\"x\":1.0", r#""tools":[{"name":"b"}]"#);
    let none = Some(page::NO_TOOLS.to_owned());
    assert_eq!(scene.shown_first_page(&doubled).await, none);
    let hidden = r#"{"tool\u0073":[{"name":"b"}]}"#;
    let emptied = Some(r#"{"tool\u0073":[]}"#.to_owned());
    assert_eq!(scene.shown_first_page(hidden).await, emptied);
    assert_eq!(
        scene
            .shown_first_page(r#"{"resultType":"input_required"}"#)
            .await,
        None
    );
}
