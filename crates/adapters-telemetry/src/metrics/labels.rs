//! Values of labels, which are bounded.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use opentelemetry::{StringValue, Value};
use riglm_domain::id::{ToolName, UpstreamName};

/// The most upstreams that have a name of their own.
const MAX_UPSTREAMS: usize = 200;
/// The most tools that have a name of their own, of all upstreams together.
const MAX_TOOLS: usize = 200;
/// The longest name, in characters; a longer one is not one that somebody would look for.
const MAX_CHARS: usize = 128;
/// What stands for all that have none.
const OTHER: &str = "_other";

/// The names that metrics know.
#[derive(Debug)]
pub(super) struct Labels {
    known: RwLock<Known>,
    none: Arc<str>,
    other: Arc<str>,
}

#[derive(Debug, Default)]
struct Known {
    upstreams: HashMap<UpstreamName, Listed>,
    n_tools: usize,
}

#[derive(Debug)]
struct Listed {
    name: Arc<str>,
    tools: HashMap<ToolName, Arc<str>>,
}

impl Labels {
    pub(super) fn new() -> Self {
        Self {
            known: RwLock::default(),
            none: Arc::from(""),
            other: Arc::from(OTHER),
        }
    }

    /// Notes what an upstream lists. Of more than there is room for, the first ones count.
    pub(super) fn learn(&self, upstream: &UpstreamName, tools: &[ToolName]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let known = &mut *known;
        let Some(listed) = listed(&mut known.upstreams, upstream) else {
            return;
        };
        for tool in tools {
            let is_short = tool.as_str().chars().nth(MAX_CHARS).is_none();
            if known.n_tools >= MAX_TOOLS {
                return;
            }
            if is_short && !listed.tools.contains_key(tool) {
                listed.tools.insert(tool.clone(), tool.as_str().into());
                known.n_tools += 1;
            }
        }
    }

    /// Returns the label of an upstream; an empty one for none.
    pub(super) fn upstream(&self, upstream: Option<&UpstreamName>) -> Value {
        let Some(upstream) = upstream else {
            return text(&self.none);
        };
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(listed) = known.upstreams.get(upstream) {
                return text(&listed.name);
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let listed = listed(&mut known.upstreams, upstream);
        text(listed.map_or(&self.other, |listed| &listed.name))
    }

    /// Returns the label of a tool.
    pub(super) fn tool(&self, upstream: &UpstreamName, tool: &ToolName) -> Value {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let listed = known.upstreams.get(upstream);
        let name = listed.and_then(|listed| listed.tools.get(tool));
        text(name.unwrap_or(&self.other))
    }
}

/// Returns what is known of an upstream, which gets a place if there is one.
fn listed<'a>(
    upstreams: &'a mut HashMap<UpstreamName, Listed>,
    upstream: &UpstreamName,
) -> Option<&'a mut Listed> {
    if !upstreams.contains_key(upstream) {
        if upstreams.len() >= MAX_UPSTREAMS {
            return None;
        }
        let listed = Listed {
            name: upstream.as_str().into(),
            tools: HashMap::new(),
        };
        upstreams.insert(upstream.clone(), listed);
    }
    upstreams.get_mut(upstream)
}

fn text(name: &Arc<str>) -> Value {
    Value::String(StringValue::from(Arc::clone(name)))
}
