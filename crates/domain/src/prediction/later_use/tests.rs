use super::*;
use crate::catalog::tool::ToolRef;
use crate::id::UpstreamName;
use crate::prediction::{ClientKey, Engine, LearningScope, PredictionMethod};
use crate::privacy::principal::Principal;

/// Two workflows over two servers: tools 0 to 3 of `mail`, 4 to 7 of `files`.
const MAIL: [usize; 4] = [0, 1, 2, 3];
const FILES: [usize; 3] = [4, 5, 6];

fn engine() -> (Engine, Vec<ToolIx>) {
    let mut engine = Engine::new(PredictionMethod::Mix, 30.0);
    let tools = (0..8).map(|n| {
        let tool = ToolRef {
            upstream: UpstreamName::parse(if n < 4 { "mail" } else { "files" }).unwrap(),
            tool: format!("tool{n}").as_str().into(),
        };
        engine.intern(&tool).unwrap()
    });
    let tools = tools.collect();
    (engine, tools)
}

fn party(client: &str) -> ClientKey {
    ClientKey::new(&Principal::local(), client)
}

/// Learns a session that calls each of these tools.
fn play(engine: &mut Engine, tools: &[ToolIx], history: SessionHistory, called: &[usize]) {
    let mut history = history;
    for at in called {
        engine.learn(&mut history, tools, tools[*at], LearningScope::Everything);
    }
    engine.end_session(&history);
}

fn later(engine: &Engine, history: &SessionHistory, tools: &[ToolIx]) -> Forecast {
    let next = engine.predict(history, tools);
    engine.predict_later(history, tools, &next)
}

fn top(forecast: &Forecast, n: usize) -> Vec<usize> {
    let mut top: Vec<usize> = (forecast.ranking().iter().take(n))
        .map(|(tool, _)| tool.index())
        .collect();
    top.sort_unstable();
    top
}

#[test]
fn a_tool_that_comes_late_counts_as_much_as_the_next_one() {
    let (mut engine, tools) = engine();
    for _ in 0..12 {
        play(&mut engine, &tools, SessionHistory::new(party("a")), &MAIL);
        play(&mut engine, &tools, SessionHistory::new(party("a")), &MAIL);
        play(&mut engine, &tools, SessionHistory::new(party("a")), &FILES);
    }
    let start = SessionHistory::new(party("a"));
    let next = engine.predict(&start, &tools);
    let forecast = engine.predict_later(&start, &tools, &next);
    // Sessions begin with the tools 0 and 4, but the tools of mail are used more often.
    assert_eq!(top(&next, 2), [0, 4]);
    assert_eq!(top(&forecast, 4), MAIL);
    // After a tool of files, the rest of that workflow is likely. The used tool is not.
    let mut files = start.clone();
    files.push(tools[4]);
    let forecast = later(&engine, &files, &tools);
    assert_eq!(top(&forecast, 2), [5, 6]);
    assert!(forecast.probability(tools[4]) < 1e-12);
    let sum: f64 = forecast.ranking().iter().map(|(_, share)| share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
}

#[test]
fn the_client_and_the_text_select_the_workflow() {
    let (mut engine, tools) = engine();
    let with_text = |client: &str, text: &str| {
        let mut history = SessionHistory::new(party(client));
        history.set_text(TextEvidence::new(text));
        history
    };
    for _ in 0..10 {
        play(&mut engine, &tools, SessionHistory::new(party("a")), &MAIL);
        play(&mut engine, &tools, SessionHistory::new(party("b")), &FILES);
        play(
            &mut engine,
            &tools,
            with_text("c", "reply to letters"),
            &MAIL,
        );
        play(
            &mut engine,
            &tools,
            with_text("c", "move documents"),
            &FILES,
        );
    }
    let of = |history: &SessionHistory, n: usize| top(&later(&engine, history, &tools), n);
    assert_eq!(of(&SessionHistory::new(party("a")), 4), MAIL);
    assert_eq!(of(&SessionHistory::new(party("b")), 3), FILES);
    assert_eq!(of(&with_text("c", "reply to a letter"), 4), MAIL);
    assert_eq!(of(&with_text("c", "documents to move"), 3), FILES);
}

#[test]
fn without_ended_sessions_or_unused_tools_the_next_call_decides() {
    let (mut engine, tools) = engine();
    let start = SessionHistory::new(party("a"));
    let next = engine.predict(&start, &tools);
    assert_eq!(engine.predict_later(&start, &tools, &next), next);
    play(&mut engine, &tools, start.clone(), &MAIL);
    let mut used = start.clone();
    used.push(tools[1]);
    let next = engine.predict(&used, &tools[1..2]);
    assert_eq!(engine.predict_later(&used, &tools[1..2], &next), next);
    // Another principal has no sessions.
    let other = SessionHistory::new(ClientKey::new(&Principal::from_name("other"), "a"));
    let next = engine.predict(&other, &tools);
    assert_eq!(engine.predict_later(&other, &tools, &next), next);
    // Other methods predict the next call alone.
    let mut frequency = Engine::new(PredictionMethod::CooccurrenceWithFallback, 30.0);
    for (_, tool) in engine.vocabulary().tools() {
        frequency.intern(tool).unwrap();
    }
    play(&mut frequency, &tools, start.clone(), &MAIL);
    let next = frequency.predict(&start, &tools);
    assert_eq!(frequency.predict_later(&start, &tools, &next), next);
}

#[test]
fn weights_follow_the_evidence_that_was_right() {
    let (mut engine, tools) = engine();
    for _ in 0..20 {
        play(&mut engine, &tools, SessionHistory::new(party("a")), &MAIL);
        play(&mut engine, &tools, SessionHistory::new(party("b")), &FILES);
    }
    let learned = engine.later_use_of(party("a").principal_key()).unwrap();
    let (start, before) = (&learned.weights[0], Moment::Start.initial_weights());
    // The client tells the sessions apart, the share of all sessions does not.
    assert!(start.of[9] > before[9] + 0.05, "{start:?}");
    assert!(learned.is_sound());
    let mut unsound = learned.clone();
    unsound.weights[0].squares[0] = 0.0;
    assert!(!unsound.is_sound());
    unsound.weights[0] = Weights {
        of: [f64::NAN; N_FEATURES],
        squares: [1.0; N_FEATURES],
    };
    assert!(!unsound.is_sound());
}

#[test]
fn a_snapshot_keeps_what_was_learned() {
    let (mut engine, tools) = engine();
    for _ in 0..5 {
        play(&mut engine, &tools, SessionHistory::new(party("a")), &MAIL);
        play(&mut engine, &tools, SessionHistory::new(party("b")), &FILES);
    }
    let mut restored = Engine::new(PredictionMethod::Mix, 30.0);
    restored
        .restore(Engine::FORMAT, &engine.snapshot().unwrap())
        .unwrap();
    let start = SessionHistory::new(party("b"));
    assert_eq!(
        later(&restored, &start, &tools),
        later(&engine, &start, &tools)
    );
}
