//! Exchanges: recorded requests other than tool calls, which list and read resources and prompts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{ExchangeId, SessionId, UpstreamName};
use crate::privacy::principal::Principal;
use crate::usage::invocation::Outcome;

/// One recorded request, written when it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The identifier of the record.
    pub id: ExchangeId,
    /// The session that made it.
    pub session: SessionId,
    /// The principal of the client.
    pub principal: Principal,
    /// The upstream that it was forwarded to.
    pub upstream: UpstreamName,
    /// The method, for example `resources/read`.
    pub method: String,
    /// The target of the request: the URI of a resource, or the name of a prompt.
    pub target: Option<String>,
    /// The time of receipt.
    pub started_at: Timestamp,
    /// Time from receipt of the request to receipt of the answer, in microseconds.
    pub duration_us: u64,
    /// The outcome of the request.
    pub outcome: Outcome,
}

impl Exchange {
    /// The methods that are recorded as exchanges.
    pub const RECORDED_METHODS: [&'static str; 4] = [
        "resources/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
    ];
}
