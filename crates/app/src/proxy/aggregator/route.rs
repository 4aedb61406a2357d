//! Routing: determines the upstream of a request.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::catalog::naming::{NamespacePolicy, may_be_hashed, split_namespace};
use riglm_domain::mcp::edit::{self, member, with_member};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use serde_json::Value;

use super::fan_out::RequestOrigin;
use super::merged_list_fetch::FetchSelection;
use super::merged_lists::{AggregateList, EntryOwner};
use crate::proxy::aggregator::fan_out::ask;
use crate::proxy::aggregator::merged_list_fetch::gather;
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::ListTemplate;
use crate::proxy::own_tools::OwnTool;
use crate::proxy::own_tools::call_hints::{MAX_NAME_CHARS, unknown, with_sentence};
use crate::proxy::session::ClientSession;
use crate::proxy::session_jobs::Reply;
use crate::proxy::upstream_session::UpstreamSession;

/// The error code for an unknown method.
const METHOD_NOT_FOUND: &str = "-32601";

/// The destination of a request.
#[derive(Debug)]
pub(in crate::proxy) enum RouteTarget {
    /// This upstream session, with the rewritten message.
    Upstream(Arc<UpstreamSession>, Message),
    /// The destination is not known yet.
    Unknown,
}

/// The object that a request refers to.
enum RequestObject<'a> {
    /// A tool or prompt, with the position of its name in the parameters.
    Name(ListKind, NamePosition, Cow<'a, str>),
    Uri(Cow<'a, str>),
    Task(Cow<'a, str>),
    /// No object with an owner.
    Nothing,
}

/// The position of a name in the parameters.
#[derive(Clone, Copy, Debug)]
enum NamePosition {
    /// `params.name`.
    Name,
    /// `params.ref.name`.
    Ref,
}

/// Returns the destination of a request as far as it is known without asking an upstream.
pub(in crate::proxy) fn target(
    session: &ClientSession,
    method: &str,
    message: &Message,
) -> RouteTarget {
    let params = message.single().and_then(|part| message.params(part));
    let params = params.unwrap_or_default();
    match object_of(method, params) {
        RequestObject::Name(kind, place, name) => match owner_of_name(session, kind, &name) {
            Some((member, own)) => {
                RouteTarget::Upstream(member, with_own_name(message, params, place, &own))
            }
            None => RouteTarget::Unknown,
        },
        RequestObject::Uri(uri) => {
            owner_of_uri(session, &uri).map_or(RouteTarget::Unknown, |member| {
                (session.aggregator.apps).note_read(method, &uri, member.name());
                RouteTarget::Upstream(member, message.clone())
            })
        }
        RequestObject::Task(task) => {
            let number = session.aggregator.tasks.owner(&task);
            number
                .and_then(|number| session.member_by_number(number))
                .map_or(RouteTarget::Unknown, |member| {
                    RouteTarget::Upstream(member, message.clone())
                })
        }
        RequestObject::Nothing => RouteTarget::Unknown,
    }
}

fn owner_of_name(
    session: &ClientSession,
    kind: ListKind,
    name: &str,
) -> Option<(Arc<UpstreamSession>, Box<str>)> {
    let list = session.aggregator.lists.last(kind);
    let found = |owner: &EntryOwner| {
        let members = session.members();
        let member = members
            .iter()
            .find(|member| *member.name() == owner.upstream);
        member.map(|member| (Arc::clone(member), owner.own.clone()))
    };
    if let Some(list) = &list
        && let Some(owner) = list.owner(name)
    {
        return found(owner);
    }
    let members = session.members();
    if let [only] = members.as_slice() {
        return Some((Arc::clone(only), name.into()));
    }
    // A prefixed name shows its owner, whether it is listed or not. A hashed name matches no
    // own name.
    if !may_be_hashed(name)
        && let Some(found) = owner_by_prefix(session, name)
    {
        return Some(found);
    }
    found(only_owner(session, &*list?, name)?)
}

/// Returns the owner of an own name without a prefix: the only upstream that has it, or else the
/// only one of them whose app the client shows. Apps call the tools of their server by own names.
fn only_owner<'a>(
    session: &ClientSession,
    list: &'a AggregateList,
    own: &str,
) -> Option<&'a EntryOwner> {
    let owners = list.owners_of(own);
    if let [(_, only)] = owners.as_slice() {
        return Some(only);
    }
    let apps = &session.aggregator.apps;
    let mut shown = owners
        .into_iter()
        .filter(|(_, owner)| apps.has(&owner.upstream));
    let (_, first) = shown.next()?;
    shown.next().is_none().then_some(first)
}

/// Returns the upstream session whose name is the prefix of this name, and the rest of the
/// name.
fn owner_by_prefix(
    session: &ClientSession,
    name: &str,
) -> Option<(Arc<UpstreamSession>, Box<str>)> {
    let is_prefixed = session.shared.naming == NamespacePolicy::Prefix;
    let (upstream, own) = split_namespace(name).filter(|_| is_prefixed)?;
    let members = session.members();
    let mut owners = members.iter();
    let member = owners.find(|member| member.name().as_str() == upstream)?;
    Some((Arc::clone(member), own.into()))
}

pub(super) fn owner_of_uri(session: &ClientSession, uri: &str) -> Option<Arc<UpstreamSession>> {
    let shown = &session.aggregator.lists;
    let (resources, templates) = (
        shown.last(ListKind::Resources),
        shown.last(ListKind::Templates),
    );
    let listed = resources.as_ref().and_then(|list| list.owner(uri));
    let exact = || templates.as_ref().and_then(|list| list.owner(uri));
    let fitting = || {
        let list = templates.as_ref()?;
        list.owner_by_template(uri)
    };
    let owner = listed.or_else(exact).or_else(fitting)?;
    let members = session.members();
    let mut owners = members.iter();
    owners
        .find(|member| *member.name() == owner.upstream)
        .cloned()
}

/// Finds the upstream of a request: by the lists of all upstreams, or else by asking one upstream
/// after the other.
pub(in crate::proxy) async fn find_owner(
    session: &Arc<ClientSession>,
    message: &Message,
    id: RequestId,
) -> Reply {
    let Some(part) = message.single() else {
        return Reply::Nothing;
    };
    let method = part.method().unwrap_or_default();
    let params = message.params(part).unwrap_or_default();
    let era = session.client_context.era();
    let kinds: &[ListKind] = match object_of(method, params) {
        RequestObject::Name(ListKind::Prompts, ..) => &[ListKind::Prompts],
        RequestObject::Name(..) => &[ListKind::Tools],
        RequestObject::Uri(_) => &[ListKind::Resources, ListKind::Templates],
        RequestObject::Task(_) | RequestObject::Nothing => &[],
    };
    // A list that is not available leaves the owner unknown. The request is still tried.
    let lists = kinds.iter().map(|kind| async move {
        let template = ListTemplate::new(*kind, message, era);
        gather(session, &template, &FetchSelection::AllForCall).await
    });
    join_all(lists).await;
    if let RouteTarget::Upstream(member, message) = target(session, method, message) {
        return Reply::Forward(member, message);
    }
    if let RequestObject::Name(_, place, name) = object_of(method, params) {
        // A name that looks hashed may be an own name of an upstream that did not list in time.
        if let Some((member, own)) = owner_by_prefix(session, &name) {
            return Reply::Forward(member, with_own_name(message, params, place, &own));
        }
        let shown: String = name.chars().take(MAX_NAME_CHARS).collect();
        let mut text = format!("unknown name {shown:?}: no upstream has it.");
        if let Some(help) = help_with_name(session, method, &name).await {
            text = with_sentence(&text, &help);
        }
        return Reply::Error(RpcError::new(RpcErrorCode::InvalidParams, text));
    }
    if matches!(method, "tools/call" | "prompts/get") {
        return Reply::Error(RpcError::new(
            RpcErrorCode::InvalidParams,
            "missing name in the request",
        ));
    }
    let behalf = RequestOrigin {
        request: Some(id),
        listen: None,
    };
    ask_each(session, message, behalf).await
}

/// Returns a hint for a call of an unknown tool, if the catalog is known.
async fn help_with_name(session: &ClientSession, method: &str, name: &str) -> Option<String> {
    let tools = session.shared.own_tools();
    let catalog = session.shared.last_catalog_of(&session.client_context);
    let catalog = catalog.filter(|_| method == "tools/call")?;
    let search = tools.and_then(|tools| tools.name(OwnTool::Search));
    let length = session.client_context.search.length_for(&("name", name));
    let (work, principal) = (&session.shared.long_work, &session.client_context.principal);
    unknown(work, principal, name, catalog, search, length).await
}

/// Sends a request to one upstream after the other, connected ones first, until one knows it.
/// Any answer except "method not found" counts; for a resource or completion any answer except
/// an error.
async fn ask_each(session: &Arc<ClientSession>, message: &Message, behalf: RequestOrigin) -> Reply {
    let method = message.single().and_then(|part| part.method());
    let method = method.unwrap_or_default();
    let is_for_anyone = method.starts_with("resources/") || method == "completion/complete";
    let mut refusal = None;
    let mut members = session.members().to_vec();
    // Connecting to an upstream may take long.
    members.sort_by_key(|member| !member.is_connected());
    for member in &members {
        let answer = match ask(session, member, message, behalf.clone()).await {
            Ok(answer) => answer,
            Err(error) => {
                refusal.get_or_insert(Reply::Error(error));
                continue;
            }
        };
        let Some(part) = answer.single() else {
            continue;
        };
        let code = answer
            .error(part)
            .and_then(|error| riglm_domain::mcp::edit::member(error, "code"));
        match code {
            None => {
                note_app(session, method, message, member);
                return Reply::Upstream(answer);
            }
            Some(METHOD_NOT_FOUND) => {}
            // The code comes from the upstream session: its connection failed, so the upstream did not
            // answer.
            Some(code) if code.starts_with("-310") => {
                refusal.get_or_insert(Reply::Upstream(answer));
            }
            Some(_) if !is_for_anyone => return Reply::Upstream(answer),
            Some(_) if !matches!(refusal, Some(Reply::Upstream(_))) => {
                refusal = Some(Reply::Upstream(answer));
            }
            Some(_) => {}
        }
    }
    refusal.unwrap_or_else(|| {
        Reply::Error(RpcError::new(
            RpcErrorCode::MethodNotFound,
            format!("no upstream supports the method {method}"),
        ))
    })
}

/// Records that the client got an app of an upstream.
fn note_app(session: &ClientSession, method: &str, message: &Message, member: &UpstreamSession) {
    let params = message.single().and_then(|part| message.params(part));
    let uri = params.and_then(|params| edit::member(params, "uri"));
    if let Some(uri) = uri.and_then(unescape) {
        (session.aggregator.apps).note_read(method, &uri, member.name());
    }
}

/// Returns the object that a request refers to.
fn object_of<'a>(method: &str, params: &'a str) -> RequestObject<'a> {
    let text = |object: &'a str, key: &str| member(object, key).and_then(unescape);
    let name = |kind, place, found: Option<Cow<'a, str>>| match found {
        Some(name) => RequestObject::Name(kind, place, name),
        None => RequestObject::Nothing,
    };
    match method {
        "tools/call" => name(ListKind::Tools, NamePosition::Name, text(params, "name")),
        "prompts/get" => name(ListKind::Prompts, NamePosition::Name, text(params, "name")),
        "completion/complete" => {
            let reference = member(params, "ref").unwrap_or_default();
            match (text(reference, "name"), text(reference, "uri")) {
                (Some(prompt), _) => name(ListKind::Prompts, NamePosition::Ref, Some(prompt)),
                (None, Some(uri)) => RequestObject::Uri(uri),
                (None, None) => RequestObject::Nothing,
            }
        }
        _ => match (text(params, "taskId"), text(params, "uri")) {
            (Some(task), _) if method.starts_with("tasks/") => RequestObject::Task(task),
            (_, Some(uri)) if method.starts_with("resources/") => RequestObject::Uri(uri),
            _ => RequestObject::Nothing,
        },
    }
}

/// Returns the message with the own name of the object at its owner.
fn with_own_name(message: &Message, params: &str, place: NamePosition, own: &str) -> Message {
    let own = Value::from(own).to_string();
    let new = match place {
        NamePosition::Name => {
            if member(params, "name") == Some(own.as_str()) {
                return message.clone();
            }
            with_member(params, "name", &own)
        }
        NamePosition::Ref => {
            let reference = member(params, "ref").unwrap_or("{}");
            with_member(params, "ref", &with_member(reference, "name", &own))
        }
    };
    message.with_params(&new)
}
