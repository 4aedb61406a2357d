//! The baseline: a relay that forwards HTTP bodies without reading them.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// Serves until the process is killed.
pub(crate) fn run(upstream: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        eprintln!(
            "listening on http://{}/mcp",
            listener.local_addr().expect("an address")
        );
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("TCP_NODELAY");
            let client = client.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| pass(request, client.clone(), upstream));
                // Clients may disconnect at any time.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
}

async fn pass(
    request: Request<Incoming>,
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: SocketAddr,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    head.uri = Uri::builder()
        .scheme("http")
        .authority(upstream.to_string())
        .path_and_query("/mcp")
        .build()
        .expect("a URI");
    head.headers.remove("host");
    let answer = client
        .request(Request::from_parts(head, Full::new(body)))
        .await
        .expect("the upstream answers");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Ok(Response::from_parts(head, Full::new(body)))
}
