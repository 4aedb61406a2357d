//! The page of the control port: `GET /`, and its files under `/page/`.
//!
//! The files need no token, because they contain no data: the page asks for the token, and reads
//! everything from the control API.

mod codes;
mod files;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use riglm_app::control::name_lookup::quote;

use self::files::PageFile;
use crate::path::Segment;
use crate::problem::Problem;

pub(crate) use self::codes::{PageCodes, VALID_FOR};

/// Returns the routes of the files. The `OpenAPI` document does not have them.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", get(index))
        .route("/page/{file}", get(file))
}

async fn index(request: HeaderMap) -> Response {
    response(files::index(), &request)
}

async fn file(Segment(name): Segment, request: HeaderMap) -> Result<Response, Problem> {
    let file = files::find(&name)
        .ok_or_else(|| Problem::not_found(format!("the page has no file {}", quote(&name))))?;
    Ok(response(file, &request))
}

/// Returns a file, compressed if the client accepts that, or 304 if the client has it already.
fn response(file: &PageFile, request: &HeaderMap) -> Response {
    let compressed = file.gzip.as_ref().filter(|_| accepts_gzip(request));
    let representation = compressed.unwrap_or(&file.plain);
    let headers = [
        (header::ETAG, representation.tag.as_str()),
        // A browser asks each time, so that it has the files of the running version.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, files::security_policy()),
    ];
    if has_representation(request, &representation.tag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let media_type = [(header::CONTENT_TYPE, file.media_type)];
    let mut response = (headers, media_type, representation.body.clone()).into_response();
    if compressed.is_some() {
        let encoding = HeaderValue::from_static("gzip");
        response
            .headers_mut()
            .insert(header::CONTENT_ENCODING, encoding);
    }
    response
}

/// Returns the elements of all values of a header that is a list.
fn elements(request: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = request.get_all(name).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}

/// Returns whether a request accepts gzip: by name, or else by `*`.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let mut accepts_any = false;
    for coding in elements(request, header::ACCEPT_ENCODING) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| {
            let (key, weight) = part.split_once('=')?;
            key.trim().eq_ignore_ascii_case("q").then(|| weight.trim())
        });
        // A weight of zero, with up to three decimals, means "not this one".
        let is_accepted = weight.is_none_or(|weight| !weight.trim_matches(['0', '.']).is_empty());
        if name.eq_ignore_ascii_case("gzip") {
            return is_accepted;
        }
        if name == "*" {
            accepts_any = is_accepted;
        }
    }
    accepts_any
}

/// Returns whether a request says that the client has the representation with this tag.
fn has_representation(request: &HeaderMap, tag: &str) -> bool {
    elements(request, header::IF_NONE_MATCH)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &header::HeaderName, values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values.iter().copied() {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn gzip_is_accepted_by_name_or_wildcard() {
        let cases: [(&[&'static str], bool); 12] = [
            (&[], false),
            (&[""], false),
            (&["gzip"], true),
            (&["GZIP;q=0.5"], true),
            (&["br, gzip"], true),
            (&["br", "gzip"], true),
            (&["br"], false),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["gzip; q=0.000, *"], false),
            (&["*, gzip;Q=0"], false),
            (&["identity;q=0, *;q=0, gzip;q=0.001"], true),
        ];
        for (values, is_accepted) in cases {
            let request = request(&header::ACCEPT_ENCODING, values);
            assert_eq!(accepts_gzip(&request), is_accepted, "{values:?}");
        }
    }

    #[test]
    fn tags_are_compared_weakly_and_in_lists() {
        for (value, is_known) in [
            (r#""a""#, true),
            (r#"W/"a""#, true),
            (r#""b", "a""#, true),
            ("*", true),
            (r#""b""#, false),
            ("a", false),
        ] {
            let request = request(&header::IF_NONE_MATCH, &[value]);
            assert_eq!(has_representation(&request, r#""a""#), is_known, "{value}");
        }
    }
}
