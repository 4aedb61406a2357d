//! An upstream server that responds at once with prepared bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::value::RawValue;

struct Lists {
    of_100: String,
    of_1000: String,
    /// The list without a cursor.
    whole: String,
}

/// Starts the server in its own thread and returns its address. Its list has `n_tools` tools.
pub(crate) fn start(n_tools: usize) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                .await
                .expect("a free port");
            tell.send(listener.local_addr().expect("an address"))
                .expect("somebody waits");
            let lists = Arc::new(Lists {
                of_100: tool_list(100),
                of_1000: tool_list(1_000),
                whole: tool_list(n_tools),
            });
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                stream.set_nodelay(true).expect("TCP_NODELAY");
                let lists = Arc::clone(&lists);
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(request, Arc::clone(&lists)));
                    // Clients may disconnect at any time.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
    });
    told.recv().expect("the server starts")
}

/// Returns a tool list. Each tool has about 1.25 kB, a realistic size.
fn tool_list(n_tools: usize) -> String {
    let tools: Vec<String> = (0..n_tools)
        .map(|number| {
            let properties: Vec<String> = (0..6)
                .map(|field| {
                    format!(
                        r#""field_{field}":{{"type":"string","description":"{} {field} of tool {number}"}}"#,
                        "What the field means and which values it may take, in words of some length,"
                    )
                })
                .collect();
            format!(
                r#"{{"name":"tool_{number}","description":"{}","inputSchema":{{"type":"object","properties":{{{}}},"required":["field_0"]}}}}"#,
                "Does one of the many things that a server of this size can do. ".repeat(5),
                properties.join(",")
            )
        })
        .collect();
    format!(r#"{{"tools":[{}]}}"#, tools.join(","))
}

#[derive(serde::Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

async fn answer(
    request: Request<Incoming>,
    lists: Arc<Lists>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let Ok(call) = serde_json::from_slice::<Call<'_>>(&body) else {
        return Ok(status(405));
    };
    let Some(id) = call.id else {
        return Ok(status(202));
    };
    let params = call.params.map(RawValue::get).unwrap_or_default();
    let result = match call.method {
        "initialize" => {
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#
        }
        "tools/list" if params.contains("1000") => &lists.of_1000,
        "tools/list" if params.contains("100") => &lists.of_100,
        "tools/list" => &lists.whole,
        // Calls are echoed, so a response is as long as its request.
        _ => params,
    };
    let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get());
    let mut response = Response::new(Full::from(text));
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

fn status(code: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
    response
}
