//! A client for servers over plain HTTP on this machine, where a call is so short that the layers of
//! a general client (proxies, TLS, redirects, timeouts of its own) would be a large part of it.

use std::time::Duration;

use http::header::HeaderMap;
use http::{Method, Request, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::{Body, Response, ResponseBuilderExt as _};
use riglm_ports::upstream::UpstreamError;
use url::{Host, Url};

use super::endpoint::{FailedRequest, KEEPALIVE, MAX_IDLE_CONNECTIONS, POOL_IDLE_TIMEOUT};
use super::post_body::PostBody;

/// A client with a pool of connections to one server on this machine.
pub(super) struct LocalClient {
    client: Client<HttpConnector, PostBody>,
    url: Url,
    /// The same as `url`.
    uri: Uri,
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
        if url.scheme() != "http" || !is_here || !url.username().is_empty() {
            return None;
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_connect_timeout(Some(connect_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .build(connector);
        Some(Self {
            client,
            url: url.clone(),
            uri: uri_of(url)?,
        })
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
        let known = (*target == self.url).then(|| self.uri.clone());
        let Some(uri) = known.or_else(|| uri_of(target)) else {
            return Err(UpstreamError::Unreachable {
                reason: "the URL is not valid",
            });
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let response = self.client.request(request).await.map_err(|error| {
            let failed = FailedRequest {
                is_connect: error.is_connect(),
                is_timeout: false,
                source: std::error::Error::source(&error),
            };
            failed.into_error()
        })?;
        Ok(with_url(response, target))
    }
}

/// Returns a response with its URL, from which an event stream may name others.
fn with_url(response: http::Response<Incoming>, url: &Url) -> Response {
    let (parts, body) = response.into_parts();
    let mut built = http::Response::new(Body::wrap(body));
    let named = http::Response::builder().url(url.clone()).body(());
    if let Ok(named) = named {
        *built.extensions_mut() = named.into_parts().0.extensions;
    }
    *built.status_mut() = parts.status;
    *built.headers_mut() = parts.headers;
    Response::from(built)
}

fn uri_of(url: &Url) -> Option<Uri> {
    let mut url = url.clone();
    url.set_fragment(None);
    Uri::try_from(url.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_this_machine_are_asked_without_a_general_client() {
        let is_local = |url: &str| {
            let url = Url::parse(url).unwrap();
            LocalClient::new(&url, Duration::from_secs(1)).is_some()
        };
        assert!(is_local("http://127.0.0.1:3000/mcp"));
        assert!(is_local("http://[::1]/mcp?a=b#c"));
        assert!(is_local("http://localhost:3000/"));
        assert!(!is_local("https://localhost:3000/"));
        assert!(!is_local("http://localhost.example/"));
        assert!(!is_local("http://10.0.0.1/mcp"));
        assert!(!is_local("http://user:secret@127.0.0.1/mcp"));
    }
}
