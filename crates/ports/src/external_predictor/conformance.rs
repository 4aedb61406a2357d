//! Tests of the promises of an external predictor, for predictors in any language.
//!
//! `riglm predictor check` runs them against a program or a server, and
//! `external_predictor_contract!` (feature `contract`) in the tests of a crate.

use futures_util::future::{join_all, poll_immediate};
use riglm_domain::prediction::ToolCounts;
use strum::{IntoStaticStr, VariantArray};

use super::{
    ExternalPredictor, MAX_TOOLS, SCHEMA, ScoreError, ScoreRequest, SessionSoFar, ToolToScore,
};

/// A promise with its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Clause {
    /// Each tool has a score that is finite and not negative.
    EachToolHasAScore,
    /// Equal requests get equal scores.
    EqualRequestsGetEqualScores,
    /// A request without tools gets a response without scores.
    ARequestWithoutToolsGetsNoScores,
    /// Requests at the same time get their own scores.
    RequestsAtTheSameTimeGetTheirOwnScores,
    /// Names may be any text.
    AnyNamesAreAccepted,
    /// Counts may be any numbers from 0 on.
    AnyCountsAreAccepted,
    /// The largest request gets its scores.
    TheLargestRequestGetsItsScores,
    /// A dropped request does not disturb the next one.
    ADroppedRequestDisturbsNoOther,
}

/// A promise that is not kept.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A request got no scores.
    #[error(transparent)]
    NoScores(#[from] ScoreError),
    /// The scores are not what they must be.
    #[error("{0}")]
    Scores(&'static str),
}

impl Clause {
    /// All clauses.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the clause.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Tests the clause.
    ///
    /// # Errors
    ///
    /// Returns [`Violation`] if the predictor does not keep the promise.
    pub async fn check(self, predictor: &dyn ExternalPredictor) -> Result<(), Violation> {
        match self {
            Self::EachToolHasAScore => {
                for n_tools in [1, 2, 12] {
                    scores(predictor, &request(1, n_tools)).await?;
                }
                Ok(())
            }
            Self::EqualRequestsGetEqualScores => {
                let one = scores(predictor, &request(1, 12)).await?;
                scores(predictor, &request(2, 5)).await?;
                let again = scores(predictor, &request(3, 12)).await?;
                let otherwise = "the second of two equal requests got other scores";
                expect_equal(&one, &again, otherwise)
            }
            Self::ARequestWithoutToolsGetsNoScores => {
                let mut empty = request(1, 0);
                empty.session = SessionSoFar::default();
                scores(predictor, &empty).await.map(drop)
            }
            Self::RequestsAtTheSameTimeGetTheirOwnScores => {
                let requests: Vec<ScoreRequest> = (1..=16).map(|n| request(n as u64, n)).collect();
                let together = join_all(requests.iter().map(|one| scores(predictor, one))).await;
                for (request, together) in requests.iter().zip(together) {
                    let alone = scores(predictor, request).await?;
                    let otherwise = "a request got the scores of another one";
                    expect_equal(&alone, &together?, otherwise)?;
                }
                Ok(())
            }
            Self::AnyNamesAreAccepted => {
                let mut strange = request(1, 6);
                let long = "n".repeat(10_000);
                let names = [
                    "",
                    "\u{0}\n\u{202e}",
                    "日本語/工具",
                    "\"}{\\",
                    "a\u{2028}b",
                    &long,
                ];
                for (tool, name) in strange.tools.iter_mut().zip(names) {
                    name.clone_into(&mut tool.name);
                    name.clone_into(&mut tool.upstream);
                }
                strange.session.client = long.clone();
                strange.session.text = Some(format!("find \u{7}\n{long}"));
                scores(predictor, &strange).await.map(drop)
            }
            Self::AnyCountsAreAccepted => {
                let mut extreme = request(1, 4);
                for (tool, calls) in extreme.tools.iter_mut().zip([0.0, 1e-9, 0.5, 1e15]) {
                    tool.counts = ToolCounts {
                        calls,
                        first_calls: calls,
                        after_last: calls,
                        after_last_two: calls,
                    };
                }
                extreme.session.n_calls = 1_000_000;
                extreme.session.time = Some(-1);
                extreme.tools[2].callable = false;
                scores(predictor, &extreme).await.map(drop)
            }
            Self::TheLargestRequestGetsItsScores => {
                scores(predictor, &request(1, MAX_TOOLS)).await.map(drop)
            }
            Self::ADroppedRequestDisturbsNoOther => {
                let expected = scores(predictor, &request(1, 3)).await?;
                let dropped = request(2, 7);
                // Polled once, so that the request may have been sent.
                let mut sent = Box::pin(predictor.score(&dropped));
                let _ = poll_immediate(&mut sent).await;
                drop(sent);
                let next = scores(predictor, &request(3, 3)).await?;
                let otherwise = "the request after a dropped one got other scores";
                expect_equal(&expected, &next, otherwise)
            }
        }
    }
}

/// Returns the scores for a request after checking them.
async fn scores(
    predictor: &dyn ExternalPredictor,
    request: &ScoreRequest,
) -> Result<Vec<f64>, Violation> {
    let response = predictor.score(request).await?;
    response.check(request)?;
    Ok(response.scores)
}

fn expect_equal(one: &[f64], other: &[f64], otherwise: &'static str) -> Result<(), Violation> {
    let is_equal = one == other;
    is_equal.then_some(()).ok_or(Violation::Scores(otherwise))
}

/// Returns a request of a session that called the first tools.
fn request(id: u64, n_tools: usize) -> ScoreRequest {
    let count = |n: usize| u32::try_from(n).map_or(f64::MAX, f64::from);
    let tool = |n: usize| ToolToScore {
        upstream: format!("server_{}", n % 3),
        name: format!("tool_{n}"),
        callable: true,
        counts: ToolCounts {
            calls: 100.0 / (1.0 + count(n)),
            first_calls: count(n % 2),
            after_last: count(n % 4),
            after_last_two: 0.0,
        },
    };
    let used: Vec<usize> = (0..n_tools.min(3)).collect();
    ScoreRequest {
        schema: SCHEMA.into(),
        id,
        session: SessionSoFar {
            client: "editor".into(),
            n_calls: used.len(),
            last_calls: used.clone(),
            used,
            time: Some(1_800_000_000),
            text: None,
        },
        tools: (0..n_tools).map(tool).collect(),
    }
}
