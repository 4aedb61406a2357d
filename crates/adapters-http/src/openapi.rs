//! `GET /openapi.json`: the `OpenAPI` document of all routes, generated from the routes.

use std::sync::Arc;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header;
use utoipa::Modify;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

/// The `OpenAPI` document without routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "riglm control API",
        description = "Shows the state and records of a riglm proxy, and changes its decisions.",
        license(name = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "observing", description = "State, records and predictions of the proxy."),
        (name = "deciding", description = "Decisions of operators, and their audit trail."),
        (name = "data", description = "Stored data of clients."),
        (name = "page", description = "The token of a request, and links to the page."),
    ),
    modifiers(&BearerToken)
)]
struct BaseDocument;

/// The security scheme of the routes: a bearer token.
struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut Document) {
        let token = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "The token in DATA_DIR/control.token, or a key of control.keys with the scope of \
                 the route.",
            ))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(token));
    }
}

pub(crate) fn base_document() -> Document {
    let mut document = BaseDocument::openapi();
    env!("CARGO_PKG_VERSION").clone_into(&mut document.info.version);
    document
}

/// Returns the route that serves the document.
pub(crate) fn route(document: &Document) -> Router {
    // Serialization cannot fail: the document has only string keys.
    let text: Arc<str> = serde_json::to_string(document).unwrap_or_default().into();
    let answer = move || {
        let text = Arc::clone(&text);
        async move {
            let media_type = [(header::CONTENT_TYPE, "application/json")];
            (media_type, text.to_string()).into_response()
        }
    };
    Router::new().route("/openapi.json", get(answer))
}
