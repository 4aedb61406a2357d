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
    /// Recommends tools for an intent, with the reasons.
    Recommend,
    /// Says what a tool was worth.
    RateTool,
    /// Returns the rest of a result that was cut.
    ReadMore,
}

impl OwnTool {
    /// All of them, in the order in which they are listed.
    pub(in crate::proxy) const ALL: [Self; 6] = [
        Self::Search,
        Self::CallTool,
        Self::SetContext,
        Self::Recommend,
        Self::RateTool,
        Self::ReadMore,
    ];

    fn bit(self) -> u8 {
        match self {
            Self::Search => 1,
            Self::CallTool => 2,
            Self::SetContext => 4,
            Self::Recommend => 8,
            Self::RateTool => 16,
            Self::ReadMore => 32,
        }
    }

    /// Returns the key of the configuration that gives it another name.
    pub(super) fn name_key(self) -> &'static str {
        match self {
            Self::Search => "search.tool_name",
            Self::CallTool => "search.call_tool_name",
            Self::SetContext => "search.set_context_name",
            Self::Recommend => "recommend.tool_name",
            Self::RateTool => "recommend.rate_tool_name",
            Self::ReadMore => "safeguards.long_results.tool_name",
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
    /// The name of the tool for recommendations; `None` where there is none.
    pub recommend: Option<ToolName>,
    /// The name of the tool for rating tools; `None` where there is none.
    pub rate_tool: Option<ToolName>,
    /// The name of the tool for reading on in results that were cut; `None` where there is none.
    pub read_more: Option<ToolName>,
}

impl MetaTools {
    /// Returns the names of all that there are.
    pub fn names(&self) -> impl Iterator<Item = &ToolName> {
        let all = [
            &self.search,
            &self.call_tool,
            &self.set_context,
            &self.recommend,
            &self.rate_tool,
            &self.read_more,
        ];
        all.into_iter().flatten()
    }

    /// Returns the name of a tool.
    pub(super) fn name(&self, tool: OwnTool) -> Option<&str> {
        let name = match tool {
            OwnTool::Search => &self.search,
            OwnTool::CallTool => &self.call_tool,
            OwnTool::SetContext => &self.set_context,
            OwnTool::Recommend => &self.recommend,
            OwnTool::RateTool => &self.rate_tool,
            OwnTool::ReadMore => &self.read_more,
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
