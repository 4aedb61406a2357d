//! The time limits of a client connection between its requests.
//!
//! A connection notes in which phase it is as bytes and requests pass. Its task looks at the phase
//! when the current limit would end, so that a request sets no timer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The maximum time for the head of a request to arrive, from its first byte.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The maximum time between two requests. Common HTTP clients close idle connections after 90 s or
/// earlier, so that they, and not this server, close most of them.
const IDLE_WITHIN: Duration = Duration::from_mins(2);
/// The same after a response that refused the request.
const REFUSED_IDLE_WITHIN: Duration = Duration::from_secs(10);

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// No byte of a request has arrived.
    Idle,
    /// The head of a request has begun.
    Head,
    /// A request is being answered. Other limits apply.
    Answering,
    /// The last bytes of a response are being sent.
    Sending,
}

#[derive(Debug)]
pub(super) struct ConnectionPhase {
    opened: Instant,
    phase: AtomicU8,
    /// Milliseconds from the opening to the beginning of the phase.
    since: AtomicU64,
    /// Whether the last response refused its request.
    was_refused: AtomicBool,
}

impl ConnectionPhase {
    /// Returns the phase of a connection that has just been opened. A request should follow at once.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            phase: AtomicU8::new(Phase::Head as u8),
            since: AtomicU64::new(0),
            was_refused: AtomicBool::new(false),
        })
    }

    /// Notes that a request has arrived.
    pub(super) fn begin_answer(&self) {
        self.set(Phase::Answering);
    }

    /// Returns `response` with a body that notes its end.
    pub(super) fn follow(
        self: Arc<Self>,
        response: http::Response<Body>,
    ) -> http::Response<FollowedBody> {
        let is_refusal = response.status().is_client_error();
        self.was_refused.store(is_refusal, Ordering::Relaxed);
        response.map(|body| FollowedBody { body, phase: self })
    }

    /// Returns when to look at the connection again, or `None` if its limit has ended.
    pub(super) fn next_check(&self, now: Instant) -> Option<Instant> {
        let limit = match self.current() {
            Phase::Head => HEAD_WITHIN,
            Phase::Idle if !self.was_refused.load(Ordering::Relaxed) => IDLE_WITHIN,
            Phase::Idle => REFUSED_IDLE_WITHIN,
            Phase::Answering | Phase::Sending => return Some(now + HEAD_WITHIN),
        };
        let since = Duration::from_millis(self.since.load(Ordering::Relaxed));
        let end = self.opened + since + limit;
        // An idle connection is checked earlier: a head may begin soon.
        (end > now).then(|| end.min(now + HEAD_WITHIN))
    }

    fn current(&self) -> Phase {
        let phase = self.phase.load(Ordering::Relaxed);
        [Phase::Idle, Phase::Head, Phase::Answering, Phase::Sending]
            .into_iter()
            .find(|known| *known as u8 == phase)
            .unwrap_or(Phase::Idle)
    }

    fn set(&self, phase: Phase) {
        let since = self.opened.elapsed().as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.since.store(since, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    fn on_read(&self) {
        if self.current() == Phase::Idle {
            self.set(Phase::Head);
        }
    }

    fn on_flushed(&self) {
        if self.current() == Phase::Sending {
            self.set(Phase::Idle);
        }
    }
}

/// The socket of a connection, which notes when a request begins and when a response has been sent.
#[derive(Debug)]
pub(super) struct FollowedSocket {
    pub(super) socket: TcpStream,
    pub(super) phase: Arc<ConnectionPhase>,
}

impl AsyncRead for FollowedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if buffer.filled().len() > n_before {
            self.phase.on_read();
        }
        read
    }
}

impl AsyncWrite for FollowedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// Called by the HTTP server when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        if flushed.is_ready() {
            self.phase.on_flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// The body of a response, which notes when all of it has been taken.
#[derive(Debug)]
pub(super) struct FollowedBody {
    body: Body,
    phase: Arc<ConnectionPhase>,
}

impl HttpBody for FollowedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for FollowedBody {
    fn drop(&mut self) {
        self.phase.set(Phase::Sending);
    }
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};

    use super::*;

    fn respond(phase: &Arc<ConnectionPhase>, status: StatusCode) {
        phase.begin_answer();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        drop(Arc::clone(phase).follow(response));
    }

    /// Returns after how many seconds the connection is closed if nothing else happens.
    fn limit(phase: &ConnectionPhase) -> Option<u64> {
        let start = Instant::now();
        let mut now = start;
        for _ in 0..100 {
            match phase.next_check(now) {
                Some(later) => now = later,
                None => return Some((now - start).as_secs()),
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_limit() {
        let phase = ConnectionPhase::new();
        assert_eq!(limit(&phase), Some(10), "no request follows the opening");
        tokio::time::advance(Duration::from_secs(4)).await;
        phase.on_read();
        assert_eq!(limit(&phase), Some(6), "the head does not end");
        phase.begin_answer();
        phase.on_read();
        phase.on_flushed();
        assert_eq!(limit(&phase), None, "the request is being answered");
        respond(&phase, StatusCode::OK);
        phase.on_read();
        assert_eq!(limit(&phase), None, "the response is being sent");
        phase.on_flushed();
        assert_eq!(limit(&phase), Some(120), "no further request follows");
        phase.on_read();
        assert_eq!(
            limit(&phase),
            Some(10),
            "the head of the next one does not end"
        );
        respond(&phase, StatusCode::UNAUTHORIZED);
        phase.on_flushed();
        assert_eq!(limit(&phase), Some(10), "no request follows a refusal");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_checked_often_enough_for_a_head() {
        let phase = ConnectionPhase::new();
        respond(&phase, StatusCode::OK);
        phase.on_flushed();
        let check = phase.next_check(Instant::now()).unwrap();
        assert_eq!(check - Instant::now(), HEAD_WITHIN);
    }
}
