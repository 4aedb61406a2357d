//! The baseline: a relay that forwards HTTP bodies without reading them.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::upstream::ACCEPT_PAUSE;

type UpstreamClient = Client<HttpConnector, Full<Bytes>>;

/// Serves until the process is killed.
pub(crate) fn run(port: u16, upstream: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client: UpstreamClient = Client::builder(TokioExecutor::new()).build(connector);
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // There are too many connections.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            stream.set_nodelay(true)?;
            let client = client.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| pass(request, client.clone(), upstream));
                // Clients may disconnect at any time.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

async fn pass(
    request: Request<Incoming>,
    client: UpstreamClient,
    upstream: SocketAddr,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path_and_query().cloned();
    let mut uri = Uri::builder()
        .scheme("http")
        .authority(upstream.to_string());
    if let Some(path) = path {
        uri = uri.path_and_query(path);
    }
    let Ok(uri) = uri.build() else {
        return Ok(failure(StatusCode::BAD_REQUEST));
    };
    head.uri = uri;
    head.headers.remove("host");
    let request = Request::from_parts(head, Full::new(body));
    let Ok(answer) = client.request(request).await else {
        return Ok(failure(StatusCode::BAD_GATEWAY));
    };
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(head, Full::new(body)))
}

fn failure(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}
