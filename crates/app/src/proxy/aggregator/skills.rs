//! Skills of several upstreams (extension `io.modelcontextprotocol/skills`, SEP-2640).
//!
//! A skill is known by its URI within its server, so two servers may have the same URI for different
//! skills. The merged list therefore puts the name of the upstream before the path:
//! `skill://pdf/SKILL.md` of the upstream `docs` is `skill://docs/pdf/SKILL.md`. The path still ends
//! with the name of the skill, and relative references stay within its directory. Requests with such
//! a URI go to the upstream with its own URI, and the URIs of the answer are changed back. Contents,
//! digests, sizes and frontmatter pass unchanged.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use riglm_domain::catalog::naming::NamespacePolicy;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::{member, splice, with_member};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use serde_json::Value;
use serde_json::value::RawValue;

use super::fan_out::RequestOrigin;
use super::merged_list_fetch::FetchSelection;
use super::merged_lists::ListPart;
use crate::proxy::aggregator::fan_out::ask;
use crate::proxy::aggregator::merged_list_fetch::gather;
use crate::proxy::aggregator::route::owner_of_uri;
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::ListTemplate;
use crate::proxy::session::ClientSession;
use crate::proxy::session_jobs::Reply;
use crate::proxy::upstream_session::UpstreamSession;

/// The end of the URI of each skill.
const SKILL_FILE: &str = "/SKILL.md";
/// The usual scheme of skills.
const SCHEME: &str = "skill";

/// A request about a skill or one of its files, and the upstream that it is for.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct SkillRequest {
    member: Arc<UpstreamSession>,
    /// The URI at the upstream.
    own: String,
}

/// Returns the shown URIs of the skills of each part.
pub(super) fn shown_uris(naming: NamespacePolicy, parts: &[ListPart]) -> Vec<Vec<Option<String>>> {
    let mut n_owners: HashMap<&str, usize> = HashMap::new();
    for part in parts {
        let uris: HashSet<&str> = part.list.entries.iter().map(|entry| &*entry.key).collect();
        for uri in uris {
            *n_owners.entry(uri).or_default() += 1;
        }
    }
    let shown = |part: &ListPart, uri: &str| match naming {
        NamespacePolicy::Collision if n_owners.get(uri) == Some(&1) => uri.to_owned(),
        _ => with_upstream(uri, &part.upstream),
    };
    let of_part = |part: &ListPart| {
        let entries = part.list.entries.iter();
        entries.map(|entry| Some(shown(part, &entry.key))).collect()
    };
    parts.iter().map(of_part).collect()
}

/// Returns a skill with the URIs that the client sees.
pub(super) fn with_shown_uris(skill: &str, upstream: &UpstreamName) -> String {
    let mut edits = UriEdits::new(skill, upstream);
    edits.add_skill(skill);
    edits.apply()
}

/// Returns the upstream of a request with the URI of a skill, of its directory or of one of its
/// files. Returns `None` for other URIs, and for URIs that are the same at the upstream.
pub(in crate::proxy) fn skill_request(
    session: &ClientSession,
    method: &str,
    params: &str,
) -> Option<SkillRequest> {
    // Before the parameters are read: other requests may be large.
    if !matches!(
        method,
        "skills/get" | "resources/read" | "resources/directory/read"
    ) {
        return None;
    }
    let uri = unescape(member(params, "uri")?)?;
    match listed_skill(session, &uri) {
        Some(ListedSkill::Renamed(request)) => Some(request),
        // The URI is one of an upstream, whatever its path begins with.
        Some(ListedSkill::Verbatim) => None,
        None if owner_of_uri(session, &uri).is_some() => None,
        None => prefixed_skill(session, &uri),
    }
}

/// A skill of the last list.
enum ListedSkill {
    /// Its URI has the name of its upstream.
    Renamed(SkillRequest),
    /// Its URI is the same at the upstream.
    Verbatim,
}

/// Returns the listed skill of a URI. Skills may contain skills, so the longest directory counts.
fn listed_skill(session: &ClientSession, uri: &str) -> Option<ListedSkill> {
    let list = session.aggregator.lists.last(ListKind::Skills)?;
    let directory_of = |skill: &str| skill.strip_suffix(SKILL_FILE).map(str::len);
    let is_below = |directory: usize, skill: &str| {
        let rest = uri.strip_prefix(&skill[..directory]);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (_, skill) = list
        .names()
        .filter_map(|skill| Some((directory_of(skill)?, skill)))
        .filter(|(directory, skill)| is_below(*directory, skill))
        .max_by_key(|(directory, _)| *directory)?;
    let owner = list.owner(skill)?;
    if *owner.own == *skill {
        return Some(ListedSkill::Verbatim);
    }
    let member = member_named(session, owner.upstream.as_str())?;
    let own = without_upstream(uri, member.name())?;
    Some(ListedSkill::Renamed(SkillRequest { member, own }))
}

/// Returns the upstream whose name precedes the path of a URI. A client without a list may have it
/// from an earlier session.
fn prefixed_skill(session: &ClientSession, uri: &str) -> Option<SkillRequest> {
    let (scheme, path) = uri.split_once("://")?;
    let (first, _) = path.split_once('/').filter(|_| scheme == SCHEME)?;
    let member = member_named(session, first)?;
    let own = without_upstream(uri, member.name())?;
    Some(SkillRequest { member, own })
}

fn member_named(session: &ClientSession, name: &str) -> Option<Arc<UpstreamSession>> {
    let members = session.members();
    let mut all = members.iter();
    all.find(|member| member.name().as_str() == name).cloned()
}

/// Answers a request about a skill by its upstream.
pub(in crate::proxy) async fn ask_for_skill(
    session: &Arc<ClientSession>,
    request: SkillRequest,
    message: &Message,
    id: RequestId,
) -> Reply {
    let SkillRequest { member, own } = request;
    let Some(part) = message.single() else {
        return Reply::Nothing;
    };
    let params = message.params(part).unwrap_or("{}");
    let params = with_member(params, "uri", &Value::from(own).to_string());
    let behalf = RequestOrigin {
        request: Some(id),
        listen: None,
    };
    let asked = ask(session, &member, &message.with_params(&params), behalf).await;
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => return Reply::Error(error),
    };
    let result = answer.single().and_then(|part| answer.result(part));
    match result {
        Some(result) => Reply::Result(with_shown_result(result, member.name())),
        None => Reply::Upstream(answer),
    }
}

/// Answers `skills/get` for a URI that does not name an upstream: it may be one that a server
/// mentions in its texts.
pub(in crate::proxy) async fn get_unprefixed_skill(
    session: &Arc<ClientSession>,
    message: &Message,
    id: RequestId,
) -> Reply {
    let params = message.single().and_then(|part| message.params(part));
    let params = params.unwrap_or_default();
    let refused = |text: String| Reply::Error(RpcError::new(RpcErrorCode::InvalidParams, text));
    let Some(uri) = member(params, "uri").and_then(unescape) else {
        return refused("missing uri in the request".into());
    };
    let template = ListTemplate::new(ListKind::Skills, message, session.client_context.era());
    let gathered = match gather(session, &template, &FetchSelection::All).await {
        Ok(gathered) => gathered,
        Err(error) => return Reply::Error(error),
    };
    // The list may be new, so that the URI is known by now.
    if let Some(request) = skill_request(session, "skills/get", params) {
        return ask_for_skill(session, request, message, id).await;
    }
    let owners = gathered.list.owners_of(&uri);
    match owners.as_slice() {
        [] => ask_each_for_skill(session, &uri, message, &id).await,
        [(_, owner)] => match member_named(session, owner.upstream.as_str()) {
            None => unknown_skill(&uri),
            Some(member) if gathered.list.owner(&uri).is_some() => {
                Reply::Forward(member, message.clone())
            }
            Some(member) => {
                let own = uri.into_owned();
                ask_for_skill(session, SkillRequest { member, own }, message, id).await
            }
        },
        several => {
            let names: Vec<&str> = several.iter().map(|(shown, _)| *shown).collect();
            refused(format!(
                "several upstreams have the skill {uri:?}: name one of {}",
                names.join(", ")
            ))
        }
    }
}

/// Asks one upstream after the other for a skill that none of them lists.
async fn ask_each_for_skill(
    session: &Arc<ClientSession>,
    uri: &str,
    message: &Message,
    id: &RequestId,
) -> Reply {
    let members = session.members();
    let has_skills = |member: &&Arc<UpstreamSession>| {
        let said = member.tools.handshake_result();
        said.is_none_or(|said| ListKind::Skills.is_declared_in(&said))
    };
    let mut failure = None;
    for member in members.iter().filter(has_skills) {
        let request = SkillRequest {
            member: Arc::clone(member),
            own: uri.to_owned(),
        };
        let reply = ask_for_skill(session, request, message, id.clone()).await;
        match reply {
            Reply::Result(_) => return reply,
            // The upstream did not answer, so it may have the skill.
            Reply::Error(_) => failure = Some(reply),
            _ => {}
        }
    }
    failure.unwrap_or_else(|| unknown_skill(uri))
}

fn unknown_skill(uri: &str) -> Reply {
    let text = format!("unknown skill {uri:?}: no upstream has it");
    Reply::Error(RpcError::new(RpcErrorCode::InvalidParams, text))
}

/// Returns a result with the URIs that the client sees: an entry of a skill, the contents of files,
/// or the entries of a directory.
fn with_shown_result(result: &str, upstream: &UpstreamName) -> String {
    let mut edits = UriEdits::new(result, upstream);
    if let Some(skill) = member(result, "skill") {
        edits.add_skill(skill);
    }
    for key in ["contents", "resources"] {
        if let Some(array) = member(result, key) {
            edits.add_each(array);
        }
    }
    edits.apply()
}

/// The changes of URIs in a JSON text. Contents may have megabytes, so they are copied only once.
struct UriEdits<'a> {
    text: &'a str,
    upstream: &'a UpstreamName,
    edits: Vec<(Range<usize>, String)>,
}

impl<'a> UriEdits<'a> {
    fn new(text: &'a str, upstream: &'a UpstreamName) -> Self {
        Self {
            text,
            upstream,
            edits: Vec::new(),
        }
    }

    /// Adds the URIs of a skill, which is a part of the text. Skills whose files are generated have
    /// a word in place of the files.
    fn add_skill(&mut self, skill: &'a str) {
        self.add(skill);
        if let Some(files) = member(skill, "resources") {
            self.add_each(files);
        }
    }

    /// Adds the URIs of the objects in an array, which is a part of the text.
    fn add_each(&mut self, array: &'a str) {
        let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap_or_default();
        for element in elements {
            self.add(element.get());
        }
    }

    /// Adds the URI of an object, which is a part of the text.
    fn add(&mut self, object: &'a str) {
        let Some(written) = member(object, "uri") else {
            return;
        };
        if let Some(uri) = unescape(written) {
            let start = written.as_ptr() as usize - self.text.as_ptr() as usize;
            let shown = Value::from(with_upstream(&uri, self.upstream)).to_string();
            self.edits.push((start..start + written.len(), shown));
        }
    }

    /// Returns the text with all changes.
    fn apply(mut self) -> String {
        self.edits.sort_unstable_by_key(|(range, _)| range.start);
        let edits: Vec<(Range<usize>, &str)> = (self.edits.iter())
            .map(|(range, shown)| (range.clone(), shown.as_str()))
            .collect();
        splice(self.text, &edits)
    }
}

/// Returns a URI with the name of its upstream before the path.
fn with_upstream(uri: &str, upstream: &UpstreamName) -> String {
    match uri.split_once("://") {
        Some((scheme, path)) => format!("{scheme}://{upstream}/{path}"),
        None => uri.to_owned(),
    }
}

/// Returns a URI without the name of its upstream; `None` if it does not have it.
fn without_upstream(uri: &str, upstream: &UpstreamName) -> Option<String> {
    let (scheme, path) = uri.split_once("://")?;
    let own = path.strip_prefix(upstream.as_str())?.strip_prefix('/')?;
    Some(format!("{scheme}://{own}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docs() -> UpstreamName {
        UpstreamName::parse("docs").unwrap()
    }

    #[test]
    fn a_skill_keeps_everything_except_its_uris() {
        let skill = r#"{"uri":"skill://pdf/SKILL.md","frontmatter":{"name":"pdf","uri":"skill://x"},"resources":[{"uri":"skill://pdf/SKILL.md","digest":"sha256:00","size":1.0},{"uri":"skill://pdf/a/b.md","x":null}]}"#;
        let shown = with_shown_uris(skill, &docs());
        assert_eq!(
            shown,
            r#"{"uri":"skill://docs/pdf/SKILL.md","frontmatter":{"name":"pdf","uri":"skill://x"},"resources":[{"uri":"skill://docs/pdf/SKILL.md","digest":"sha256:00","size":1.0},{"uri":"skill://docs/pdf/a/b.md","x":null}]}"#
        );
        let dynamic = r#"{"uri":"skill://pdf/SKILL.md","resources":"dynamic"}"#;
        assert_eq!(
            with_shown_uris(dynamic, &docs()),
            r#"{"uri":"skill://docs/pdf/SKILL.md","resources":"dynamic"}"#
        );
    }

    #[test]
    fn uris_are_restored() {
        for own in [
            "skill://pdf/SKILL.md",
            "github://a/b/SKILL.md",
            "skill://docs/SKILL.md",
        ] {
            let shown = with_upstream(own, &docs());
            assert_eq!(without_upstream(&shown, &docs()).as_deref(), Some(own));
        }
        assert_eq!(
            without_upstream("skill://docsx/pdf/SKILL.md", &docs()),
            None
        );
        assert_eq!(without_upstream("skill://docs", &docs()), None);
        assert_eq!(with_upstream("no-uri", &docs()), "no-uri");
    }

    #[test]
    fn results_of_all_methods_get_shown_uris() {
        for (own, shown) in [
            (
                r#"{"contents":[{"uri":"skill://p/SKILL.md","text":"see skill://p/a"}],"n":1.0}"#,
                r#"{"contents":[{"uri":"skill://docs/p/SKILL.md","text":"see skill://p/a"}],"n":1.0}"#,
            ),
            (
                r#"{"resources":[{"uri":"skill://p/a","mimeType":"inode/directory"}]}"#,
                r#"{"resources":[{"uri":"skill://docs/p/a","mimeType":"inode/directory"}]}"#,
            ),
            (
                r#"{"skill":{"uri":"skill://p/SKILL.md","resources":[]}}"#,
                r#"{"skill":{"uri":"skill://docs/p/SKILL.md","resources":[]}}"#,
            ),
            ("{}", "{}"),
        ] {
            assert_eq!(with_shown_result(own, &docs()), shown);
        }
    }
}
