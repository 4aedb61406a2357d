//! Label values, with a bounded number of different ones.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry::{StringValue, Value};
use parking_lot::RwLock;
use riglm_domain::id::{ToolName, UpstreamName};

/// The maximum number of upstreams with their own label. Others share a common one.
const MAX_UPSTREAMS: usize = 200;
/// The maximum number of tools with their own label, over all upstreams. Others share a common one.
const MAX_TOOLS: usize = 200;
// The maximum length of a name in characters. Longer names are of no use in metrics.
const MAX_CHARS: usize = 128;
// The common label of all names without their own.
const OTHER: &str = "_other";

#[derive(Debug)]
pub(super) struct Labels {
    known: RwLock<KnownNames>,
    none: Arc<str>,
    other: Arc<str>,
}

#[derive(Debug, Default)]
struct KnownNames {
    upstreams: HashMap<UpstreamName, UpstreamLabels>,
    n_tools: usize,
}

#[derive(Debug)]
struct UpstreamLabels {
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

    /// Registers the tools of an upstream, in their order, while there is room for more labels.
    pub(super) fn register_tools(&self, upstream: &UpstreamName, tools: &[ToolName]) {
        let mut known = self.known.write();
        let known = &mut *known;
        let Some(listed) = labels_of_upstream(&mut known.upstreams, upstream) else {
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

    /// Returns the label of an upstream; an empty one without an upstream.
    pub(super) fn upstream(&self, upstream: Option<&UpstreamName>) -> Value {
        let Some(upstream) = upstream else {
            return text(&self.none);
        };
        {
            let known = self.known.read();
            if let Some(listed) = known.upstreams.get(upstream) {
                return text(&listed.name);
            }
        }
        let mut known = self.known.write();
        let listed = labels_of_upstream(&mut known.upstreams, upstream);
        text(listed.map_or(&self.other, |listed| &listed.name))
    }

    /// Returns the label of a tool.
    pub(super) fn tool(&self, upstream: &UpstreamName, tool: &ToolName) -> Value {
        let known = self.known.read();
        let listed = known.upstreams.get(upstream);
        let name = listed.and_then(|listed| listed.tools.get(tool));
        text(name.unwrap_or(&self.other))
    }
}

/// Returns the labels of an upstream, and registers it if there is room.
fn labels_of_upstream<'a>(
    upstreams: &'a mut HashMap<UpstreamName, UpstreamLabels>,
    upstream: &UpstreamName,
) -> Option<&'a mut UpstreamLabels> {
    if !upstreams.contains_key(upstream) {
        if upstreams.len() >= MAX_UPSTREAMS {
            return None;
        }
        let listed = UpstreamLabels {
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
