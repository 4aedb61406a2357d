//! `GET /events`: what happens from now on, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use riglm_app::events::{Follower, Happening, Missed};
use tokio_util::sync::CancellationToken;

use crate::access::KeyGone;
use crate::problem::{Guarded, Problem, ProblemBody};
use crate::router::ControlParts;

/// The most who follow at once.
const MAX_FOLLOWERS: usize = 32;
/// How long events are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(100);
/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What happens from now on. Each event has a name (`request_ended`, `list_shown`, ...) and a JSON
/// object with `type`, `at`, `data` and, where it is of a session, `session`, `work_session`, `client`,
/// `client_id` and `principal`. Of those that come with each request some hundreds are told in a
/// second, and an event `skipped` says how many more there were. Who is too slow misses the oldest, and is told how many by an
/// event `missed`.
#[utoipa::path(
    get, path = "/events", operation_id = "followEvents", tag = "observing", security(("token" = ["read"])),
    responses(
        (status = OK, description = "A stream that ends only with the token that it was opened with, or riglm.", body = String,
            content_type = "text/event-stream"),
        (status = SERVICE_UNAVAILABLE, description = "Too many follow already.",
            body = ProblemBody, content_type = "application/problem+json"),
        Guarded,
    )
)]
pub(crate) async fn follow(
    State(parts): State<ControlParts>,
    Extension(KeyGone(gone)): Extension<KeyGone>,
) -> Response {
    if parts.events.n_followers() >= MAX_FOLLOWERS {
        let detail = format!("{MAX_FOLLOWERS} follow already");
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
    }
    let stream = followed(parts.events.follow(), parts.stop.clone(), gone);
    Sse::new(stream)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// Returns what happens, in portions: to write each event by itself would cost a busy proxy as much as a
/// call does.
fn followed(
    follower: Follower,
    stop: CancellationToken,
    key_gone: CancellationToken,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(
        (follower, stop, key_gone),
        |(mut follower, stop, key_gone)| async move {
            loop {
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
                // What cannot be written is left out.
                if let Ok(event) = written(next) {
                    return Some((Ok(event), (follower, stop, key_gone)));
                }
            }
        },
    )
}

fn written(next: Result<Arc<Happening>, Missed>) -> Result<Event, axum::Error> {
    match next {
        Ok(happening) => Event::default()
            .event(happening.kind)
            .json_data(&*happening),
        Err(Missed(n)) => Event::default()
            .event("missed")
            .json_data(serde_json::json!({ "missed": n })),
    }
}
