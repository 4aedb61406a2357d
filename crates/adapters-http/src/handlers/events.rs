//! `GET /events`: live events as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use riglm_app::control::events::{Follower, MissedEvents, PublishedEvent};
use tokio_util::sync::CancellationToken;

use crate::access::KeyRevocation;
use crate::problem::{Problem, ProblemBody, TokenErrors};
use crate::state::ControlParts;

/// The largest number of concurrent followers.
const MAX_FOLLOWERS: usize = 32;
/// The time during which events are collected before they are written together.
const GATHER: Duration = Duration::from_millis(100);
/// The interval of keep-alive comments on a silent stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Follow live events as server-sent events.
///
/// Each event has a name (`request_ended`, `list_shown`, ...) and a JSON object with `type`, `at`
/// and `data`. Events of a session also have `session`, `work_session`, `client`, `client_id` and
/// `principal`. Of the events that occur with every request, some hundreds per second are sent; an
/// event `skipped` has the number of the others. A slow reader misses the oldest events, and gets
/// an event `missed` with their number.
#[utoipa::path(
    get, path = "/events", operation_id = "followEvents", tag = "observing", security(("token" = ["read"])),
    responses(
        (status = OK, description = "A stream of events. It ends when its token is revoked, or when riglm stops.", body = String,
            content_type = "text/event-stream"),
        (status = SERVICE_UNAVAILABLE, description = "The limit of concurrent followers is reached.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors,
    )
)]
pub(crate) async fn follow(
    State(parts): State<ControlParts>,
    Extension(KeyRevocation(gone)): Extension<KeyRevocation>,
) -> Result<impl IntoResponse, Problem> {
    if parts.events.n_followers() >= MAX_FOLLOWERS {
        let detail = format!("limit of {MAX_FOLLOWERS} concurrent followers reached; retry later");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    let stream = event_stream(parts.events.follow(), parts.stop.clone(), gone);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// Returns the stream of events, in batches. Writing each event by itself would cost a busy proxy
/// as much as a call.
fn event_stream(
    follower: Follower,
    stop: CancellationToken,
    key_gone: CancellationToken,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(
        (follower, stop, key_gone),
        |(mut follower, stop, key_gone)| async move {
            loop {
                // Checked here too: a follower with a backlog never waits below.
                if key_gone.is_cancelled() {
                    return None;
                }
                let next = if let Some(next) = follower.waiting() {
                    next
                } else {
                    let waiting = async {
                        let next = follower.next().await;
                        tokio::time::sleep(GATHER).await;
                        next
                    };
                    let waiting = key_gone.run_until_cancelled(waiting);
                    stop.run_until_cancelled(waiting).await???
                };
                // An event that cannot be serialized is left out.
                if let Ok(event) = sse_event(next) {
                    return Some((Ok(event), (follower, stop, key_gone)));
                }
            }
        },
    )
}

fn sse_event(next: Result<Arc<PublishedEvent>, MissedEvents>) -> Result<Event, axum::Error> {
    match next {
        Ok(published) => Event::default()
            .event(published.kind)
            .json_data(&*published),
        Err(MissedEvents(n)) => Event::default()
            .event("missed")
            .json_data(serde_json::json!({ "missed": n })),
    }
}
