//! The own tools of the proxy, and the own tools whose names upstreams use.

use std::sync::atomic::{AtomicU8, Ordering};

use riglm_domain::id::ToolName;

/// An own tool of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnTool {
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
    /// Shows the session, in the app of the proxy.
    ShowSession,
}

impl OwnTool {
    /// All own tools in list order.
    pub(in crate::proxy) const ALL: [Self; 7] = [
        Self::Search,
        Self::CallTool,
        Self::SetContext,
        Self::Recommend,
        Self::RateTool,
        Self::ReadMore,
        Self::ShowSession,
    ];

    fn bit(self) -> u8 {
        match self {
            Self::Search => 1,
            Self::CallTool => 2,
            Self::SetContext => 4,
            Self::Recommend => 8,
            Self::RateTool => 16,
            Self::ReadMore => 32,
            Self::ShowSession => 64,
        }
    }

    pub(super) fn name_key(self) -> &'static str {
        match self {
            Self::Search => "search.tool_name",
            Self::CallTool => "search.call_tool_name",
            Self::SetContext => "search.set_context_name",
            Self::Recommend => "recommend.tool_name",
            Self::RateTool => "recommend.rate_tool_name",
            Self::ReadMore => "safeguards.long_results.tool_name",
            Self::ShowSession => "search.show_session_name",
        }
    }
}

/// A set of own tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnToolSet(u8);

/// The own tools whose names an upstream uses.
pub(in crate::proxy) type TakenNames = OwnToolSet;

impl OwnToolSet {
    /// The set of all own tools.
    pub const ALL: Self = Self(127);

    /// Adds a tool.
    pub fn add(&mut self, tool: OwnTool) {
        self.0 |= tool.bit();
    }

    /// Returns the union of both sets.
    pub(in crate::proxy) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set has a tool.
    #[must_use]
    pub fn has(self, tool: OwnTool) -> bool {
        self.0 & tool.bit() != 0
    }

    /// Returns the own tools outside of the set.
    pub(super) fn others(self) -> Self {
        Self(Self::ALL.0 & !self.0)
    }

    fn has_any(self) -> bool {
        self.0 != 0
    }
}

impl FromIterator<OwnTool> for OwnToolSet {
    fn from_iter<I: IntoIterator<Item = OwnTool>>(tools: I) -> Self {
        let mut all = Self::default();
        tools.into_iter().for_each(|tool| all.add(tool));
        all
    }
}

/// The own tools that lists have. The set changes with the configuration. A tool that lists had
/// once stays callable, because clients may still have it in their lists.
#[derive(Debug)]
pub(super) struct ListedOwnTools {
    now: AtomicU8,
    ever: AtomicU8,
}

impl ListedOwnTools {
    pub(super) fn new(tools: OwnToolSet) -> Self {
        Self {
            now: AtomicU8::new(tools.0),
            ever: AtomicU8::new(tools.0),
        }
    }

    /// Replaces the set; returns whether it changed.
    pub(super) fn set(&self, tools: OwnToolSet) -> bool {
        self.ever.fetch_or(tools.0, Ordering::AcqRel);
        self.now.swap(tools.0, Ordering::AcqRel) != tools.0
    }

    /// Returns the tools that lists have now. Without the search tool, they have none.
    pub(super) fn now(&self) -> OwnToolSet {
        let now = OwnToolSet(self.now.load(Ordering::Acquire));
        if now.has(OwnTool::Search) {
            now
        } else {
            OwnToolSet::default()
        }
    }

    pub(super) fn are_any(&self) -> bool {
        self.now().has_any()
    }

    /// Returns the tools that lists have now or had before.
    pub(super) fn ever(&self) -> OwnToolSet {
        OwnToolSet(self.ever.load(Ordering::Acquire))
    }
}

/// The names of the own tools of the proxy. They never change while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnToolNames {
    /// The name of the search tool; without it there are no other own tools either.
    pub search: Option<ToolName>,
    /// The name of the tool that calls other tools; `None` if there is no such tool.
    pub call_tool: Option<ToolName>,
    /// The name of the tool that sets the context; `None` if there is no such tool.
    pub set_context: Option<ToolName>,
    /// The name of the recommendation tool; `None` if it is disabled.
    pub recommend: Option<ToolName>,
    /// The name of the rating tool; `None` if it is disabled.
    pub rate_tool: Option<ToolName>,
    /// The name of the tool for paging through truncated results; `None` if it is disabled.
    pub read_more: Option<ToolName>,
    /// The name of the tool that shows the session in an app; `None` if it is disabled.
    pub show_session: Option<ToolName>,
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
            &self.show_session,
        ];
        all.into_iter().flatten()
    }

    /// Returns the names without those of some tools.
    #[must_use]
    pub fn without(&self, tools: OwnToolSet) -> Self {
        let free = |tool, name: &Option<ToolName>| name.clone().filter(|_| !tools.has(tool));
        Self {
            search: free(OwnTool::Search, &self.search),
            call_tool: free(OwnTool::CallTool, &self.call_tool),
            set_context: free(OwnTool::SetContext, &self.set_context),
            recommend: free(OwnTool::Recommend, &self.recommend),
            rate_tool: free(OwnTool::RateTool, &self.rate_tool),
            read_more: free(OwnTool::ReadMore, &self.read_more),
            show_session: free(OwnTool::ShowSession, &self.show_session),
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
            OwnTool::ShowSession => &self.show_session,
        };
        name.as_ref().map(ToolName::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_that_lists_had_once_stay_callable() {
        let listed = ListedOwnTools::new([OwnTool::Search].into_iter().collect());
        let both = [OwnTool::Search, OwnTool::CallTool].into_iter().collect();
        assert!(listed.set(both));
        assert!(!listed.set(both));
        assert!(listed.set([OwnTool::CallTool].into_iter().collect()));
        assert!(!listed.are_any(), "there are no own tools without search");
        assert_eq!(listed.ever(), both);
    }

    #[test]
    fn a_set_of_all_has_each_tool() {
        assert_eq!(
            OwnTool::ALL.into_iter().collect::<OwnToolSet>(),
            OwnToolSet::ALL
        );
    }

    #[test]
    fn names_of_tools_that_are_off_are_left_out() {
        let names = OwnToolNames {
            search: Some("search".into()),
            show_session: Some("show_session".into()),
            ..OwnToolNames::default()
        };
        let on = names.without([OwnTool::ShowSession].into_iter().collect());
        let on: Vec<&str> = on.names().map(ToolName::as_str).collect();
        assert_eq!(on, ["search"]);
        assert_eq!(names.without(OwnToolSet::default()), names);
    }

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
