//! A server of many realistic tools, and queries for them.

use std::fmt::Write as _;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use url::Url;

const VERBS: [(&str, &str); 10] = [
    ("create", "Creates a new"),
    ("get", "Returns one"),
    ("list", "Lists every"),
    ("update", "Changes the fields of a"),
    ("delete", "Removes a"),
    ("search", "Finds by text a"),
    ("export", "Writes to a file each"),
    ("archive", "Puts out of sight a"),
    ("share", "Gives other people access to a"),
    ("validate", "Checks the fields of a"),
];
const NOUNS: [&str; 20] = [
    "invoice",
    "contract",
    "meeting",
    "repository",
    "ticket",
    "customer",
    "photo",
    "playlist",
    "recipe",
    "shipment",
    "sensor",
    "document",
    "payment",
    "branch",
    "calendar",
    "flight",
    "warehouse",
    "survey",
    "certificate",
    "database",
];
const PLACES: [&str; 25] = [
    "the accounting ledger",
    "the sales pipeline",
    "the team calendar",
    "the source archive",
    "the help desk",
    "the mail gateway",
    "the media library",
    "the kitchen planner",
    "the tracking service",
    "the building monitor",
    "the legal register",
    "the travel desk",
    "the storage hall",
    "the research panel",
    "the key store",
    "the cluster console",
    "the payroll system",
    "the school portal",
    "the clinic records",
    "the map service",
    "the weather archive",
    "the news reader",
    "the game server",
    "the code review",
    "the lab bench",
];

/// Starts a server with `n_tools` tools and returns its address.
pub(crate) fn start(n_tools: usize) -> Url {
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
            let router = Router::new()
                .route("/mcp", post(answer))
                .with_state(list(n_tools));
            axum::serve(listener, router).await.expect("it serves");
        });
    });
    let address = told.recv().expect("the server starts");
    format!("http://{address}/mcp").parse().expect("a URL")
}

async fn answer(State(list): State<Value>, body: Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(id) = message.get("id") else {
        return StatusCode::ACCEPTED.into_response();
    };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "many", "version": "1"},
        }),
        Some("tools/list") => list,
        _ => json!({}),
    };
    axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn list(n_tools: usize) -> Value {
    let tools: Vec<Value> = (0..n_tools).map(tool).collect();
    json!({ "tools": tools })
}

/// Returns one of 5,000 different tools.
fn tool(number: usize) -> Value {
    let (verb, does) = VERBS[number % VERBS.len()];
    let noun = NOUNS[number / VERBS.len() % NOUNS.len()];
    let place = PLACES[number / (VERBS.len() * NOUNS.len()) % PLACES.len()];
    let last = place.split(' ').next_back().unwrap_or(place);
    let mut properties = serde_json::Map::new();
    for (name, about) in [
        ("id", "The identifier, as the list shows it."),
        ("owner", "Whose it is; the caller's own when left out."),
        ("since", "Only what changed after this date."),
        ("limit", "The most entries that are returned."),
    ] {
        let about = format!("{about} A {noun} of {place} has one.");
        properties.insert(name.into(), json!({"type": "string", "description": about}));
    }
    json!({
        "name": format!("{verb}_{noun}_{last}"),
        "description": format!("{does} {noun} in {place}. The answer names what changed, and when."),
        "inputSchema": {"type": "object", "properties": properties, "required": ["id"]},
    })
}

/// Returns distinct queries of at most 16 tokens.
pub(crate) fn queries(n: usize) -> Vec<String> {
    let query = |number: usize| {
        let noun = NOUNS[number * 7 % NOUNS.len()];
        let place = PLACES[number * 3 % PLACES.len()];
        let mut text = String::new();
        let (verb, _) = VERBS[number * 11 % VERBS.len()];
        // Writing to a string cannot fail.
        let _ = write!(text, "{verb} the {noun} from {place} number {number}");
        text
    };
    (0..n).map(query).collect()
}
