//! Which tools the proxy itself has, and which of their names upstreams use themselves.

use riglm_domain::id::ToolName;

/// A tool of the proxy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum OwnTool {
    /// Finds tools.
    Search,
    /// Calls a tool, whether it is listed or not.
    CallTool,
    /// Says what is being done, and finds tools for it.
    SetContext,
}

impl OwnTool {
    /// All of them, in the order in which they are listed.
    pub(in crate::proxy) const ALL: [Self; 3] = [Self::Search, Self::CallTool, Self::SetContext];

    fn bit(self) -> u8 {
        match self {
            Self::Search => 1,
            Self::CallTool => 2,
            Self::SetContext => 4,
        }
    }

    /// Returns the key of the configuration that gives it another name.
    pub(super) fn name_key(self) -> &'static str {
        match self {
            Self::Search => "search.tool_name",
            Self::CallTool => "search.call_tool_name",
            Self::SetContext => "search.set_context_name",
        }
    }
}

/// The own tools whose names an upstream uses itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) struct Taken(u8);

impl Taken {
    /// Adds a tool.
    pub(in crate::proxy) fn add(&mut self, tool: OwnTool) {
        self.0 |= tool.bit();
    }

    /// Returns these and those.
    pub(in crate::proxy) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the name of a tool is taken.
    pub(in crate::proxy) fn has(self, tool: OwnTool) -> bool {
        self.0 & tool.bit() != 0
    }
}

/// The tools of the proxy itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaTools {
    /// The name of the tool for searching; without one there are no others either.
    pub search: Option<ToolName>,
    /// The name of the tool for calling others; `None` where there is none.
    pub call_tool: Option<ToolName>,
    /// The name of the tool for saying what is being done; `None` where there is none.
    pub set_context: Option<ToolName>,
}

impl MetaTools {
    /// Returns the name of a tool.
    pub(super) fn name(&self, tool: OwnTool) -> Option<&str> {
        let name = match tool {
            OwnTool::Search => &self.search,
            OwnTool::CallTool => &self.call_tool,
            OwnTool::SetContext => &self.set_context,
        };
        name.as_ref().map(ToolName::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_taken_for_itself() {
        for taken in OwnTool::ALL {
            let mut all = Taken::default();
            all.add(taken);
            for tool in OwnTool::ALL {
                assert_eq!(all.has(tool), tool == taken, "{taken:?}, {tool:?}");
            }
        }
    }
}
