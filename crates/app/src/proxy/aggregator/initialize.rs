//! The handshake and discovery of several upstreams, merged to one answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::meta::SERVER_INFO;
use riglm_domain::mcp::protocol::{Era, Revision};
use riglm_domain::mcp::scan::{members, unescape};
use serde_json::{Value, json};

use super::fan_out::RequestOrigin;
use super::wait_times::UpstreamStanding;
use crate::proxy::aggregator::changes::all_changed_at;
use crate::proxy::aggregator::fan_out::ask;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::list_kind::ListChange;
use crate::proxy::session::ClientSession;
use crate::proxy::session_app;
use crate::proxy::session_jobs::Reply;
use crate::proxy::upstream_session::UpstreamSession;

/// Answers for all upstreams from what is known of them. Sets up those that start no process; an
/// upstream that is late or down is set up on demand.
pub(in crate::proxy) async fn initialize(session: &Arc<ClientSession>, message: &Message) -> Reply {
    let params = message.single().and_then(|part| message.params(part));
    let (client, requested) = ClientDescription::of_initialize(params);
    (session.client_context).set_description(client, requested.as_deref());
    let revision = negotiate_revision(requested.as_deref());
    session.client_context.set_revision(&revision);
    let initialize = Some(message.clone());
    session.client_context.set_handshake(|handshake| {
        handshake.initialize = initialize;
        handshake.initialized = None;
    });
    let members = session.members();
    let greeted = members
        .iter()
        .map(|member| connect_upstream(session, member));
    let initialize_results = join_all(greeted).await;
    session.client_context.session_id(&session.shared).await;
    let named: Vec<_> = members
        .iter()
        .map(|member| member.name())
        .zip(&initialize_results)
        .collect();
    let mut result = json!({
        "protocolVersion": revision.as_str(),
        "serverInfo": server_info(),
    });
    if let Some(instructions) = aggregate_instructions(&named) {
        result["instructions"] = Value::from(instructions);
    }
    let declared = with_session_app(session, params, &initialize_results);
    let capabilities = aggregate_capabilities(&declared);
    Reply::Result(edit::with_member(
        &result.to_string(),
        "capabilities",
        &capabilities,
    ))
}

/// Asks every upstream for discovery, and answers for all of them.
pub(in crate::proxy) async fn discover(session: &Arc<ClientSession>, message: &Message) -> Reply {
    let members = session.members();
    let asked = members
        .iter()
        .map(|member| discover_upstream(session, member, message));
    let initialize_results = join_all(asked).await;
    let named: Vec<_> = members
        .iter()
        .map(|member| member.name())
        .zip(&initialize_results)
        .collect();
    let mut result = json!({
        "resultType": "complete",
        "supportedVersions": Revision::supported_revisions(),
    });
    if let Some(instructions) = aggregate_instructions(&named) {
        result["instructions"] = Value::from(instructions);
    }
    // The answer depends on the upstreams that are known by now, so it must not be cached.
    result["ttlMs"] = Value::from(0);
    result["cacheScope"] = Value::from("private");
    result["_meta"] = json!({ SERVER_INFO: server_info() });
    let params = message.single().and_then(|part| message.params(part));
    let declared = with_session_app(session, params, &initialize_results);
    let capabilities = aggregate_capabilities(&declared);
    Reply::Result(edit::with_member(
        &result.to_string(),
        "capabilities",
        &capabilities,
    ))
}

/// Returns the handshake results of the upstreams, and of the proxy if it offers a resource to the
/// sender of a request with these `params`.
fn with_session_app(
    session: &ClientSession,
    params: Option<&str>,
    initialize_results: &[Option<Arc<str>>],
) -> Vec<Option<Arc<str>>> {
    let mut declared = initialize_results.to_vec();
    if (session.shared).offers_session_app(&session.client_context, params) {
        declared.push(Some(session_app::RESOURCES_DECLARED.into()));
    }
    declared
}

/// Returns the known greeting of an upstream, without starting a process for it. Connects any other
/// upstream and returns its handshake result, or its last known result if it is late or down.
async fn connect_upstream(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
) -> Option<Arc<str>> {
    let known = greeting_without_start(session, member, Era::Legacy).await;
    if known.is_some() || is_left_to_check(session, member) {
        return known;
    }
    let known = member.scope.entry.greeting(Era::Legacy);
    let upstream_session = Arc::clone(member);
    let mut connecting =
        crate::proxy::log_spans::spawn(async move { upstream_session.connect().await.is_ok() });
    let limit = handshake_limit(session, member, known.as_ref());
    match tokio::time::timeout(limit, &mut connecting).await {
        Ok(Ok(true)) => return member.tools.initialize_result(),
        Ok(_) => {}
        Err(_) => {
            member.waiting.note_late(true);
            let (session, member) = (Arc::downgrade(session), Arc::clone(member));
            crate::proxy::log_spans::spawn(async move {
                if let (Ok(true), Some(session)) = (connecting.await, session.upgrade()) {
                    all_changed_at(&session, &member);
                }
            });
        }
    }
    known
}

/// Returns the known greeting of an upstream, without starting a process for it. Asks any other
/// upstream for discovery and returns its result, or its last known result if it is late or down.
async fn discover_upstream(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    message: &Message,
) -> Option<Arc<str>> {
    let known = greeting_without_start(session, member, Era::Modern).await;
    if known.is_some() || is_left_to_check(session, member) {
        return known;
    }
    let entry = &member.scope.entry;
    let known = entry.greeting(Era::Modern);
    let asked = ask(session, member, message, RequestOrigin::default());
    let limit = handshake_limit(session, member, known.as_ref());
    let answer = tokio::time::timeout(limit, asked).await;
    let answer = answer.ok().and_then(Result::ok);
    let result = answer
        .as_ref()
        .and_then(|answer| answer.result(answer.single()?));
    result
        .map(|result| (entry.catalog).note_greeting(entry.era_of(Era::Modern), None, result))
        .or(known)
}

/// Returns the last known greeting of an upstream whose connection would start a process.
async fn greeting_without_start(
    session: &ClientSession,
    member: &UpstreamSession,
    client: Era,
) -> Option<Arc<str>> {
    let entry = &member.scope.entry;
    if !entry.starts_processes() || member.is_connected() {
        return None;
    }
    session.shared.known_greeting(entry, client).await
}

/// Returns whether the start of an upstream is left to its check: the process has failed to start,
/// or is starting.
fn is_left_to_check(session: &ClientSession, member: &UpstreamSession) -> bool {
    let entry = &member.scope.entry;
    member.costs_start()
        && session.shared.starts.are_checked()
        && (entry.failure().is_some() || entry.is_starting())
}

/// Returns the time to wait for the handshake result of an upstream.
fn handshake_limit(
    session: &ClientSession,
    member: &UpstreamSession,
    known: Option<&Arc<str>>,
) -> Duration {
    let entry = &member.scope.entry;
    let standing = match entry.failure() {
        Some(_) => UpstreamStanding::Failing,
        None if known.is_some() => UpstreamStanding::Known,
        None => UpstreamStanding::Unknown,
    };
    let in_full = entry.wait_left(session.shared.limits().first_wait);
    member.waiting.limit(standing, in_full)
}

/// Returns the revision for the session: the requested one if it has a handshake, or else the
/// newest revision with a handshake. Each upstream agrees on a revision of its own.
fn negotiate_revision(requested: Option<&str>) -> Revision {
    let mut known = Revision::WITH_SESSIONS.into_iter();
    let known = known.find(|known| Some(*known) == requested);
    Revision::new(known.unwrap_or(Revision::NEWEST_LEGACY))
}

fn server_info() -> Value {
    json!({"name": "riglm", "version": env!("CARGO_PKG_VERSION")})
}

/// Returns whether a handshake result declares a capability.
pub(in crate::proxy) fn declares(hello: &str, capability: &str) -> bool {
    let capabilities = edit::member(hello, "capabilities");
    capabilities.is_some_and(|all| edit::member(all, capability).is_some())
}

/// Returns the capabilities of at least one upstream. `listChanged` is always declared, because
/// merged lists may change at any time. An upstream whose capabilities are unknown counts as having
/// all of them, because a client ignores later declarations.
fn aggregate_capabilities(initialize_results: &[Option<Arc<str>>]) -> String {
    let known = initialize_results.iter().flatten();
    let mut all: Vec<&str> = known
        .filter_map(|hello| edit::member(hello, "capabilities"))
        .filter(|capabilities| capabilities.starts_with('{'))
        .collect();
    if initialize_results.iter().any(Option::is_none) {
        all.push(r#"{"tools":{},"prompts":{},"resources":{},"completions":{}}"#);
    } else if all.is_empty() {
        all.push("{}");
    }
    let mut joined = join(&all);
    for kind in ListChange::ALL {
        let key = kind.capability();
        if let Some(capability) = edit::member(&joined, key).filter(|text| text.starts_with('{')) {
            let capability = edit::with_member(capability, "listChanged", "true");
            joined = edit::with_member(&joined, key, &capability);
        }
    }
    joined
}

/// Merges the JSON texts of one capability; there is at least one text. The result has the members
/// of all objects, and a flag is set if one text sets it. A member of a single upstream stays
/// verbatim.
fn join(texts: &[&str]) -> String {
    let says_something = |text: &&&str| !matches!(**text, "null" | "false");
    let first = texts.iter().find(says_something).or(texts.first());
    let first = first.copied().unwrap_or("null");
    let objects: Vec<&str> = texts
        .iter()
        .filter(|text| text.starts_with('{'))
        .copied()
        .collect();
    if objects.len() < 2 || !first.starts_with('{') {
        return first.to_owned();
    }
    let mut keys = Vec::new();
    let mut values: HashMap<Cow<'_, str>, Vec<&str>> = HashMap::new();
    for (key, value) in objects.into_iter().flat_map(members) {
        let known = values.entry(key).or_insert_with_key(|key| {
            keys.push(key.clone());
            Vec::new()
        });
        known.push(value);
    }
    let members: Vec<String> = keys
        .iter()
        .map(|key| format!("{}:{}", Value::from(key.as_ref()), join(&values[key])))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Returns the instructions of all upstreams, each under the name of its upstream.
fn aggregate_instructions(
    initialize_results: &[(&UpstreamName, &Option<Arc<str>>)],
) -> Option<String> {
    let texts: Vec<String> = initialize_results
        .iter()
        .filter_map(|(name, hello)| {
            let text = edit::member(hello.as_deref()?, "instructions").and_then(unescape)?;
            (!text.trim().is_empty()).then(|| format!("# {name}\n\n{text}"))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_of_any_upstream() {
        let hello = |text: &str| Some(Arc::from(text));
        let both = [
            hello(r#"{"capabilities":{"tools":{},"resources":{"subscribe":false}}}"#),
            hello(r#"{"capabilities":{"resources":{"subscribe":true},"logging":{}}}"#),
        ];
        let parsed = |initialize_results: &[_]| -> Value {
            serde_json::from_str(&aggregate_capabilities(initialize_results)).unwrap()
        };
        assert_eq!(
            parsed(&both),
            json!({
                "tools": {"listChanged": true},
                "resources": {"subscribe": true, "listChanged": true},
                "logging": {},
            })
        );
        let unknown = parsed(&[None]);
        assert_eq!(unknown["prompts"], json!({"listChanged": true}));
        assert_eq!(parsed(&[]), json!({}));
    }

    #[test]
    fn capabilities_are_joined_as_they_are_written() {
        let hello = |text: &str| Some(Arc::from(text));
        let odd = r#"{"n":18446744073709551616,"m":1.0}"#;
        let both = [
            hello(&format!(
                r#"{{"capabilities":{{"experimental":{{"a":{odd}}},"x":false}}}}"#
            )),
            hello(r#"{"capabilities":{"experimental":{"b":1e3},"x":{}}}"#),
        ];
        assert_eq!(
            aggregate_capabilities(&both),
            format!(r#"{{"experimental":{{"a":{odd},"b":1e3}},"x":{{}}}}"#)
        );
    }

    #[test]
    fn instructions_have_the_heading_of_their_upstream() {
        let name = UpstreamName::parse("git").unwrap();
        let hello = Some(Arc::from(r#"{"instructions":"Be\nkind."}"#));
        let silent = Some(Arc::from("{}"));
        let all = [(&name, &hello), (&name, &silent), (&name, &None)];
        assert_eq!(
            aggregate_instructions(&all).as_deref(),
            Some("# git\n\nBe\nkind.")
        );
    }

    #[test]
    fn a_revision_without_handshake_is_not_agreed_on() {
        assert_eq!(
            negotiate_revision(Some("2025-03-26")).as_str(),
            "2025-03-26"
        );
        assert_eq!(
            negotiate_revision(Some("2026-07-28")).as_str(),
            "2025-11-25"
        );
        assert_eq!(negotiate_revision(None).as_str(), "2025-11-25");
    }
}
