//! The tools of one agent in the order in which it gets them.
//!
//! Providers keep the beginning of a prompt in a cache, and the tools come first in it. So a tool
//! keeps its place, and a tool that was loaded stays loaded, as long as the session lasts. New tools
//! come last. A tool that its server no longer has stays too, because earlier messages of the agent
//! may refer to it, but only so many tools do. A tool that the operator hides goes.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use riglm_app::proxy::{OwnToolNames, is_app_only};
use riglm_domain::id::ToolName;
use serde_json::value::RawValue;

use super::definitions::ToolDefinition;
use super::names::tool_name;
use super::provider::Provider;

/// The maximum number of tools that stay although their servers no longer have them.
const MAX_GONE: usize = 256;
/// The maximum size of their definitions in bytes.
const MAX_GONE_BYTES: usize = 1 << 20;

/// Whether the model knows a tool from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// The tool is in the prompt.
    Loaded,
    /// The tool is in the prompt only after a search found it.
    Deferred,
}

#[derive(Clone, Debug)]
pub(super) struct AgentTool {
    pub(super) definition: Arc<ToolDefinition>,
    pub(super) loading: Loading,
    /// The number of the first list without the tool, if its server no longer has it.
    gone_since: Option<u64>,
}

impl AgentTool {
    /// Returns the name in lists.
    pub(super) fn name(&self) -> &str {
        self.definition.name()
    }

    /// Returns the name for providers.
    pub(super) fn provider_name(&self) -> &str {
        self.definition.provider_name()
    }

    /// Returns the tool in the format of a provider.
    pub(super) fn for_provider(&self, provider: Provider) -> Cow<'_, RawValue> {
        let tool = self.definition.for_provider(provider);
        match self.loading {
            Loading::Loaded => tool.as_loaded(),
            Loading::Deferred => tool.as_deferred(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ToolArray {
    tools: Vec<AgentTool>,
    /// The places of the tools by their names for the provider.
    places: HashMap<Box<str>, usize>,
    /// The search tool of riglm, if the list has it.
    search: Option<AgentTool>,
    /// The number of lists that were taken over.
    n_lists: u64,
}

impl ToolArray {
    /// Returns whether a list was taken over.
    pub(super) fn is_listed(&self) -> bool {
        self.n_lists > 0
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
        found.or_else(|| self.search().filter(|tool| tool.provider_name() == name))
    }

    /// Returns the tool with this name in lists, without the search tool.
    pub(super) fn by_name(&self, name: &str) -> Option<&AgentTool> {
        let at = self.places.get(tool_name(name).as_ref())?;
        Some(&self.tools[*at]).filter(|tool| tool.name() == name)
    }

    /// Returns the tools after another list. `own` has the names of riglm's own tools, and `chosen`
    /// those of the tools that riglm chose to be loaded. `is_gone` tells whether a tool that the
    /// list lacks is gone from its server, and not hidden.
    ///
    /// Without a choice, the first list is loaded completely.
    pub(super) fn with_list(
        &self,
        listed: Vec<Arc<ToolDefinition>>,
        own: &OwnToolNames,
        chosen: Option<&HashSet<String>>,
        is_gone: impl Fn(&ToolDefinition) -> bool,
    ) -> Self {
        let search_name = own.search.as_ref().map(ToolName::as_str);
        let own: HashSet<&str> = own.names().map(ToolName::as_str).collect();
        let loads_all = chosen.is_none() && !self.has_deferred();
        let new_tool = |definition: Arc<ToolDefinition>| {
            let name = definition.name();
            let is_chosen = chosen.is_some_and(|chosen| chosen.contains(name));
            let is_loaded = loads_all || is_chosen || own.contains(name);
            AgentTool {
                loading: if is_loaded {
                    Loading::Loaded
                } else {
                    Loading::Deferred
                },
                definition,
                gone_since: None,
            }
        };
        let mut search = None;
        // The names for the provider, each of which only one tool may have.
        let mut taken: HashSet<Box<str>> = HashSet::new();
        // The other tools of the list by these names.
        let mut left: HashMap<Box<str>, AgentTool> = HashMap::new();
        let mut order = Vec::new();
        // An agent without a host shows no apps, and only they may call these tools.
        let for_models = (listed.into_iter()).filter(|definition| !is_app_only(definition.text()));
        for definition in for_models {
            let provider_name: Box<str> = definition.provider_name().into();
            if !taken.insert(provider_name.clone()) {
                let name = definition.name();
                tracing::debug!("a list has two tools named {name:?}; one is left out");
                continue;
            }
            if search_name == Some(definition.name()) {
                search = Some(new_tool(definition));
                continue;
            }
            left.insert(provider_name.clone(), new_tool(definition));
            order.push(provider_name);
        }
        let mut tools = Vec::with_capacity(order.len());
        for old in &self.tools {
            if let Some(mut tool) = left.remove(old.provider_name()) {
                if old.loading == Loading::Loaded {
                    tool.loading = Loading::Loaded;
                }
                tools.push(tool);
            } else if !taken.contains(old.provider_name()) && is_gone(&old.definition) {
                let gone_since = old.gone_since.or(Some(self.n_lists));
                tools.push(AgentTool {
                    gone_since,
                    ..old.clone()
                });
            }
        }
        forget_long_gone(&mut tools);
        let new = order.iter().filter_map(|name| left.remove(name));
        tools.extend(new);
        let places = tools.iter().enumerate();
        let places = places.map(|(at, tool)| (tool.provider_name().into(), at));
        Self {
            places: places.collect(),
            tools,
            search,
            n_lists: self.n_lists + 1,
        }
    }
}

/// Removes the tools that are gone for the longest time, so that the others keep to the limits.
fn forget_long_gone(tools: &mut Vec<AgentTool>) {
    let all = tools.iter().enumerate();
    let gone = all.filter_map(|(at, tool)| Some((tool.gone_since?, at)));
    let mut gone: Vec<(u64, usize)> = gone.collect();
    gone.sort_unstable_by_key(|(since, at)| (Reverse(*since), *at));
    let (mut n_kept, mut n_bytes) = (0, 0);
    let forgotten: HashSet<usize> = gone
        .into_iter()
        .map(|(_, at)| at)
        .filter(|at| {
            let size = tools[*at].definition.text().len();
            let fits = n_kept < MAX_GONE && n_bytes + size <= MAX_GONE_BYTES;
            if fits {
                n_kept += 1;
                n_bytes += size;
            }
            !fits
        })
        .collect();
    let mut positions = 0..tools.len();
    tools.retain(|_| positions.next().is_none_or(|at| !forgotten.contains(&at)));
}

#[cfg(test)]
mod tests {
    use super::super::definitions::Definitions;
    use super::*;

    fn definition(name: &str) -> Arc<ToolDefinition> {
        let text = format!(r#"{{"name":"{name}"}}"#);
        Definitions::default().share(&text).unwrap()
    }

    fn own() -> OwnToolNames {
        OwnToolNames {
            search: Some("search".into()),
            read_more: Some("read_more".into()),
            ..OwnToolNames::default()
        }
    }

    /// Takes over a list in which the chosen tools have a `+`. Returns the tools, with a `+` before
    /// the loaded ones.
    fn update(array: &mut ToolArray, names: &[&str]) -> String {
        let chosen = names.iter().filter_map(|name| name.strip_prefix('+'));
        let chosen: HashSet<String> = chosen.map(str::to_owned).collect();
        let chosen = Some(&chosen).filter(|chosen| !chosen.is_empty());
        let listed = names.iter().map(|name| name.trim_start_matches('+'));
        let listed = listed.map(definition).collect();
        let is_gone = |definition: &ToolDefinition| definition.name() == "gone";
        *array = array.with_list(listed, &own(), chosen, is_gone);
        let shown = array.tools().iter().map(|tool| match tool.loading {
            Loading::Loaded => format!("+{}", tool.name()),
            Loading::Deferred => tool.name().to_owned(),
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
        // Without a choice nothing more is loaded.
        let third = update(&mut array, &["b", "c", "new", "newer"]);
        assert_eq!(third, "+b gone +c new newer");
    }

    #[test]
    fn a_list_without_a_choice_is_loaded_completely() {
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
        assert_eq!(array.by_provider_name(&changed).unwrap().name(), "a/b");
        assert_eq!(array.by_name("a/b").unwrap().provider_name(), changed);
        assert!(array.by_name("search").is_none() && array.by_provider_name("search").is_some());
        assert!(array.by_provider_name("a/b").is_none());
    }

    #[test]
    fn few_gone_tools_stay_and_the_last_ones_longest() {
        let mut array = ToolArray::default();
        let own = OwnToolNames::default();
        let names = |range: std::ops::Range<usize>| range.map(|n| definition(&n.to_string()));
        for listed in [names(0..200), names(200..400), names(400..410)] {
            array = array.with_list(listed.collect(), &own, None, |_| true);
        }
        assert_eq!(array.tools().len(), MAX_GONE + 10);
        let last: Vec<&str> = array.tools().iter().map(AgentTool::name).collect();
        // All 200 that went last, and the first 56 of those that went before.
        assert_eq!((last[0], last[55], last[56]), ("0", "55", "200"));
        assert_eq!(
            (last[MAX_GONE], array.by_name("56").is_none()),
            ("400", true)
        );
        let large = format!(
            r#"{{"name":"large","title":"{}"}}"#,
            "x".repeat(MAX_GONE_BYTES)
        );
        let large = Definitions::default().share(&large).unwrap();
        array = array.with_list(vec![large], &own, None, |_| true);
        array = array.with_list(Vec::new(), &own, None, |_| true);
        assert!(array.by_name("large").is_none() && array.tools().len() == MAX_GONE);
    }

    #[test]
    fn tools_that_only_apps_may_call_are_left_out() {
        let text = r#"{"name":"redraw","_meta":{"ui":{"visibility":["app"]}}}"#;
        let redraw = Definitions::default().share(text).unwrap();
        let listed = vec![definition("a"), redraw];
        let array = ToolArray::default().with_list(listed, &own(), None, |_| false);
        assert_eq!(array.tools().len(), 1);
        assert!(array.by_provider_name("redraw").is_none());
    }

    #[test]
    fn no_two_tools_have_one_name_for_the_provider() {
        let mut array = ToolArray::default();
        let listed = vec![definition("a"), definition("a"), definition("search")];
        array = array.with_list(listed, &OwnToolNames::default(), None, |_| true);
        assert_eq!(array.tools().len(), 2);
        assert!(array.search().is_none(), "it is a tool of a server");
        // The server no longer has it, so riglm shows its own search tool.
        array = array.with_list(vec![definition("search")], &own(), None, |_| true);
        assert!(array.search().is_some());
        assert_eq!(update(&mut array, &["search", "a"]), "+a");
    }
}
