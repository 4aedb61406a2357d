//! The clauses of [`ClientData`](crate::analytics::ClientData).

use std::time::Duration;

use riglm_domain::catalog::tool_override::{OverrideScope, ToolOverride};
use riglm_domain::id::SessionId;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::usage::invocation::{InvocationSummary, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_domain::usage::work_session::WorkSession;
use serde_json::Value;

use super::UsageStore;
use super::records::everything;
use super::scene::{
    apply, audit, call, context, end, exchange, exclusion, feedback, hash, list_epoch, list_shown,
    moment, page, recommendation, run, search, session, session_closed, snapshot, tokens,
    work_session,
};
use crate::analytics::{ClientRow, ClientSelector, DeletedRows, Topic};
use crate::fake::MemoryStore;

/// All rows of a client are exported kind by kind, each kind by identifier.
pub async fn all_rows_of_a_client_are_exported(store: &impl UsageStore) {
    let (one, other) = (client("one"), client("other"));
    fill(store, &one, 10).await;
    fill(store, &other, 60).await;
    for client in [&one, &other] {
        let rows = export(store, &client.client.to_string()).await;
        let first = if client == &one { 10 } else { 60 };
        assert_eq!(rows, expected_rows(client, first));
        let mut kinds: Vec<_> = rows.iter().map(|row| row.kind).collect();
        kinds.dedup();
        assert_eq!(kinds, ClientRow::KINDS);
    }
}

/// A row is a JSON object of its columns.
pub async fn rows_have_their_columns(store: &impl UsageStore) {
    let client = client("one");
    fill(store, &client, 10).await;
    let rows = export(store, &client.client.to_string()).await;
    for (kind, columns) in [
        (
            "session",
            &["id", "client", "client_info", "metadata", "ended_at"][..],
        ),
        (
            "call",
            &[
                "id",
                "session",
                "tool",
                "end",
                "request_tokens",
                "response_tokens",
            ],
        ),
        (
            "exchange",
            &["id", "session", "method", "target", "outcome"],
        ),
        ("tools_listed", &["session", "listing", "listed_at"]),
        ("list_shown", &["session", "shown_at", "tools", "epoch"]),
        ("search", &["id", "session", "query", "results"]),
        ("context", &["id", "session", "text", "embedding"]),
        ("recommendation", &["id", "session", "intent", "tools"]),
        ("feedback", &["id", "session", "tool", "verdict", "comment"]),
        (
            "work_session",
            &["id", "client", "started_at", "last_active_at"],
        ),
        ("list_epoch", &["scope", "client", "tools", "known", "mode"]),
        ("override", &["id", "tool", "action", "scope"]),
    ] {
        let row = rows.iter().find(|row| row.kind == kind).unwrap();
        for column in columns {
            assert!(row.row.get(column).is_some(), "{kind} has {column}");
        }
    }
    let ends: Vec<_> = (rows.iter().filter(|row| row.kind == "call"))
        .map(|row| row.row["end"]["outcome"].as_str())
        .collect();
    assert_eq!(ends, [Some("ok"), None]);
    let values: Vec<&Value> = rows.iter().map(|row| &row.row).collect();
    assert!(values.iter().all(|row| row.is_object()));
}

/// A name selects all clients that identified themselves with it.
pub async fn clients_are_found_by_their_own_name(store: &impl UsageStore) {
    let (one, mut same, other) = (client("one"), client("same"), client("other"));
    same.client_info = ClientInfo::new("one", "2.0");
    for (session, first) in [(&one, 10), (&same, 60), (&other, 110)] {
        fill(store, session, first).await;
    }
    let rows = export(store, "one").await;
    for client in [&one, &same] {
        let first = if client == &one { 10 } else { 60 };
        for row in expected_rows(client, first) {
            assert!(rows.contains(&row), "{row:?}");
        }
    }
    assert_eq!(rows.len(), 2 * expected_rows(&one, 10).len());
    for nobody in ["on", "ONE", "one ", "", "%", "alice"] {
        assert_eq!(export(store, nobody).await, [], "{nobody}");
    }
    let deleted = delete(store, "one").await;
    assert_eq!(deleted.n_sessions, 4);
    let left = export(store, "other").await;
    assert_eq!(left, expected_rows(&other, 110));
}

/// An unknown client has no rows to export or to delete.
pub async fn an_unknown_client_has_nothing(store: &impl UsageStore) {
    fill(store, &client("one"), 10).await;
    let before = everything(store).await;
    for unknown in [hash("nobody").to_string(), "nobody".into(), String::new()] {
        assert_eq!(export(store, &unknown).await, []);
        assert_eq!(delete(store, &unknown).await, DeletedRows::default());
    }
    assert_eq!(everything(store).await, before);
}

/// The export ends early when the receiver returns `false`.
pub async fn an_export_ends_when_its_receiver_stops(store: &impl UsageStore) {
    let client = client("one");
    fill(store, &client, 10).await;
    let clients = ClientSelector(client.client.to_string());
    for n_taken in [1, 3, 12] {
        let mut taken = Vec::new();
        let mut take = |row| {
            taken.push(row);
            taken.len() < n_taken
        };
        store.export(&clients, &mut take).await.unwrap();
        assert_eq!(taken, expected_rows(&client, 10)[..n_taken]);
    }
}

/// All rows of a deleted client are gone, and their number is returned.
pub async fn all_rows_of_a_removed_client_are_gone(store: &impl UsageStore) {
    let client = client("one");
    fill(store, &client, 10).await;
    let key = client.client.to_string();
    let n_rows = expected_rows(&client, 10).len() as u64;
    let deleted = delete(store, &key).await;
    let expected = DeletedRows {
        n_sessions: 2,
        n_calls: 2,
        n_others: n_rows - 4,
    };
    assert_eq!(deleted, expected);
    assert_eq!(export(store, &key).await, []);
    assert_eq!(delete(store, &key).await, DeletedRows::default());
    let text = everything(store).await;
    for session in sessions(&client, 10) {
        assert!(!text.contains(&session.id.to_string()), "{text}");
    }
    assert_eq!(store.work_sessions(9).await.unwrap(), []);
    for epoch in epochs(&client, 10) {
        assert_eq!(store.list_epoch(&epoch.scope).await.unwrap(), None);
    }
    assert_eq!(store.overrides(moment(9)).await.unwrap(), []);
}

/// The contributions of a deleted client to the counts are gone, and other clients keep theirs.
pub async fn other_clients_keep_their_rows(store: &impl UsageStore) {
    let (one, other) = (client("one"), client("other"));
    let never = MemoryStore::default();
    fill(store, &one, 10).await;
    fill(store, &other, 60).await;
    fill(&never, &other, 60).await;
    let others = [
        exclusion(200, "a", OverrideScope::Global),
        exclusion(201, "a", OverrideScope::Profile(one.client.to_string())),
        exclusion(202, "a", OverrideScope::Client("one".into())),
    ];
    for row in &others {
        store.set_override(row, &audit(1)).await.unwrap();
    }
    let shared = list_epoch(&one.client.to_string(), 1, &["a"]);
    store.begin_epoch(&shared).await.unwrap();
    let entries = store.entries(99).await.unwrap();
    delete(store, &one.client.to_string()).await;
    let expected = everything(&never).await;
    assert_eq!(everything(store).await, expected);
    let rows = export(store, &other.client.to_string()).await;
    assert_eq!(rows, expected_rows(&other, 60));
    let left = store.overrides(moment(9)).await.unwrap();
    for row in &others {
        assert!(left.contains(row), "{row:?}");
    }
    assert_eq!(store.entries(99).await.unwrap(), entries);
    let left = store.list_epoch(&shared.scope).await.unwrap();
    assert_eq!(left, Some(shared));
    assert_eq!(store.check().await.unwrap(), []);
}

/// Snapshots with data of a deleted client are deleted, and the change feed reports it.
pub async fn snapshots_of_a_removed_client_are_deleted(store: &impl UsageStore) {
    for client in ["one", "two"] {
        fill(
            store,
            &self::client(client),
            if client == "one" { 10 } else { 60 },
        )
        .await;
    }
    store.save_snapshot(&snapshot("m", 1)).await.unwrap();
    let before = store.revisions().await.unwrap();
    delete(store, "nobody").await;
    assert!(store.newest_snapshot("m").await.unwrap().is_some());
    delete(store, &client("one").client.to_string()).await;
    assert_eq!(store.newest_snapshot("m").await.unwrap(), None);
    let first = Topic::Erasures.revision(&store.revisions().await.unwrap());
    assert!(first > Topic::Erasures.revision(&before));
    // Also without a snapshot: another process may have learned from the client without saving yet.
    delete(store, &client("two").client.to_string()).await;
    assert!(Topic::Erasures.revision(&store.revisions().await.unwrap()) > first);
    store.save_snapshot(&snapshot("m", 1)).await.unwrap();
}

/// Work sessions and overrides belong to a client by its hash, even without any session.
pub async fn a_client_without_sessions_has_its_other_rows(store: &impl UsageStore) {
    let client = client("one");
    let key = client.client.to_string();
    let of_client = exclusion(1, "a", OverrideScope::Client(key.clone()));
    store.set_override(&of_client, &audit(1)).await.unwrap();
    let going = running_work_session(&client, 1);
    let resolved = store
        .resolve_work_session(&going, Duration::ZERO.into())
        .await;
    assert_eq!(resolved.unwrap(), going);
    let expected = [
        ClientRow::work_session(&going).unwrap(),
        ClientRow::tool_override(&of_client).unwrap(),
    ];
    assert_eq!(export(store, &key).await, expected);
    let deleted = delete(store, &key).await;
    let expected = DeletedRows {
        n_others: 2,
        ..DeletedRows::default()
    };
    assert_eq!(deleted, expected);
    assert_eq!(export(store, &key).await, []);
}

/// Recommendations and feedback belong to the client of their work session, even if their session
/// is unknown.
pub async fn recommendations_and_feedback_belong_to_the_client_of_their_work_session(
    store: &impl UsageStore,
) {
    let (one, other) = (client("one"), client("other"));
    let mut expected = Vec::new();
    for (client, first) in [(&one, 10), (&other, 60)] {
        let going = running_work_session(client, first);
        let resolved = store
            .resolve_work_session(&going, Duration::ZERO.into())
            .await;
        assert_eq!(resolved.unwrap(), going);
        let (mut shown, mut said) = (
            recommendation(client.id, first),
            feedback(client.id, first, "a"),
        );
        (shown.session, shown.work_session) = (None, Some(going.id));
        (said.session, said.work_session) = (None, Some(going.id));
        let records = [
            Record::Recommended(shown.clone()),
            Record::FeedbackGiven(said.clone()),
        ];
        apply(store, &records).await;
        expected.push([
            ClientRow::recommendation(&shown).unwrap(),
            ClientRow::feedback(&said).unwrap(),
            ClientRow::work_session(&going).unwrap(),
        ]);
    }
    let keys = [&one, &other].map(|client| client.client.to_string());
    for (key, rows) in keys.iter().zip(&expected) {
        assert_eq!(&export(store, key).await, rows);
    }
    let deleted = delete(store, &keys[0]).await;
    let gone = DeletedRows {
        n_others: 3,
        ..DeletedRows::default()
    };
    assert_eq!(deleted, gone);
    assert_eq!(export(store, &keys[0]).await, []);
    assert_eq!(export(store, &keys[1]).await, expected[1]);
    assert_eq!(store.recommendations(9).await.unwrap().len(), 1);
    assert_eq!(store.feedback(None, None, 9).await.unwrap().len(), 1);
}

/// Returns a session of a client by this name.
#[must_use]
pub fn client(name: &str) -> Session {
    Session {
        client: hash(name),
        client_info: ClientInfo::new(name, "1.0"),
        ..session(run(1), 1)
    }
}

/// Returns the sessions that [`fill`] stores: one that ended, and one that did not.
fn sessions(client: &Session, first: u8) -> [Session; 2] {
    [first, first + 1].map(|n| Session {
        client: client.client,
        client_info: client.client_info.clone(),
        ..session(run(1), n)
    })
}

fn overrides(client: &Session, id: SessionId, first: u8) -> [ToolOverride; 2] {
    let of_client = OverrideScope::Client(client.client.to_string());
    let of_session = OverrideScope::Session(id.to_string());
    [
        exclusion(first, "a", of_client),
        exclusion(first + 1, "a", of_session),
    ]
}

fn running_work_session(client: &Session, first: u8) -> WorkSession {
    let key = client.client.to_string();
    WorkSession {
        client: client.client,
        ..work_session(&key, first, first.into())
    }
}

/// Returns epochs with unusual scopes that belong to the client.
fn epochs(client: &Session, first: u8) -> [ListEpoch; 2] {
    ["", "work:ä \u{0}'"].map(|scope| ListEpoch {
        client: Some(client.client),
        ..list_epoch(&format!("{scope}{first}"), 1, &["a"])
    })
}

/// Stores rows of every kind for a client, with identifiers and moments from `first` on.
pub async fn fill(store: &impl UsageStore, client: &Session, first: u8) {
    let [ended, open] = sessions(client, first);
    let done = call(ended.id, first + 2);
    let records = [
        Record::SessionOpened(ended.clone()),
        Record::SessionOpened(open.clone()),
        session_closed(&ended, 500),
        Record::ToolsSeen {
            listing: page("one", &["a"]),
            seen_at: moment(2),
        },
        Record::ToolsListed {
            session: open.id,
            listing: "one".into(),
            listed_at: moment(3),
        },
        Record::CallOpened(call(open.id, first + 3)),
        Record::CallOpened(done.clone()),
        Record::CallClosed(end(&done, Outcome::Ok)),
        tokens(&done, Some(5), None),
        Record::Exchanged(exchange(open.id, first)),
        Record::ListShown(list_shown(open.id, first)),
        Record::Searched(search(open.id, first)),
        Record::ContextGiven(context(open.id, first)),
        Record::Recommended(recommendation(open.id, first)),
        Record::FeedbackGiven(feedback(ended.id, first + 1, "a")),
        Record::FeedbackGiven(feedback(open.id, first, "a")),
    ];
    apply(store, &records).await;
    let going = running_work_session(client, first);
    let resolved = store
        .resolve_work_session(&going, Duration::ZERO.into())
        .await;
    assert_eq!(resolved.unwrap(), going);
    for epoch in epochs(client, first) {
        store.begin_epoch(&epoch).await.unwrap();
    }
    for row in overrides(client, open.id, first) {
        store.set_override(&row, &audit(first)).await.unwrap();
    }
}

/// Returns the export that is expected after [`fill`].
fn expected_rows(client: &Session, first: u8) -> Vec<ClientRow> {
    let [ended, open] = sessions(client, first);
    let calls = [call(ended.id, first + 2), call(open.id, first + 3)];
    let [done, in_flight] = calls.map(|invocation| InvocationSummary {
        invocation,
        end: None,
        request_tokens: None,
        response_tokens: None,
    });
    let done = InvocationSummary {
        end: Some(end(&done.invocation, Outcome::Ok)),
        request_tokens: Some(5),
        ..done
    };
    let mut rows = vec![
        ClientRow::session(&ended, Some(moment(500))),
        ClientRow::session(&open, None),
        ClientRow::call(&done),
        ClientRow::call(&in_flight),
        ClientRow::exchange(&exchange(open.id, first)),
        ClientRow::tools_listed(open.id, "one", moment(3)),
        ClientRow::list_shown(&list_shown(open.id, first)),
        ClientRow::search(&search(open.id, first)),
        ClientRow::context(&context(open.id, first)),
        ClientRow::recommendation(&recommendation(open.id, first)),
        ClientRow::feedback(&feedback(open.id, first, "a")),
        ClientRow::feedback(&feedback(ended.id, first + 1, "a")),
        ClientRow::work_session(&running_work_session(client, first)),
    ];
    rows.extend(epochs(client, first).iter().map(ClientRow::list_epoch));
    let overrides = overrides(client, open.id, first);
    rows.extend(overrides.iter().map(ClientRow::tool_override));
    rows.into_iter().map(Result::unwrap).collect()
}

async fn export(store: &impl UsageStore, client: &str) -> Vec<ClientRow> {
    let mut rows = Vec::new();
    let mut take = |row| {
        rows.push(row);
        true
    };
    let clients = ClientSelector(client.into());
    store.export(&clients, &mut take).await.unwrap();
    rows
}

async fn delete(store: &impl UsageStore, client: &str) -> DeletedRows {
    let clients = ClientSelector(client.into());
    store.delete(&clients).await.unwrap()
}
