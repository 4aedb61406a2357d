//! What goes wrong between the encoder and its server.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use crate::endpoint::EndpointError;

/// Why there are no vectors. What the server wrote is in none of the texts: it may repeat the key.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    /// It failed before, and is not asked yet.
    #[error("the server failed before and is not asked for another {} s", .wait.as_secs().max(1))]
    Down {
        /// How long it is not asked.
        wait: Duration,
    },
    /// There is no answer.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Its answer is no list of vectors.
    #[error("the answer is not a list of vectors")]
    Form(#[source] Box<dyn Error + Send + Sync>),
    /// It answered with more or fewer vectors than there are texts.
    #[error("the answer has {found} vectors for {expected} texts")]
    Count {
        /// How many texts were sent.
        expected: usize,
        /// How many vectors came.
        found: usize,
    },
    /// A vector belongs to no text, or to one that has another.
    #[error("the answer has an index {0} that is out of range or repeated")]
    Index(usize),
    /// A vector has another dimension than those before.
    #[error("the answer has a vector of dimension {found} instead of {expected}")]
    Dimension {
        /// That of the others.
        expected: usize,
        /// That of this one.
        found: usize,
    },
    /// A vector has no direction: a number in it is not finite, or all are 0.
    #[error("vector {0} of the answer is not finite or has length 0")]
    NoDirection(usize),
}

impl RemoteError {
    /// Returns whether the server does not serve anybody, as far as can be told: any other text
    /// would meet the same.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Endpoint(error) if error.is_outage())
    }

    /// Returns the text of the error and of what it comes from.
    pub(super) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            // Writing to a string does not fail.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        text
    }
}
