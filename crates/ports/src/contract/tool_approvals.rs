//! The clauses of [`ToolApprovalRepository`](crate::analytics::ToolApprovalRepository).

use riglm_domain::catalog::tool::ToolSighting;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::privacy::principal::Principal;

use super::UsageStore;
use super::scene::{audit, moment, odd_texts};

/// An approval is read with all its values, by the name of its tool.
pub async fn an_approval_is_read_as_it_was_given(store: &impl UsageStore) {
    let mut all: Vec<_> = (odd_texts().iter())
        .map(|text| ToolApproval {
            sighting: ToolSighting {
                name: ToolName::from(text.as_str()),
                content_hash: text.clone(),
                definition: text.repeat(5),
            },
            approved_at: moment(3),
            approved_by: Principal::from_name(text),
        })
        .collect();
    assert!(store.approve_first(&upstream("up"), &all).await.unwrap());
    all.sort_by(|one, other| one.sighting.name.cmp(&other.sighting.name));
    assert_eq!(store.approvals(&upstream("up")).await.unwrap(), all);
}

/// The first list of an upstream is approved automatically only once.
pub async fn a_first_list_is_approved_once(store: &impl UsageStore) {
    let up = upstream("up");
    assert!(store.approve_first(&up, &[]).await.unwrap());
    let first = [approval("a", "one", 1)];
    assert!(store.approve_first(&up, &first).await.unwrap());
    let second = [approval("a", "two", 2), approval("b", "two", 2)];
    assert!(!store.approve_first(&up, &second).await.unwrap());
    assert_eq!(store.approvals(&up).await.unwrap(), first);
}

/// A later approval of a tool replaces the earlier one, and no approval of another tool.
pub async fn a_later_approval_replaces_the_earlier_one(store: &impl UsageStore) {
    let up = upstream("up");
    let first = [approval("a", "one", 1), approval("b", "one", 1)];
    store.approve_first(&up, &first).await.unwrap();
    let decided = [approval("b", "two", 2), approval("c", "two", 2)];
    store.approve(&up, &decided, &audit(1)).await.unwrap();
    let [a, _] = first;
    let [b, c] = decided;
    assert_eq!(store.approvals(&up).await.unwrap(), [a, b, c]);
}

/// Tools of the same name are approved separately for each upstream.
pub async fn approvals_of_an_upstream_are_its_own(store: &impl UsageStore) {
    let of_one = [approval("a", "one", 1)];
    let of_other = [approval("a", "two", 2)];
    let (one, other) = (upstream("one"), upstream("other"));
    assert!(store.approve_first(&one, &of_one).await.unwrap());
    assert!(store.approve_first(&other, &of_other).await.unwrap());
    assert_eq!(store.approvals(&one).await.unwrap(), of_one);
    assert_eq!(store.approvals(&other).await.unwrap(), of_other);
    assert_eq!(store.approvals(&upstream("none")).await.unwrap(), []);
}

/// An approval by an operator has its entry in the audit trail; the first list has none.
pub async fn every_decided_approval_has_its_entry(store: &impl UsageStore) {
    let up = upstream("up");
    let first = [approval("a", "one", 1)];
    store.approve_first(&up, &first).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), []);
    let decided = [approval("a", "two", 2)];
    store.approve(&up, &decided, &audit(1)).await.unwrap();
    assert_eq!(store.entries(9).await.unwrap(), [audit(1)]);
}

fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).unwrap()
}

fn approval(tool: &str, hash: &str, at: i64) -> ToolApproval {
    ToolApproval {
        sighting: ToolSighting {
            name: ToolName::from(tool),
            content_hash: hash.into(),
            definition: format!(r#"{{"name":"{tool}","description":"{hash}"}}"#),
        },
        approved_at: moment(at),
        approved_by: Principal::from_name("alice"),
    }
}
