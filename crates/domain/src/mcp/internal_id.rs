//! The ids of requests that riglm makes itself. They never reach the side that did not get the
//! request, and an id of a client that looks like one is escaped.

use std::fmt::Display;

use super::message::RequestId;

/// The prefix of every id of a request that riglm makes itself.
pub const INTERNAL_PREFIX: &str = "riglm:";

/// The prefix that escapes an id of a client. No id of riglm itself starts with it.
pub const ESCAPE_PREFIX: &str = "riglm:c:";

/// A kind of requests that the proxy makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalRequest {
    /// A request to one of several upstreams, or the request of an upstream as the client gets it.
    FanOut,
    /// A request for the tools of an upstream.
    ToolList,
    /// The handshake of the client, replayed to an upstream.
    Initialize,
    /// The log level of the client, replayed to an upstream.
    LogLevel,
    /// A question to the language model of the client.
    Sampling,
    /// A request over a shared connection, and its progress token.
    Shared,
    /// A request of a modern client, as the bridge sends it to a legacy server.
    BridgedCall,
    /// The progress token of such a request, if the token of the client is in use already.
    BridgedProgress,
    /// A subscription of a modern client to a resource of a legacy server. It has the name of
    /// `Shared`: a shared connection below the bridge gives the request another id.
    BridgedSubscription,
    /// A notification stream that the bridge opens for a legacy client.
    BridgedListen,
    /// A request of a legacy client that the bridge sends again with the input of the client.
    BridgedRetry,
    /// A request for input that the bridge sends to a legacy client.
    BridgedInput,
    /// A request of the bridge about a task of a server.
    BridgedTask,
    /// A request of a health check.
    HealthCheck,
}

impl InternalRequest {
    const ALL: [Self; 14] = [
        Self::FanOut,
        Self::ToolList,
        Self::Initialize,
        Self::LogLevel,
        Self::Sampling,
        Self::Shared,
        Self::BridgedCall,
        Self::BridgedProgress,
        Self::BridgedSubscription,
        Self::BridgedListen,
        Self::BridgedRetry,
        Self::BridgedInput,
        Self::BridgedTask,
        Self::HealthCheck,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::FanOut => "u",
            Self::ToolList => "search",
            Self::Initialize => "initialize",
            Self::LogLevel => "log-level",
            Self::Sampling => "sampling",
            Self::Shared | Self::BridgedSubscription => "s",
            Self::BridgedCall => "m",
            Self::BridgedProgress => "p",
            Self::BridgedListen => "listen",
            Self::BridgedRetry => "retry",
            Self::BridgedInput => "input",
            Self::BridgedTask => "task",
            Self::HealthCheck => "check",
        }
    }

    /// Returns the id of a request of this kind; `number` tells it from others of the kind.
    #[must_use]
    pub fn id(self, number: impl Display) -> RequestId {
        RequestId::Text(format!("{INTERNAL_PREFIX}{}:{number}", self.name()).into())
    }

    /// Returns the kind of the request with this id, the first one of kinds with the same name.
    /// Returns `None` for an id of a client.
    #[must_use]
    pub fn of(id: &RequestId) -> Option<Self> {
        let (name, _) = parts(id)?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether an id belongs to a request of this kind.
    #[must_use]
    pub fn has(self, id: &RequestId) -> bool {
        parts(id).is_some_and(|(name, _)| name == self.name())
    }

    /// Returns the number of the request of this kind with this id. Returns `None` for all other
    /// ids.
    #[must_use]
    pub fn number_of(self, id: &RequestId) -> Option<u64> {
        let (name, digits) = parts(id)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        (name == self.name() && is_number)
            .then(|| digits.parse().ok())
            .flatten()
    }
}

/// A request that the proxy makes at most once on a connection, so that its id needs no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleRequest {
    /// The question of the bridge for the era and the description of a server.
    Discover,
    /// The handshake of the bridge with a legacy server.
    Initialize,
    /// The log level of a modern client for a legacy server.
    LogLevel,
}

impl SingleRequest {
    /// Returns the id of the request.
    #[must_use]
    pub fn id(self) -> RequestId {
        let name = match self {
            Self::Discover => "discover",
            Self::Initialize => "init",
            Self::LogLevel => "log-level",
        };
        RequestId::Text(format!("{INTERNAL_PREFIX}{name}").into())
    }
}

/// Returns whether an id has the form of an id of riglm.
#[must_use]
pub fn is_internal(id: &RequestId) -> bool {
    without_prefix(id).is_some()
}

fn without_prefix(id: &RequestId) -> Option<&str> {
    match id {
        RequestId::Text(text) => text.strip_prefix(INTERNAL_PREFIX),
        RequestId::Number(_) => None,
    }
}

/// Returns the name of the kind in an id, and the rest of the id.
fn parts(id: &RequestId) -> Option<(&str, &str)> {
    without_prefix(id)?.split_once(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RequestId {
        RequestId::Text(text.into())
    }

    #[test]
    fn an_id_belongs_to_its_kind() {
        for kind in InternalRequest::ALL {
            let own = kind.id(7);
            assert!(kind.has(&own));
            assert!(is_internal(&own));
            assert_eq!(kind.number_of(&own), Some(7));
            let found = InternalRequest::of(&own).unwrap();
            assert_eq!(found.name(), kind.name());
        }
        assert_eq!(InternalRequest::FanOut.id(3), id("riglm:u:3"));
        for foreign in ["u:3", "riglm:u", "riglm:upstream:3"] {
            assert!(!InternalRequest::FanOut.has(&id(foreign)), "{foreign}");
        }
        let number = RequestId::from_json("3").expect("a number is an id");
        assert!(!InternalRequest::FanOut.has(&number));
        assert!(!is_internal(&number));
    }

    #[test]
    fn only_digits_are_the_number_of_a_request() {
        for foreign in ["7", "riglm:s:", "riglm:s:+7", "riglm:s:x", "riglm:7"] {
            assert_eq!(InternalRequest::Shared.number_of(&id(foreign)), None);
        }
        let number = RequestId::Number("7".into());
        assert_eq!(InternalRequest::Shared.number_of(&number), None);
    }

    #[test]
    fn the_ids_of_single_requests_belong_to_no_kind() {
        let ids = [
            (SingleRequest::Discover, "riglm:discover"),
            (SingleRequest::Initialize, "riglm:init"),
            (SingleRequest::LogLevel, "riglm:log-level"),
        ];
        for (request, text) in ids {
            assert_eq!(request.id(), id(text));
            assert_eq!(InternalRequest::of(&request.id()), None);
        }
    }
}
