//! The control server on its socket.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::ControlConfig;
use crate::router::{ControlParts, router};

/// The longest that open connections may take to end at shutdown.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Serves the control API on a bound socket until `stop` is cancelled.
pub async fn serve(
    listener: TcpListener,
    config: ControlConfig,
    parts: ControlParts,
    stop: CancellationToken,
) {
    let router = router(&config, parts);
    let stopping = stop.clone().cancelled_owned();
    let serving = axum::serve(listener, router).with_graceful_shutdown(stopping);
    tokio::select! {
        served = serving => {
            if let Err(error) = served {
                tracing::error!("the control server ended: {error}");
            }
        }
        () = async {
            stop.cancelled().await;
            tokio::time::sleep(CLOSE_WITHIN).await;
        } => {}
    }
}
