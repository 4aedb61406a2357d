//! Lists: asked of all members at once, joined in their order, and paged by the proxy itself.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use riglm_domain::edit;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::message::{Kind, Message};
use riglm_domain::prediction::SelectionContext;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::scan::unescaped;
use riglm_ports::tracer::Operation;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::ask::Behalf;
use super::catalog::{ListKey, MemberList};
use super::directory::{Part, UnitedList};
use super::from_client::Reply;
use super::hello::declares;
use super::list_kind::ListKind;
use super::search::taken;
use super::seen::SeenList;
use super::template::Template;
use super::waiting::{Awaited, Fetched, Question, Standing};
use crate::filtering::Lists;
use crate::proxy::listing::{Listing, Page};
use crate::proxy::member::Member;
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_set::Unavailable;
use crate::search::Offer;
use crate::work_sessions::RequestKind;

/// Why the entries of an upstream are missing that was waited for and may still come.
const NOT_YET: &str = "it has not answered yet";
/// How long the list of all upstreams counts as known.
const FRESH: Duration = Duration::from_secs(5);
/// The most pages that are fetched of one list of one upstream.
const MAX_PAGES: usize = 1_000;
/// The entry of a result's `_meta` that names the upstreams whose entries are missing, and why.
const MISSING_UPSTREAMS: &str = "io.github.riglm/missing-upstreams";

/// Which members are asked for a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked<'a> {
    /// All of them.
    All,
    /// These, and those of which nothing is known. The last list of the others still holds.
    Only(&'a BTreeSet<u64>),
}

impl Asked<'_> {
    fn has(self, member: &Member) -> bool {
        match self {
            Self::All => true,
            Self::Only(numbers) => numbers.contains(&member.number),
        }
    }
}

/// An upstream whose entries are missing in a list.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    upstream: UpstreamName,
    reason: String,
}

/// A list of all upstreams, and what may be said of its age.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) list: Arc<UnitedList>,
    /// What the list offers to a search, where there is one.
    pub(super) offer: Option<Arc<Offer>>,
    ttl_ms: u64,
    is_public: bool,
    /// No upstream failed or was too slow.
    is_complete: bool,
    /// The upstreams whose entries it lacks.
    missing: Vec<Missing>,
}

impl Gathered {
    /// Returns the result that carries a page: what it says of upstreams that are missing.
    fn result(&self) -> String {
        if self.missing.is_empty() {
            return "{}".to_owned();
        }
        let missing = self.missing.iter().map(
            |missing| json!({"upstream": missing.upstream.as_str(), "reason": missing.reason}),
        );
        let missing: Value = missing.collect();
        json!({"_meta": {MISSING_UPSTREAMS: missing}}).to_string()
    }
}

/// What a member said when it was asked for a list.
#[derive(Clone, Debug)]
enum Listed {
    /// This is its list.
    Fresh(Arc<MemberList>),
    /// It is slow; this is its last known list.
    Known(Arc<MemberList>),
    /// It cannot be asked; why, and its last known list.
    Failed(String, Option<Arc<MemberList>>),
    /// It is slow, and nothing is known of it.
    Late,
}

impl ClientSession {
    /// Answers a request for a list with a page of it.
    pub(super) async fn list_page(
        self: &Arc<Self>,
        kind: ListKind,
        message: &Message,
        is_modern: bool,
    ) -> Reply {
        let template = Template::new(kind, message, is_modern);
        if kind == ListKind::Tools
            && let Some(lists) = self.shared.filter.lists()
        {
            return self.chosen_page(lists, message, &template).await;
        }
        let n_changes = self.n_changes(kind);
        let params = message.single().and_then(|part| message.params(part));
        let cursor = params.and_then(|params| edit::member(params, "cursor"));
        if kind == ListKind::Tools {
            self.shared.note_listed(&self.caller);
            let now = self.shared.recorder.now();
            let hints = message.hints();
            let work = self
                .caller
                .work_session(&self.shared, hints, RequestKind::List, now);
            work.await;
        }
        let found = match cursor {
            None => self
                .gather(&template, &Asked::All)
                .await
                .map(|gathered| (gathered, 0)),
            Some(cursor) => self.turn_to(cursor, &template).await,
        };
        let (gathered, start) = match found {
            Ok(found) => found,
            Err(error) => return Reply::Error(error),
        };
        let n = self.shared.limits().list_page_entries;
        let list = &gathered.list;
        let seen = SeenList::new(&template, Arc::clone(list), None);
        self.note_seen(kind, seen, n_changes);
        let end = start.saturating_add(n);
        let is_last = end >= list.len();
        let mut page = list.page(start, n);
        if kind == ListKind::Tools
            && is_last
            && let Some(tool) = &self.shared.search_tool
        {
            let revision = self.caller.revision();
            let definitions = tool.definitions(revision.as_ref(), taken(tool, list));
            let definitions = definitions.iter();
            page = definitions.fold(page, |page, (_, tool)| edit::with_element(&page, tool));
        }
        let mut result = edit::with_member(&gathered.result(), kind.member(), &page);
        if !is_last {
            let next = format!(r#""{}.{}""#, list.version(), end);
            result = edit::with_member(&result, "nextCursor", &next);
        }
        if is_modern {
            // All pages of a list need the same scope, and what a cursor leads to may be anybody's.
            let scope = if gathered.is_public && list.len() <= n {
                r#""public""#
            } else {
                r#""private""#
            };
            result = edit::with_member(&result, "resultType", r#""complete""#);
            result = edit::with_member(&result, "ttlMs", &gathered.ttl_ms.to_string());
            result = edit::with_member(&result, "cacheScope", scope);
        }
        if kind == ListKind::Tools {
            let row = self.caller.row(&self.shared).await;
            let shown_to = (self.caller.together(row), message.hints());
            self.shared.note_shown(&self.caller, shown_to, &result);
        }
        Reply::Result(result)
    }

    /// Answers a request for tools with a page of the list that is chosen for the caller.
    async fn chosen_page(
        self: &Arc<Self>,
        lists: &Arc<Lists>,
        message: &Message,
        template: &Template,
    ) -> Reply {
        self.shared.note_listed(&self.caller);
        let is_modern = template.is_modern;
        let n_changes = self.n_changes(ListKind::Tools);
        let (gathered, offer) = match self.offered_now(template).await {
            Ok(offered) => offered,
            Err(error) => return Reply::Error(error),
        };
        self.caller.note_listing(lists);
        let listing = Listing {
            caller: &self.caller,
            shared: &self.shared,
            is_modern,
        };
        let row = self.caller.row(&self.shared).await;
        let (hints, now) = (message.hints(), self.shared.recorder.now());
        let work_session = (self.caller)
            .work_session(&self.shared, hints, RequestKind::List, now)
            .await;
        let session = CallSession::of(work_session, row);
        let predicting = self.shared.span(&Operation::Prediction, message.trace());
        let shown = listing.choose(lists, (row, session), &offer).await;
        drop(predicting);
        let seen = SeenList::new(
            template,
            Arc::clone(&gathered.list),
            Some(Arc::clone(&shown)),
        );
        self.note_seen(ListKind::Tools, seen, n_changes);
        let params = message.single().and_then(|part| message.params(part));
        let cursor = params.and_then(|params| edit::member(params, "cursor"));
        let cursor = cursor.filter(|cursor| *cursor != "null");
        // What is no text is none that was given out.
        let cursor = cursor.map(|cursor| unescaped(cursor).unwrap_or_default());
        let n = self.shared.limits().list_page_entries;
        let page = match Page::of(&shown, cursor.as_deref(), n) {
            Ok(page) => page,
            Err(text) => return Reply::Error(RpcError::new(RpcErrorCode::InvalidParams, text)),
        };
        let tools = self.shared.search_tool.as_ref();
        let taken = tools.map(|tools| taken(tools, &gathered.list));
        let tools = listing.tools(&shown, &page, taken.unwrap_or_default());
        let mut result = gathered.result();
        if let Some(next) = page.next_cursor() {
            result = edit::with_member(&result, "nextCursor", &next);
        }
        if is_modern {
            result = edit::with_member(&result, "resultType", r#""complete""#);
            let ttl_ms = shown.ttl_ms(gathered.ttl_ms, self.shared.recorder.now());
            result = edit::with_member(&result, "ttlMs", &ttl_ms.to_string());
            result = edit::with_member(&result, "cacheScope", r#""private""#);
        }
        // The long one last: what is added behind it would have it read.
        let result = edit::with_member(&result, ListKind::Tools.member(), &tools);
        let shown_to = (session, message.hints());
        self.shared.note_shown(&self.caller, shown_to, &result);
        Reply::Result(result)
    }

    /// Returns what all upstreams offer, as they said a moment ago or as they say now.
    async fn offered_now(
        self: &Arc<Self>,
        template: &Template,
    ) -> Result<(Gathered, Arc<Offer>), RpcError> {
        let known = self.shared.offer_of(&self.caller);
        let known = known.zip(self.united.gathered());
        let list = self.united.state().list(ListKind::Tools);
        if let Some(((offer, (at, ttl_ms)), list)) = known.zip(list)
            && at.elapsed() < FRESH
        {
            let gathered = Gathered {
                list,
                offer: None,
                ttl_ms,
                is_public: false,
                is_complete: true,
                missing: Vec::new(),
            };
            return Ok((gathered, offer));
        }
        let gathered = self.gather(template, &Asked::All).await?;
        let offer = gathered
            .offer
            .clone()
            .ok_or_else(|| RpcError::new(RpcErrorCode::UpstreamUnavailable, "nothing is listed"))?;
        if gathered.is_complete {
            self.united.note_gathered(gathered.ttl_ms);
        }
        Ok((gathered, offer))
    }

    /// Returns the list that a cursor is a place in, and the place.
    async fn turn_to(
        self: &Arc<Self>,
        cursor: &str,
        template: &Template,
    ) -> Result<(Gathered, usize), RpcError> {
        let refused = |text: &str| Err(RpcError::new(RpcErrorCode::InvalidParams, text));
        let cursor = unescaped(cursor);
        let place = cursor.as_deref().and_then(|cursor| cursor.split_once('.'));
        let Some((version, start)) =
            place.and_then(|(version, start)| Some((version, start.parse::<usize>().ok()?)))
        else {
            return refused("the cursor is none that this server gave out");
        };
        let seen = {
            let state = self.united.state();
            // What is forbidden now may have been in it.
            let kind = template.kind;
            let is_sure = kind != ListKind::Tools || self.shared.filter.forbidden().is_none();
            let lists = state.lists.get(&kind).filter(|_| is_sure);
            lists.and_then(|lists| {
                let mut lists = lists.iter();
                lists.find(|list| list.version() == version).cloned()
            })
        };
        let gathered = match seen {
            Some(list) => Gathered {
                list,
                offer: None,
                ttl_ms: 0,
                is_public: false,
                is_complete: true,
                missing: Vec::new(),
            },
            None => self.gather(template, &Asked::All).await?,
        };
        if gathered.list.version() != version {
            return refused("the list has changed since the cursor was given out; list again");
        }
        if start >= gathered.list.len() {
            return refused("the cursor lies behind the end of the list");
        }
        Ok((gathered, start))
    }

    /// Asks members for their lists and joins those of all.
    ///
    /// # Errors
    ///
    /// Returns an error when no member could be asked.
    pub(super) async fn gather(
        self: &Arc<Self>,
        template: &Template,
        asked: &Asked<'_>,
    ) -> Result<Gathered, RpcError> {
        let kind = template.kind;
        let members = self.members();
        let epoch = self.caller.search.epoch();
        let answers = join_all(
            members
                .iter()
                .map(|member| self.listed(member, template, asked.has(member))),
        )
        .await;
        let mut parts = Vec::with_capacity(answers.len());
        let mut missing = Vec::new();
        let mut ttl_ms = Some(u64::MAX);
        let mut is_public =
            !self.shared.filter.is_active() && self.shared.filter.forbidden().is_none();
        let mut n_failed = 0;
        let mut n_late = 0;
        for (member, answer) in members.iter().zip(answers) {
            let mut is_missing = |reason: String| {
                missing.push(Missing {
                    upstream: member.name().clone(),
                    reason,
                });
                Arc::default()
            };
            let (list, unavailable) = match answer {
                Listed::Fresh(list) => {
                    ttl_ms = ttl_ms.zip(list.ttl_ms).map(|(one, other)| one.min(other));
                    is_public &= list.is_public;
                    (list, None)
                }
                Listed::Known(list) => {
                    ttl_ms = None;
                    is_public &= list.is_public;
                    (list, None)
                }
                Listed::Failed(reason, known) => {
                    ttl_ms = None;
                    n_failed += 1;
                    let options = &member.relay.entry.upstream.options;
                    match known.filter(|_| options.unavailable == Unavailable::List) {
                        Some(list) => (list, Some(reason)),
                        None => (is_missing(reason), None),
                    }
                }
                Listed::Late => {
                    ttl_ms = None;
                    n_late += 1;
                    is_public = false;
                    (is_missing(NOT_YET.into()), None)
                }
            };
            let hidden = match kind {
                ListKind::Tools => self.hidden(member, &list),
                _ => HashSet::new(),
            };
            parts.push(Part {
                upstream: member.name().clone(),
                list,
                unavailable,
                hidden,
            });
        }
        let is_empty = parts.iter().all(|part| part.list.entries.is_empty());
        if is_empty && n_failed > 0 && n_failed == members.len() {
            let reasons = reasons(&missing);
            return Err(RpcError::new(
                RpcErrorCode::UpstreamUnavailable,
                format!("no upstream can be asked for its list; {reasons}"),
            ));
        }
        self.note_missing(kind, &missing);
        let list = self
            .shared
            .directories
            .unite(kind, self.shared.naming, &parts);
        let page_entries = self.shared.limits().list_page_entries;
        self.united.state().note_list(kind, &list, page_entries);
        let is_complete = n_failed + n_late == 0;
        if kind == ListKind::Tools && !is_complete {
            // What lacks some must not pass for what was known of all.
            self.united.forget_gathered();
        }
        let offer = (kind == ListKind::Tools).then(|| {
            let whole = self.know(&members, &list, (!missing.is_empty(), is_complete, epoch));
            self.shared.permitted(&self.caller, &whole)
        });
        Ok(Gathered {
            list,
            offer,
            ttl_ms: ttl_ms.filter(|ttl| *ttl != u64::MAX).unwrap_or(0),
            is_public: is_public && n_failed == 0 && !members.is_empty(),
            is_complete,
            missing,
        })
    }

    /// Tells the log which upstreams a list lacks, once as long as they are the same.
    fn note_missing(&self, kind: ListKind, missing: &[Missing]) {
        let names: Vec<UpstreamName> = missing.iter().map(|one| one.upstream.clone()).collect();
        let is_news = {
            let mut state = self.united.state();
            let told = state.missing.entry(kind).or_default();
            let is_news = *told != names;
            *told = names;
            is_news
        };
        if is_news && !missing.is_empty() {
            let (method, reasons) = (kind.method(), reasons(missing));
            if missing.iter().any(|one| one.reason == NOT_YET) {
                tracing::info!("{method} is answered without the entries of {reasons}");
            } else {
                // That these are down was said when it was found out.
                tracing::debug!("{method} is answered without the entries of {reasons}");
            }
        }
        if is_news && kind == ListKind::Tools {
            for one in missing {
                let members = self.members();
                let member = members.iter().find(|member| *member.name() == one.upstream);
                if let Some(member) = member {
                    member.relay.entry.was_left_out();
                }
            }
        }
    }

    /// Returns the tools of a list that are not to be shown, whether the list came now or is one that
    /// was known.
    fn hidden(&self, member: &Member, list: &MemberList) -> HashSet<ToolName> {
        let filter = &self.shared.filter;
        if !filter.is_active() && filter.forbidden().is_none() {
            return HashSet::new();
        }
        let entries = list.entries.iter();
        let names: Vec<ToolName> = entries.map(|entry| ToolName::from(&*entry.key)).collect();
        let context = SelectionContext {
            principal: &self.caller.principal,
            upstream: member.name(),
        };
        let forbidden = (self.shared).forbidden_of(&self.caller, member.name(), &names);
        let hidden = self.shared.filter.hidden(&context, &names);
        (hidden.into_iter().chain(forbidden))
            .filter_map(|position| names.get(position).cloned())
            .collect()
    }

    /// Returns what one member lists, or what is known of it when it is too slow.
    async fn listed(
        self: &Arc<Self>,
        member: &Arc<Member>,
        template: &Template,
        is_asked: bool,
    ) -> Listed {
        let kind = template.kind;
        let key = ListKey {
            kind,
            principal: self.caller.principal.clone(),
            capabilities: template.capabilities(self),
        };
        let hello = member.relay.hello();
        let has_none = |hello: &Arc<str>| !declares(hello, kind.change().capability());
        if !template.is_modern && hello.as_ref().is_some_and(has_none) {
            return Listed::Fresh(Arc::default());
        }
        let failure = || member.relay.entry.failure();
        let exact = member.relay.entry.catalog.list(&key);
        if !is_asked && let Some(exact) = &exact {
            return match failure() {
                Some(failure) => Listed::Failed(failure.to_string(), Some(Arc::clone(exact))),
                None => Listed::Known(Arc::clone(exact)),
            };
        }
        let known = exact.or_else(|| member.relay.entry.catalog.similar_list(&key));
        let waiting = &member.waiting;
        let standing = match failure() {
            Some(_) => Standing::Failing,
            None if known.is_some() => Standing::Known,
            None => Standing::Unknown,
        };
        let in_full = self.shared.limits().unite_timeout;
        let wait = waiting.begin(Awaited::List(kind), standing, in_full);
        let questioned = (kind, key.capabilities);
        let is_connected = member.relay.is_connected();
        let asked = waiting.ask_once(questioned, is_connected, |answer, before| {
            self.begin(member, template.clone(), key.clone(), answer, before);
        });
        let Some(asked) = asked else {
            return known.map_or(Listed::Late, Listed::Known);
        };
        let fetched = tokio::time::timeout(wait.limit, answered(asked.clone())).await;
        drop(wait);
        waiting.note(fetched.is_err());
        match fetched {
            Ok(Some(Ok(list))) => Listed::Fresh(list),
            Err(_) if failure().is_none() => {
                let shown = known.clone();
                self.tell_when_it_comes(member, template.untraced(), key, shown, asked);
                known.map_or(Listed::Late, Listed::Known)
            }
            failed => {
                self.look_for_list(member, template.untraced(), key);
                let failure = failure();
                let is_down = failure.is_some();
                let reason = failed.ok().flatten().and_then(Result::err);
                let reason = reason.or_else(|| failure.map(|failure| failure.to_string()));
                let reason = reason.unwrap_or_else(|| "it could not be asked".into());
                match known {
                    // What this session runs into says nothing of the upstream: its list holds.
                    Some(known) if !is_down && !member.relay.is_connected() => Listed::Known(known),
                    known => Listed::Failed(reason, known),
                }
            }
        }
    }

    /// Asks a member for its list again and again that could not be asked, and tells the client when it
    /// has come. One that is there and does not list will hardly do so when it is asked again.
    fn look_for_list(self: &Arc<Self>, member: &Arc<Member>, template: Template, key: ListKey) {
        if member.relay.entry.failure().is_none() && member.relay.is_connected() {
            return;
        }
        let watched = Arc::clone(member);
        self.watch_for_return(member, move |asking| {
            let (member, template, key) = (Arc::clone(&watched), template.clone(), key.clone());
            async move { asking.fetch(&member, &template, key).await.is_ok() }
        });
    }

    /// Begins to fetch a member's list when the question before is answered, which goes on although
    /// nobody waits any more.
    fn begin(
        self: &Arc<Self>,
        member: &Arc<Member>,
        template: Template,
        key: ListKey,
        answer: watch::Sender<Question>,
        before: Option<watch::Receiver<Question>>,
    ) {
        let session = Arc::clone(self);
        let member = Arc::clone(member);
        tokio::spawn(async move {
            if let Some(before) = before {
                answered(before).await;
            }
            answer.send_replace(Question::Asked);
            let fetched = session.fetch(&member, &template, key).await;
            answer.send_replace(Question::Answered(fetched));
            member.waiting.forget();
        });
    }

    /// Tells the client of a change when a list that it was not waited for turns out to be another
    /// one than it was shown.
    fn tell_when_it_comes(
        self: &Arc<Self>,
        member: &Arc<Member>,
        template: Template,
        key: ListKey,
        shown: Option<Arc<MemberList>>,
        asked: watch::Receiver<Question>,
    ) {
        let session = Arc::downgrade(self);
        let member = Arc::downgrade(member);
        tokio::spawn(async move {
            let fetched = answered(asked).await;
            let (Some(session), Some(member)) = (session.upgrade(), member.upgrade()) else {
                return;
            };
            match fetched {
                Some(Ok(list)) => {
                    let is_same =
                        shown.map_or(list.entries.is_empty(), |shown| shown.digest == list.digest);
                    if !is_same {
                        session.changed(template.kind.change(), &[]);
                    }
                }
                Some(Err(_)) | None => session.look_for_list(&member, template, key),
            }
        });
    }

    /// Fetches all pages of a member's list.
    async fn fetch(
        self: &Arc<Self>,
        member: &Arc<Member>,
        template: &Template,
        key: ListKey,
    ) -> Result<Arc<MemberList>, String> {
        let mut list = MemberList::default();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let request = template.request(cursor.as_deref())?;
            let answer = self
                .ask(member, &request, Behalf::default())
                .await
                .map_err(|error| error.message)?;
            let part = answer.single().ok_or("it answered with a batch")?;
            if part.kind() == Kind::Failure {
                let error = answer.error(part).unwrap_or_default();
                match edit::member(error, "code") {
                    // It has no such list.
                    Some("-32601") => break,
                    // The relay's own errors carry the reason in words.
                    Some(code) if code.starts_with("-310") => {
                        let text = edit::member(error, "message").and_then(unescaped);
                        return Err(text.unwrap_or_default().into_owned());
                    }
                    code => {
                        let code = code.unwrap_or("none");
                        return Err(format!("it refused to list with error code {code}"));
                    }
                }
            }
            let next = list.add_page(template.kind, answer.result(part).unwrap_or_default());
            if next.is_none() || next == cursor {
                break;
            }
            cursor = next;
        }
        let entry = Arc::clone(&member.relay.entry);
        if list.is_small() {
            return Ok(entry.catalog.remember(key, list));
        }
        let remembering = move || entry.catalog.remember(key, list);
        let remembered = self
            .shared
            .long_work
            .done(&self.caller.principal, remembering)
            .await;
        remembered.ok_or_else(|| "its list could not be read".into())
    }
}

/// Waits until a question is answered; `None` if it never will be.
async fn answered(mut asked: watch::Receiver<Question>) -> Option<Fetched> {
    let answered = asked.wait_for(Question::is_answered).await;
    match &*answered.ok()? {
        Question::Answered(fetched) => Some(fetched.clone()),
        Question::Queued | Question::Asked => None,
    }
}

/// Returns the upstreams with their reasons, as a text.
fn reasons(missing: &[Missing]) -> String {
    let reasons: Vec<String> = (missing.iter())
        .map(|missing| format!("upstream {}: {}", missing.upstream, missing.reason))
        .collect();
    reasons.join("; ")
}
