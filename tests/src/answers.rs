//! Canned responses to the requests that a server sends to its client.

use crate::envelope::{Envelope, raw_at};

/// The canned responses of a client, by method.
///
/// The text `$ID` in a response stands for the raw id of the request, `$PARAMS` for its raw params.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    by_method: Vec<(String, String)>,
}

impl Answers {
    /// Returns responses to `ping`, `roots/list`, `sampling/createMessage` and
    /// `elicitation/create`, as a client with all capabilities sends them.
    pub fn full() -> Self {
        Self::default()
            .with("ping", r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#)
            .with(
                "roots/list",
                r#"{"jsonrpc":"2.0","id":$ID,"result":{"roots":[{"uri":"file:///srv/data","name":"data","x-unknown":1.0}],"_meta":{"k":null}}}"#,
            )
            .with(
                "sampling/createMessage",
                r#"{"jsonrpc":"2.0","result":{"model":"canned","role":"assistant","content":{"type":"text","text":"forty-two \u2713"},"stopReason":"endTurn","x-score":0.70},"id":$ID}"#,
            )
            .with(
                "elicitation/create",
                r#"{"id":$ID,"jsonrpc":"2.0","result":{"action":"accept","content":{"name":"Ada","check":true,"integer":42,"number":3.14}}}"#,
            )
    }

    /// Adds the response for a method, or replaces it.
    #[must_use]
    pub fn with(mut self, method: &str, answer: &str) -> Self {
        self.by_method.retain(|(known, _)| known != method);
        self.by_method.push((method.to_owned(), answer.to_owned()));
        self
    }

    /// Removes the response for a method: such requests stay unanswered.
    #[must_use]
    pub fn without(mut self, method: &str) -> Self {
        self.by_method.retain(|(known, _)| known != method);
        self
    }

    /// Returns the responses to the requests in `message`.
    pub fn to(&self, message: &str) -> Vec<String> {
        Envelope::all(message)
            .iter()
            .filter(|envelope| envelope.is_request())
            .filter_map(|envelope| {
                let method = envelope.method()?;
                let (_, answer) = self.by_method.iter().find(|(known, _)| *known == method)?;
                let params = envelope.member("params").unwrap_or("null");
                Some(
                    answer
                        .replace("$ID", envelope.id()?)
                        .replace("$PARAMS", params),
                )
            })
            .collect()
    }
}

/// Returns the raw progress token of a request.
pub fn progress_token(request: &str) -> Option<String> {
    raw_at(request, &["params", "_meta", "progressToken"])
}
