//! The app of the proxy: a page that shows a session inside of the chat (extension
//! `io.modelcontextprotocol/ui`, SEP-1865). Only clients that show apps get it.
//!
//! The page is a resource without data. The data come from the tool that shows the session, whose
//! definition names the page.

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::scan::unescape;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::list_kind::ListKind;

/// The URI of the page. No resource of an upstream can have it.
pub(super) const SESSION_APP: &str = "ui://riglm/session";

/// The page, which loads nothing.
const PAGE: &str = include_str!("session_app/view.html");
/// The place in its script of the name of the tool, as JSON text.
const TOOL_NAME: &str = r#""%TOOL_NAME%""#;
/// The extension that a client with apps declares.
const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// The media type of apps.
const MIME_TYPE: &str = "text/html;profile=mcp-app";
/// The time for which the page counts as fresh, in milliseconds. It changes only with the proxy.
const FRESH_MS: u32 = 3_600_000;
/// A handshake result of a server that has only resources.
pub(super) const RESOURCES_DECLARED: &str = r#"{"capabilities":{"resources":{}}}"#;

/// Returns whether capabilities of a client, JSON text, declare that it shows apps of the media type
/// of the page.
pub(super) fn shows_apps(capabilities: &str) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Support {
        mime_types: Vec<String>,
    }
    let extensions = member(capabilities, "extensions");
    let support = extensions.and_then(|extensions| member(extensions, EXTENSION));
    let support: Option<Support> = support.and_then(|text| serde_json::from_str(text).ok());
    support.is_some_and(|support| support.mime_types.iter().any(|name| name == MIME_TYPE))
}

/// Returns the result of reading the page. It asks the tool of this name for the present state, unless
/// the client names it otherwise.
pub(super) fn contents(era: Era, tool_name: &str) -> String {
    // A name with `</script>` must not end the script.
    let name = json!(tool_name).to_string().replace('<', r"\u003c");
    let page = PAGE.replace(TOOL_NAME, &name);
    let content = json!({
        "uri": SESSION_APP,
        "mimeType": MIME_TYPE,
        "text": page,
        "_meta": {"ui": {
            "csp": {
                "connectDomains": [],
                "resourceDomains": [],
                "frameDomains": [],
                "baseUriDomains": [],
            },
            "prefersBorder": true,
        }},
    });
    let result = json!({"contents": [content]}).to_string();
    with_members_of(result, era, FRESH_MS)
}

/// Returns the JSON array of a page of resources with the page of the proxy at its end, if it is the
/// last one. An entry of an upstream under the same URI is left out. Returns `None` if the array
/// cannot be read.
pub(super) fn with_entry(resources: &str, position: ListPosition) -> Option<String> {
    let entries: Vec<&RawValue> = serde_json::from_str(resources).ok()?;
    let own = json!({
        "uri": SESSION_APP,
        "name": "riglm-session",
        "title": "Session",
        "description": "Shows the tools of this session, its calls, and which tools are likely next.",
        "mimeType": MIME_TYPE,
    })
    .to_string();
    let mut all: Vec<&str> = entries.iter().map(|entry| entry.get()).collect();
    all.retain(|entry| member(entry, "uri").and_then(unescape).as_deref() != Some(SESSION_APP));
    if position == ListPosition::Last {
        all.push(&own);
    }
    Some(format!("[{}]", all.join(",")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListPosition {
    /// More pages follow.
    Within,
    /// No page follows.
    Last,
}

/// Returns the result of a list request of one upstream with the entry of the proxy. Other members
/// stay in their text, but a shared cache must not store the list, because other clients do not get
/// the entry. Returns `None` if nothing changes.
pub(super) fn list_with_entry(kind: ListKind, result: &str) -> Option<String> {
    if kind != ListKind::Resources {
        return None;
    }
    let has_next = member(result, "nextCursor").is_some_and(|next| next != "null");
    let position = if has_next {
        ListPosition::Within
    } else {
        ListPosition::Last
    };
    let resources = with_entry(member(result, kind.member())?, position)?;
    Some(not_shared(with_member(result, kind.member(), &resources)))
}

/// Returns the result of a list request for an upstream that has no such lists. Returns `None` for
/// lists that have nothing to do with resources.
pub(super) fn list_without_upstream(kind: ListKind, era: Era) -> Option<String> {
    let entries = match kind {
        ListKind::Resources => with_entry("[]", ListPosition::Last)?,
        ListKind::Templates => "[]".to_owned(),
        ListKind::Tools | ListKind::Prompts | ListKind::Skills => return None,
    };
    Some(with_members_of(
        with_member("{}", kind.member(), &entries),
        era,
        0,
    ))
}

/// Returns the result of a handshake or discovery that declares resources. Returns `None` if it does
/// so already.
pub(super) fn with_resources(result: &str) -> Option<String> {
    let capabilities = member(result, "capabilities").filter(|text| text.starts_with('{'))?;
    if member(capabilities, "resources").is_some_and(|text| text.starts_with('{')) {
        return None;
    }
    let capabilities = with_member(capabilities, "resources", "{}");
    Some(not_shared(with_member(
        result,
        "capabilities",
        &capabilities,
    )))
}

/// Returns the result with the members that results of an era must have.
fn with_members_of(result: String, era: Era, ttl_ms: u32) -> String {
    if era == Era::Legacy {
        return result;
    }
    let result = with_member(&result, "resultType", r#""complete""#);
    let result = with_member(&result, "ttlMs", &ttl_ms.to_string());
    with_member(&result, "cacheScope", r#""private""#)
}

/// Returns the result with a private cache scope, if it has a scope.
fn not_shared(result: String) -> String {
    if member(&result, "cacheScope").is_none() {
        return result;
    }
    with_member(&result, "cacheScope", r#""private""#)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_the_extension_with_the_media_type_counts() {
        let with = |support: &str| {
            format!(r#"{{"extensions":{{"io.modelcontextprotocol/ui":{support}}}}}"#)
        };
        assert!(shows_apps(&with(
            r#"{"mimeTypes":["x","text/html;profile=mcp-app"]}"#
        )));
        for other in [
            "{}",
            "null",
            "7",
            r#"{"mimeTypes":"text/html;profile=mcp-app"}"#,
            r#"{"mimeTypes":["text/html"]}"#,
            r#"{"mimeTypes":[]}"#,
        ] {
            assert!(!shows_apps(&with(other)), "{other}");
        }
        assert!(!shows_apps("{}"));
        assert!(!shows_apps("[]"));
    }

    #[test]
    fn the_page_is_small_and_names_no_other_address() {
        assert!(PAGE.len() <= 100_000, "{} bytes", PAGE.len());
        assert!(PAGE.starts_with("<!doctype html>"));
        for loading in [
            "http:", "https:", "src=", "href=", "@import", "url(", "fetch(",
        ] {
            assert!(!PAGE.contains(loading), "{loading}");
        }
        for unsafe_member in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
        ] {
            assert!(!PAGE.contains(unsafe_member), "{unsafe_member}");
        }
    }

    #[test]
    fn reading_returns_the_page_with_the_members_of_the_era() {
        let legacy: Value = serde_json::from_str(&contents(Era::Legacy, "view")).unwrap();
        let content = &legacy["contents"][0];
        assert_eq!(content["uri"], SESSION_APP);
        assert_eq!(content["mimeType"], MIME_TYPE);
        let page = PAGE.replace("%TOOL_NAME%", "view");
        assert_eq!(content["text"], page.as_str());
        assert_eq!(content["_meta"]["ui"]["csp"]["connectDomains"], json!([]));
        assert_eq!(legacy.get("resultType"), None);
        let modern: Value = serde_json::from_str(&contents(Era::Modern, "view")).unwrap();
        assert_eq!(modern["resultType"], "complete");
        assert_eq!(modern["cacheScope"], "private");
    }

    #[test]
    fn the_name_of_the_tool_is_text_in_the_script() {
        assert_eq!(PAGE.matches(TOOL_NAME).count(), 1);
        let name = r#"a"\</script><b>"#;
        let read: Value = serde_json::from_str(&contents(Era::Legacy, name)).unwrap();
        let page = read["contents"][0]["text"].as_str().unwrap();
        assert!(page.contains(r#"let toolName = "a\"\\\u003c/script>\u003cb>";"#));
        assert_eq!(page.matches("</script>").count(), 1);
    }

    #[test]
    fn entries_of_upstreams_keep_their_text_except_under_the_reserved_uri() {
        let array = r#"[ {"uri":"a:1","n":1.0}, {"uri":"ui:\/\/riglm/session","name":"x"} ]"#;
        let within = with_entry(array, ListPosition::Within);
        assert_eq!(within.as_deref(), Some(r#"[{"uri":"a:1","n":1.0}]"#));
        let last = with_entry(array, ListPosition::Last).unwrap();
        assert!(last.starts_with(r#"[{"uri":"a:1","n":1.0},{"uri":"ui://riglm/session","#));
        assert_eq!(last.matches(SESSION_APP).count(), 1);
        assert_eq!(with_entry("7", ListPosition::Last), None);
    }

    #[test]
    fn only_the_last_page_of_a_list_has_the_entry() {
        let list = |result: &str| list_with_entry(ListKind::Resources, result);
        let with_next = list(r#"{"resources":[],"nextCursor":"2"}"#);
        assert_eq!(
            with_next.as_deref(),
            Some(r#"{"resources":[],"nextCursor":"2"}"#)
        );
        let final_page = list(r#"{"x":1.0,"resources":[],"cacheScope":"public"}"#).unwrap();
        assert!(
            final_page.starts_with(r#"{"x":1.0,"resources":[{"#),
            "{final_page}"
        );
        assert!(
            final_page.ends_with(r#""cacheScope":"private"}"#),
            "{final_page}"
        );
        assert_eq!(list("{}"), None);
        assert_eq!(list_with_entry(ListKind::Templates, "{}"), None);
    }

    #[test]
    fn an_upstream_without_resources_still_has_lists() {
        let resources = list_without_upstream(ListKind::Resources, Era::Modern).unwrap();
        let resources: Value = serde_json::from_str(&resources).unwrap();
        assert_eq!(resources["resources"][0]["uri"], SESSION_APP);
        assert_eq!(resources["ttlMs"], 0);
        let templates = list_without_upstream(ListKind::Templates, Era::Legacy);
        assert_eq!(templates.as_deref(), Some(r#"{"resourceTemplates":[]}"#));
        assert_eq!(list_without_upstream(ListKind::Prompts, Era::Legacy), None);
    }

    #[test]
    fn resources_are_declared_once() {
        assert_eq!(
            with_resources(r#"{"capabilities":{"tools":{"x":1.0}},"cacheScope":"public"}"#)
                .as_deref(),
            Some(r#"{"capabilities":{"tools":{"x":1.0},"resources":{}},"cacheScope":"private"}"#)
        );
        let declared = r#"{"capabilities":{"resources":{"subscribe":true}}}"#;
        assert_eq!(with_resources(declared), None);
        assert_eq!(with_resources("{}"), None);
    }
}
