//! The own tools of the proxy, and the own tools whose names upstreams use.

use riglm_domain::id::ToolName;

/// An own tool of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum OwnTool {
    /// Searches tools.
    Search,
    /// Calls a tool, whether it is listed or not.
    CallTool,
    /// Sets the context of the session and returns tools for it.
    SetContext,
    /// Recommends tools for an intent, with reasons.
    Recommend,
    /// Rates a tool.
    RateTool,
    /// Returns the next part of a truncated result.
    ReadMore,
}

impl OwnTool {
    /// All own tools in list order.
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

    /// Returns the configuration key of its name.
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

/// The own tools whose names an upstream uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::proxy) struct TakenNames(u8);

impl TakenNames {
    pub(in crate::proxy) fn add(&mut self, tool: OwnTool) {
        self.0 |= tool.bit();
    }

    /// Returns the union of both sets.
    pub(in crate::proxy) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether an upstream uses the name of a tool.
    pub(in crate::proxy) fn has(self, tool: OwnTool) -> bool {
        self.0 & tool.bit() != 0
    }
}

/// The names of the own tools of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnToolNames {
    /// The name of the search tool; without it there are no other own tools either.
    pub search: Option<ToolName>,
    /// The name of the tool that calls other tools; `None` if it is disabled.
    pub call_tool: Option<ToolName>,
    /// The name of the tool that sets the context; `None` if it is disabled.
    pub set_context: Option<ToolName>,
    /// The name of the recommendation tool; `None` if it is disabled.
    pub recommend: Option<ToolName>,
    /// The name of the rating tool; `None` if it is disabled.
    pub rate_tool: Option<ToolName>,
    /// The name of the tool for paging through truncated results; `None` if it is disabled.
    pub read_more: Option<ToolName>,
}

impl OwnToolNames {
    /// Returns the names of all enabled own tools.
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

    /// Returns the names without those that an upstream uses.
    pub(super) fn without(&self, taken: TakenNames) -> Self {
        let free = |tool, name: &Option<ToolName>| name.clone().filter(|_| !taken.has(tool));
        Self {
            search: free(OwnTool::Search, &self.search),
            call_tool: free(OwnTool::CallTool, &self.call_tool),
            set_context: free(OwnTool::SetContext, &self.set_context),
            recommend: free(OwnTool::Recommend, &self.recommend),
            rate_tool: free(OwnTool::RateTool, &self.rate_tool),
            read_more: free(OwnTool::ReadMore, &self.read_more),
        }
    }

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
    fn own_tool_names_are_reserved_individually() {
        for taken in OwnTool::ALL {
            let mut all = TakenNames::default();
            all.add(taken);
            for tool in OwnTool::ALL {
                assert_eq!(all.has(tool), tool == taken, "{taken:?}, {tool:?}");
            }
        }
    }
}
