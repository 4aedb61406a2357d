use sqlx::{AssertSqlSafe, Row as _};

use super::calls::{CALLS, LATENCIES};
use super::pairs::{COOCCURRENCES, SESSIONS_USING};
use super::transitions::TRANSITIONS;
use super::*;
use crate::config::Durability;
use crate::database::{Database, Statement};

/// Returns the query plan of SQLite, step by step.
async fn plan(store: &Store, statement: &Statement) -> Vec<String> {
    let Database::Sqlite(database) = store.database().await.unwrap() else {
        panic!("the store is in SQLite");
    };
    let explain = format!("EXPLAIN QUERY PLAN {}", statement.sqlite);
    let steps = sqlx::query(AssertSqlSafe(explain))
        .bind(r#"["alice",[1,2],3]"#)
        .fetch_all(database.readers())
        .await
        .unwrap();
    let table = statement.table;
    let details = steps.iter().map(|step| step.get::<String, _>("detail"));
    details.filter(|step| step.contains(table)).collect()
}

fn open(dir: &tempfile::TempDir) -> Store {
    Store::sqlite(dir.path().join("riglm.db"), Durability::Process)
}

#[tokio::test]
async fn limited_questions_are_answered_from_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let by_principal = [
        &SESSIONS_USING.of_principal,
        &COOCCURRENCES.of_principal,
        &TRANSITIONS.of_principal,
    ];
    for statement in by_principal {
        let plan = plan(&store, statement).await;
        assert_eq!(plan.len(), 1, "{plan:?}");
        assert!(plan[0].contains("(principal=?)"), "{plan:?}");
    }
    let by_tool = [
        (&SESSIONS_USING.of_tools, ["(tool_a=?"].as_slice()),
        (&SESSIONS_USING.of_both, &["(principal=? AND tool_a=?"]),
        (&COOCCURRENCES.of_tools, &["(tool_a=?", "(tool_b=?"]),
        (
            &COOCCURRENCES.of_both,
            &["(principal=? AND tool_a=?", "(tool_b=? AND principal=?"],
        ),
        (&TRANSITIONS.of_tools, &["(tool_from=?"]),
        (&TRANSITIONS.of_both, &["(principal=? AND tool_from=?"]),
    ];
    for (statement, conditions) in by_tool {
        let plan = plan(&store, statement).await;
        assert_eq!(plan.len(), conditions.len(), "{plan:?}");
        for (step, condition) in plan.iter().zip(conditions) {
            assert!(step.contains(condition), "{plan:?}");
        }
    }
}

#[tokio::test]
async fn usage_queries_read_only_the_requested_hours() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for counts in [&CALLS, &LATENCIES] {
        let statements = [
            &counts.all,
            &counts.of_principal,
            &counts.of_tools,
            &counts.of_both,
        ];
        for statement in statements {
            let plan = plan(&store, statement).await;
            let is_limited = |step: &&String| step.contains("(principal=? AND hour>?)");
            // Other steps look up the next principal.
            let is_lookup = |step: &&String| {
                step.contains("(principal>?)") || step.starts_with("SEARCH") && !step.contains('(')
            };
            assert_eq!(plan.iter().filter(is_limited).count(), 1, "{plan:?}");
            assert!(
                plan.iter()
                    .all(|step| is_limited(&step) || is_lookup(&step)),
                "{plan:?}"
            );
        }
    }
}
