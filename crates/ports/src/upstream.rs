//! Towards the servers: connecting, sending, and what comes back.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::edit::member;
use riglm_domain::excerpt::excerpt;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_domain::redaction::redacted_text;

/// Why an upstream cannot be used or did not answer.
///
/// The texts say it of the upstream without naming it: whoever shows one puts the name before it, as in
/// `upstream files: could not be reached: connection refused`. They are fixed: what an upstream says
/// outside of the protocol (HTTP bodies, standard error) never becomes part of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The program could not be started.
    #[error("its command could not be started: {reason}")]
    NotStarted {
        /// What the operating system said.
        reason: String,
    },
    /// No connection could be made.
    #[error("could not be reached: {reason}")]
    Unreachable {
        /// What kind of failure it was.
        reason: &'static str,
    },
    /// It takes nothing more of this session or this principal for now. That says nothing of how
    /// others are served: a limit of the proxy is reached, or a process of the session's own is busy.
    #[error("cannot be used now: {reason}")]
    Busy {
        /// The resource that is used up.
        reason: &'static str,
    },
    /// The connection or the process ended.
    #[error("the connection was lost: {reason}")]
    Lost {
        /// What ended it.
        reason: String,
    },
    /// The server no longer knows the session: it must be set up anew. The message that met
    /// this error was not processed.
    #[error("it no longer knows the session")]
    SessionExpired,
    /// The server refused with an HTTP status and no JSON-RPC message.
    #[error("answered with HTTP status {status}")]
    Status {
        /// The status.
        status: u16,
    },
    /// The server refused the proxy's credentials, or there are none that it could present. The
    /// message that met this error was not processed.
    #[error("the proxy is not authorized: {reason}")]
    Unauthorized {
        /// What is wrong, and what a person can do about it where that is known.
        reason: String,
    },
    /// The server refused the handshake with a JSON-RPC error.
    #[error("refused the handshake: {reason}")]
    Refused {
        /// The code of the error, and the beginning of what it says, without secrets that are known
        /// by their form.
        reason: String,
    },
    /// What came is no MCP message.
    #[error("answered with something that is no MCP message: {reason}")]
    Garbled {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The answer is larger than the limit.
    #[error("its answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer is nested deeper than the limit.
    #[error("its answer is nested deeper than {limit} levels (limits.message_depth)")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
    },
    /// The exchange ended without an answer.
    #[error("ended the exchange without an answer")]
    NoAnswer,
}

/// How much of what an error of the protocol says becomes a part of a reason, in characters.
const MAX_SAID: usize = 200;
/// How much of its code does.
const MAX_CODE: usize = 20;

impl UpstreamError {
    /// Returns that a handshake was answered with the error in `answer`, or with no result.
    #[must_use]
    pub fn refused(answer: &Message) -> Self {
        let error = answer.single().and_then(|envelope| answer.error(envelope));
        let said = |error: &str| {
            let code = member(error, "code")?;
            let text: String = serde_json::from_str(member(error, "message")?).ok()?;
            // Before it is cut, since a part of a secret is not known as one.
            let text = redacted_text(&text, usize::MAX);
            Some(format!(
                "{} (code {})",
                excerpt(&text, MAX_SAID),
                excerpt(code, MAX_CODE)
            ))
        };
        Self::Refused {
            reason: error
                .and_then(said)
                .unwrap_or_else(|| "its answer is neither a result nor an error".into()),
        }
    }

    /// Returns what an operator can do about it, where that is known; reasons that say so themselves
    /// have none.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotStarted { .. } => "check that its `command` is installed and on the PATH",
            Self::Unreachable { .. } => "check that the server runs and that its `url` is right",
            Self::Status {
                status: 404 | 405 | 406 | 415,
            } => "check the path of its `url`: there may be no MCP server at this address",
            Self::Status { status: 500.. } => "look into the log of the server",
            Self::Garbled { .. } => {
                "check its `url` or `command`: what answers there may be no MCP server"
            }
            Self::Unauthorized { .. }
            | Self::Busy { .. }
            | Self::Lost { .. }
            | Self::SessionExpired
            | Self::Status { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::NoAnswer => return None,
        })
    }

    /// Returns the text with what an operator can do about it.
    #[must_use]
    pub fn with_remedy(&self) -> String {
        self.remedied(self.to_string())
    }

    /// Returns what kind of failure it is, with what an operator can do about it, for readers who need
    /// not be known: nothing that the server, the operating system or the configuration says is in it.
    #[must_use]
    pub fn kind_with_remedy(&self) -> String {
        let kind = match self {
            Self::NotStarted { .. } => "its command could not be started",
            Self::Refused { .. } => "refused the handshake",
            // Their texts are the proxy's own.
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
        self.remedied(kind.to_owned())
    }

    fn remedied(&self, text: String) -> String {
        match self.remedy() {
            Some(remedy) => format!("{text}; {remedy}"),
            None => text,
        }
    }
}

/// Makes connections to one configured upstream.
#[async_trait]
pub trait UpstreamConnector: Send + Sync + fmt::Debug {
    /// Returns the configured name.
    fn name(&self) -> &UpstreamName;

    /// Opens a connection of its own for one client session, on behalf of `principal`, and reports
    /// what arrives to `events`.
    ///
    /// Nothing is sent to the server on the proxy's own account: the first message is the
    /// client's. `events` may be called before this returns. The connection keeps `events` alive
    /// until it is closed or has reported [`UpstreamEvents::lost`].
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::NotStarted`], [`UpstreamError::Unreachable`] or
    /// [`UpstreamError::Unauthorized`]. A connector whose transport has no connection of its own
    /// (Streamable HTTP) may report the latter two later, through [`UpstreamEvents::unanswered`].
    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError>;
}

/// Work that somebody has to drive to its end.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request that was accepted for sending and whose answer somebody has to fetch.
///
/// Who holds it must drive `run` to its end, on a task of its own or not; dropped before that, the
/// request stays unanswered and nothing is reported for it.
pub struct Exchange {
    /// Sends the request and reports what comes back.
    pub run: Work,
    /// Ends when the request is on its way, so that what is sent then cannot overtake it, or when
    /// it is known that it never will be. Makes progress only while `run` is driven.
    pub on_its_way: Work,
}

impl Exchange {
    /// Returns an exchange that is over.
    #[must_use]
    pub fn done() -> Self {
        Self {
            run: Box::pin(std::future::ready(())),
            on_its_way: Box::pin(std::future::ready(())),
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange(..)")
    }
}

/// What became of a message that was sent.
#[derive(Debug)]
#[must_use]
pub enum Sent {
    /// The server has it, or the one stream that everything goes through.
    Delivered,
    /// It is a request on a transport where each request has an exchange of its own.
    UnderWay(Exchange),
}

/// The sending half of one connection.
#[async_trait]
pub trait UpstreamLink: Send + Sync + fmt::Debug {
    /// Sends a message as the bytes it is made of.
    ///
    /// The answer to a request, or [`UpstreamEvents::unanswered`], follows as an event. For
    /// notifications and responses this returns when the server has taken the message over, so
    /// that what is sent next is processed later. Messages of one caller reach the server in the
    /// order of the calls, if the caller waits for [`Exchange::on_its_way`] of each exchange. A
    /// dropped future never leaves half a message behind.
    ///
    /// # Errors
    ///
    /// Returns why the message cannot be delivered; no event follows for it then.
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError>;

    /// Returns whether the transport says on whose behalf a message comes: then one that is reported
    /// without a related request belongs to none.
    fn has_streams(&self) -> bool {
        false
    }

    /// Returns whether the connection holds something unfinished although no request that was sent
    /// waits for an answer, as a call that waits for the client's next request. Such a connection
    /// is not idle.
    fn is_needed(&self) -> bool {
        false
    }

    /// Ends the connection: the session on the server, the process with all its children. Ends
    /// it only once, and reports nothing afterwards.
    async fn close(&self);
}

/// The receiving half of one connection, implemented by the application.
#[async_trait]
pub trait UpstreamEvents: Send + Sync + fmt::Debug {
    /// Takes a message that arrived. `related` is the request on whose stream it came, where the
    /// transport has such streams. Messages of one stream are reported one after the other, in
    /// the order of their arrival; the next one waits until this returns.
    async fn received(&self, message: Message, related: Option<RequestId>);

    /// Takes note that a request that was sent will get no answer.
    async fn unanswered(&self, request: RequestId, error: UpstreamError);

    /// Takes note that the connection is over: nothing that was sent will be answered.
    async fn lost(&self, error: UpstreamError);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(error: &str) -> UpstreamError {
        let text = format!(r#"{{"jsonrpc":"2.0","id":0,"error":{error}}}"#);
        UpstreamError::refused(&Message::from_text(text).unwrap())
    }

    #[test]
    fn what_a_server_says_of_a_handshake_is_told_without_its_secrets() {
        let error =
            refused(r#"{"code":-32000,"message":"key sk-live-0123456789abcdef is invalid"}"#);
        assert_eq!(
            error.to_string(),
            "refused the handshake: key [redacted] is invalid (code -32000)"
        );
        // One that stands where the text is cut is known all the same.
        let text = format!("{} sk-live-0123456789abcdef", "x".repeat(MAX_SAID - 10));
        let error = refused(&format!(r#"{{"code":1,"message":"{text}"}}"#));
        assert!(!error.to_string().contains("sk-"), "{error}");
        let error = refused(&format!(
            r#"{{"code":"{}","message":"no"}}"#,
            "y".repeat(1_000)
        ));
        assert!(error.to_string().len() < 100, "{error}");
    }

    #[test]
    fn the_kind_of_a_failure_has_no_words_of_others() {
        let error = refused(r#"{"code":1,"message":"no such tenant as acme"}"#);
        assert_eq!(error.kind_with_remedy(), "refused the handshake");
        let error = UpstreamError::NotStarted {
            reason: "/home/alice/server: not found".into(),
        };
        assert_eq!(
            error.kind_with_remedy(),
            "its command could not be started; check that its `command` is installed and on the PATH"
        );
        let error = UpstreamError::Unreachable {
            reason: "connection refused",
        };
        assert_eq!(error.kind_with_remedy(), error.with_remedy());
    }
}
