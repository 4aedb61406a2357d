//! A connection that is driven by the request that uses it, and the body of its response.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use riglm_ports::upstream::UpstreamError;
use tokio::net::TcpStream;

use super::super::post_body::PostBody;
use super::idle_pool::IdlePool;

/// The polls of a response that nobody reads, to find out whether it has no more data.
const LAST_POLLS: usize = 3;

/// The side of a connection that reads and writes its socket.
type Driver = Pin<Box<Connection<TokioIo<TcpStream>, PostBody>>>;

/// An open connection without a task of its own.
pub(super) struct LocalConnection {
    sender: SendRequest<PostBody>,
    /// Reads and writes the socket; `None` when the connection has ended.
    driver: Option<Driver>,
}

pub(super) enum RequestOutcome {
    /// The server has sent the head of a response.
    Answered(Response<LocalBody>),
    /// The connection had ended before. The server knows nothing of the request.
    Unsent(Box<Request<PostBody>>),
}

impl fmt::Debug for LocalConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalConnection")
            .field("is_open", &self.driver.is_some())
            .finish_non_exhaustive()
    }
}

/// Returns the error of a connection that ended before the response.
pub(super) fn lost_connection() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended before the answer".into(),
    }
}

impl LocalConnection {
    /// Starts HTTP on a connected socket.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Lost`] when the connection has ended already.
    pub(super) async fn start(socket: TokioIo<TcpStream>) -> Result<Self, UpstreamError> {
        let started = http1::handshake(socket).await;
        let (sender, driver) = started.map_err(|_| lost_connection())?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
        })
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Lost`] when the connection ended before.
    pub(super) async fn send(
        mut self,
        request: Request<PostBody>,
    ) -> Result<RequestOutcome, UpstreamError> {
        let mut response = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let sent = poll_fn(|context| {
            // First, because it writes the request and reads the response.
            drive(driver, context);
            response.as_mut().poll(context)
        });
        match sent.await {
            Ok(response) => Ok(RequestOutcome::Answered(response.map(|incoming| {
                LocalBody {
                    incoming,
                    connection: Some(self),
                    pool: Weak::new(),
                }
            }))),
            Err(mut error) => match error.take_message() {
                Some(unsent) => Ok(RequestOutcome::Unsent(Box::new(unsent))),
                None => Err(lost_connection()),
            },
        }
    }

    /// Returns whether a request can be sent over the connection. Looks at what has happened since
    /// the last one.
    pub(super) fn is_usable(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Reads and writes what is possible now.
fn drive(driver: &mut Option<Driver>, context: &mut Context<'_>) {
    if let Some(open) = driver
        && open.as_mut().poll(context).is_ready()
    {
        // The request and the body get the error, if there was one.
        *driver = None;
    }
}

/// The body of a response. Its connection is free for another request when it has ended.
#[derive(Debug)]
pub(super) struct LocalBody {
    incoming: Incoming,
    connection: Option<LocalConnection>,
    pool: Weak<IdlePool>,
}

impl LocalBody {
    /// Sets the pool of the connection. A response without a body gives it back at once.
    pub(super) fn return_to(&mut self, pool: &Arc<IdlePool>) {
        self.pool = Arc::downgrade(pool);
        if self.incoming.is_end_stream() {
            self.release();
        }
    }

    /// Gives the connection back.
    fn release(&mut self) {
        if let (Some(connection), Some(pool)) = (self.connection.take(), self.pool.upgrade()) {
            pool.put(connection);
        }
    }
}

impl Body for LocalBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(connection) = &mut self.connection {
            drive(&mut connection.driver, context);
        }
        let frame = Pin::new(&mut self.incoming).poll_frame(context);
        let has_ended = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.incoming.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if has_ended {
            self.release();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for LocalBody {
    /// A body that nobody has read to its end closes the connection, which tells the server. Only
    /// one whose end has arrived, such as an empty one in chunks, does not.
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..LAST_POLLS {
            if self.connection.is_none() {
                return;
            }
            if let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *self).poll_frame(&mut context)
                && frame.data_ref().is_some_and(|data| !data.is_empty())
            {
                return;
            }
        }
    }
}
