//! The clauses of requests to a language model that fail: of re-rankers and query expanders alike.

use std::fmt;

use async_trait::async_trait;

use super::within;
use crate::model_call::{ModelCallError, ModelUsage};

/// A text in every prompt of the suite. It must be in no message.
pub const SECRET_PROMPT: &str = "prompt-hunter2";
/// A text in every answer of the model. It must be in no message.
pub const SECRET_ANSWER: &str = "answer-hunter2";

/// The behaviour of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFailure {
    /// It cannot be reached.
    Down,
    /// It answers with an error of its own, whose text has [`SECRET_ANSWER`].
    Failing,
    /// It answers, but not in the form that was asked for. The text has [`SECRET_ANSWER`].
    Nonsense,
    /// It never answers.
    Silent,
}

/// A use of a language model, whose failures a test chooses.
#[async_trait]
pub trait ModelCallScene: Send + Sync + fmt::Debug {
    /// Makes one request that has [`SECRET_PROMPT`] in its prompt, to a model that fails in this
    /// way. Returns its error; `None` if this model cannot fail in this way.
    ///
    /// With [`ModelFailure::Silent`] the model must have a timeout of its own that is shorter than
    /// 10 s, or return `None`.
    async fn failure(&self, failure: ModelFailure) -> Option<ModelCallError>;
}

/// Expands to a module with one `tokio::test` for each clause of requests that fail.
///
/// `$fresh` is evaluated and awaited for each test. It returns a value that dereferences to a
/// [`ModelCallScene`](crate::contract::model_call::ModelCallScene).
#[macro_export]
macro_rules! model_call_contract {
    ($(#[$attribute:meta])* $module:ident, $fresh:expr) => {
        mod $module {
            use super::*;

            $crate::contract_clauses!(model_call [$(#[$attribute])*] $fresh;
                a_model_that_is_down_is_unavailable,
                a_model_that_fails_is_unavailable_or_refuses,
                an_answer_of_another_form_is_nonsense_with_its_tokens,
                a_model_that_does_not_answer_is_late,
                messages_contain_neither_prompt_nor_answer,
            );
        }
    };
}

const ALL: [ModelFailure; 4] = [
    ModelFailure::Down,
    ModelFailure::Failing,
    ModelFailure::Nonsense,
    ModelFailure::Silent,
];

/// A model that cannot be reached is unavailable.
pub async fn a_model_that_is_down_is_unavailable(scene: &impl ModelCallScene) {
    if let Some(error) = within(scene.failure(ModelFailure::Down)).await {
        assert!(matches!(error, ModelCallError::Unavailable(_)), "{error:?}");
        assert_eq!(error.usage(), ModelUsage::default());
    }
}

/// An error of the model is the same as none, or its refusal.
pub async fn a_model_that_fails_is_unavailable_or_refuses(scene: &impl ModelCallScene) {
    if let Some(error) = within(scene.failure(ModelFailure::Failing)).await {
        let is_known = matches!(
            error,
            ModelCallError::Unavailable(_) | ModelCallError::Refused
        );
        assert!(is_known, "{error:?}");
        assert_eq!(error.usage(), ModelUsage::default());
    }
}

/// An answer of another form used tokens.
pub async fn an_answer_of_another_form_is_nonsense_with_its_tokens(scene: &impl ModelCallScene) {
    if let Some(error) = within(scene.failure(ModelFailure::Nonsense)).await {
        let ModelCallError::Nonsense(usage) = &error else {
            panic!("{error:?}");
        };
        assert!(usage.n_input_tokens > 0, "{usage:?}");
        assert_eq!(error.usage(), *usage);
    }
}

/// A model with a timeout that does not answer is late.
pub async fn a_model_that_does_not_answer_is_late(scene: &impl ModelCallScene) {
    if let Some(error) = within(scene.failure(ModelFailure::Silent)).await {
        assert!(matches!(error, ModelCallError::Late), "{error:?}");
    }
}

/// No message of an error, nor its causes, contains the prompt or the answer of the model.
pub async fn messages_contain_neither_prompt_nor_answer(scene: &impl ModelCallScene) {
    let mut n_failures = 0;
    for failure in ALL {
        let Some(error) = within(scene.failure(failure)).await else {
            continue;
        };
        n_failures += 1;
        let mut text = format!("{error:?}");
        let mut next: Option<&dyn std::error::Error> = Some(&error);
        while let Some(cause) = next {
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        for secret in [SECRET_PROMPT, SECRET_ANSWER] {
            assert!(!text.contains(secret), "{failure:?}: {text}");
        }
    }
    assert!(n_failures > 0, "the model cannot fail");
}
