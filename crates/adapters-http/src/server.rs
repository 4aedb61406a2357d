//! The control server on its socket.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ControlConfig;
use crate::router::router;
use crate::state::ControlParts;

/// The longest time for open connections to end at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// The largest number of connections. Operators are few, and clients of the MCP port need file
/// descriptors too.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// The longest time to receive the head of a request, also of the next one on a connection.
pub(crate) const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The pause after a failed accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves the control API on a bound socket until `stop` is cancelled.
pub async fn serve(
    listener: TcpListener,
    config: ControlConfig,
    parts: ControlParts,
    stop: CancellationToken,
) {
    let router = router(&config, parts);
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &places)).await {
        match accepted {
            Ok((stream, place)) => {
                connections.spawn(serve_connection(
                    stream,
                    place,
                    router.clone(),
                    stop.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!("control port: failed to accept a connection: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    // No new connection may be accepted while the open ones end.
    drop(listener);
    connections.close();
    let ended = tokio::time::timeout(CLOSE_WITHIN, connections.wait()).await;
    if ended.is_err() {
        tracing::debug!("control port: connections still open after the shutdown timeout");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    // Before accepting: further connections wait in the backlog of the system.
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve_connection(
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    router: Router,
    stop: CancellationToken,
) {
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!("control port: connection failed: {error}");
    }
}
