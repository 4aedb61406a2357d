use std::sync::atomic::Ordering;

use jiff::Timestamp;
use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{Invocation, InvocationSummary, ToolSource};
use riglm_ports::analytics::{InvocationFilter, InvocationRepository, Journal};
use riglm_ports::fake::MemoryStore;

use super::*;
use crate::tracking::text_queue::{MAX_QUEUED, MAX_TEXT_BYTES};

/// Counts bytes, once the test permits it.
#[derive(Debug, Default)]
struct GatedCounter {
    gate: Mutex<()>,
}

impl TokenCounter for GatedCounter {
    fn count(&self, text: &str) -> u64 {
        let _open = self.gate.lock();
        text.len() as u64
    }
}

struct Scene {
    store: Arc<MemoryStore>,
    journal: Arc<LossyJournal>,
    counter: Arc<GatedCounter>,
    meter: TokenMeter,
}

fn scene_with(budget: CountingBudget) -> Scene {
    let store = Arc::new(MemoryStore::default());
    let journal = Arc::new(LossyJournal::new(store.clone()));
    let counter = Arc::new(GatedCounter::default());
    let meter = TokenMeter::start(journal.clone(), counter.clone(), budget).unwrap();
    Scene {
        store,
        journal,
        counter,
        meter,
    }
}

fn scene() -> Scene {
    scene_with(CountingBudget::new(Instant::now()))
}

impl Scene {
    fn measured_calls(&self) -> Vec<CallTokens> {
        let tokens = |record| match record {
            Record::CallMeasured(tokens) => Some(tokens),
            _ => None,
        };
        self.store
            .records()
            .into_iter()
            .filter_map(tokens)
            .collect()
    }

    async fn call(&self) -> InvocationSummary {
        let filter = InvocationFilter::default();
        self.store.invocations(&filter, 1).await.unwrap().remove(0)
    }
}

fn id(number: u8) -> InvocationId {
    InvocationId::new(Timestamp::UNIX_EPOCH, [number; 10])
}

fn invocation() -> Invocation {
    Invocation {
        id: id(1),
        session: SessionId::new(Timestamp::UNIX_EPOCH, [9; 10]),
        principal: Principal::local(),
        upstream: UpstreamName::parse("notes").unwrap(),
        tool: "add_note".into(),
        arguments_hash: KeyedHasher::new(&[0; 32]).hash_text("x"),
        arguments: None,
        started_at: Timestamp::UNIX_EPOCH,
        sequence: 1,
        source: ToolSource::Shown,
        request_bytes: 100,
        continues: None,
        work_session: None,
        list_epoch: None,
        context: None,
    }
}

#[tokio::test]
async fn both_texts_of_a_quick_call_share_a_record() {
    let scene = scene();
    let opened = Record::CallOpened(invocation());
    scene.store.append(&opened).await.unwrap();
    scene.meter.enqueue(id(1), CallText::Arguments("{}"));
    scene.meter.enqueue(id(1), CallText::Result("[1,2]"));
    scene.meter.close().await;
    assert_eq!(scene.measured_calls().len(), 1);
    let call = scene.call().await;
    assert_eq!(
        (call.request_tokens, call.response_tokens),
        (Some(2), Some(5))
    );
}

#[tokio::test]
async fn a_text_over_the_limit_is_not_counted() {
    let scene = scene();
    let longest = "x".repeat(MAX_TEXT_BYTES);
    scene.meter.enqueue(id(1), CallText::Arguments(&longest));
    (scene.meter).enqueue(id(2), CallText::Arguments(&format!("{longest}x")));
    scene.meter.close().await;
    let counted: Vec<_> = scene
        .measured_calls()
        .iter()
        .map(|tokens| tokens.id)
        .collect();
    assert_eq!(counted, [id(1)]);
}

#[tokio::test]
async fn an_exhausted_budget_queues_no_texts() {
    let mut budget = CountingBudget::new(Instant::now());
    budget.charge(Instant::now(), Duration::from_hours(1));
    let scene = scene_with(budget);
    scene.meter.enqueue(id(1), CallText::Arguments("{}"));
    assert!(scene.meter.shared.queue.lock().texts.is_empty());
    scene.meter.close().await;
    assert_eq!(scene.measured_calls(), []);
}

#[tokio::test]
async fn counting_charges_the_budget() {
    let mut worker = Worker {
        shared: scene().meter.shared.clone(),
        journal: scene().journal,
        counter: Arc::new(GatedCounter::default()),
        budget: CountingBudget::new(Instant::now()),
        runtime: Handle::current(),
    };
    let batch: Vec<QueuedText> = (0..=u8::MAX)
        .map(|number| QueuedText {
            call: id(number),
            is_result: false,
            text: "".into(),
        })
        .collect();
    // 32 times 256 records of 25 us are twice the burst.
    for _ in 0..32 {
        worker.count(&batch);
    }
    assert!(worker.budget.pause(Instant::now()) > Duration::ZERO);
}

#[tokio::test]
async fn the_queue_is_bounded_by_count_and_by_bytes() {
    for (text, most) in [("", MAX_QUEUED), (&*"x".repeat(8 << 10), 64)] {
        let scene = scene();
        let shut = scene.counter.gate.lock();
        for _ in 0..3 * MAX_QUEUED {
            scene.meter.enqueue(id(1), CallText::Result(text));
        }
        let n_queued = scene.meter.shared.queue.lock().texts.len();
        // The thread may have taken one batch before the gate stopped it.
        assert!(n_queued <= most, "{n_queued}");
        drop(shut);
        scene.meter.close().await;
        assert_eq!(scene.measured_calls()[0].id, id(1));
    }
}

#[tokio::test]
async fn closing_counts_all_queued_texts() {
    let scene = scene();
    for number in 0..=u8::MAX {
        scene.meter.enqueue(id(number), CallText::Result("x"));
    }
    scene.meter.close().await;
    assert_eq!(scene.measured_calls().len(), 256);
    scene.meter.enqueue(id(1), CallText::Result("too late"));
    scene.meter.close().await;
    assert_eq!(scene.measured_calls().len(), 256);
}

#[tokio::test]
async fn closing_counts_texts_queued_before_budget_exhaustion() {
    let mut budget = CountingBudget::new(Instant::now());
    budget.charge(Instant::now(), Duration::from_hours(1));
    let scene = scene_with(budget);
    scene.meter.shared.is_taking.store(true, Ordering::Relaxed);
    scene.meter.enqueue(id(1), CallText::Result("queued"));
    scene.meter.close().await;
    assert_eq!(scene.measured_calls().len(), 1);
}

#[tokio::test]
async fn counts_of_calls_without_rows_are_ignored() {
    let scene = scene();
    scene.meter.enqueue(id(1), CallText::Arguments("{}"));
    scene.meter.close().await;
    assert_eq!(scene.measured_calls().len(), 1);
    let filter = InvocationFilter::default();
    assert_eq!(scene.store.count(&filter).await.unwrap(), 0);
}

#[tokio::test]
async fn counts_refused_by_the_journal_are_lost_records() {
    let scene = scene();
    scene.store.start_failing();
    scene.meter.enqueue(id(1), CallText::Arguments("{}"));
    scene.meter.close().await;
    assert_eq!(scene.journal.n_lost(), 1);
}

#[tokio::test]
async fn the_thread_ends_with_the_meter() {
    let Scene { meter, .. } = scene();
    let ended = meter.ended.lock().take().unwrap();
    drop(meter);
    assert!(ended.await.is_err());
}
