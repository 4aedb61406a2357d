//! The port towards the upstreams: connecting, sending, and receiving.
//!
//! # Promises
//!
//! Of connectors:
//!
//! - **Name.** A connector has the name from its configuration.
//! - **Silence.** Nothing is sent to the server before the client has sent something.
//! - **Failures are reported.** A server that cannot be reached is [`UpstreamError::NotStarted`],
//!   [`UpstreamError::Unreachable`] or [`UpstreamError::Unauthorized`]: from
//!   [`UpstreamConnector::connect`], or for the first request.
//! - **Independence.** The same ids over two connections are different requests. The end of one
//!   connection leaves the others alone.
//!
//! Of links:
//!
//! - **One end.** Each accepted request gets one answer with its own id, or is reported as
//!   unanswered, or its connection as lost.
//! - **Bytes.** Arguments and results pass as the bytes that they were sent with.
//! - **Order.** Messages of one caller reach the server in the order of the calls, if the caller
//!   waits for [`Exchange::on_its_way`] of each. A notification has reached the server, or the
//!   single stream to it, when sending it returns.
//! - **No half messages.** A dropped [`UpstreamLink::send`] leaves all of a message or nothing.
//! - **Dropped exchanges.** A request whose [`Exchange`] was dropped is answered, or nothing is
//!   reported for it. The link goes on.
//! - **Refusals are final.** No event follows for a message that was refused with an error.
//! - **Closing.** A closed link refuses messages and reports nothing, neither for requests in
//!   flight nor as a loss, unless the report of a loss had begun. Closing it again, or by several
//!   callers at once, returns.
//! - **Dropping.** A link that is dropped without having been closed ends too. An ended and dropped
//!   link does not keep its receiver alive.
//!
//! Of the reports to [`UpstreamEvents`]:
//!
//! - **Order.** Messages of one stream are reported in the order in which the server sent them, and
//!   each when the report before has returned.
//! - **Relations.** If the transport has streams, messages of a request name it.
//! - **A loss is the end.** A loss is reported once, and nothing after it. The link refuses messages
//!   soon afterwards.
//!
//! `contract::upstream` has a clause for each.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::privacy::redaction::redact_text;
use riglm_domain::retrieval::excerpt::excerpt;

/// The reason why an upstream cannot be used or did not answer.
///
/// The messages do not name the upstream. The code that shows one puts the name in front, as in
/// `upstream files: could not be reached: connection refused`. Except for JSON-RPC errors, the
/// messages are fixed: text of an upstream outside of the protocol (HTTP bodies, standard error)
/// never becomes part of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The command of the upstream could not be started.
    #[error("its command could not be started: {reason}")]
    NotStarted {
        /// The message of the operating system.
        reason: String,
    },
    /// No connection could be made.
    #[error("could not be reached: {reason}")]
    Unreachable {
        /// The kind of the connection failure.
        reason: &'static str,
    },
    /// The upstream accepts no more requests of this session or this principal for now. Other
    /// sessions may not be affected: a limit of the proxy is reached, or a process that belongs to
    /// the session is busy.
    #[error("busy: {reason}")]
    Busy {
        /// The resource that is used up.
        reason: &'static str,
    },
    /// The connection or the process ended.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// The cause of the end.
        reason: String,
    },
    /// The server no longer knows the session, so the session must be initialized again. The
    /// message that got this error was not processed.
    #[error("the session is unknown or has expired")]
    SessionExpired,
    /// The server refused with an HTTP status and without a JSON-RPC message.
    #[error("answered with HTTP status {status}")]
    Status {
        /// The HTTP status code.
        status: u16,
    },
    /// The server refused the credentials of the proxy, or the proxy has none. The message that got
    /// this error was not processed.
    #[error("not authorized: {reason}")]
    Unauthorized {
        /// The cause, and the remedy if one is known.
        reason: String,
    },
    /// The server refused the handshake with a JSON-RPC error.
    #[error("rejected the handshake: {reason}")]
    Refused {
        /// The code of the error and the beginning of its message. Secrets in a known format are
        /// redacted.
        reason: String,
    },
    /// The received data is not an MCP message.
    #[error("sent an invalid MCP message: {reason}")]
    Garbled {
        /// A description of the problem.
        reason: &'static str,
    },
    /// The answer is larger than the size limit.
    #[error("its answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The JSON of the answer is nested deeper than the limit.
    #[error("its answer is nested deeper than {limit} levels (limits.message_depth)")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
    },
    /// The exchange ended without an answer.
    #[error("ended the exchange without an answer")]
    NoAnswer,
}

/// The maximum length in characters of a server's error message inside a reason.
const MAX_SAID: usize = 200;
/// The maximum length in characters of a server's error code inside a reason.
const MAX_CODE: usize = 20;

impl UpstreamError {
    /// Returns the error for a handshake that was answered with the error in `answer`, or without a
    /// result.
    #[must_use]
    pub fn from_refusal(answer: &Message) -> Self {
        let error = answer.single().and_then(|envelope| answer.error(envelope));
        let said = |error: &str| {
            let code = member(error, "code")?;
            let text: String = serde_json::from_str(member(error, "message")?).ok()?;
            // Redact before truncating: a truncated secret would not be recognized.
            let text = redact_text(&text, usize::MAX);
            let (text, code) = (excerpt(&text, MAX_SAID), excerpt(code, MAX_CODE));
            Some(format!("{text} (code {code})"))
        };
        let reason = error.and_then(said);
        Self::Refused {
            reason: reason.unwrap_or_else(|| "its answer is neither a result nor an error".into()),
        }
    }

    /// Returns advice for the operator; `None` if there is no known remedy, or if the message
    /// contains it.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotStarted { .. } => "check that its `command` is installed and on the PATH",
            Self::Unreachable { .. } => "check that the server runs and that its `url` is correct",
            Self::Status {
                status: 404 | 405 | 406 | 415,
            } => "check the path of its `url`: there may be no MCP server at this address",
            Self::Status { status: 500.. } => "check the log of the server",
            Self::Garbled { .. } => "check its `url` or `command`: it may not be an MCP server",
            _ => return None,
        })
    }

    /// Returns the message followed by the advice for the operator.
    #[must_use]
    pub fn with_remedy(&self) -> String {
        self.append_remedy(self.to_string())
    }

    /// Returns the kind of the failure and the advice, for readers who may be anonymous.
    ///
    /// The text contains nothing that the server, the operating system or the configuration
    /// provided.
    #[must_use]
    pub fn public_text(&self) -> String {
        let kind = match self {
            // Without the reasons, which come from the operating system and from the server.
            Self::NotStarted { .. } => "its command could not be started",
            Self::Refused { .. } => "rejected the handshake",
            // The messages of these variants are written by the proxy itself.
            Self::Busy { .. }
            | Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::Unauthorized { .. }
            | Self::SessionExpired
            | Self::Status { .. }
            | Self::Garbled { .. }
            | Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::NoAnswer => return self.with_remedy(),
        };
        self.append_remedy(kind.to_owned())
    }

    fn append_remedy(&self, text: String) -> String {
        match self.remedy() {
            Some(remedy) => format!("{text}; {remedy}"),
            None => text,
        }
    }
}

/// Creates connections to one configured upstream.
#[async_trait]
pub trait UpstreamConnector: Send + Sync + fmt::Debug {
    /// Returns the configured name.
    fn name(&self) -> &UpstreamName;

    /// Opens a separate connection for one client session, on behalf of `principal`, and reports
    /// messages that arrive to `events`.
    ///
    /// The proxy sends nothing to the server on its own initiative: the first message is the
    /// client's. `events` may be called before this returns. The connection keeps `events` alive
    /// until it is closed or has reported [`UpstreamEvents::on_lost`].
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::NotStarted`], [`UpstreamError::Unreachable`] or
    /// [`UpstreamError::Unauthorized`]. A connector whose transport has no connection of its own
    /// (Streamable HTTP) may report the latter two later, through [`UpstreamEvents::on_unanswered`].
    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError>;

    /// Returns whether the server is known to speak a stateless revision of MCP. False if nothing
    /// is known yet.
    fn speaks_modern(&self) -> bool {
        false
    }
}

/// A future that must be polled to completion.
pub type BoxedWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request that was accepted for sending, and whose answer is still to be received.
///
/// The owner must poll `run` to completion, on its own task or a new one. If it is dropped earlier,
/// the request may stay unanswered, and nothing reports that.
pub struct Exchange {
    /// Sends the request and reports the messages that come back.
    pub run: BoxedWork,
    /// Completes when the request has been sent, so that later messages cannot overtake it, or when
    /// it is certain that it never will be, or the server has not accepted it for a long time. Makes
    /// progress only while `run` is polled.
    pub on_its_way: BoxedWork,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange(..)")
    }
}

/// The result of sending a message.
#[derive(Debug)]
#[must_use]
pub enum SendOutcome {
    /// The server has the message, or it is in the single stream of the connection.
    Delivered,
    /// The message is a request on a transport with a separate exchange for each request.
    UnderWay(Exchange),
}

/// The sending half of one connection.
#[async_trait]
pub trait UpstreamLink: Send + Sync + fmt::Debug {
    /// Sends a message with its original bytes, in the order that the module promises.
    ///
    /// The answer to a request, or [`UpstreamEvents::on_unanswered`], follows as an event. For
    /// notifications and responses this returns when the server has accepted the message, so that
    /// messages sent afterwards are processed later.
    ///
    /// # Errors
    ///
    /// Returns the reason why the message cannot be delivered. No event follows for it then.
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError>;

    /// Returns whether the transport has a stream for each request. If so, a message that is
    /// reported without a related request belongs to no request.
    fn has_streams(&self) -> bool {
        false
    }

    /// Returns whether the connection has unfinished work although no sent request waits for an
    /// answer, such as a call that waits for the client's next request. Such a connection is not
    /// idle.
    fn is_needed(&self) -> bool {
        false
    }

    /// Returns the time that the server still has for its first answer, zero if that time is over.
    /// `None` once it has answered anything, and for a transport that starts nothing. A limit on an
    /// answer does not count while the server is still starting.
    fn time_to_start(&self) -> Option<Duration> {
        None
    }

    /// Closes the connection: the session on the server, or the process with all its children.
    /// Closes it only once, and reports nothing afterwards.
    async fn close(&self);
}

/// The receiving half of one connection, implemented by the application.
#[async_trait]
pub trait UpstreamEvents: Send + Sync + fmt::Debug {
    /// Receives a message. `related` is the request on whose stream it arrived, if the transport
    /// has such streams. The next message of the stream waits until this returns.
    async fn on_message(&self, message: Message, related: Option<RequestId>);

    /// Reports that a sent request will get no answer.
    async fn on_unanswered(&self, request: RequestId, error: UpstreamError);

    /// Reports that the connection has ended: no sent request will be answered any more.
    async fn on_lost(&self, error: UpstreamError);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(error: &str) -> UpstreamError {
        let text = format!(r#"{{"jsonrpc":"2.0","id":0,"error":{error}}}"#);
        UpstreamError::from_refusal(&Message::from_text(text).unwrap())
    }

    #[test]
    fn a_handshake_error_is_reported_without_secrets() {
        let error =
            refusal_of(r#"{"code":-32000,"message":"key sk-live-0123456789abcdef is invalid"}"#);
        assert_eq!(
            error.to_string(),
            "rejected the handshake: key [redacted] is invalid (code -32000)"
        );
        // A secret at the position of the truncation is redacted too.
        let text = format!("{} sk-live-0123456789abcdef", "x".repeat(MAX_SAID - 10));
        let error = refusal_of(&format!(r#"{{"code":1,"message":"{text}"}}"#));
        assert!(!error.to_string().contains("sk-"), "{error}");
        let error = refusal_of(&format!(
            r#"{{"code":"{}","message":"no"}}"#,
            "y".repeat(1_000)
        ));
        assert!(error.to_string().len() < 100, "{error}");
    }

    #[test]
    fn the_public_text_of_a_failure_contains_no_external_text() {
        let error = refusal_of(r#"{"code":1,"message":"no such tenant as acme"}"#);
        assert_eq!(error.public_text(), "rejected the handshake");
        let error = UpstreamError::NotStarted {
            reason: "/home/alice/server: not found".into(),
        };
        assert_eq!(
            error.public_text(),
            "its command could not be started; check that its `command` is installed and on the PATH"
        );
        let error = UpstreamError::Unreachable {
            reason: "connection refused",
        };
        assert_eq!(error.public_text(), error.with_remedy());
    }
}
