//! Lists of tools as clients saw them under a policy.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hexadecimal::hex;
use crate::id::SessionId;
use crate::principal::Principal;
use crate::tool::ToolRef;

/// A set of tools in the order of a list, identified by its content and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSet {
    /// SHA-256 over the keys of the tools, in hexadecimal.
    id: String,
    tools: Vec<ToolRef>,
}

impl ToolSet {
    /// Returns the set of these tools, in this order.
    #[must_use]
    pub fn new(tools: Vec<ToolRef>) -> Self {
        let mut digest = Sha256::new();
        for tool in &tools {
            digest.update(tool.upstream.as_str());
            digest.update([0]);
            digest.update(tool.tool.as_str());
            digest.update([0]);
        }
        Self {
            id: hex(&digest.finalize()),
            tools,
        }
    }

    /// Returns what identifies the set.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the tools in the order of the list.
    #[must_use]
    pub fn tools(&self) -> &[ToolRef] {
        &self.tools
    }
}

/// A list that a session was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListShown {
    /// The session.
    pub session: SessionId,
    /// Who asked.
    pub principal: Principal,
    /// When it was shown. A session is shown one list at a moment.
    pub shown_at: Timestamp,
    /// The epoch of the list.
    pub epoch: u64,
    /// The name of the policy that chose the tools.
    pub policy: String,
    /// The tools that were shown.
    pub tools: ToolSet,
    /// How many tools there were to choose from.
    pub n_available: u64,
}
