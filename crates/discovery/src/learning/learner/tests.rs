use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::prediction::{Engine, Expert, PredictionMethod};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::fake::FailingPredictor;

use super::*;

impl Learner {
    /// Returns the learned state of the predictor alone.
    pub(in crate::learning) fn learned_bytes(&self) -> Vec<u8> {
        self.predictor.snapshot().unwrap()
    }
}

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// A time after all calls.
const END: Timestamp = Timestamp::constant(1_800_100_000, 0);
const ORIGIN: Origin = Origin {
    begun_at: START,
    n_erasures: 3,
};

fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("notes").unwrap(),
        tool: name.into(),
    }
}

/// Returns a call of a session, `seconds` after the start.
fn call(session: u8, seconds: i64, name: &str) -> PastCall {
    let at = START + SignedDuration::from_secs(seconds);
    let ToolRef { upstream, tool } = tool(name);
    PastCall {
        id: InvocationId::new(at, [session; 10]),
        session: SessionId::new(START, [session; 10]),
        work_session: None,
        principal: Principal::local(),
        client: Some("client".into()),
        upstream,
        tool,
        started_at: at,
        continues: None,
        context: None,
        outcome: Some(Outcome::Ok),
    }
}

fn learner() -> Learner {
    let mut learner = Learner::new(Box::new(FailingPredictor::default()), ORIGIN);
    learner.add_known_tools(&["read", "write", "list"].map(tool));
    learner
}

fn n_calls(learner: &Learner, session: u8, seconds: i64) -> Option<usize> {
    let session = SessionKey::Connection(SessionId::new(START, [session; 10]));
    let now = START + SignedDuration::from_secs(seconds);
    learner.history(&session, now).map(SessionHistory::n_calls)
}

/// Returns overlapping sessions with pauses.
fn stream() -> Vec<PastCall> {
    let names = ["read", "write", "list"];
    let calls = (0..120).map(|n: i64| {
        let session = u8::try_from(n % 3).unwrap();
        let pause = (n / 40) * 700;
        call(
            session,
            n * 7 + pause,
            names[usize::try_from((n / 2) % 3).unwrap()],
        )
    });
    calls.collect()
}

#[test]
fn late_and_repeated_calls_are_learned_once() {
    let mut learner = learner();
    let calls = [call(1, 0, "read"), call(2, 8, "list"), call(1, 5, "write")];
    for _ in 0..3 {
        for call in &calls {
            learner.learn_call(call, None, END);
            learner.settle(START + SignedDuration::from_secs(9));
        }
    }
    assert_eq!(learner.n_learned(), 3);
    assert_eq!(learner.learned_to(), Some(calls[1].id));
    assert_eq!(n_calls(&learner, 1, 9), Some(2));
    // Reading again begins before all calls that may come late.
    assert!(learner.read_to() < Some(calls[0].id));
    learner.learn_call(&call(3, 100, "read"), None, END);
    learner.settle(START + SignedDuration::from_secs(100));
    assert!(learner.read_to() > Some(calls[1].id));
    assert!(learner.recent.len() == 1 && !learner.is_new(&calls[2]));
}

#[test]
fn calls_from_the_future_do_not_hide_earlier_ones() {
    let mut learner = learner();
    learner.learn_call(&call(1, 3_600, "read"), None, END);
    learner.settle(START);
    assert!(learner.is_new(&call(2, 1, "read")));
    learner.learn_call(&call(2, 1, "read"), None, END);
    learner.settle(START + SignedDuration::from_secs(2));
    learner.learn_call(&call(1, 3_600, "read"), None, END);
    assert_eq!(learner.n_learned(), 2);
}

#[test]
fn unlisted_tools_need_a_success_and_rounds_are_ignored() {
    let mut learner = learner();
    for outcome in [None, Some(Outcome::Error), Some(Outcome::Cancelled)] {
        let seconds = i64::try_from(learner.recent.len()).unwrap();
        let mut made_up = call(1, seconds, "made_up");
        made_up.outcome = outcome;
        learner.learn_call(&made_up, None, END);
    }
    let mut round = call(1, 5, "read");
    round.continues = Some(round.id);
    learner.learn_call(&round, None, END);
    assert_eq!((learner.n_learned(), n_calls(&learner, 1, 6)), (0, None));
    assert!(!learner.is_known(&tool("made_up")));
    let mut failed = call(1, 6, "read");
    failed.outcome = Some(Outcome::Error);
    learner.learn_call(&failed, None, END);
    learner.learn_call(&call(1, 7, "unlisted"), None, END);
    assert_eq!((learner.n_learned(), n_calls(&learner, 1, 8)), (2, Some(2)));
    assert!(learner.is_known(&tool("unlisted")));
}

#[test]
fn an_idle_gap_ends_a_session() {
    let mut learner = learner();
    learner.learn_call(&call(1, 0, "read"), None, END);
    learner.learn_call(&call(1, 600, "read"), None, END);
    assert_eq!(n_calls(&learner, 1, 1_200), Some(2));
    assert_eq!(n_calls(&learner, 1, 1_201), None);
    learner.learn_call(&call(2, 1_201, "read"), None, END);
    assert_eq!(learner.open.len(), 1);
    learner.learn_call(&call(1, 1_202, "read"), None, END);
    assert_eq!(n_calls(&learner, 1, 1_202), Some(1));
}

#[test]
fn a_restart_does_not_change_the_learned_state() {
    let calls = stream();
    let now = calls.last().unwrap().started_at;
    let mut whole = learner();
    for call in &calls {
        whole.learn_call(call, None, END);
    }
    for cut in [1, 47, 80, 119] {
        let mut first = learner();
        for call in &calls[..cut] {
            first.learn_call(call, None, END);
        }
        first.settle(now);
        let mut second = learner();
        second
            .restore(first.format(), &first.snapshot().unwrap())
            .unwrap();
        second.add_known_tools(&["read", "write", "list"].map(tool));
        // Some are read again.
        for call in &calls[cut.saturating_sub(1)..] {
            second.learn_call(call, None, END);
        }
        let learned = |learner: &Learner| learner.learned_bytes();
        assert!(learned(&second) == learned(&whole), "{cut}");
        let open = |learner: &Learner| format!("{:?}", learner.open);
        assert_eq!(open(&second), open(&whole), "{cut}");
    }
}

#[test]
fn a_damaged_or_incompatible_snapshot_changes_nothing() {
    let mut learner = learner();
    for call in stream() {
        learner.learn_call(&call, None, END);
    }
    let good = learner.snapshot().unwrap();
    let format = learner.format();
    assert!(learner.restore(format + 1, &good).is_err());
    for length in [0, 1, good.len() / 2, good.len() - 1] {
        assert!(
            learner.restore(format, &good[..length]).is_err(),
            "{length}"
        );
    }
    assert_eq!(learner.snapshot().unwrap(), good);
}

#[test]
fn a_text_is_learned_with_the_calls_after_it() {
    let mix = Engine::new(PredictionMethod::Expert(Expert::ContextKnn), 30.0);
    let mut learner = Learner::new(Box::new(FailingPredictor::of(mix)), ORIGIN);
    learner.add_known_tools(&["read", "write", "list"].map(tool));
    let vector = |x: f32, y: f32| Embedding::new("model", vec![x, y]).unwrap();
    let texts = [(vector(1.0, 0.0), "read"), (vector(0.0, 1.0), "write")];
    for (n, (vector, name)) in (1..).zip(&texts) {
        for seconds in 0..3 {
            let mut called = call(n, seconds, name);
            called.context = Some(ContextId::new(START, [n; 10]));
            let said = PrecedingText {
                vector,
                is_context: true,
            };
            learner.learn_call(&called, Some(said), END);
        }
    }
    learner.end_silent(START + IDLE_GAP + SignedDuration::from_mins(1));
    let predictor = learner.predictor();
    let slots: Vec<ToolIx> = ["read", "write", "list"]
        .iter()
        .filter_map(|name| predictor.vocabulary().slot(&tool(name)))
        .collect();
    for (place, (vector, _)) in texts.iter().enumerate() {
        let mut history = SessionHistory::new(client_key(&call(9, 0, "read")));
        history.set_text(TextEvidence::of_vector(vector.clone()));
        let forecast = predictor.predict(&history, &slots);
        assert_eq!(forecast.rank(slots[place]), Some(1), "{forecast:?}");
    }
}

#[test]
fn slow_calls_of_unlisted_tools_are_learned_after_success() {
    let mut learner = learner();
    let mut slow = call(1, 0, "unlisted");
    slow.outcome = None;
    learner.learn_call(&slow, None, END);
    learner.learn_call(&call(2, 1, "read"), None, END);
    slow.outcome = Some(Outcome::Ok);
    for _ in 0..2 {
        learner.learn_call(&slow, None, END);
    }
    assert_eq!((learner.n_learned(), n_calls(&learner, 1, 2)), (2, Some(1)));
}

#[test]
fn a_call_from_the_future_ends_no_sessions() {
    let mut learner = learner();
    learner.learn_call(&call(1, 0, "read"), None, START);
    learner.learn_call(&call(2, 100_000, "read"), None, START);
    assert_eq!(n_calls(&learner, 1, 1), Some(1));
    assert_eq!(n_calls(&learner, 2, 1), Some(1));
}

#[test]
fn a_snapshot_older_than_a_removal_is_refused() {
    let mut learner = learner();
    for call in stream() {
        learner.learn_call(&call, None, END);
    }
    let bytes = learner.snapshot().unwrap();
    let later = Origin {
        n_erasures: 4,
        ..ORIGIN
    };
    let mut other = Learner::new(Box::new(FailingPredictor::default()), later);
    let refused = other.restore(other.format(), &bytes);
    assert!(matches!(refused, Err(RestoreError::Forgotten)));
    assert!(!other.has_learned() && other.learned_to().is_none());
    let mut same = self::learner();
    same.restore(same.format(), &bytes).unwrap();
    assert!(same.has_learned());
}
