//! The clauses of [`DiscoveryRepository`](crate::analytics::DiscoveryRepository) about contexts.

use riglm_domain::intent::context::{Context, ContextSource};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::record::Record;

use super::UsageStore;
use super::scene::{apply, context, moment, odd_texts, run, session};

/// A context is read with every value that was recorded, from whatever source.
pub async fn a_context_is_read_as_it_was_recorded(store: &impl UsageStore) {
    let id = session(run(1), 1).id;
    let mut all = vec![context(id, 1)];
    for (n, &source) in (2..).zip(ContextSource::ALL) {
        let mut bare = context(id, n);
        bare.source = source;
        bare.text = None;
        bare.embedding = None;
        all.push(bare);
    }
    for (n, text) in (20..).zip(odd_texts()) {
        let mut odd = context(id, n);
        odd.text = Some(text);
        all.push(odd);
    }
    let records: Vec<_> = all.iter().cloned().map(Record::ContextGiven).collect();
    apply(store, &records).await;
    assert_eq!(store.contexts(Some(id), u32::MAX).await.unwrap(), all);
}

/// The newest contexts by identifier come back, oldest first, of the session or of all.
pub async fn the_newest_contexts_come_oldest_first(store: &impl UsageStore) {
    let (one, two) = (session(run(1), 1).id, session(run(1), 2).id);
    let contexts = [(one, 4), (two, 6), (one, 3), (one, 5)].map(|(session, n)| Context {
        // Against the order of the identifiers.
        given_at: moment(20 - i64::from(n)),
        ..context(session, n)
    });
    apply(store, &contexts.clone().map(Record::ContextGiven)).await;
    let [four, six, three, five] = &contexts;
    for (session, limit, expected) in [
        (None, 0, vec![]),
        (None, 1, vec![six]),
        (None, 3, vec![four, five, six]),
        (None, 9, vec![three, four, five, six]),
        (Some(one), 0, vec![]),
        (Some(one), 2, vec![four, five]),
        (Some(two), 9, vec![six]),
        (Some(super::scene::session(run(1), 3).id), 9, vec![]),
    ] {
        let read = store.contexts(session, limit).await.unwrap();
        let read: Vec<_> = read.iter().collect();
        assert_eq!(read, expected, "{session:?} {limit}");
    }
}

/// The newest contexts of a principal are returned, oldest first, and no contexts of others.
pub async fn the_newest_contexts_of_a_principal_come_oldest_first(store: &impl UsageStore) {
    let long = "x".repeat(10_000);
    let contexts = [("a", 1), ("b", 2), ("a", 3), ("a", 4), (&long, 5)].map(|(name, n)| Context {
        principal: Principal::from_name(name),
        ..context(session(run(1), n % 2 + 1).id, n)
    });
    apply(store, &contexts.clone().map(Record::ContextGiven)).await;
    let [first, other, second, third, far] = &contexts;
    for (name, limit, expected) in [
        ("a", 9, vec![first, second, third]),
        ("a", 2, vec![second, third]),
        ("a", 0, vec![]),
        ("b", 9, vec![other]),
        (&long, 9, vec![far]),
        ("c", 9, vec![]),
    ] {
        let read = store.contexts_of(&Principal::from_name(name), limit).await;
        let read = read.unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), expected, "{limit}");
    }
}

/// Contexts are read by their identifiers, oldest first, each once; unknown ones are omitted.
pub async fn contexts_are_read_by_identifier(store: &impl UsageStore) {
    let contexts = [3, 1, 2].map(|n| context(session(run(1), n % 2 + 1).id, n));
    apply(store, &contexts.clone().map(Record::ContextGiven)).await;
    let [third, first, _] = &contexts;
    let unknown = context(session(run(1), 1).id, 9).id;
    let ids = [third.id, unknown, first.id, third.id];
    let read = store.contexts_with(&ids).await.unwrap();
    assert_eq!(read, [first.clone(), third.clone()]);
    assert_eq!(store.contexts_with(&[]).await.unwrap(), []);
}

/// The first record of a context stays.
pub async fn the_first_record_of_a_context_stays(store: &impl UsageStore) {
    let first = context(session(run(1), 1).id, 2);
    let mut second = first.clone();
    second.text = None;
    let records = [&first, &second].map(|context| Record::ContextGiven(context.clone()));
    apply(store, &records).await;
    assert_eq!(store.contexts(None, 9).await.unwrap(), [first]);
}
