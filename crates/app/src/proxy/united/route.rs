//! Which upstream a request is for.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::edit::{member, with_member};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::naming::{Naming, may_be_hashed, split};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::scan::unescaped;
use serde_json::Value;

use super::InFlight;
use super::ask::Behalf;
use super::directory::Owner;
use super::from_client::Reply;
use super::list::Asked;
use super::list_kind::ListKind;
use super::template::Template;
use crate::proxy::member::Member;
use crate::proxy::search_tool::help::{MAX_NAME_CHARS, with_sentence};
use crate::proxy::session::ClientSession;

/// The code by which a server says that it does not know a method.
const METHOD_NOT_FOUND: &str = "-32601";

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Target {
    /// To this member, as this message.
    Member(Arc<Member>, Message),
    /// It is not known yet.
    Unknown,
}

/// What a request names.
enum Named<'a> {
    /// A tool or prompt, at this place of the parameters.
    Name(ListKind, Place, Cow<'a, str>),
    /// A resource.
    Uri(Cow<'a, str>),
    /// A task.
    Task(Cow<'a, str>),
    /// Nothing that has an owner.
    Nothing,
}

/// Where a name stands in the parameters.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// `params.name`
    Name,
    /// `params.ref.name`
    Ref,
}

impl ClientSession {
    /// Returns whose a request is as far as that is known without asking anybody.
    pub(super) fn target(&self, method: &str, message: &Message) -> Target {
        let params = message.single().and_then(|part| message.params(part));
        let params = params.unwrap_or_default();
        match named(method, params) {
            Named::Name(kind, place, name) => match self.owner_of_name(kind, &name) {
                Some((member, own)) => {
                    Target::Member(member, renamed(message, params, place, &own))
                }
                None => Target::Unknown,
            },
            Named::Uri(uri) => self.owner_of_uri(&uri).map_or(Target::Unknown, |member| {
                Target::Member(member, message.clone())
            }),
            Named::Task(task) => {
                let number = self.united.state().owner_of_task(&task);
                number
                    .and_then(|number| self.member_by_number(number))
                    .map_or(Target::Unknown, |member| {
                        Target::Member(member, message.clone())
                    })
            }
            Named::Nothing => Target::Unknown,
        }
    }

    fn owner_of_name(&self, kind: ListKind, name: &str) -> Option<(Arc<Member>, Box<str>)> {
        let list = self.united.state().list(kind);
        let found = |owner: &Owner| {
            let members = self.members();
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
        let members = self.members();
        if let [only] = members.as_slice() {
            return Some((Arc::clone(only), name.into()));
        }
        // A name that was made here before tells its owner by itself, listed or not; one with a
        // hash tells nobody's own name.
        if !may_be_hashed(name)
            && let Some(found) = self.owner_by_prefix(name)
        {
            return Some(found);
        }
        list.and_then(|list| list.only_owner(name).and_then(found))
    }

    /// Returns the member whose name stands in front of this one, and the rest.
    fn owner_by_prefix(&self, name: &str) -> Option<(Arc<Member>, Box<str>)> {
        let is_prefixed = self.shared.naming == Naming::Prefix;
        let (upstream, own) = split(name).filter(|_| is_prefixed)?;
        let members = self.members();
        let mut owners = members.iter();
        let member = owners.find(|member| member.name().as_str() == upstream)?;
        Some((Arc::clone(member), own.into()))
    }

    fn owner_of_uri(&self, uri: &str) -> Option<Arc<Member>> {
        let (resources, templates) = {
            let state = self.united.state();
            (
                state.list(ListKind::Resources),
                state.list(ListKind::Templates),
            )
        };
        let listed = resources.as_ref().and_then(|list| list.owner(uri));
        let exact = || templates.as_ref().and_then(|list| list.owner(uri));
        let fitting = || {
            let list = templates.as_ref()?;
            list.owner_by_template(uri)
        };
        let owner = listed.or_else(exact).or_else(fitting)?;
        let members = self.members();
        let mut owners = members.iter();
        owners
            .find(|member| *member.name() == owner.upstream)
            .cloned()
    }

    /// Finds out whose a request is and has it answered: by the lists of all upstreams, or else by
    /// asking one after the other.
    pub(super) async fn find_and_send(self: &Arc<Self>, message: &Message, id: RequestId) -> Reply {
        let Some(part) = message.single() else {
            return Reply::Nothing;
        };
        let method = part.method().unwrap_or_default();
        let params = message.params(part).unwrap_or_default();
        let is_modern = self.caller.is_modern();
        let kinds: &[ListKind] = match named(method, params) {
            Named::Name(ListKind::Prompts, ..) => &[ListKind::Prompts],
            Named::Name(..) => &[ListKind::Tools],
            Named::Uri(_) => &[ListKind::Resources, ListKind::Templates],
            Named::Task(_) | Named::Nothing => &[],
        };
        // A list that cannot be had tells nothing; the request is not lost by that.
        let lists = kinds.iter().map(|kind| async move {
            let template = Template::new(*kind, message, is_modern);
            self.gather(&template, &Asked::All).await
        });
        join_all(lists).await;
        let behalf = Behalf {
            request: Some(id.clone()),
            listen: None,
        };
        if let Target::Member(member, message) = self.target(method, message) {
            return self.ask_owner(&member, &message, method, behalf).await;
        }
        if let Named::Name(_, place, name) = named(method, params) {
            // What looks like a hash may be its own name at an upstream that did not list in time.
            if let Some((member, own)) = self.owner_by_prefix(&name) {
                let message = renamed(message, params, place, &own);
                return self.ask_owner(&member, &message, method, behalf).await;
            }
            let shown: String = name.chars().take(MAX_NAME_CHARS).collect();
            let mut text = format!("no upstream has anything named {shown:?}.");
            if let Some(help) = self.help_with_name(method, &name).await {
                text = with_sentence(&text, &help);
            }
            return Reply::Error(RpcError::new(RpcErrorCode::InvalidParams, text));
        }
        if matches!(method, "tools/call" | "prompts/get") {
            return Reply::Error(RpcError::new(
                RpcErrorCode::InvalidParams,
                "the request has no name",
            ));
        }
        self.ask_each(message, behalf).await
    }

    /// Has the owner of a request answer it.
    pub(super) async fn ask_owner(
        self: &Arc<Self>,
        member: &Arc<Member>,
        message: &Message,
        method: &str,
        behalf: Behalf,
    ) -> Reply {
        match self.ask(member, message, behalf).await {
            Ok(answer) => {
                if method == "tools/call" {
                    self.note_task(&answer, member.number);
                }
                Reply::Member(answer)
            }
            Err(error) => Reply::Error(error),
        }
    }

    /// Asks one member after the other, those that are up first, until one knows what is asked of
    /// it: any answer but "method not found" is one, and of a resource any but an error.
    async fn ask_each(self: &Arc<Self>, message: &Message, behalf: Behalf) -> Reply {
        let method = message.single().and_then(|part| part.method());
        let method = method.unwrap_or_default();
        let is_for_anyone = method.starts_with("resources/") || method == "completion/complete";
        let mut refusal = None;
        let mut members = self.members().to_vec();
        // One that has to be reached first may take long.
        members.sort_by_key(|member| !member.relay.is_connected());
        for member in &members {
            let answer = match self.ask(member, message, behalf.clone()).await {
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
                .and_then(|error| riglm_domain::edit::member(error, "code"));
            match code {
                None => return Reply::Member(answer),
                Some(METHOD_NOT_FOUND) => {}
                // Its connection failed: it never heard the question, or never answered it.
                Some(code) if code.starts_with("-310") => {
                    refusal.get_or_insert(Reply::Member(answer));
                }
                Some(_) if !is_for_anyone => return Reply::Member(answer),
                Some(_) if !matches!(refusal, Some(Reply::Member(_))) => {
                    refusal = Some(Reply::Member(answer));
                }
                Some(_) => {}
            }
        }
        refusal.unwrap_or_else(|| {
            Reply::Error(RpcError::new(
                RpcErrorCode::MethodNotFound,
                format!("no upstream knows the method {method}"),
            ))
        })
    }

    /// Remembers who works on a task, if an answer to a call tells of one.
    pub(super) fn note_task(&self, answer: &Message, number: u64) {
        if memchr::memmem::find(answer.raw(), b"taskId").is_none() {
            return;
        }
        let result = answer.single().and_then(|part| answer.result(part));
        let task = result.and_then(|result| {
            let inner = member(result, "task").unwrap_or(result);
            member(inner, "taskId").and_then(unescaped)
        });
        if let Some(task) = task {
            self.united.state().note_task(task.into_owned(), number);
        }
    }

    /// Takes note of the end of a request that a member worked on.
    pub(super) fn settled(&self, id: &RequestId, answer: &Message) {
        let request = self.united.state().in_flight.remove(id);
        if let Some(InFlight::Member {
            number,
            is_call: true,
        }) = request
        {
            self.note_task(answer, number);
        }
    }
}

/// Returns what a request names.
fn named<'a>(method: &str, params: &'a str) -> Named<'a> {
    let text = |object: &'a str, key: &str| member(object, key).and_then(unescaped);
    let name = |kind, place, found: Option<Cow<'a, str>>| match found {
        Some(name) => Named::Name(kind, place, name),
        None => Named::Nothing,
    };
    match method {
        "tools/call" => name(ListKind::Tools, Place::Name, text(params, "name")),
        "prompts/get" => name(ListKind::Prompts, Place::Name, text(params, "name")),
        "completion/complete" => {
            let reference = member(params, "ref").unwrap_or_default();
            match (text(reference, "name"), text(reference, "uri")) {
                (Some(prompt), _) => name(ListKind::Prompts, Place::Ref, Some(prompt)),
                (None, Some(uri)) => Named::Uri(uri),
                (None, None) => Named::Nothing,
            }
        }
        _ => match (text(params, "taskId"), text(params, "uri")) {
            (Some(task), _) if method.starts_with("tasks/") => Named::Task(task),
            (_, Some(uri)) if method.starts_with("resources/") => Named::Uri(uri),
            _ => Named::Nothing,
        },
    }
}

/// Returns the message with the name that its owner gave the thing.
fn renamed(message: &Message, params: &str, place: Place, own: &str) -> Message {
    let own = Value::from(own).to_string();
    let new = match place {
        Place::Name => {
            if member(params, "name") == Some(own.as_str()) {
                return message.clone();
            }
            with_member(params, "name", &own)
        }
        Place::Ref => {
            let reference = member(params, "ref").unwrap_or("{}");
            with_member(params, "ref", &with_member(reference, "name", &own))
        }
    };
    message.with_params(&new)
}
