//! A client for servers over plain HTTP on this machine, where a call is so short that the layers of
//! a general client (proxies, TLS, redirects, tasks and timeouts of its own) would be a large part of
//! it.
//!
//! A connection has no task: the request that uses it drives it, and so does the reader of the
//! response.

mod connection;
mod idle_pool;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::{Body, Response, ResponseBuilderExt as _};
use riglm_ports::upstream::UpstreamError;
use tokio::time::{Instant, sleep};
use tower::Service as _;
use url::{Host, Url};

use self::connection::{LocalBody, LocalConnection, RequestOutcome};
use self::idle_pool::IdlePool;
use super::endpoint::{FailedRequest, KEEPALIVE};
use super::post_body::PostBody;
use riglm_adapters_programs::{Patience, REFUSED};

/// The pause between two attempts to connect to a server that refuses connections.
const AGAIN: Duration = Duration::from_millis(100);

/// A client with a pool of connections to one server on this machine.
pub(super) struct LocalClient {
    connector: HttpConnector,
    patience: Patience,
    pool: Arc<IdlePool>,
    url: Url,
    /// The same as `url`, for the connector.
    uri: Uri,
    /// The path and the query of `url`.
    path: PathAndQuery,
    host: HeaderValue,
}

impl LocalClient {
    /// Returns a client for the server at `url`; `None` if the server may be elsewhere or needs TLS.
    pub(super) fn new(url: &Url, connect_timeout: Duration) -> Option<Self> {
        // Other names need a resolver that refuses some addresses.
        let is_here = match url.host()? {
            Host::Ipv4(v4) => v4.is_loopback(),
            Host::Ipv6(v6) => v6.is_loopback(),
            Host::Domain(name) => name == "localhost",
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if url.scheme() != "http" || !is_here || has_user {
            return None;
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_connect_timeout(Some(connect_timeout));
        let uri = uri_of(url)?;
        Some(Self {
            connector,
            patience: Patience::default(),
            pool: Arc::default(),
            url: url.clone(),
            path: uri.path_and_query()?.clone(),
            // Has no user, and a port only if it is not that of the scheme.
            host: HeaderValue::try_from(uri.authority()?.as_str()).ok()?,
            uri,
        })
    }

    /// Returns the client with another patience.
    pub(super) fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a request to `target`, a URL of this server, and returns the head of the response.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Unreachable`] when no connection could be made, and
    /// [`UpstreamError::Lost`] when it broke before the response.
    pub(super) async fn execute(
        &self,
        method: Method,
        target: &Url,
        headers: HeaderMap,
        body: PostBody,
    ) -> Result<Response, UpstreamError> {
        let known = (*target == self.url).then(|| self.path.clone());
        let other = || uri_of(target)?.path_and_query().cloned();
        let Some(path) = known.or_else(other) else {
            return Err(UpstreamError::Unreachable {
                reason: "the URL is not valid",
            });
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path);
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert_with(|| self.host.clone());
        while let Some(idle) = self.pool.take() {
            match idle.send(request).await? {
                RequestOutcome::Answered(response) => return Ok(self.complete(response, target)),
                // The server has closed the connection before.
                RequestOutcome::Unsent(unsent) => request = *unsent,
            }
        }
        // Streams are opened again anyway, and the end of a session is not worth waiting.
        let connected = if *request.method() == Method::POST {
            self.connect_patiently().await?
        } else {
            self.connect().await?
        };
        match connected.send(request).await? {
            RequestOutcome::Answered(response) => Ok(self.complete(response, target)),
            RequestOutcome::Unsent(_) => Err(connection::lost_connection()),
        }
    }

    /// Connects. While the server refuses connections, it tries again until its patience ends.
    async fn connect_patiently(&self) -> Result<LocalConnection, UpstreamError> {
        let Patience { time, reason } = self.patience;
        let deadline = Instant::now() + time;
        loop {
            match self.connect().await {
                Err(UpstreamError::Unreachable { reason: REFUSED }) => {}
                connected => return connected,
            }
            if Instant::now() >= deadline {
                return Err(UpstreamError::Unreachable { reason });
            }
            sleep(AGAIN).await;
        }
    }

    async fn connect(&self) -> Result<LocalConnection, UpstreamError> {
        let mut connector = self.connector.clone();
        let connected = connector.call(self.uri.clone()).await.map_err(|error| {
            let failed = FailedRequest {
                is_connect: true,
                is_timeout: false,
                source: Some(&error),
            };
            failed.into_error()
        })?;
        LocalConnection::start(connected).await
    }

    /// Returns a response whose connection returns to the pool at the end of its body, with its URL,
    /// from which an event stream may name others.
    fn complete(&self, response: http::Response<LocalBody>, url: &Url) -> Response {
        let (parts, mut body) = response.into_parts();
        body.return_to(&self.pool);
        let mut built = http::Response::new(Body::wrap(body));
        let named = http::Response::builder().url(url.clone()).body(());
        if let Ok(named) = named {
            *built.extensions_mut() = named.into_parts().0.extensions;
        }
        *built.status_mut() = parts.status;
        *built.headers_mut() = parts.headers;
        Response::from(built)
    }
}

fn uri_of(url: &Url) -> Option<Uri> {
    let mut url = url.clone();
    url.set_fragment(None);
    Uri::try_from(url.as_str()).ok()
}
