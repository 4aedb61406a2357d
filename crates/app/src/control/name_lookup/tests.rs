use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolListing, ToolPage};
use riglm_domain::id::{RunId, SessionId};
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_ports::analytics::RecordSink as _;
use riglm_ports::fake::{ManualClock, MemoryStore};

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn hash(n: u8) -> KeyedHash {
    KeyedHash::from_hex(&format!("{n:032x}")).unwrap()
}

fn session_record(n: u8, client: &str, revision: &str) -> Record {
    Record::SessionOpened(Session {
        id: session_id(n),
        run: RunId::new(NOW, [1; 10]),
        principal: Principal::local(),
        client: hash(n),
        client_info: ClientInfo::new(client, "1.0"),
        protocol: Revision::new(revision),
        transport: Transport::StreamableHttp,
        started_at: NOW,
        profile: None,
        metadata: BTreeMap::new(),
    })
}

fn session_id(n: u8) -> SessionId {
    SessionId::new(NOW, [n; 10])
}

fn list_record(upstream: &str, tools: &[&str]) -> Record {
    let tools: Vec<String> = tools
        .iter()
        .map(|name| format!(r#"{{"name":"{name}"}}"#))
        .collect();
    let page = format!(r#"{{"tools":[{}]}}"#, tools.join(","));
    let split = ToolPage::split(&page).unwrap();
    Record::ToolsSeen {
        listing: ToolListing::new(&UpstreamName::parse(upstream).unwrap(), &split, &page),
        seen_at: NOW,
    }
}

async fn names(records: &[Record], naming: NamespacePolicy) -> NameLookup {
    let store = Arc::new(MemoryStore::default());
    store.apply(records).await.unwrap();
    let queries = Arc::new(Queries::new(store, Arc::new(ManualClock::at(NOW))));
    let profiles = ["ops", "few"].map(|name| ProfileName::parse(name).unwrap());
    NameLookup::new(queries, profiles.into(), naming)
}

#[tokio::test]
async fn tools_resolve_by_all_names_but_not_unknown_ones() {
    let long = "x".repeat(80);
    let records = [
        list_record("files", &["read_file", &long]),
        list_record("git", &["log"]),
    ];
    let names = names(&records, NamespacePolicy::Prefix).await;
    let shortened =
        riglm_domain::catalog::naming::prefixed_name(&UpstreamName::parse("files").unwrap(), &long);
    for known in [
        "read_file",
        "files__read_file",
        "log",
        "git__log",
        &shortened,
    ] {
        assert!(names.tool(known).await.is_ok(), "{known}");
    }
    let refused = async |name: &str| names.tool(name).await.unwrap_err().to_string();
    assert_eq!(
        refused("read_fil").await,
        "unknown tool \"read_fil\": no upstream has listed it; the nearest is files__read_file"
    );
    let odd = "q".repeat(300);
    let expected = format!(
        "unknown tool \"{}...\": no upstream has listed it",
        "q".repeat(200)
    );
    assert_eq!(refused(&odd).await, expected);
    assert!(names.tool("git__read_file").await.is_err());
}

#[tokio::test]
async fn clients_are_found_by_identifier_or_unique_name() {
    let modern = Revision::V2026_07_28;
    let records = [
        session_record(1, "editor", Revision::V2025_11_25),
        session_record(2, "agent", modern),
        session_record(3, "agent", modern),
    ];
    let names = names(&records, NamespacePolicy::Prefix).await;
    for (name, expected) in [
        ("editor".to_owned(), hash(1)),
        (hash(3).to_string(), hash(3)),
    ] {
        let scope = OverrideScope::Client(name);
        let (found, _) = names.scope(scope).await.unwrap();
        assert_eq!(found, OverrideScope::Client(expected.to_string()));
    }
    let refused = names.client("agent").await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!("one of {}, {}", hash(2), hash(3))),
        "{refused}"
    );
    for nobody in ["nobody".to_owned(), hash(9).to_string()] {
        let refused = names.client(&nobody).await.unwrap_err();
        assert!(matches!(&refused, UnknownName::Client(_)));
        assert!(refused.to_string().contains(&nobody), "{refused}");
    }
}

#[tokio::test]
async fn sessions_and_profiles_are_named_as_they_are_known() {
    let records = [
        session_record(1, "editor", Revision::V2025_11_25),
        session_record(2, "agent", Revision::V2026_07_28),
    ];
    let names = names(&records, NamespacePolicy::Prefix).await;
    for (n, is_modern) in [(1, false), (2, true)] {
        let id = session_id(n).to_string();
        let found = names.session(&id).await.unwrap();
        assert_eq!(found, NamedSession { id, is_modern });
    }
    for nobody in [session_id(9).to_string(), "nobody".into()] {
        let refused = names.session(&nobody).await.unwrap_err().to_string();
        assert_eq!(refused, format!("unknown session \"{nobody}\""));
    }
    let profile = |name: &str| names.scope(OverrideScope::Profile(name.into()));
    assert!(profile("ops").await.is_ok());
    assert_eq!(
        profile("op").await.unwrap_err().to_string(),
        "unknown profile \"op\"; known are few, ops"
    );
}
