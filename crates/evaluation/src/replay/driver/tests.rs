use std::collections::VecDeque;
use std::convert::Infallible;

use super::super::forecaster::{CallContext, Forecaster, ObservedCall, SessionContext};
use super::super::session::{ReplayCall, ReplayTool};
use super::*;

/// Initial count of every tool.
const PRIOR: f64 = 0.1;

/// Counts of calls over all learned sessions.
#[derive(Debug)]
struct Frequency {
    counts: Vec<f64>,
}

impl Frequency {
    fn new(n_tools: usize) -> Self {
        Self {
            counts: vec![PRIOR; n_tools],
        }
    }
}

impl Forecaster for Frequency {
    fn begin_session(&mut self, _session: &SessionContext<'_>) {}

    fn predict(&mut self, _call: &CallContext<'_>, scores: &mut [f64]) {
        for (score, count) in scores.iter_mut().zip(&self.counts) {
            *score = *count;
        }
    }

    fn observe(&mut self, called: &ObservedCall, learns: bool) {
        if let Some(count) = self.counts.get_mut(called.tool).filter(|_| learns) {
            *count += 1.0;
        }
    }

    fn end_session(&mut self, _learns: bool) {}
}

fn frequency() -> ReplayedPredictor {
    ReplayedPredictor::new("frequency", |catalog, _| {
        Box::new(Frequency::new(catalog.tools.len()))
    })
}

#[derive(Debug)]
struct SessionList {
    all: Vec<ReplaySession>,
    left: VecDeque<ReplaySession>,
}

impl SessionList {
    fn new(sessions: &[(&str, &[usize])]) -> Self {
        let all = sessions.iter().enumerate();
        let all: Vec<ReplaySession> = all
            .map(|(number, (task, tools))| ReplaySession {
                id: number.to_string(),
                task: Some((*task).into()),
                calls: tools.iter().map(|tool| call(*tool)).collect(),
                ..ReplaySession::default()
            })
            .collect();
        let left = all.clone().into();
        Self { all, left }
    }
}

fn call(tool: usize) -> ReplayCall {
    ReplayCall {
        tool,
        ok: true,
        turn: None,
        at: None,
    }
}

impl SessionSource for SessionList {
    type Error = Infallible;

    async fn next(&mut self) -> Result<Option<ReplaySession>, Infallible> {
        Ok(self.left.pop_front())
    }

    async fn restart(&mut self) -> Result<(), Infallible> {
        self.left = self.all.clone().into();
        Ok(())
    }
}

fn catalog(n_tools: usize) -> ReplayCatalog {
    let tool = |number: usize| ReplayTool {
        name: format!("tool-{number}"),
        ..ReplayTool::default()
    };
    ReplayCatalog {
        tools: (0..n_tools).map(tool).collect(),
    }
}

fn options(unseen_tasks: bool) -> ReplayOptions {
    ReplayOptions {
        predictors: vec![frequency()],
        policies: vec![SimulatedPolicy::Static, SimulatedPolicy::Rerank],
        lists: SimulatedOptions {
            bounds: ListBounds {
                min_tools: 1,
                max_tools: 1,
                token_budget: None,
            },
            n_inline: 0,
            prices: riglm_domain::selection::ListPrices::default(),
        },
        words: TopicWords::default(),
        with_query: true,
        unseen_tasks,
    }
}

async fn replay_sessions(sessions: &[(&str, &[usize])], unseen_tasks: bool) -> ReplayReport {
    let mut source = SessionList::new(sessions);
    let silent = |_: &str, _| {};
    let catalog = catalog(3);
    let texts = Arc::new(ReplayTexts::of_catalog(&catalog));
    replay(
        &catalog,
        &texts,
        &mut source,
        &options(unseen_tasks),
        &silent,
    )
    .await
    .unwrap()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[tokio::test]
async fn calls_are_predicted_before_learning() {
    let report = replay_sessions(&[("t", &[2, 2]), ("t", &[]), ("t", &[2])], false).await;
    assert_eq!(
        (report.n_sessions, report.n_calls, report.n_first_uses),
        (2, 3, 2)
    );
    let metrics = &report.predictors[0].metrics;
    // The first call has the last rank, because nothing is learned yet.
    assert!(near(metrics.hit_rate(1), 2.0 / 3.0) && near(metrics.first_use_hit_rate(1), 0.5));
    assert!(near(metrics.mrr(), (1.0 / 3.0 + 1.0 + 1.0) / 3.0));
    let coverage = |at: usize| report.policies[at].1.coverage;
    // The static list of the first session has tool 0 and stays.
    assert!(near(coverage(0), 1.0 / 3.0) && near(coverage(1), 2.0 / 3.0));
}

#[tokio::test]
async fn sessions_of_the_same_task_are_not_learned() {
    let same = replay_sessions(&[("t", &[2]), ("t", &[2]), ("t", &[2])], true).await;
    assert_eq!(same.n_calls, 3);
    assert!(near(same.predictors[0].metrics.hit_rate(1), 0.0));
    // Two tasks of different folds learn from each other, also from later sessions of the file.
    let folds = |task: &str| {
        fold_of(&ReplaySession {
            task: Some(task.into()),
            ..ReplaySession::default()
        })
    };
    let names: Vec<String> = (0..20).map(|number| format!("task-{number}")).collect();
    let other = names.iter().find(|name| folds(name) != folds("t")).unwrap();
    let different = replay_sessions(&[("t", &[2]), (other, &[2])], true).await;
    assert!(near(different.predictors[0].metrics.hit_rate(1), 1.0));
}

#[tokio::test]
async fn the_query_and_the_turns_can_be_hidden() {
    #[derive(Debug, Default)]
    struct TextRecorder(Vec<String>);
    impl Forecaster for TextRecorder {
        fn begin_session(&mut self, session: &super::super::SessionContext<'_>) {
            self.0.extend(session.query.map(Into::into));
        }
        fn predict(&mut self, call: &super::super::CallContext<'_>, _scores: &mut [f64]) {
            self.0.extend(call.turn.map(|(_, text)| text.into()));
        }
        fn observe(&mut self, _called: &super::super::ObservedCall, _learns: bool) {}
        fn end_session(&mut self, _learns: bool) {}
    }
    let session = ReplaySession {
        query: Some("q".into()),
        turns: vec!["one".into(), "two".into()],
        calls: vec![
            call(0),
            ReplayCall {
                turn: Some(1),
                ..call(0)
            },
        ],
        ..ReplaySession::default()
    };
    for (with_query, expected) in [(true, &["q", "one", "two"][..]), (false, &[])] {
        let mut hears = TextRecorder::default();
        let options = PlayOptions {
            with_query,
            learns: true,
            for_lists: false,
        };
        play(&mut hears, &session, options, &mut [0.0], |_, _| {});
        assert_eq!(hears.0, expected);
    }
}

#[test]
fn the_rest_of_a_session_is_predicted_for_lists_and_answers_alone() {
    /// Predicts the found tool as the only one that is used later, or tool 2 at the start.
    #[derive(Debug)]
    struct Later;
    impl Forecaster for Later {
        fn begin_session(&mut self, _session: &super::super::SessionContext<'_>) {}
        fn predict(&mut self, _call: &CallContext<'_>, scores: &mut [f64]) {
            scores[0] = 1.0;
        }
        fn predict_later(&mut self, found: Option<usize>, scores: &mut [f64]) -> bool {
            scores[found.unwrap_or(2)] = 1.0;
            true
        }
        fn observe(&mut self, _called: &ObservedCall, _learns: bool) {}
        fn end_session(&mut self, _learns: bool) {}
    }
    let session = ReplaySession {
        calls: vec![call(1), call(1), call(2)],
        ..ReplaySession::default()
    };
    for for_lists in [true, false] {
        let options = PlayOptions {
            with_query: true,
            learns: true,
            for_lists,
        };
        let best = |scores: &[f64]| scores.iter().position(|score| *score > 0.0);
        let mut seen = Vec::new();
        play(
            &mut Later,
            &session,
            options,
            &mut [0.0; 3],
            |position, scores| {
                let later = [scores.start, scores.found].map(|scores| scores.and_then(best));
                seen.push((position, best(scores.next), later));
            },
        );
        let later = |start, found| {
            if for_lists { [start, found] } else { [None; 2] }
        };
        let expected = [
            (0, Some(0), later(Some(2), Some(1))),
            // Not the first call of its tool.
            (1, Some(0), later(None, None)),
            (2, Some(0), later(None, Some(2))),
        ];
        assert_eq!(seen, expected, "{for_lists}");
    }
}
