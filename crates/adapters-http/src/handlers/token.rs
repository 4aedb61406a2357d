//! `GET /token`, `POST /page/codes` and `POST /page/tokens`: the token of a request, and one-time
//! codes, with which the page gets the token of the terminal that opened it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::Validate;

use crate::access::{Actor, GrantedScopes, KeyRevocation, Scope, presented_token, token_problem};
use crate::body::Valid;
use crate::page::{PageCodes, VALID_FOR};
use crate::problem::{BodyErrors, NotFoundError, Problem, ProblemBody, TokenErrors};
use crate::state::ControlParts;

/// The token of a request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenView {
    /// Principal that the audit trail records for requests with the token.
    principal: String,
    /// Permissions of the token.
    scopes: Vec<Scope>,
}

/// Show the principal and the permissions of the token of this request.
#[utoipa::path(
    get, path = "/token", operation_id = "getToken", tag = "page", security(("token" = ["read"])),
    responses((status = OK, description = "The principal and the permissions.", body = TokenView), TokenErrors)
)]
pub(crate) async fn show(
    Extension(Actor(actor)): Extension<Actor>,
    Extension(GrantedScopes(granted)): Extension<GrantedScopes>,
) -> Json<TokenView> {
    let scopes = Scope::ALL.iter().copied();
    Json(TokenView {
        principal: actor.to_string(),
        scopes: scopes.filter(|scope| granted.contains(scope)).collect(),
    })
}

/// A one-time code.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PageCode {
    /// The code.
    code: String,
    /// Time after which it is not valid any more.
    expires_at: Timestamp,
}

/// Create a one-time code that stands for the token of this request.
///
/// The code is valid for a minute and once. Of more than 32 codes the oldest one is dropped. Codes
/// are kept in memory only.
#[utoipa::path(
    post, path = "/page/codes", operation_id = "createPageCode", tag = "page", security(("token" = ["read"])),
    responses(
        (status = CREATED, description = "The code.", body = PageCode),
        (status = INTERNAL_SERVER_ERROR, description = "The operating system gives no random numbers.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors,
    )
)]
pub(crate) async fn create_code(
    State(parts): State<ControlParts>,
    Extension(KeyRevocation(gone)): Extension<KeyRevocation>,
    Extension(codes): Extension<Arc<PageCodes>>,
    request: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let token = presented_token(&request).ok_or_else(token_problem)?;
    let code = codes.issue(token.into(), gone).map_err(|error| {
        tracing::error!("control port: failed to create a code for the page: {error}");
        let detail = "failed to get random numbers";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    })?;
    let now = parts.proxy.now();
    let expires_at = now.checked_add(VALID_FOR).unwrap_or(now);
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let body = Json(PageCode { code, expires_at });
    Ok((StatusCode::CREATED, headers, body))
}

/// A code to exchange.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsedCode {
    /// The code.
    #[validate(length(min = 1, max = 200, message = "code must have 1 to 200 characters"))]
    #[schema(min_length = 1, max_length = 200)]
    code: String,
}

/// The token that a code stands for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PageToken {
    /// The token.
    #[serde(serialize_with = "expose")]
    #[schema(value_type = String)]
    token: SecretString,
}

fn expose<S: serde::Serializer>(token: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(token.expose_secret())
}

/// Exchange a one-time code for the token that it stands for.
///
/// The request needs no token.
#[utoipa::path(
    post, path = "/page/tokens", operation_id = "exchangePageCode", tag = "page",
    request_body = UsedCode,
    responses(
        (status = OK, description = "The token.", body = PageToken),
        BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn exchange_code(
    Extension(codes): Extension<Arc<PageCodes>>,
    Valid(body): Valid<UsedCode>,
) -> Result<impl IntoResponse, Problem> {
    let token = codes.redeem(&body.code).ok_or_else(|| {
        let detail = "the code is unknown, used or expired, or its token was removed; a code is \
                      valid once and for a minute";
        Problem::not_found(detail)
    })?;
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((headers, Json(PageToken { token })))
}
