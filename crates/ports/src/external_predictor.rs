//! Predictors outside of riglm: programs and servers that score tools for the next call.
//!
//! An [`ExternalPredictor`] gets a [`ScoreRequest`]: the calls of a session so far, and the tools with
//! their learned counts. It answers with a [`ScoreResponse`]: one score for each tool. It needs no
//! memory of its own, because riglm counts for it. Its scores are one expert among others in the
//! mix, and the mix learns how good they are; or they replace the mix.
//!
//! Both types have a fixed form as JSON, named by [`SCHEMA`]. A program reads one request from each
//! line of its standard input and writes one response to a line of its standard output. A server
//! gets a request as the body of a POST and answers with the response.
//!
//! # Promises
//!
//! - **A score for each tool**, in the order of the request: a finite number from 0 on, on any scale.
//!   All zeros mean that nothing is known.
//! - **Repeatable.** Equal requests get equal scores. The `id` of a request has no influence.
//! - **Own answers.** Requests may be made at the same time. Each gets its own scores.
//! - **Any names.** Names of tools and clients are texts that others chose: empty, long, in any script.
//! - **A deadline.** A request ends within the deadline of the adapter, with scores or an error.
//! - **A dropped request** has no influence on others.
//!
//! [`conformance`] tests them, as far as a test can.

pub mod conformance;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::prediction::ToolCounts;
use serde::{Deserialize, Serialize};

/// The name and version of the JSON form of requests and responses. Within a version members are only
/// added; readers ignore unknown members.
pub const SCHEMA: &str = "riglm.predictor/1";

/// Maximum number of tools in a request.
pub const MAX_TOOLS: usize = 5_000;

/// A request for the scores of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreRequest {
    /// [`SCHEMA`].
    pub schema: String,
    /// The number of the request, for the response to name. Numbers do not repeat while a program
    /// runs.
    pub id: u64,
    /// The session before the next call.
    pub session: SessionSoFar,
    /// The tools to score, and the other tools that the session called; at most [`MAX_TOOLS`].
    pub tools: Vec<ToolToScore>,
}

/// The session before the next call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionSoFar {
    /// The name of the client program; empty if it is unknown, or if the request is for sessions of
    /// several clients.
    pub client: String,
    /// Number of calls so far.
    pub n_calls: usize,
    /// The tools of the last calls, as positions in `tools`; at most 8, the newest last.
    pub last_calls: Vec<usize>,
    /// The different tools that were called, as positions in `tools`, in the order of their first
    /// calls.
    pub used: Vec<usize>,
    /// The time of the request, in seconds since 1970-01-01T00:00:00Z; `None` if it is unknown.
    pub time: Option<i64>,
    /// The declared intent of the session, in words. Only with `send_text = true`, and only if a
    /// client declared one; never when recorded calls are learned, because texts are not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A tool in a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolToScore {
    /// The name of the server.
    pub upstream: String,
    /// The name of the tool, as the server has it.
    pub name: String,
    /// Whether the tool can be called now. The score of other tools is ignored.
    pub callable: bool,
    /// The learned counts.
    pub counts: ToolCounts,
}

/// The scores of the tools of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScoreResponse {
    /// [`SCHEMA`].
    pub schema: String,
    /// The number of the request.
    pub id: u64,
    /// One score for each tool, in the order of the request: finite, from 0 on, on any scale.
    #[serde(default)]
    pub scores: Vec<f64>,
    /// The reasons for scores in a few words, by the positions of the tools. Operators see them, and
    /// agents in answers of searches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<usize, String>,
    /// The reason for missing scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ScoreResponse {
    /// Returns the response with these scores.
    #[must_use]
    pub fn new(id: u64, scores: Vec<f64>) -> Self {
        Self {
            schema: SCHEMA.into(),
            id,
            scores,
            ..Self::default()
        }
    }

    /// Checks that the response answers a request.
    ///
    /// # Errors
    ///
    /// Returns [`ScoreError::Invalid`] with the first thing that is wrong, or [`ScoreError::Refused`]
    /// if the response has an error.
    pub fn check(&self, request: &ScoreRequest) -> Result<(), ScoreError> {
        let invalid = |what: String| Err(ScoreError::Invalid(what));
        if self.schema != SCHEMA {
            let schema: String = self.schema.chars().take(40).collect();
            return invalid(format!("schema is {schema:?}, not {SCHEMA:?}"));
        }
        if self.id != request.id {
            return invalid(format!("id is {}, not {}", self.id, request.id));
        }
        if let Some(error) = &self.error {
            let error = error.chars().filter(|c| !c.is_control()).take(200);
            return Err(ScoreError::Refused(error.collect()));
        }
        let (n, expected) = (self.scores.len(), request.tools.len());
        if n != expected {
            return invalid(format!("{n} scores for {expected} tools"));
        }
        let mut scores = self.scores.iter().enumerate();
        if let Some((at, score)) = scores.find(|(_, score)| !score.is_finite() || **score < 0.0) {
            let what = format!("scores[{at}] is {score}, not a finite number from 0 on");
            return invalid(what);
        }
        if let Some((at, _)) = self.reasons.range(expected..).next() {
            return invalid(format!("reasons names tool {at} of {expected}"));
        }
        Ok(())
    }
}

/// The reason why there are no scores. Predictions then go on without them.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The predictor cannot be reached, does not start, or ended.
    #[error("the external predictor is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The predictor exceeded the deadline.
    #[error("the external predictor took longer than {} ms", .0.as_millis())]
    Late(Duration),
    /// The predictor answered that it has no scores. Holds its reason.
    #[error("the external predictor answered with an error: {0}")]
    Refused(String),
    /// The answer has not the form that it must have.
    #[error("the external predictor gave an invalid answer: {0}")]
    Invalid(String),
}

/// A predictor outside of riglm. It keeps the [promises](self#promises) of the module.
#[async_trait]
pub trait ExternalPredictor: Send + Sync + fmt::Debug {
    /// Returns the name for logs and for the store: predictors with the same name must give the same
    /// scores.
    fn name(&self) -> &str;

    /// Returns the scores of the tools of a request, after [`ScoreResponse::check`].
    ///
    /// # Errors
    ///
    /// Returns [`ScoreError`] when there are none.
    async fn score(&self, request: &ScoreRequest) -> Result<ScoreResponse, ScoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(n_tools: usize) -> ScoreRequest {
        let tool = |n: usize| ToolToScore {
            upstream: "files".into(),
            name: format!("tool_{n}"),
            callable: true,
            counts: ToolCounts::default(),
        };
        ScoreRequest {
            schema: SCHEMA.into(),
            id: 7,
            session: SessionSoFar::default(),
            tools: (0..n_tools).map(tool).collect(),
        }
    }

    fn response(json: &str) -> ScoreResponse {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_invalid_response_is_refused_with_its_error() {
        let good = response(
            r#"{"schema":"riglm.predictor/1","id":7,"scores":[1,0.5],"reasons":{"1":"x"},"more":1}"#,
        );
        assert!(good.check(&request(2)).is_ok());
        let refusals = [
            (
                r#"{"schema":"other/2","id":7,"scores":[1,0]}"#,
                "schema is \"other/2\"",
            ),
            (
                r#"{"schema":"riglm.predictor/1","id":8,"scores":[1,0]}"#,
                "id is 8, not 7",
            ),
            (
                r#"{"schema":"riglm.predictor/1","id":7,"scores":[1]}"#,
                "1 scores for 2 tools",
            ),
            (
                r#"{"schema":"riglm.predictor/1","id":7,"scores":[1,-1]}"#,
                "scores[1] is -1",
            ),
            (
                r#"{"schema":"riglm.predictor/1","id":7,"scores":[1,0],"reasons":{"2":"x"}}"#,
                "tool 2 of 2",
            ),
            (
                r#"{"schema":"riglm.predictor/1","id":7,"error":"no data"}"#,
                "error: no data",
            ),
        ];
        for (json, expected) in refusals {
            let error = response(json).check(&request(2)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_form_of_a_request_is_stable() {
        let mut request = request(1);
        request.session.last_calls = vec![0];
        let expected = r#"{"schema":"riglm.predictor/1","id":7,"session":{"client":"","n_calls":0,"last_calls":[0],"used":[],"time":null},"tools":[{"upstream":"files","name":"tool_0","callable":true,"counts":{"calls":0.0,"first_calls":0.0,"after_last":0.0,"after_last_two":0.0}}]}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), expected);
    }
}
