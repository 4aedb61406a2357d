//! The definitions of tools. Many agents have the same tools, so each definition is kept once, and
//! converted once for each provider.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::unescape;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::names::tool_name;
use super::provider::Provider;

/// The number of definitions from which on unused ones are removed.
const SWEEP_FROM: usize = 1_024;

/// The definition of a tool in lists, and its forms for providers.
#[derive(Debug)]
pub(super) struct ToolDefinition {
    text: Arc<str>,
    name: Box<str>,
    provider_name: Box<str>,
    anthropic: OnceLock<ProviderTool>,
    openai: OnceLock<ProviderTool>,
}

impl ToolDefinition {
    /// Returns the definition in a JSON text; `None` without a name.
    fn read(text: &str) -> Option<Self> {
        let name = member(text, "name").and_then(unescape)?;
        Some(Self {
            text: text.into(),
            provider_name: tool_name(&name).into(),
            name: name.into(),
            anthropic: OnceLock::new(),
            openai: OnceLock::new(),
        })
    }

    /// Returns the name in lists.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name for providers.
    pub(super) fn provider_name(&self) -> &str {
        &self.provider_name
    }

    /// Returns the JSON text of the definition.
    pub(super) fn text(&self) -> &Arc<str> {
        &self.text
    }

    pub(super) fn for_provider(&self, provider: Provider) -> &ProviderTool {
        let place = match provider {
            Provider::Anthropic => &self.anthropic,
            Provider::OpenAi => &self.openai,
        };
        place.get_or_init(|| provider.convert(self))
    }
}

#[derive(Debug)]
pub(super) struct ProviderTool {
    /// The JSON text of the tool, loaded from the start.
    loaded: Box<RawValue>,
    /// The names of arguments that differ: for the provider, and in the schema of the server.
    originals: HashMap<String, String>,
}

impl ProviderTool {
    /// Creates the tool from its JSON object.
    pub(super) fn new(loaded: &Value, originals: HashMap<String, String>) -> Self {
        Self {
            // Values of JSON can always be written.
            loaded: to_raw_value(loaded).unwrap_or_default(),
            originals,
        }
    }

    /// Returns the tool as one that is loaded from the start.
    pub(super) fn as_loaded(&self) -> Cow<'_, RawValue> {
        Cow::Borrowed(&*self.loaded)
    }

    /// Returns the tool as one that is loaded after a search found it.
    pub(super) fn as_deferred(&self) -> Cow<'_, RawValue> {
        let before = self.loaded.get().strip_suffix('}');
        let text = before.map(|before| format!(r#"{before},"defer_loading":true}}"#));
        let deferred = text.and_then(|text| RawValue::from_string(text).ok());
        deferred.map_or_else(|| self.as_loaded(), Cow::Owned)
    }

    /// Returns the names in the schema of the server of the arguments whose names differ, by their
    /// names for the provider.
    pub(super) fn originals(&self) -> &HashMap<String, String> {
        &self.originals
    }
}

/// The definitions of all agents.
#[derive(Debug, Default)]
pub(super) struct Definitions(Mutex<KnownDefinitions>);

#[derive(Debug, Default)]
struct KnownDefinitions {
    by_text: HashMap<Arc<str>, Arc<ToolDefinition>>,
    sweep_at: usize,
}

impl Definitions {
    /// Returns the shared copy of a definition; `None` without a name.
    pub(super) fn share(&self, text: &str) -> Option<Arc<ToolDefinition>> {
        let mut known = self.0.lock();
        if let Some(same) = known.by_text.get(text) {
            return Some(Arc::clone(same));
        }
        if known.by_text.len() >= known.sweep_at {
            (known.by_text).retain(|_, definition| Arc::strong_count(definition) > 1);
            known.sweep_at = SWEEP_FROM.max(known.by_text.len() * 2);
        }
        let shared = Arc::new(ToolDefinition::read(text)?);
        let text = Arc::clone(shared.text());
        known.by_text.insert(text, Arc::clone(&shared));
        Some(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        format!(r#"{{"name":"{name}","inputSchema":{{"properties":{{"$a":{{}}}}}}}}"#)
    }

    #[test]
    fn equal_definitions_are_kept_once_and_as_long_as_they_are_used() {
        let definitions = Definitions::default();
        let first = definitions.share(&text("x")).unwrap();
        let again = definitions.share(&text("x")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert!(definitions.share(r#"{"title":"nameless"}"#).is_none());
        for n in 0..SWEEP_FROM * 2 {
            definitions.share(&text(&n.to_string())).unwrap();
        }
        let known = definitions.0.lock();
        assert!(known.by_text.len() <= SWEEP_FROM + 2);
        assert!(known.by_text.contains_key(&*text("x")));
    }

    #[test]
    fn a_definition_is_converted_once_for_each_provider() {
        let definitions = Definitions::default();
        let shared = definitions.share(&text("a/b")).unwrap();
        assert_eq!(shared.name(), "a/b");
        for (provider, n_changed) in [(Provider::Anthropic, 1), (Provider::OpenAi, 0)] {
            let tool = shared.for_provider(provider);
            assert!(std::ptr::eq(tool, shared.for_provider(provider)));
            assert_eq!(tool.originals().len(), n_changed);
            let read = |text: &RawValue| serde_json::from_str::<Value>(text.get()).unwrap();
            let mut expected = read(&tool.as_loaded());
            assert_eq!(expected["name"], shared.provider_name());
            expected["defer_loading"] = true.into();
            assert_eq!(read(&tool.as_deferred()), expected);
        }
    }
}
