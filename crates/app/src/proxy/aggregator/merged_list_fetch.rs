//! Merged lists: fetched from all upstreams concurrently, merged in their order, and paged by the
//! proxy.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Message, MessageKind};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::prediction::SelectionContext;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::fan_out::RequestOrigin;
use super::merged_lists::{AggregateList, ListPart, taken_names};
use super::shown_lists::SeenList;
use super::wait_times::{FetchResult, Question, UpstreamStanding};
use crate::proxy::aggregator::changes::note_list_change;
use crate::proxy::aggregator::fan_out::ask;
use crate::proxy::aggregator::shown_lists::note_seen;
use crate::proxy::aggregator::wait_times::watch_for_return;
use crate::proxy::list_kind::ListKind;
use crate::proxy::list_template::{ListFetchError, ListTemplate};
use crate::proxy::own_tools::server_text;
use crate::proxy::session::ClientSession;
use crate::proxy::session_app::{self, ListPosition};
use crate::proxy::session_jobs::Reply;
use crate::proxy::upstream_cache::{CachedList, ListKey};
use crate::proxy::upstream_session::UpstreamSession;
use crate::proxy::upstream_set::Unavailable;
use crate::safeguards::ListText;
use crate::work_sessions::RequestKind;
use riglm_discovery::search::{Catalog, ServerText};

/// The reason for missing entries of an upstream that is late and may still answer.
const NOT_YET: &str = "still starting (see upstreams.NAME.start_timeout)";
/// The time for which a merged list counts as fresh.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// The maximum number of pages that are fetched of one list of one upstream.
const MAX_PAGES: usize = 1_000;
/// The entry in `_meta` of a result with the upstreams whose entries are missing, and the reasons.
const MISSING_UPSTREAMS: &str = "io.github.riglm/missing-upstreams";

/// The selection of upstreams whose lists are fetched.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) enum FetchSelection<'a> {
    /// All, for a list that a client requests.
    All,
    /// All, for a call whose upstream is not known: a call waits longer than a list.
    AllForCall,
    /// These upstreams, and those without a cached list. The cached lists of the others are used.
    Only(&'a BTreeSet<u64>),
}

impl FetchSelection<'_> {
    fn has(self, member: &UpstreamSession) -> bool {
        match self {
            Self::All | Self::AllForCall => true,
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

/// A merged list, and the values for its caching.
#[derive(Debug)]
pub(in crate::proxy) struct GatheredList {
    pub(in crate::proxy) list: Arc<AggregateList>,
    /// The catalog of a tool list.
    pub(in crate::proxy) catalog: Option<Arc<Catalog>>,
    pub(in crate::proxy) ttl_ms: u64,
    is_public: bool,
    /// Whether the list is not about to get the entries of further upstreams.
    is_complete: bool,
    /// The upstreams whose entries are missing.
    missing: Vec<Missing>,
}

impl GatheredList {
    /// Returns the result object for a page, with the missing upstreams.
    pub(in crate::proxy) fn result(&self) -> String {
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

/// The outcome of fetching the list of an upstream.
#[derive(Clone, Debug)]
enum FetchOutcome {
    /// The current list.
    Fresh(Arc<CachedList>),
    /// The last known list, because the upstream is slow.
    Known(Arc<CachedList>),
    /// The reason of a failure, and the last known list.
    Failed(String, Option<Arc<CachedList>>),
    /// The upstream is slow, and no list is known.
    Late,
}

/// Answers a list request with a page of the merged list.
pub(in crate::proxy) async fn list_page(
    session: &Arc<ClientSession>,
    kind: ListKind,
    message: &Message,
    era: Era,
) -> Reply {
    let template = ListTemplate::new(kind, message, era);
    let n_changes = session.aggregator.changes.n_changes(kind.change());
    let params = message.single().and_then(|part| message.params(part));
    let cursor = params.and_then(|params| edit::member(params, "cursor"));
    if kind == ListKind::Tools {
        session.shared.note_listed(&session.client_context);
        let now = session.shared.recorder.now();
        let hints = message.hints();
        let work =
            (session.client_context).work_session(&session.shared, hints, RequestKind::List, now);
        work.await;
    }
    let found = match cursor {
        None => gather(session, &template, &FetchSelection::All)
            .await
            .map(|gathered| (gathered, 0)),
        Some(cursor) => list_at_cursor(session, cursor, &template).await,
    };
    let (gathered, start) = match found {
        Ok(found) => found,
        Err(error) => return Reply::Error(error),
    };
    let n = session.shared.limits().list_page_entries;
    let list = &gathered.list;
    let seen = SeenList::new(&template, Arc::clone(list), None);
    note_seen(session, kind, seen, n_changes);
    let end = start.saturating_add(n);
    let is_last = end >= list.len();
    let mut page = list.page(start, n);
    if kind == ListKind::Tools
        && is_last
        && let Some(tool) = session.shared.own_tools()
    {
        session.client_context.note_own_tools();
        let revision = session.client_context.revision();
        let useless = (session.shared).useless_own_tools(&session.client_context, params);
        let left_out = taken_names(tool, list).and(useless);
        let definitions = tool.definitions(revision.as_ref(), left_out);
        let definitions = definitions.iter();
        page = definitions.fold(page, |page, (_, tool)| edit::with_element(&page, tool));
    }
    let offers_app = kind == ListKind::Resources
        && (session.shared).offers_session_app(&session.client_context, params);
    if offers_app {
        let position = if is_last {
            ListPosition::Last
        } else {
            ListPosition::Within
        };
        page = session_app::with_entry(&page, position).unwrap_or(page);
    }
    let mut result = edit::with_member(&gathered.result(), kind.member(), &page);
    if !is_last {
        let next = format!(r#""{}.{}""#, list.version(), end);
        result = edit::with_member(&result, "nextCursor", &next);
    }
    if era == Era::Modern {
        // All pages of a list need the same cache scope, and a cursor may lead to the list of
        // another client. Other clients do not get the app.
        let scope = if gathered.is_public && list.len() <= n && !offers_app {
            r#""public""#
        } else {
            r#""private""#
        };
        result = edit::with_member(&result, "resultType", r#""complete""#);
        result = edit::with_member(&result, "ttlMs", &gathered.ttl_ms.to_string());
        result = edit::with_member(&result, "cacheScope", scope);
    }
    if kind == ListKind::Tools {
        let row = session.client_context.session_id(&session.shared).await;
        let session_key = session.client_context.session_key(row);
        let (shared, hints) = (&session.shared, message.hints());
        let list = ListText::of_result(&result);
        shared.note_shown(&session.client_context, session_key, hints, list);
    }
    Reply::Result(result)
}

/// Returns the merged tool list and the catalog, from the cache if it is fresh.
pub(in crate::proxy) async fn current_catalog(
    session: &Arc<ClientSession>,
    template: &ListTemplate,
) -> Result<(GatheredList, Arc<Catalog>), RpcError> {
    let known = session.shared.catalog_of(&session.client_context);
    let known = known.zip(session.aggregator.lists.last_gathered());
    let list = session.aggregator.lists.last(ListKind::Tools);
    if let Some(((catalog, (at, ttl_ms)), list)) = known.zip(list)
        && at.elapsed() < FRESH_FOR
    {
        let gathered = GatheredList {
            list,
            catalog: None,
            ttl_ms,
            is_public: false,
            is_complete: true,
            missing: Vec::new(),
        };
        return Ok((gathered, catalog));
    }
    let gathered = gather(session, template, &FetchSelection::All).await?;
    let catalog = gathered.catalog.clone().ok_or_else(|| {
        RpcError::new(
            RpcErrorCode::UpstreamUnavailable,
            "no tool list is available",
        )
    })?;
    if gathered.is_complete {
        session.aggregator.lists.note_gathered(gathered.ttl_ms);
    }
    Ok((gathered, catalog))
}

/// Returns the list and the position that a cursor refers to.
async fn list_at_cursor(
    session: &Arc<ClientSession>,
    cursor: &str,
    template: &ListTemplate,
) -> Result<(GatheredList, usize), RpcError> {
    let refused = |text: &str| Err(RpcError::new(RpcErrorCode::InvalidParams, text));
    let cursor = unescape(cursor);
    let place = cursor.as_deref().and_then(|cursor| cursor.split_once('.'));
    let Some((version, start)) =
        place.and_then(|(version, start)| Some((version, start.parse::<usize>().ok()?)))
    else {
        return refused("unknown cursor; list again from the start");
    };
    // The stored list may contain tools that are forbidden by now.
    let kind = template.kind;
    let is_sure = kind != ListKind::Tools || session.shared.selection.forbidden().is_none();
    let seen = (session.aggregator.lists.with_version(kind, version)).filter(|_| is_sure);
    let gathered = match seen {
        Some(list) => GatheredList {
            list,
            catalog: None,
            ttl_ms: 0,
            is_public: false,
            is_complete: true,
            missing: Vec::new(),
        },
        None => gather(session, template, &FetchSelection::All).await?,
    };
    if gathered.list.version() != version {
        return refused(
            "the list has changed since the cursor was issued; list again from the start",
        );
    }
    if start >= gathered.list.len() {
        return refused("the cursor is past the end of the list");
    }
    Ok((gathered, start))
}

/// Fetches the lists of the selected upstreams and merges the lists of all.
///
/// # Errors
///
/// Returns an error if no upstream could be asked.
pub(in crate::proxy) async fn gather(
    session: &Arc<ClientSession>,
    template: &ListTemplate,
    asked: &FetchSelection<'_>,
) -> Result<GatheredList, RpcError> {
    let kind = template.kind;
    let members = session.members();
    let epoch = session.client_context.search.epoch();
    // Until the starts have settled, a session is shown the servers of its first list.
    let is_held =
        session.shared.starts.are_settling() && !matches!(asked, FetchSelection::AllForCall);
    let left_out = is_held.then(|| session.aggregator.lists.missing(kind));
    let left_out = left_out.unwrap_or_default();
    let answers = join_all(members.iter().map(|member| async {
        if left_out.contains(member.name()) {
            return outcome_of_unknown(member);
        }
        fetch_or_cached(session, member, template, asked).await
    }))
    .await;
    let joined = JoinedParts::new(session, kind, &members, answers);
    let n_failed = joined.n_failed;
    let is_empty = (joined.parts.iter()).all(|part| part.list.entries.is_empty());
    if is_empty && n_failed > 0 && n_failed == members.len() {
        let reasons = reasons(&joined.missing);
        return Err(RpcError::new(
            RpcErrorCode::UpstreamUnavailable,
            format!("no upstream is available to list; {reasons}"),
        ));
    }
    note_missing(session, kind, &joined.missing);
    let list =
        (session.shared.merged_list_cache).aggregate(kind, session.shared.naming, &joined.parts);
    let page_entries = session.shared.limits().list_page_entries;
    let lists = &session.aggregator.lists;
    lists.note_list(kind, &list, page_entries);
    let is_complete = joined.is_complete(session);
    if kind == ListKind::Tools && !is_complete {
        // An incomplete list must not be cached as the complete one.
        session.aggregator.lists.forget_gathered();
    }
    let catalog = (kind == ListKind::Tools).then(|| {
        let whole = publish_catalog(session, &members, &list, &joined, epoch);
        (session.shared).permitted_catalog(&session.client_context, &whole)
    });
    Ok(GatheredList {
        list,
        catalog,
        ttl_ms: (joined.ttl_ms).filter(|ttl| *ttl != u64::MAX).unwrap_or(0),
        is_public: joined.is_public && n_failed == 0 && !members.is_empty(),
        is_complete,
        missing: joined.missing,
    })
}

/// The lists of all upstreams, as parts of a merged list.
struct JoinedParts {
    parts: Vec<ListPart>,
    missing: Vec<Missing>,
    /// The shortest time to live; `None` if a part has none.
    ttl_ms: Option<u64>,
    /// Whether all parts are the same for all clients.
    is_public: bool,
    n_failed: usize,
    n_late: usize,
}

impl JoinedParts {
    fn new(
        session: &ClientSession,
        kind: ListKind,
        members: &[Arc<UpstreamSession>],
        answers: Vec<FetchOutcome>,
    ) -> Self {
        let selection = &session.shared.selection;
        let mut joined = Self {
            parts: Vec::with_capacity(answers.len()),
            missing: Vec::new(),
            ttl_ms: Some(u64::MAX),
            is_public: !selection.is_active() && selection.forbidden().is_none(),
            n_failed: 0,
            n_late: 0,
        };
        for (member, answer) in members.iter().zip(answers) {
            let (list, unavailable) = joined.take_answer(member, answer);
            let hidden = match kind {
                ListKind::Tools => hidden_tools(session, member, &list),
                _ => HashSet::new(),
            };
            joined.parts.push(ListPart {
                upstream: member.name().clone(),
                list,
                unavailable,
                hidden,
            });
        }
        joined
    }

    /// Returns the list of an upstream, and the reason why its entries are not available.
    fn take_answer(
        &mut self,
        member: &UpstreamSession,
        answer: FetchOutcome,
    ) -> (Arc<CachedList>, Option<String>) {
        if !matches!(answer, FetchOutcome::Fresh(_)) {
            self.ttl_ms = None;
        }
        let reason = match answer {
            FetchOutcome::Fresh(list) => {
                let shorter = |(one, other): (u64, u64)| one.min(other);
                self.ttl_ms = self.ttl_ms.zip(list.ttl_ms).map(shorter);
                self.is_public &= list.is_public;
                return (list, None);
            }
            FetchOutcome::Known(list) => {
                self.is_public &= list.is_public;
                return (list, None);
            }
            FetchOutcome::Failed(reason, known) => {
                self.n_failed += 1;
                match (member.scope.entry.upstream.options.unavailable, known) {
                    (Unavailable::Keep, Some(list)) => return (list, None),
                    (Unavailable::List, Some(list)) => return (list, Some(reason)),
                    (Unavailable::Hide, _) | (_, None) => reason,
                }
            }
            FetchOutcome::Late => {
                self.n_late += 1;
                self.is_public = false;
                NOT_YET.into()
            }
        };
        self.missing.push(Missing {
            upstream: member.name().clone(),
            reason,
        });
        (Arc::default(), None)
    }

    /// Returns whether the list is not about to get the entries of further upstreams. Those that
    /// are down, or that are still starting when the others have settled, do not hold it up.
    fn is_complete(&self, session: &ClientSession) -> bool {
        self.n_late == 0 || session.shared.starts.have_settled()
    }
}

/// Publishes the catalog of a list to this session, and to the search if the list is complete.
fn publish_catalog(
    session: &ClientSession,
    members: &[Arc<UpstreamSession>],
    list: &AggregateList,
    joined: &JoinedParts,
    epoch: u64,
) -> Arc<Catalog> {
    let lacks_upstreams = !joined.is_complete(session);
    let servers = members.iter().map(|member| {
        let said = member.tools.handshake_result();
        let text = server_text(member.name(), said.as_deref());
        (member.name().clone(), text)
    });
    let servers: Vec<(UpstreamName, ServerText)> = servers.collect();
    let marker: &[u8] = if lacks_upstreams { b"lacking" } else { b"" };
    let lists = [list.version().as_bytes(), marker];
    let catalog = session
        .shared
        .catalog_cache
        .get(&lists, servers, |servers| {
            let catalog = Catalog::new(list.catalog_tools(), servers);
            if lacks_upstreams {
                catalog.mark_lacking_upstreams()
            } else {
                catalog
            }
        });
    session.client_context.search.note_catalog(&catalog, epoch);
    if let Some(tool) = session.shared.own_tools()
        && !lacks_upstreams
        && session.client_context.search.is_news(&catalog)
    {
        tool.service.index_catalog(&catalog);
    }
    catalog
}

/// Logs which upstreams are missing in a list, once while they stay the same.
fn note_missing(session: &ClientSession, kind: ListKind, missing: &[Missing]) {
    let names: Vec<UpstreamName> = missing.iter().map(|one| one.upstream.clone()).collect();
    let is_news = session.aggregator.lists.note_missing(kind, names);
    if is_news && !missing.is_empty() {
        let (method, reasons) = (kind.method(), reasons(missing));
        if missing.iter().any(|one| one.reason == NOT_YET) {
            tracing::info!("{method} answered without entries of {reasons}");
        } else {
            // Their failure was already logged when it occurred.
            tracing::debug!("{method} answered without entries of {reasons}");
        }
    }
    if is_news && kind == ListKind::Tools {
        for one in missing {
            let members = session.members();
            let member = members.iter().find(|member| *member.name() == one.upstream);
            if let Some(member) = member {
                member.scope.entry.count_left_out();
            }
        }
    }
}

/// Returns the hidden tools of a list, whether it is current or cached.
fn hidden_tools(
    session: &ClientSession,
    member: &UpstreamSession,
    list: &CachedList,
) -> HashSet<ToolName> {
    let filter = &session.shared.selection;
    if !filter.is_active() && filter.forbidden().is_none() {
        return HashSet::new();
    }
    let entries = list.entries.iter();
    let names: Vec<ToolName> = entries.map(|entry| ToolName::from(&*entry.key)).collect();
    let context = SelectionContext {
        principal: &session.client_context.principal,
        upstream: member.name(),
    };
    let forbidden = (session.shared).forbidden_of(&session.client_context, member.name(), &names);
    let hidden = session.shared.selection.hidden_positions(&context, &names);
    (hidden.into_iter().chain(forbidden))
        .filter_map(|position| names.get(position).cloned())
        .collect()
}

/// Returns the outcome for an upstream of which nothing is shown yet.
fn outcome_of_unknown(member: &UpstreamSession) -> FetchOutcome {
    let failure = member.scope.entry.failure();
    let failed = failure.map(|failure| FetchOutcome::Failed(failure.to_string(), None));
    failed.unwrap_or(FetchOutcome::Late)
}

/// Fetches the list of one upstream, or returns the cached list if the upstream is too slow, or if
/// asking it would start a process.
async fn fetch_or_cached(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    template: &ListTemplate,
    asked: &FetchSelection<'_>,
) -> FetchOutcome {
    let kind = template.kind;
    let entry = &member.scope.entry;
    // The time to wait for a list that is not known.
    let in_full = match asked {
        FetchSelection::AllForCall => session.shared.limits().unite_timeout,
        FetchSelection::All | FetchSelection::Only(_) => {
            entry.wait_left(session.shared.limits().first_wait)
        }
    };
    let costs_start = member.costs_start();
    let is_checked = session.shared.starts.are_checked();
    if costs_start && is_checked && entry.greeting(template.era).is_none() {
        entry.wait_for_check(in_full).await;
    }
    let key = member.scope.list_key(template);
    let hello = member.tools.handshake_result();
    let has_none = |hello: &Arc<str>| !kind.is_declared_in(hello);
    // Few servers have skills, so the others are not asked in any era.
    let is_declarative = template.era == Era::Legacy || kind == ListKind::Skills || costs_start;
    if is_declarative && hello.as_ref().is_some_and(has_none) {
        return FetchOutcome::Fresh(Arc::default());
    }
    let failure = || entry.failure();
    let exact = entry.catalog.list(&key);
    if !asked.has(member)
        && let Some(exact) = &exact
    {
        return match failure() {
            Some(failure) => FetchOutcome::Failed(failure.to_string(), Some(Arc::clone(exact))),
            None => FetchOutcome::Known(Arc::clone(exact)),
        };
    }
    let known = exact.or_else(|| entry.catalog.similar_list(&key));
    if costs_start {
        if let Some(known) = known.as_ref().filter(|_| kind == ListKind::Tools) {
            member.tools.record_known(known).await;
        }
        // The check of the upstream finds out whether the list has changed.
        match (failure(), &known) {
            (Some(failure), _) => return FetchOutcome::Failed(failure.to_string(), known),
            (None, Some(known)) => return FetchOutcome::Known(Arc::clone(known)),
            (None, None) if is_checked && entry.is_starting() => return FetchOutcome::Late,
            (None, None) => {}
        }
    }
    ask_upstream(session, member, template, key, known, in_full).await
}

/// Asks an upstream for its list, which is waited for at most `in_full`. Returns the known list if the
/// upstream is too slow.
async fn ask_upstream(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    template: &ListTemplate,
    key: ListKey,
    known: Option<Arc<CachedList>>,
    in_full: Duration,
) -> FetchOutcome {
    let failure = || member.scope.entry.failure();
    let waiting = &member.waiting;
    let standing = match failure() {
        Some(_) => UpstreamStanding::Failing,
        None if known.is_some() => UpstreamStanding::Known,
        None => UpstreamStanding::Unknown,
    };
    let limit = waiting.limit(standing, in_full);
    let questioned = (template.kind, key.capabilities);
    let is_connected = member.is_connected();
    let asked = waiting.ask_once(questioned, is_connected, |answer, before| {
        begin(
            session,
            member,
            template.clone(),
            key.clone(),
            answer,
            before,
        );
    });
    let Some(asked) = asked else {
        return known.map_or(FetchOutcome::Late, FetchOutcome::Known);
    };
    let fetched = tokio::time::timeout(limit, answer_of(asked.clone())).await;
    waiting.note_late(fetched.is_err());
    match fetched {
        Ok(Some(Ok(list))) => FetchOutcome::Fresh(list),
        Err(_) if failure().is_none() => {
            let shown = known.clone();
            notify_when_answered(session, member, template.without_trace(), key, shown, asked);
            known.map_or(FetchOutcome::Late, FetchOutcome::Known)
        }
        failed => {
            retry_list(session, member, template.without_trace(), key);
            let failure = failure();
            let is_down = failure.is_some();
            let reason = failed.ok().flatten().and_then(Result::err);
            let reason = reason.map(|error| error.to_string());
            let reason = reason.or_else(|| failure.map(|failure| failure.to_string()));
            let reason = reason.unwrap_or_else(|| "failed to send the list request".into());
            match known {
                // The failure concerns this session only, so the known list of the upstream
                // stays valid.
                Some(known) if !is_down && !member.is_connected() => FetchOutcome::Known(known),
                known => FetchOutcome::Failed(reason, known),
            }
        }
    }
}

/// Retries fetching the list of a failed upstream and notifies the client when it succeeds. A
/// connected upstream that does not list is not retried, because it would hardly answer
/// differently.
fn retry_list(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    template: ListTemplate,
    key: ListKey,
) {
    if member.scope.entry.failure().is_none() && member.is_connected() {
        return;
    }
    let watched = Arc::clone(member);
    watch_for_return(session, member, move |asking| {
        let (member, template, key) = (Arc::clone(&watched), template.clone(), key.clone());
        async move { fetch(&asking, &member, &template, key).await.is_ok() }
    });
}

/// Starts to fetch the list of an upstream after the answer to the previous question. The fetch
/// continues even if its client gives up.
fn begin(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    template: ListTemplate,
    key: ListKey,
    answer: watch::Sender<Question>,
    before: Option<watch::Receiver<Question>>,
) {
    let session = Arc::clone(session);
    let member = Arc::clone(member);
    crate::proxy::log_spans::spawn(async move {
        if let Some(before) = before {
            answer_of(before).await;
        }
        answer.send_replace(Question::Asked);
        let fetched = fetch(&session, &member, &template, key).await;
        answer.send_replace(Question::Answered(fetched));
        member.waiting.forget();
    });
}

/// Notifies the client when a late list turns out to differ from the list that it was shown.
fn notify_when_answered(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    template: ListTemplate,
    key: ListKey,
    shown: Option<Arc<CachedList>>,
    asked: watch::Receiver<Question>,
) {
    let session = Arc::downgrade(session);
    let member = Arc::downgrade(member);
    crate::proxy::log_spans::spawn(async move {
        let fetched = answer_of(asked).await;
        let (Some(session), Some(member)) = (session.upgrade(), member.upgrade()) else {
            return;
        };
        match fetched {
            Some(Ok(list)) => {
                let is_same =
                    shown.map_or(list.entries.is_empty(), |shown| shown.digest == list.digest);
                if !is_same {
                    note_list_change(&session, template.kind.change(), &[]);
                }
            }
            Some(Err(_)) | None => retry_list(&session, &member, template, key),
        }
    });
}

/// Fetches all pages of an upstream's list.
async fn fetch(
    session: &Arc<ClientSession>,
    member: &Arc<UpstreamSession>,
    template: &ListTemplate,
    key: ListKey,
) -> FetchResult {
    let mut list = CachedList::default();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let request = template.request(cursor.as_deref());
        let answer = ask(session, member, &request, RequestOrigin::default())
            .await
            .map_err(|error| ListFetchError::Request(error.message))?;
        let part = answer.single().ok_or(ListFetchError::Batch)?;
        if part.kind() == MessageKind::Failure {
            let error = answer.error(part).unwrap_or_default();
            match edit::member(error, "code") {
                // The upstream does not support this list.
                Some("-32601") => break,
                // Errors of the upstream session contain the reason as text.
                Some(code) if code.starts_with("-310") => {
                    let text = edit::member(error, "message").and_then(unescape);
                    let text = text.unwrap_or_default().into_owned();
                    return Err(ListFetchError::Request(text));
                }
                code => {
                    let code = code.unwrap_or("none").to_owned();
                    return Err(ListFetchError::Code(code));
                }
            }
        }
        let next = list.add_page(template.kind, answer.result(part).unwrap_or_default());
        if next.is_none() || next == cursor {
            break;
        }
        cursor = next;
    }
    member.scope.remember_list(template, key, list).await
}

/// Waits for the answer to a question. Returns `None` if it will never be answered.
async fn answer_of(mut asked: watch::Receiver<Question>) -> Option<FetchResult> {
    let answered = asked.wait_for(Question::is_answered).await;
    match &*answered.ok()? {
        Question::Answered(fetched) => Some(fetched.clone()),
        Question::Queued | Question::Asked => None,
    }
}

/// Returns the upstreams with their reasons as text.
fn reasons(missing: &[Missing]) -> String {
    let reasons: Vec<String> = (missing.iter())
        .map(|missing| format!("upstream {}: {}", missing.upstream, missing.reason))
        .collect();
    reasons.join("; ")
}
