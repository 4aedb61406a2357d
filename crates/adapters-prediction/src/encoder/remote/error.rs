//! Errors of the encoder with an embedding server.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use crate::endpoint::EndpointError;

/// The reason why there are no vectors. No message contains text of the server, because it may
/// repeat the key.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteError {
    /// The server failed before and is in back-off.
    #[error("the server failed before, back-off for another {} s", .wait.as_secs().max(1))]
    Down {
        /// Rest of the back-off.
        wait: Duration,
    },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The response is not a list of vectors.
    #[error("the answer is not a list of vectors")]
    Form(#[source] Box<dyn Error + Send + Sync>),
    /// The number of vectors differs from the number of texts.
    #[error("the answer has {found} vectors for {expected} texts")]
    Count {
        /// The number of texts.
        expected: usize,
        /// The number of vectors.
        found: usize,
    },
    /// The index of a vector is out of range or occurs twice.
    #[error("the answer has an index {0} that is out of range or repeated")]
    Index(usize),
    /// A vector has another dimension than earlier ones.
    #[error("the answer has a vector of dimension {found} instead of {expected}")]
    Dimension { expected: usize, found: usize },
    /// A vector has no direction: it has a number that is not finite, or only zeros.
    #[error("vector {0} of the answer is not finite or has length 0")]
    NoDirection(usize),
}

impl RemoteError {
    /// Returns whether the error probably affects all texts, and not only these.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Endpoint(error) if error.is_outage())
    }

    /// Returns the message of the error with its causes.
    pub(super) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            // Writing to a `String` cannot fail.
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        text
    }
}
