//! A request other than a tool call that is worth a row: listing and reading of resources and
//! prompts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{ExchangeId, SessionId, UpstreamName};
use crate::invocation::Outcome;
use crate::principal::Principal;

/// One recorded request, written when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Identifies the request.
    pub id: ExchangeId,
    /// The session that made it.
    pub session: SessionId,
    /// Who asked.
    pub principal: Principal,
    /// The upstream that it was forwarded to.
    pub upstream: UpstreamName,
    /// The method, for example `resources/read`.
    pub method: String,
    /// What it named: the URI of a resource, the name of a prompt.
    pub target: Option<String>,
    /// When it was received.
    pub started_at: Timestamp,
    /// Time from receipt of the request to receipt of the answer, in microseconds.
    pub duration_us: u64,
    /// How it ended.
    pub outcome: Outcome,
}

impl Exchange {
    /// The methods that are recorded as exchanges.
    pub const METHODS: [&'static str; 4] = [
        "resources/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
    ];
}
