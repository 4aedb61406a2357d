//! The ids of requests that riglm makes itself. They never reach the side that did not get the
//! request, and an id of a client that looks like one is escaped.

use std::fmt::Display;

use super::message::RequestId;

/// The prefix of every id of a request that riglm makes itself.
pub const INTERNAL_PREFIX: &str = "riglm:";

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
}

impl InternalRequest {
    const ALL: [Self; 5] = [
        Self::FanOut,
        Self::ToolList,
        Self::Initialize,
        Self::LogLevel,
        Self::Sampling,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::FanOut => "u",
            Self::ToolList => "search",
            Self::Initialize => "initialize",
            Self::LogLevel => "log-level",
            Self::Sampling => "sampling",
        }
    }

    /// Returns the id of a request of this kind; `number` tells it from others of the kind.
    #[must_use]
    pub fn id(self, number: impl Display) -> RequestId {
        RequestId::Text(format!("{INTERNAL_PREFIX}{}:{number}", self.name()).into())
    }

    /// Returns the kind of the request with this id. Returns `None` for an id of a client.
    #[must_use]
    pub fn of(id: &RequestId) -> Option<Self> {
        let RequestId::Text(text) = id else {
            return None;
        };
        let (name, _) = text.strip_prefix(INTERNAL_PREFIX)?.split_once(':')?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether an id belongs to a request of this kind.
    #[must_use]
    pub fn has(self, id: &RequestId) -> bool {
        Self::of(id) == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_belongs_to_one_kind() {
        for kind in InternalRequest::ALL {
            assert_eq!(InternalRequest::of(&kind.id(7)), Some(kind));
        }
        let id = |text: &str| RequestId::Text(text.into());
        assert_eq!(InternalRequest::FanOut.id(3), id("riglm:u:3"));
        for foreign in ["u:3", "riglm:u", "riglm:upstream:3"] {
            assert!(!InternalRequest::FanOut.has(&id(foreign)), "{foreign}");
        }
        let number = RequestId::from_json("3").expect("a number is an id");
        assert!(!InternalRequest::FanOut.has(&number));
    }
}
