//! The tools of one agent in the order in which it gets them.
//!
//! Providers keep the beginning of a prompt in a cache, and the tools come first in it. So a tool
//! keeps its place, and a tool that was loaded stays loaded, as long as the session lasts. New tools
//! come last. A tool that its server no longer has stays too, because earlier messages of the agent
//! may refer to it. A tool that the operator hides goes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_app::proxy::OwnToolNames;
use riglm_domain::id::ToolName;

use super::names::tool_name;

/// The number of definitions from which on unused ones are removed.
const SWEEP_FROM: usize = 1_024;

/// Whether the model knows a tool from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// The tool is in the prompt.
    Loaded,
    /// The tool is in the prompt only after a search found it.
    Deferred,
}

/// A tool of a list.
#[derive(Debug)]
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) definition: Arc<str>,
    /// Whether the list marks it as one to load at once.
    pub(super) is_marked: bool,
}

/// A tool of an agent.
#[derive(Debug)]
pub(super) struct AgentTool {
    /// Its name in lists.
    pub(super) name: Box<str>,
    /// Its name for the provider.
    pub(super) provider_name: Box<str>,
    /// Its definition in the list, as JSON text.
    pub(super) definition: Arc<str>,
    pub(super) loading: Loading,
}

impl AgentTool {
    fn new(listed: &ListedTool, loading: Loading) -> Self {
        Self {
            name: listed.name.as_str().into(),
            provider_name: tool_name(&listed.name).into(),
            definition: Arc::clone(&listed.definition),
            loading,
        }
    }
}

/// The tools of one agent.
#[derive(Debug, Default)]
pub(super) struct ToolArray {
    tools: Vec<AgentTool>,
    places: HashMap<Box<str>, usize>,
    /// The search tool of riglm, if the list has it.
    search: Option<AgentTool>,
    is_listed: bool,
}

impl ToolArray {
    /// Returns whether a list was taken over.
    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns the tools in their order, without the search tool.
    pub(super) fn tools(&self) -> &[AgentTool] {
        &self.tools
    }

    /// Returns the search tool of riglm, if the list has it.
    pub(super) fn search(&self) -> Option<&AgentTool> {
        self.search.as_ref()
    }

    /// Returns whether a search can find something.
    pub(super) fn has_deferred(&self) -> bool {
        let mut tools = self.tools.iter();
        tools.any(|tool| tool.loading == Loading::Deferred)
    }

    /// Returns the tool with this name for the provider, the search tool included.
    pub(super) fn by_provider_name(&self, name: &str) -> Option<&AgentTool> {
        let found = self.places.get(name).map(|at| &self.tools[*at]);
        found.or_else(|| self.search().filter(|tool| *tool.provider_name == *name))
    }

    /// Returns the tool with this name in lists, without the search tool.
    pub(super) fn by_name(&self, name: &str) -> Option<&AgentTool> {
        let at = self.places.get(tool_name(name).as_ref())?;
        Some(&self.tools[*at]).filter(|tool| *tool.name == *name)
    }

    /// Takes over a list. `own` has the names of riglm's own tools. `is_gone` tells whether a tool
    /// that the list lacks is gone from its server, and not hidden.
    ///
    /// A list without marks is one that no prediction selected: the first one is loaded completely.
    pub(super) fn update(
        &mut self,
        listed: Vec<ListedTool>,
        own: &OwnToolNames,
        is_gone: impl Fn(&str) -> bool,
    ) {
        let is_name = |name: &Option<ToolName>, tool: &ListedTool| {
            name.as_ref().is_some_and(|name| name.as_str() == tool.name)
        };
        let has_marks = listed.iter().any(|tool| tool.is_marked);
        let loads_all = !has_marks && !self.has_deferred();
        let is_own = |tool: &ListedTool| own.names().any(|name| name.as_str() == tool.name);
        let mut old: HashMap<Box<str>, ListedTool> = HashMap::with_capacity(listed.len());
        let mut new = Vec::new();
        self.search = None;
        for tool in listed {
            if is_name(&own.search, &tool) {
                self.search = Some(AgentTool::new(&tool, Loading::Loaded));
            } else if self.by_name(&tool.name).is_some() {
                old.insert(tool.name.as_str().into(), tool);
            } else {
                new.push(tool);
            }
        }
        let loading = |tool: &ListedTool| {
            if tool.is_marked || loads_all || is_own(tool) {
                Loading::Loaded
            } else {
                Loading::Deferred
            }
        };
        self.tools.retain_mut(|tool| match old.remove(&tool.name) {
            Some(listed) => {
                if loading(&listed) == Loading::Loaded {
                    tool.loading = Loading::Loaded;
                }
                tool.definition = listed.definition;
                true
            }
            None => is_gone(&tool.name),
        });
        let mut taken: HashSet<Box<str>> = self
            .tools
            .iter()
            .map(|it| it.provider_name.clone())
            .collect();
        taken.extend(self.search.iter().map(|it| it.provider_name.clone()));
        for tool in new {
            let tool = AgentTool::new(&tool, loading(&tool));
            if taken.insert(tool.provider_name.clone()) {
                self.tools.push(tool);
            } else {
                tracing::debug!(
                    "a list has two tools named {:?}; one is left out",
                    tool.name
                );
            }
        }
        let places = self.tools.iter().enumerate();
        self.places = places
            .map(|(at, tool)| (tool.provider_name.clone(), at))
            .collect();
        self.is_listed = true;
    }
}

/// The definitions of all agents, each once, because many agents have the same tools.
#[derive(Debug, Default)]
pub(super) struct Definitions(Mutex<KnownDefinitions>);

#[derive(Debug, Default)]
struct KnownDefinitions {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Definitions {
    /// Returns the shared copy of a definition.
    pub(super) fn share(&self, text: &str) -> Arc<str> {
        let mut known = self.0.lock();
        if let Some(same) = known.texts.get(text) {
            return Arc::clone(same);
        }
        if known.texts.len() >= known.sweep_at {
            known.texts.retain(|text| Arc::strong_count(text) > 1);
            known.sweep_at = SWEEP_FROM.max(known.texts.len() * 2);
        }
        let shared: Arc<str> = text.into();
        known.texts.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ListedTool {
        let is_marked = name.starts_with('+');
        let name = name.trim_start_matches('+').to_owned();
        ListedTool {
            definition: format!(r#"{{"name":"{name}"}}"#).into(),
            name,
            is_marked,
        }
    }

    fn own() -> OwnToolNames {
        OwnToolNames {
            search: Some("search".into()),
            read_more: Some("read_more".into()),
            ..OwnToolNames::default()
        }
    }

    fn update(array: &mut ToolArray, names: &[&str]) -> String {
        let listed = names.iter().map(|name| tool(name)).collect();
        array.update(listed, &own(), |name| name == "gone");
        let shown = array.tools().iter().map(|tool| match tool.loading {
            Loading::Loaded => format!("+{}", tool.name),
            Loading::Deferred => tool.name.to_string(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tools_keep_their_places_and_stay_loaded() {
        let mut array = ToolArray::default();
        let first = update(&mut array, &["search", "a", "+b", "gone", "c", "read_more"]);
        assert_eq!(first, "a +b gone c +read_more");
        assert!(array.search().is_some() && array.has_deferred());
        // Another selection, another order, a new tool, one that is hidden, one that is gone.
        let second = update(&mut array, &["+c", "new", "b", "read_more"]);
        assert_eq!(second, "+b gone +c +read_more new");
        assert!(array.search().is_none());
        // Without marks nothing more is loaded.
        let third = update(&mut array, &["b", "c", "new", "newer"]);
        assert_eq!(third, "+b gone +c new newer");
    }

    #[test]
    fn a_list_without_marks_is_loaded_completely() {
        let mut array = ToolArray::default();
        assert_eq!(update(&mut array, &["a", "b"]), "+a +b");
        assert_eq!(update(&mut array, &["a", "b", "c"]), "+a +b +c");
        assert!(!array.has_deferred());
    }

    #[test]
    fn tools_are_found_by_both_names() {
        let mut array = ToolArray::default();
        update(&mut array, &["search", "+a/b", "c"]);
        let changed = tool_name("a/b");
        assert_eq!(*array.by_provider_name(&changed).unwrap().name, *"a/b");
        assert_eq!(*array.by_name("a/b").unwrap().provider_name, *changed);
        assert!(array.by_name("search").is_none() && array.by_provider_name("search").is_some());
        assert!(array.by_provider_name("a/b").is_none());
    }

    #[test]
    fn equal_definitions_are_kept_once_and_as_long_as_they_are_used() {
        let definitions = Definitions::default();
        let first = definitions.share("x");
        assert!(Arc::ptr_eq(&first, &definitions.share("x")));
        drop(first);
        for n in 0..SWEEP_FROM * 2 {
            definitions.share(&n.to_string());
        }
        assert!(definitions.0.lock().texts.len() <= SWEEP_FROM + 1);
    }
}
