//! The stream on which a server sends what belongs to no request.

use std::sync::Arc;

use http::StatusCode;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use tokio_util::sync::CancellationToken;

use super::event_stream::{EventStream, Position, payload};
use super::exchange::is_stream;
use super::reply;
use super::session::Session;
use crate::upstream::skipped::Skipped;

/// Follows the server's own stream until `ended`, which the end of the connection implies, until
/// the session is over, or until the server turns out to offer none.
pub(super) async fn run(
    session: Arc<Session>,
    events: Arc<dyn UpstreamEvents>,
    ended: CancellationToken,
) {
    tokio::select! {
        biased;
        () = ended.cancelled() => {}
        () = follow(&session, events.as_ref()) => {}
    }
}

async fn follow(session: &Session, events: &dyn UpstreamEvents) {
    let upstream = &session.endpoint.name;
    let mut position = Position::default();
    let mut n_fruitless: u32 = 0;
    let mut skipped = Skipped::default();
    loop {
        let response = match session.open_stream(position.last_event()).await {
            Err(UpstreamError::SessionExpired) => return,
            Err(_) => None,
            Ok(response) if is_stream(&response) => Some(response),
            Ok(response) if may_pass(response.status()) => None,
            Ok(response) => {
                tracing::debug!(
                    %upstream,
                    http.status = response.status().as_u16(),
                    "upstream {upstream} offers no stream of its own"
                );
                return;
            }
        };
        if let Some(response) = response {
            let mut stream = EventStream::new(response, session.endpoint.limits.max_message_bytes);
            position.resumed();
            let n_events = read(&mut stream, &mut position, session, events, &mut skipped).await;
            if stream.was_fruitful(n_events) {
                n_fruitless = 0;
            }
        }
        tokio::time::sleep(position.delay(n_fruitless)).await;
        n_fruitless = n_fruitless.saturating_add(1);
    }
}

/// Returns whether a status is about the moment and not about the server.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT
        )
}

/// Reports a stream to its end; returns the number of new events.
async fn read(
    stream: &mut EventStream,
    position: &mut Position,
    session: &Session,
    events: &dyn UpstreamEvents,
    skipped: &mut Skipped,
) -> usize {
    let mut n_events = 0;
    loop {
        let event = match stream.next().await {
            Ok(Some(event)) => event,
            Ok(None) | Err(UpstreamError::Lost { .. }) => return n_events,
            Err(error) => {
                skipped.note(&session.endpoint.name, &error);
                // The event that cannot be read must not come again.
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
            Ok(message) => events.received(message, None).await,
            Err(error) => skipped.note(&session.endpoint.name, &error),
        }
    }
}
