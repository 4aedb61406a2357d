//! The standalone stream, on which a server sends messages that belong to no request.

use std::sync::Arc;

use http::StatusCode;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio_util::sync::CancellationToken;

use super::event_stream::{EventStream, StreamPosition, payload};
use super::exchange::is_stream;
use super::reply;
use super::session::HttpSession;
use riglm_adapters_programs::SkippedOutput;

/// Reads the standalone stream until `ended`, which the end of the connection implies, until the
/// session is over, or until the server turns out to offer none.
pub(super) async fn run(
    session: Arc<HttpSession>,
    events: Arc<dyn UpstreamEvents>,
    ended: CancellationToken,
) {
    tokio::select! {
        biased;
        () = ended.cancelled() => {}
        () = follow(&session, events.as_ref()) => {}
    }
}

async fn follow(session: &HttpSession, events: &dyn UpstreamEvents) {
    let upstream = &session.endpoint.name;
    let mut position = StreamPosition::default();
    let mut n_fruitless: u32 = 0;
    let mut skipped = SkippedOutput::default();
    loop {
        let response = match session.open_stream(position.last_event()).await {
            Err(UpstreamError::SessionExpired) => return,
            Err(_) => None,
            Ok(response) if is_stream(&response) => Some(response),
            Ok(response) if is_temporary(response.status()) => None,
            Ok(response) => {
                tracing::debug!(
                    %upstream,
                    http.status = response.status().as_u16(),
                    "upstream {upstream} offers no standalone event stream"
                );
                return;
            }
        };
        if let Some(response) = response {
            let mut stream = EventStream::new(response, session.endpoint.limits.max_message_bytes);
            position.begin_resumed_response();
            let n_events = read(&mut stream, &mut position, session, events, &mut skipped).await;
            if stream.was_successful(n_events) {
                n_fruitless = 0;
            }
        }
        tokio::time::sleep(position.delay(n_fruitless, fastrand::f64())).await;
        n_fruitless = n_fruitless.saturating_add(1);
    }
}

/// Returns whether a status indicates a temporary problem.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT
        )
}

/// Reports the messages of a stream to its end; returns the number of new events.
async fn read(
    stream: &mut EventStream,
    position: &mut StreamPosition,
    session: &HttpSession,
    events: &dyn UpstreamEvents,
    skipped: &mut SkippedOutput,
) -> usize {
    let mut n_events = 0;
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            Ok(None) | Err(UpstreamError::Lost { .. }) => return n_events,
            Err(error) => {
                skipped.note(&session.endpoint.name, &error);
                // Resuming after this position would return the unreadable event again.
                position.forget();
                return n_events;
            }
        };
        if !position.note(&event) {
            continue;
        }
        n_events += 1;
        let Some(body) = payload(event) else { continue };
        match reply::parse(&body) {
            Ok(message) => events.on_message(message, None).await,
            Err(error) => skipped.note(&session.endpoint.name, &error),
        }
    }
}
