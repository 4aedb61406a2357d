//! The listening socket, its connections, and the routes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use riglm_app::proxy::Proxy;
use riglm_domain::id::ProfileName;
use riglm_domain::safeguards::admission::Admission;
use riglm_ports::authenticator::Authenticator;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::connection_timeouts::{ConnectionPhase, FollowedSocket};
use super::modern::Clients;
use super::port::ServerState;
use super::sdk::Agents;
use super::sessions::{HeldSessions, Sessions};
use super::{legacy_sse, sdk, streamable};

/// The maximum read buffer of a connection. It also limits the head of a request, before any check
/// of it. A large buffer needs fewer reads for large bodies.
const MAX_BUFFER_BYTES: usize = 512 << 10;
/// The polling interval for a free connection at the limit of connections.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The time that open connections get to end at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// The wait after a failed accept, which happens when the process has no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The options of the MCP server.
#[derive(Debug)]
pub struct HttpOptions {
    /// The address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// The accepted hosts and origins.
    pub admission: Admission,
    /// The check of bearer keys.
    pub authenticator: Arc<dyn Authenticator>,
    /// The profiles under which clients may connect, at `/mcp/{profile}`.
    pub profiles: BTreeSet<ProfileName>,
    /// The faces besides MCP.
    pub faces: Faces,
}

/// The faces of the MCP server besides MCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faces {
    /// Whether agents on the SDKs of providers are served, under `/sdk`.
    pub sdk: bool,
}

/// The MCP server, bound but not serving yet.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    port: Arc<ServerState>,
    faces: Faces,
}

impl HttpServer {
    /// Binds the address.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system when the address cannot be bound.
    pub async fn bind(proxy: Arc<Proxy>, config: HttpOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind(config.address).await?;
        let address = listener.local_addr()?;
        let port = ServerState {
            proxy,
            admission: config.admission,
            authenticator: config.authenticator,
            profiles: config.profiles,
            streamable: Sessions::new(),
            legacy: Sessions::new(),
            modern: Clients::default(),
            agents: Agents::default(),
        };
        Ok(Self {
            listener,
            address,
            port: Arc::new(port),
            faces: config.faces,
        })
    }

    /// Returns the bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled. Then lets requests in flight end, ends all sessions and
    /// closes the connections.
    pub async fn serve(self, stop: CancellationToken) {
        let proxy = Arc::clone(&self.port.proxy);
        let faces = if self.faces.sdk {
            sdk::routes()
        } else {
            Router::new()
        };
        let router = faces
            .route("/mcp/{profile}", any(streamable::serve_profile))
            .route("/sse", any(legacy_sse::open))
            .route("/messages", any(legacy_sse::post))
            .with_state(Arc::clone(&self.port));
        let handlers = Routes {
            port: self.port,
            router,
        };
        let connections = TaskTracker::new();
        let close = CancellationToken::new();
        let mut is_told = false;
        while let Some(accepted) = stop
            .run_until_cancelled(async {
                wait_for_place(&proxy, &connections, &mut is_told).await;
                self.listener.accept().await
            })
            .await
        {
            match accepted {
                Ok((stream, _)) => {
                    let served = serve_connection(stream, handlers.clone(), close.clone());
                    connections.spawn(served);
                }
                Err(error) => {
                    tracing::warn!("failed to accept a client connection: {error}");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
        // Refuses new connections during the shutdown.
        drop(self.listener);
        proxy.shutdown().await;
        close.cancel();
        connections.close();
        let closed = tokio::time::timeout(CLOSE_WITHIN, connections.wait()).await;
        if closed.is_err() {
            tracing::debug!("client connections were still open at shutdown");
        }
    }
}

/// Waits until the number of connections is below the limit.
async fn wait_for_place(proxy: &Proxy, connections: &TaskTracker, is_told: &mut bool) {
    loop {
        let limit = proxy.limits().connections.min(n_allowed());
        if connections.len() < limit {
            return;
        }
        if !std::mem::replace(is_told, true) {
            tracing::warn!(
                limit,
                "limit of {limit} client connections reached, further ones wait \
                 (limits.connections, ulimit -n; logged once)"
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Returns the number of connections that the limit of file descriptors allows for clients: a
/// quarter is left for upstreams, the store and operators.
fn n_allowed() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    descriptors.map_or(usize::MAX, |n| {
        usize::try_from(n / 4 * 3).unwrap_or(usize::MAX)
    })
}

/// The handlers of requests by their path.
#[derive(Clone)]
struct Routes {
    port: Arc<ServerState>,
    /// All paths but `/mcp`, whose calls are so short that the layers of a router would be a part of
    /// their time.
    router: Router,
}

impl Routes {
    async fn serve(
        self,
        request: Request<Incoming>,
        sessions: HeldSessions,
    ) -> Result<Response, Infallible> {
        let mut request = request.map(Body::new);
        if request.uri().path() == "/mcp" {
            return Ok(streamable::serve(&self.port, &sessions, request).await);
        }
        request.extensions_mut().insert(sessions);
        self.router.oneshot(request).await
    }
}

async fn serve_connection(stream: TcpStream, handlers: Routes, close: CancellationToken) {
    // Messages are small and should leave at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("failed to set TCP_NODELAY: {error}");
    }
    let phase = ConnectionPhase::new();
    let socket = FollowedSocket {
        socket: stream,
        phase: Arc::clone(&phase),
    };
    let sessions = HeldSessions::default();
    let service = service_fn(|request| {
        let (handlers, phase) = (handlers.clone(), Arc::clone(&phase));
        let sessions = sessions.clone();
        async move {
            phase.begin_answer();
            let response = handlers.serve(request, sessions).await?;
            Ok::<_, Infallible>(phase.follow(response))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let served = tokio::select! {
        // First what has arrived, so that a request that waited longer than a limit is served.
        biased;
        served = connection.as_mut() => served,
        () = close.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(CLOSE_WITHIN, connection).await {
                Ok(served) => served,
                Err(_) => return,
            }
        }
        () = until_expired(&phase) => {
            tracing::debug!("closed a client connection that sent no request in time");
            return;
        }
    };
    if let Err(error) = served {
        tracing::debug!("client connection failed: {error}");
    }
}

/// Waits until a connection has sent no request for too long.
async fn until_expired(phase: &ConnectionPhase) {
    while let Some(check) = phase.next_check(Instant::now()) {
        tokio::time::sleep_until(check).await;
    }
}
