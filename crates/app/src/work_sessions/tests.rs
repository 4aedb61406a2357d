use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::SignedDuration;
use riglm_ports::analytics::{SessionRepository as _, StoreError};
use riglm_ports::fake::MemoryStore;

use super::*;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A store that counts requests, and can hang.
#[derive(Debug, Default)]
struct Store {
    inner: MemoryStore,
    is_stuck: AtomicBool,
    n_asked: AtomicUsize,
}

#[async_trait]
impl WorkSessionRepository for Store {
    async fn resolve_work_session(
        &self,
        candidate: &WorkSession,
        idle_gap: IdleGap,
    ) -> Result<WorkSession, StoreError> {
        self.n_asked.fetch_add(1, Ordering::Relaxed);
        if self.is_stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.inner.resolve_work_session(candidate, idle_gap).await
    }
}

/// A proxy with the requests of one client.
struct Scene {
    store: Arc<Store>,
    work: Arc<WorkSessions>,
    principal: Principal,
}

impl Scene {
    fn new() -> Self {
        let store = Arc::new(Store::default());
        Self {
            work: service(&store),
            store,
            principal: Principal::from_name("alice"),
        }
    }

    fn restart(&mut self) {
        self.work = service(&self.store);
    }

    fn request<'a>(
        &'a self,
        connection: u8,
        seconds: i64,
        hints: &'a RequestHints,
    ) -> WorkRequest<'a> {
        WorkRequest {
            principal: &self.principal,
            client_name: "tester",
            client: KeyedHasher::new(&[1; 32]).hash_text("tester"),
            profile: None,
            workspace: None,
            hints,
            connection: session(connection),
            kind: RequestKind::Call,
            now: START + SignedDuration::from_secs(seconds),
        }
    }

    async fn call(&self, connection: u8, seconds: i64) -> WorkSessionId {
        self.call_with(connection, seconds, RequestHints::none())
            .await
    }

    async fn call_with(&self, connection: u8, seconds: i64, hints: &RequestHints) -> WorkSessionId {
        self.work
            .resolve(&self.request(connection, seconds, hints))
            .await
    }

    fn n_asked(&self) -> usize {
        self.store.n_asked.load(Ordering::Relaxed)
    }

    async fn stored_sessions(&self) -> Vec<WorkSession> {
        self.store.inner.work_sessions(100).await.unwrap()
    }
}

fn service(store: &Arc<Store>) -> Arc<WorkSessions> {
    let store: Arc<dyn WorkSessionRepository> = store.clone();
    let hasher = KeyedHasher::new(&[7; 32]);
    Arc::new(WorkSessions::new(Some(store), hasher, IdleGap::default()))
}

fn session(n: u8) -> SessionId {
    SessionId::new(START, [n; 10])
}

fn key(session: &str) -> RequestHints {
    RequestHints {
        session: Some(session.into()),
        ..RequestHints::default()
    }
}

fn trace(n: u8) -> RequestHints {
    RequestHints {
        trace: Some(TraceId([n; 16])),
        ..RequestHints::default()
    }
}

/// Lets background tasks run.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_keeps_its_work_session_until_long_silence() {
    let scene = Scene::new();
    let first = scene.call(1, 0).await;
    assert_eq!(scene.call(1, 600).await, first);
    // After ten minutes of activity, a pause of twenty is permitted.
    assert_eq!(scene.call(1, 1_800).await, first);
    // After half an hour, a pause of one hour.
    let second = scene.call(1, 1_800 + 3_601).await;
    assert_ne!(second, first);
    settle().await;
    let ids: Vec<_> = scene
        .stored_sessions()
        .await
        .iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids, [first, second]);
}

#[tokio::test]
async fn connections_per_call_share_one_work_session() {
    let scene = Scene::new();
    let first = scene.call(0, 0).await;
    for n in 1..50 {
        assert_eq!(scene.call(n, i64::from(n) * 7).await, first);
        if n % 2 == 0 {
            scene.work.on_disconnect(session(n));
        }
    }
}

#[tokio::test]
async fn a_replacing_connection_continues_the_work_session() {
    let scene = Scene::new();
    let first = scene.call(1, 0).await;
    scene.call(1, 1).await;
    scene.work.on_disconnect(session(1));
    assert_eq!(scene.call(2, 2).await, first);
}

#[tokio::test]
async fn parallel_connections_keep_separate_work_sessions_across_restarts() {
    let mut scene = Scene::new();
    let first = scene.call(1, 0).await;
    scene.call(1, 1).await;
    let second = scene.call(2, 2).await;
    assert_ne!(second, first);
    assert_eq!(scene.call(1, 3).await, first);
    assert_eq!(scene.call(2, 4).await, second);
    scene.restart();
    assert_eq!(scene.call(3, 5).await, first);
    assert_eq!(scene.call(3, 6).await, first);
    assert_eq!(scene.call(4, 7).await, second);
}

#[tokio::test]
async fn principals_clients_profiles_and_workspaces_are_kept_apart() {
    let scene = Scene::new();
    let hints = RequestHints::none();
    let plain = scene.request(1, 0, hints);
    let bob = Principal::from_name("bob");
    let others = [
        WorkRequest {
            principal: &bob,
            ..plain
        },
        WorkRequest {
            client_name: "other",
            ..plain
        },
        WorkRequest {
            profile: Some("p"),
            ..plain
        },
        WorkRequest {
            workspace: Some(plain.client),
            ..plain
        },
    ];
    let mut ids = vec![scene.work.resolve(&plain).await];
    for other in &others {
        ids.push(scene.work.resolve(other).await);
    }
    let chosen = key("k");
    for request in std::iter::once(&plain).chain(&others) {
        let hints = &chosen;
        ids.push(scene.work.resolve(&WorkRequest { hints, ..*request }).await);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 10);
}

#[tokio::test]
async fn client_session_keys_take_precedence_over_other_hints() {
    let mut scene = Scene::new();
    let plain = scene.call(1, 0).await;
    let one = scene.call_with(1, 1, &key("one")).await;
    assert_ne!(one, plain);
    let with_all = RequestHints {
        baggage_session: Some("x".into()),
        trace: Some(TraceId([1; 16])),
        ..key("one")
    };
    // Over another connection, hours later, after a restart.
    assert_eq!(scene.call_with(2, 40_000, &with_all).await, one);
    scene.restart();
    assert_eq!(scene.call_with(3, 80_000, &key("one")).await, one);
    assert_ne!(scene.call_with(3, 80_000, &key("two")).await, one);
    let baggage = RequestHints {
        baggage_session: Some("one".into()),
        ..RequestHints::default()
    };
    let of_baggage = scene.call_with(4, 80_001, &baggage).await;
    assert_ne!(of_baggage, one);
    assert_eq!(scene.call_with(5, 80_002, &baggage).await, of_baggage);
}

#[tokio::test]
async fn a_trace_joins_connections_and_splits_nothing() {
    let scene = Scene::new();
    let first = scene.call_with(1, 0, &trace(1)).await;
    assert_eq!(scene.call_with(1, 1, &trace(2)).await, first);
    let second = scene.call(2, 2).await;
    assert_ne!(second, first);
    assert_eq!(scene.call_with(3, 3, &trace(2)).await, first);
    assert_eq!(scene.call_with(2, 4, &trace(2)).await, first);
    assert_eq!(scene.call(2, 5).await, second);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_store_delays_only_once_and_catches_up() {
    let scene = Scene::new();
    scene.store.is_stuck.store(true, Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    let first = scene.call(1, 0).await;
    assert_eq!(began.elapsed(), STORE_TIMEOUT);
    assert_eq!(scene.call(1, 40).await, first);
    assert_eq!(began.elapsed(), STORE_TIMEOUT);
    settle().await;
    tokio::time::sleep(2 * UPDATE_TIMEOUT).await;
    scene.store.is_stuck.store(false, Ordering::Relaxed);
    assert_eq!(scene.call(1, 80).await, first);
    settle().await;
    let stored = scene.stored_sessions().await;
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].id, stored[0].started_at), (first, START));
    assert_eq!(stored[0].duration(), Duration::from_secs(80));
}

#[tokio::test(start_paused = true)]
async fn searches_are_stored_immediately_and_calls_later() {
    let scene = Scene::new();
    scene.call(1, 0).await;
    scene.call(1, 5).await;
    settle().await;
    assert_eq!(scene.stored_sessions().await[0].duration(), Duration::ZERO);
    let search = WorkRequest {
        kind: RequestKind::Search,
        ..scene.request(1, 9, RequestHints::none())
    };
    scene.work.resolve(&search).await;
    settle().await;
    assert_eq!(
        scene.stored_sessions().await[0].duration(),
        Duration::from_secs(9)
    );
}

#[tokio::test(start_paused = true)]
async fn requests_at_once_agree_although_the_store_is_stuck() {
    let scene = Scene::new();
    scene.store.is_stuck.store(true, Ordering::Relaxed);
    let (one, two) = tokio::join!(scene.call(1, 0), scene.call(1, 0));
    assert_eq!(one, two);
}

#[tokio::test(start_paused = true)]
async fn work_sessions_of_other_processes_are_continued() {
    let scene = Scene::new();
    let other = service(&scene.store);
    scene.store.is_stuck.store(true, Ordering::Relaxed);
    let own = scene.call(1, 0).await;
    scene.store.is_stuck.store(false, Ordering::Relaxed);
    let first = other
        .resolve(&scene.request(9, 1, RequestHints::none()))
        .await;
    assert_ne!(own, first);
    assert_eq!(scene.call(1, 31).await, own);
    settle().await;
    assert_eq!(scene.call(1, 32).await, first);
}

#[tokio::test]
async fn activity_is_stored_at_intervals() {
    let scene = Scene::new();
    for second in 0..100 {
        scene.call(1, second).await;
        settle().await;
    }
    // Once at the begin, and every half minute.
    assert_eq!(scene.n_asked(), 4);
    assert_eq!(
        scene.stored_sessions().await[0].duration(),
        Duration::from_secs(90)
    );
}

#[tokio::test]
async fn without_a_store_everything_stays_in_memory() {
    let hasher = KeyedHasher::new(&[7; 32]);
    let work = Arc::new(WorkSessions::new(None, hasher, IdleGap::default()));
    let scene = Scene::new();
    let request = |seconds| scene.request(1, seconds, RequestHints::none());
    let first = work.resolve(&request(0)).await;
    assert_eq!(work.resolve(&request(300)).await, first);
    assert_ne!(work.resolve(&request(9_000)).await, first);
}
