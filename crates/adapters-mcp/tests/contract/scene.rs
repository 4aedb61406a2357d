//! Connectors, each over a server of the contract suite.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_adapters_mcp::upstream::pool::{PoolOptions, PooledConnector};
use riglm_adapters_mcp::upstream::shared::SharedConnector;
use riglm_adapters_mcp::upstream::{
    StartGate, StdioConnector, UpstreamConfig, UpstreamLimits, connector,
};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::contract::upstream::{NAME, UpstreamScene};
use riglm_ports::contract::{until, within};
use riglm_ports::fake::RecordingEvents;
use riglm_ports::upstream::{SendOutcome, UpstreamConnector};

use crate::servers::{HttpServer, ProcessServer};

/// The eras of the client and of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peers {
    pub(crate) client: Era,
    pub(crate) server: Era,
}

/// A server of the suite.
pub(crate) trait Server: Send + Sync + fmt::Debug {
    /// Returns the texts that it got.
    fn received(&self) -> Vec<String>;
}

/// A connector over a server. `Deref` is implemented because the suite takes what dereferences to
/// a scene.
#[derive(Debug)]
pub(crate) struct Scene {
    connector: Arc<dyn UpstreamConnector>,
    unreachable: Arc<dyn UpstreamConnector>,
    server: Arc<dyn Server>,
    peers: Peers,
}

impl Scene {
    /// Returns the scene with shared connections.
    #[expect(
        clippy::boxed_local,
        clippy::unnecessary_box_returns,
        reason = "the suite takes boxes"
    )]
    pub(crate) fn shared(self: Box<Self>) -> Box<Self> {
        Box::new(Self {
            connector: Arc::new(SharedConnector::new(self.connector)),
            unreachable: Arc::new(SharedConnector::new(self.unreachable)),
            ..*self
        })
    }

    /// Returns the scene with a pool of processes.
    #[expect(
        clippy::boxed_local,
        clippy::unnecessary_box_returns,
        reason = "the suite takes boxes"
    )]
    pub(crate) fn pooled(self: Box<Self>) -> Box<Self> {
        let options = || PoolOptions {
            idle_timeout: Duration::from_mins(5),
            max_processes: 8,
            spare: true,
            start_time: Arc::default(),
        };
        Box::new(Self {
            connector: Arc::new(PooledConnector::new(self.connector, options())),
            unreachable: Arc::new(PooledConnector::new(self.unreachable, options())),
            ..*self
        })
    }

    /// Returns the scene with the bridge between the eras.
    #[expect(
        clippy::boxed_local,
        clippy::unnecessary_box_returns,
        reason = "the suite takes boxes"
    )]
    pub(crate) fn bridged(self: Box<Self>) -> Box<Self> {
        let options = || BridgeOptions::new([7; 32]);
        Box::new(Self {
            connector: Arc::new(EraConnector::new(self.connector, options())),
            unreachable: Arc::new(EraConnector::new(self.unreachable, options())),
            ..*self
        })
    }

    /// Makes a call, so that the connector knows the transport of its server.
    async fn detect(&self) {
        let n_before = self.server.received().len();
        let events = Arc::new(RecordingEvents::default());
        let principal = Principal::local();
        let link = self.connector.connect(&principal, events.clone());
        let link = within(link).await.unwrap();
        let request = match self.peers.client {
            Era::Legacy => {
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#
            }
            Era::Modern => {
                r#"{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#
            }
        };
        let message = Message::from_text(request.into()).unwrap();
        if let SendOutcome::UnderWay(exchange) = within(link.send(message)).await.unwrap() {
            within(exchange.run).await;
        }
        until(|| (!events.all().is_empty()).then_some(())).await;
        within(link.close()).await;
        assert!(self.server.received().len() > n_before);
    }
}

impl UpstreamScene for Scene {
    fn connector(&self) -> Arc<dyn UpstreamConnector> {
        Arc::clone(&self.connector)
    }

    fn received(&self) -> Vec<String> {
        self.server.received()
    }

    fn client_era(&self) -> Era {
        self.peers.client
    }

    fn passes_notifications(&self) -> bool {
        self.peers.client == Era::Legacy && self.peers.server == Era::Legacy
    }

    fn unreachable(&self) -> Option<Arc<dyn UpstreamConnector>> {
        Some(Arc::clone(&self.unreachable))
    }
}

fn name() -> UpstreamName {
    UpstreamName::parse(NAME).unwrap()
}

fn stdio_connector(
    program: &str,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
) -> Arc<dyn UpstreamConnector> {
    Arc::new(StdioConnector {
        name: name(),
        program: program.into(),
        arguments,
        environment,
        directory: None,
        limits: UpstreamLimits {
            shutdown_grace: Duration::from_millis(500),
            ..UpstreamLimits::default()
        },
        guard: None,
        failure_log: Arc::default(),
        start_time: Arc::default(),
        gate: StartGate::default(),
    })
}

/// Returns a scene of a child process.
pub(crate) async fn process(peers: Peers) -> Box<Scene> {
    let server = ProcessServer::new();
    Box::new(Scene {
        connector: stdio_connector(
            "sh",
            ProcessServer::arguments(),
            server.environment(peers.server),
        ),
        unreachable: stdio_connector("riglm-no-such-program", Vec::new(), BTreeMap::new()),
        server: Arc::new(server),
        peers,
    })
}

fn url_connector(url: &str) -> Arc<dyn UpstreamConnector> {
    let config = UpstreamConfig {
        url: Some(url.to_owned()),
        ..UpstreamConfig::default()
    };
    connector(name(), &config, None, Path::new("/nowhere")).unwrap()
}

/// Returns a URL at which nothing listens.
fn closed_url(path: &str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}{path}", listener.local_addr().unwrap())
}

/// Returns a scene over Streamable HTTP, whose connector does not know the transport yet.
pub(crate) async fn http(peers: Peers) -> Box<Scene> {
    let server = HttpServer::start(peers.server).await;
    Box::new(Scene {
        connector: url_connector(&server.url("/mcp")),
        unreachable: url_connector(&closed_url("/mcp")),
        server: Arc::new(server),
        peers,
    })
}

/// Returns a scene over Streamable HTTP, whose connector knows the transport.
pub(crate) async fn http_of_detected(peers: Peers) -> Box<Scene> {
    let server = HttpServer::start(peers.server).await;
    let scene = Scene {
        connector: url_connector(&server.url("/mcp")),
        unreachable: url_connector(&closed_url("/mcp")),
        server: Arc::new(server.clone()),
        peers,
    };
    scene.detect().await;
    server.forget();
    Box::new(scene)
}

/// Returns a scene over HTTP+SSE.
pub(crate) async fn sse() -> Box<Scene> {
    let peers = crate::BOTH_LEGACY;
    let server = HttpServer::start(peers.server).await;
    Box::new(Scene {
        connector: url_connector(&format!("sse+{}", server.url("/sse"))),
        unreachable: url_connector(&format!("sse+{}", closed_url("/sse"))),
        server: Arc::new(server),
        peers,
    })
}

/// Returns a scene over HTTP+SSE, which the connector must detect.
pub(crate) async fn sse_of_detected() -> Box<Scene> {
    let peers = crate::BOTH_LEGACY;
    let server = HttpServer::start(peers.server).await;
    Box::new(Scene {
        connector: url_connector(&server.url("/sse")),
        unreachable: url_connector(&closed_url("/sse")),
        server: Arc::new(server),
        peers,
    })
}
