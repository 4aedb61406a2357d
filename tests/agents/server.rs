//! Upstream servers that list a catalog and answer every call at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

use super::definitions::Definitions;
use super::stream::Tool;

/// A server with some tools of a catalog.
#[derive(Debug)]
pub(crate) struct CatalogServer {
    name: UpstreamName,
    names: Vec<String>,
    definitions: Vec<String>,
    /// Whether its definitions have a title.
    is_titled: AtomicBool,
    connections: Mutex<Vec<Weak<dyn UpstreamEvents>>>,
}

/// Returns one server for each server name in the catalog.
pub(crate) fn servers_of(tools: &[Tool], definitions: &Definitions) -> Vec<Arc<CatalogServer>> {
    let mut servers: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, tool) in tools.iter().enumerate() {
        servers.entry(&tool.server).or_default().push(at);
    }
    let servers = servers.into_iter().map(|(name, own)| {
        Arc::new(CatalogServer {
            name: upstream_name(name),
            names: own.iter().map(|at| tools[*at].name.clone()).collect(),
            definitions: own
                .iter()
                .map(|at| definitions.texts[*at].clone())
                .collect(),
            is_titled: AtomicBool::new(false),
            connections: Mutex::default(),
        })
    });
    servers.collect()
}

/// Returns a server with tools: pairs of name and definition.
pub(crate) fn server_of(name: &str, tools: Vec<(String, String)>) -> Arc<CatalogServer> {
    let (names, definitions) = tools.into_iter().unzip();
    Arc::new(CatalogServer {
        name: upstream_name(name),
        names,
        definitions,
        is_titled: AtomicBool::new(false),
        connections: Mutex::default(),
    })
}

/// Returns the upstream name for a server name, in the same way as the replay.
fn upstream_name(server: &str) -> UpstreamName {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let plain = |character: char| if is_plain(character) { character } else { '_' };
    let mut name: String = server.chars().map(plain).take(64).collect();
    if name.is_empty() {
        name.push('_');
    }
    UpstreamName::parse(&name).expect("letters and underscores make a name")
}

impl CatalogServer {
    /// Adds a title to all tools, or removes it, and sends `list_changed` to all connections.
    pub(crate) async fn change(&self) {
        self.is_titled.fetch_xor(true, Ordering::Relaxed);
        let text = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        for events in self.open() {
            let message = Message::from_text(text.into()).expect("a message");
            events.on_message(message, None).await;
        }
    }

    /// Breaks all connections, like a restart of the server.
    pub(crate) async fn restart(&self) {
        let open = self.open();
        self.connections.lock().clear();
        for events in open {
            let reason = "the test started it again".into();
            events.on_lost(UpstreamError::Lost { reason }).await;
        }
    }

    fn tools_json(&self) -> String {
        if !self.is_titled.load(Ordering::Relaxed) {
            return self.definitions.join(",");
        }
        let titled = self.definitions.iter();
        let titled: Vec<String> = titled
            .map(|definition| with_member(definition, "title", r#""another""#))
            .collect();
        titled.join(",")
    }

    fn open(&self) -> Vec<Arc<dyn UpstreamEvents>> {
        let mut connections = self.connections.lock();
        connections.retain(|events| events.strong_count() > 0);
        connections.iter().filter_map(Weak::upgrade).collect()
    }
}

/// An upstream connector to a server in this process.
#[derive(Debug)]
pub(super) struct Connector(pub(super) Arc<CatalogServer>);

#[async_trait]
impl UpstreamConnector for Connector {
    fn name(&self) -> &UpstreamName {
        &self.0.name
    }

    async fn connect(
        &self,
        _principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let mut connections = self.0.connections.lock();
        connections.retain(|events| events.strong_count() > 0);
        connections.push(Arc::downgrade(&events));
        let server = Arc::clone(&self.0);
        Ok(Arc::new(Link { server, events }))
    }
}

#[derive(Debug)]
struct Link {
    server: Arc<CatalogServer>,
    events: Arc<dyn UpstreamEvents>,
}

impl Link {
    fn reply(&self, method: &str, params: &str) -> String {
        match method {
            "initialize" => {
                let version = member(params, "protocolVersion").unwrap_or(r#""2025-11-25""#);
                format!(
                    r#""result":{{"protocolVersion":{version},"capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"catalog","version":"1"}}}}"#
                )
            }
            "tools/list" => format!(r#""result":{{"tools":[{}]}}"#, self.server.tools_json()),
            "tools/call" => {
                let name = member(params, "name")
                    .and_then(unescape)
                    .unwrap_or_default();
                if self.server.names.iter().any(|known| *known == name) {
                    r#""result":{"content":[{"type":"text","text":"done"}]}"#.into()
                } else {
                    r#""error":{"code":-32602,"message":"Unknown tool"}"#.into()
                }
            }
            "ping" => r#""result":{}"#.into(),
            _ => r#""error":{"code":-32601,"message":"Method not found"}"#.into(),
        }
    }
}

#[async_trait]
impl UpstreamLink for Link {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let request = message.single().and_then(|part| {
            let (method, id) = part.as_request()?;
            let params = message.params(part).unwrap_or("{}");
            Some((self.reply(method, params), id.clone()))
        });
        if let Some((reply, id)) = request {
            let id: RequestId = id;
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},{reply}}}"#);
            let message = Message::from_text(text).expect("an answer is a message");
            self.events.on_message(message, Some(id)).await;
        }
        Ok(SendOutcome::Delivered)
    }

    async fn close(&self) {}
}
