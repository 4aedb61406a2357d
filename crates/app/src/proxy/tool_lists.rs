//! Tool lists that the session composes: from the complete list of the only upstream, or from the
//! merged lists of several.

use std::sync::Arc;

use riglm_domain::mcp::edit::{member, with_member};
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::tracer::SpanOperation;

use super::aggregator::merged_list_fetch::GatheredList;
use super::aggregator::merged_lists::taken_names;
use super::aggregator::shown_lists::SeenList;
use super::list_composer::{ListComposer, Page, SessionRef};
use super::list_kind::ListKind;
use super::list_template::ListTemplate;
use super::own_tools::TakenNames;
use super::session::ClientSession;
use super::session_jobs::Reply;
use super::upstream_cache::millis;
use super::upstream_session::UpstreamSession;
use super::upstream_session::upstream_tools::WholeList;
use crate::proxy::aggregator::merged_list_fetch::current_catalog;
use crate::proxy::aggregator::shown_lists::note_seen;
use crate::safeguards::ListText;
use crate::selection::{Lists, ShownList};
use crate::work_sessions::RequestKind;
use riglm_discovery::search::Catalog;

/// The selection of tool lists in one session.
pub(super) struct ToolLists<'a> {
    session: &'a Arc<ClientSession>,
    lists: &'a Arc<Lists>,
}

/// The tools that a list is selected from.
enum ListSource {
    /// The complete list of the only upstream.
    Whole(Arc<UpstreamSession>, Arc<WholeList>),
    /// The merged lists of several upstreams.
    Merged {
        gathered: GatheredList,
        template: ListTemplate,
        /// The number of registered changes before the lists were fetched.
        n_changes: u64,
    },
}

impl<'a> ToolLists<'a> {
    pub(super) fn new(session: &'a Arc<ClientSession>, lists: &'a Arc<Lists>) -> Self {
        Self { session, lists }
    }

    /// Answers a request for tools with a page of the list that is selected for the client.
    pub(super) async fn selected_page(&self, message: &Message, era: Era) -> Reply {
        let (client_context, shared) = (&self.session.client_context, &self.session.shared);
        let (source, catalog) = match self.source(message, era).await {
            Ok(found) => found,
            Err(reply) => return reply,
        };
        client_context.note_listing(self.lists);
        let row = client_context.session_id(shared).await;
        let (hints, now) = (message.hints(), shared.recorder.now());
        let work_session = client_context.work_session(shared, hints, RequestKind::List, now);
        let session = SessionRef {
            row,
            key: SessionKey::of(work_session.await, row),
        };
        let listing = ListComposer {
            client_context,
            shared,
            era,
        };
        let predicting = shared.span(&SpanOperation::Prediction, message.trace());
        let shown = listing
            .select_and_record(self.lists, session, &catalog)
            .await;
        drop(predicting);
        self.note_shown(&source, &shown).await;
        let params = message.single().and_then(|part| message.params(part));
        let cursor = params.and_then(|params| member(params, "cursor"));
        let cursor = cursor.filter(|cursor| *cursor != "null");
        // An invalid string cannot be a cursor of this proxy; the empty cursor is refused below.
        let cursor = cursor.map(|cursor| unescape(cursor).unwrap_or_default());
        let n = shared.limits().list_page_entries;
        let page = match Page::of(&shown, cursor.as_deref(), n) {
            Ok(page) => page,
            Err(text) => return Reply::Error(RpcError::new(RpcErrorCode::InvalidParams, text)),
        };
        let useless = shared.useless_own_tools(client_context, params);
        let left_out = self.taken_names(&source).and(useless);
        let tools = listing.tools(&shown, &page, left_out);
        let result = self.result(&source, &page, &shown, era);
        // The tools are added last, because each later edit would scan this long member.
        let result = with_member(&result, ListKind::Tools.member(), &tools);
        shared.note_shown(client_context, session.key, hints, ListText::new(&tools));
        Reply::Result(result)
    }

    /// Returns the tools to select from, and the catalog of those that are permitted to the client.
    ///
    /// # Errors
    ///
    /// Returns the reply to the client if there are none.
    async fn source(
        &self,
        message: &Message,
        era: Era,
    ) -> Result<(ListSource, Arc<Catalog>), Reply> {
        let (client_context, shared) = (&self.session.client_context, &self.session.shared);
        shared.note_listed(client_context);
        if let Some(only) = self.session.only_upstream() {
            let Some(whole) = only.whole_list(message, era).await else {
                // The upstream answers the request itself, and its answer is shown unselected.
                return Err(Reply::Forward(only, message.clone()));
            };
            let catalog = shared.permitted_catalog(client_context, &whole.catalog);
            return Ok((ListSource::Whole(only, whole), catalog));
        }
        let template = ListTemplate::new(ListKind::Tools, message, era);
        let n_changes = (self.session.aggregator.changes).n_changes(ListKind::Tools.change());
        let current = current_catalog(self.session, &template).await;
        let (gathered, catalog) = current.map_err(Reply::Error)?;
        let source = ListSource::Merged {
            gathered,
            template,
            n_changes,
        };
        Ok((source, catalog))
    }

    /// Stores the list that the client is shown.
    async fn note_shown(&self, source: &ListSource, shown: &Arc<ShownList>) {
        let (client_context, shared) = (&self.session.client_context, &self.session.shared);
        match source {
            ListSource::Whole(_, whole) => {
                if client_context.is_new_catalog(&whole.catalog) {
                    let row = client_context.session_id(shared).await;
                    for page in &whole.listings {
                        shared.recorder.tools_listed(row, page).await;
                    }
                }
            }
            ListSource::Merged {
                gathered,
                template,
                n_changes,
            } => {
                let (list, chosen) = (Arc::clone(&gathered.list), Some(Arc::clone(shown)));
                let seen = SeenList::new(template, list, chosen);
                note_seen(self.session, ListKind::Tools, seen, *n_changes);
            }
        }
    }

    /// Returns the own tools of the proxy whose names upstreams use.
    fn taken_names(&self, source: &ListSource) -> TakenNames {
        let Some(tools) = self.session.shared.enabled_own_tools() else {
            return TakenNames::default();
        };
        match source {
            ListSource::Whole(only, whole) => {
                let taken = tools.taken_in(&whole.catalog);
                tools.warn_of_clash(only.name(), taken);
                taken
            }
            ListSource::Merged { gathered, .. } => taken_names(tools, &gathered.list),
        }
    }

    /// Returns the result object of a page, without the tools. The only upstream's own members pass
    /// verbatim, except for cursor and caching, which depend on the selection.
    fn result(&self, source: &ListSource, page: &Page, shown: &ShownList, era: Era) -> String {
        let now = self.session.shared.recorder.now();
        let with_cursor = |result: String| match page.next_cursor() {
            Some(next) => with_member(&result, "nextCursor", &next),
            None => result,
        };
        match source {
            ListSource::Whole(_, whole) => {
                let mut result = with_cursor((*whole.rest).to_owned());
                if member(&result, "cacheScope").is_some() {
                    result = with_member(&result, "cacheScope", r#""private""#);
                }
                if let Some(ttl_ms) = whole.ttl_ms.as_deref().and_then(millis) {
                    let ttl_ms = shown.ttl_ms(ttl_ms, now);
                    result = with_member(&result, "ttlMs", &ttl_ms.to_string());
                }
                result
            }
            ListSource::Merged { gathered, .. } => {
                let mut result = with_cursor(gathered.result());
                if era == Era::Modern {
                    result = with_member(&result, "resultType", r#""complete""#);
                    let ttl_ms = shown.ttl_ms(gathered.ttl_ms, now);
                    result = with_member(&result, "ttlMs", &ttl_ms.to_string());
                    result = with_member(&result, "cacheScope", r#""private""#);
                }
                result
            }
        }
    }
}
