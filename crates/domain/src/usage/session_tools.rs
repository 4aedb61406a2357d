//! The tools of a session, with the order of their first use.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::change::CountedCall;
use crate::catalog::tool::ToolKey;

/// The first use of a tool in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTool {
    /// The tool.
    pub tool: ToolKey,
    /// Position of its first call among the calls of the session.
    pub first_sequence: u64,
    /// The time at which that call was received.
    pub first_at: Timestamp,
}

/// The tools of a session, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionTools(BTreeMap<ToolKey, SessionTool>);

impl SessionTools {
    /// The maximum number of tools of a session that are paired with each other, the first ones. A
    /// session with thousands of tools would make millions of pairs.
    pub const MAX_TOOLS: usize = 128;

    /// Adds a call. Returns whether that changes anything. Of several calls of a tool, the one with
    /// the lowest position is the first.
    pub fn record_call(&mut self, call: &CountedCall) -> bool {
        let candidate = SessionTool {
            tool: call.tool,
            first_sequence: call.sequence,
            first_at: call.started_at,
        };
        match self.0.get_mut(&call.tool) {
            Some(known) if known.first_sequence <= call.sequence => false,
            Some(known) => {
                *known = candidate;
                true
            }
            None => self.insert(candidate),
        }
    }

    /// Adds a new tool. Returns whether there was room.
    pub fn insert(&mut self, tool: SessionTool) -> bool {
        let has_room = self.0.len() < Self::MAX_TOOLS;
        if has_room {
            self.0.insert(tool.tool, tool);
        }
        has_room
    }

    /// Returns the tools, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = &SessionTool> {
        self.0.values()
    }

    /// Returns a tool of the session.
    #[must_use]
    pub fn get(&self, tool: ToolKey) -> Option<&SessionTool> {
        self.0.get(&tool)
    }
}
