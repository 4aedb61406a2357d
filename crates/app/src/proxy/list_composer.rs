//! Tool lists that the proxy composes: the selection for a client, its pages and its record.
//!
//! The catalog comes from `tool_lists`.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::selection::shown::{ListShown, SelectionDetails};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{Event, EventOrigin, ListShownEvent};
use serde_json::Value;

use super::client_context::{ClientContext, ListNovelty};
use super::own_tools::{OwnTool, OwnToolSet, with_servers};
use super::shared_state::SharedState;
use crate::selection::{ListForecast, ListIntent, Lists, OwnToolsUse, ShownList};
use riglm_discovery::search::{Catalog, TextFit};

/// The session that a list is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionRef {
    /// The row of the connection.
    pub(super) row: SessionId,
    /// The session key of the request.
    pub(super) key: SessionKey,
}

/// The uses that a prediction is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForecastBasis {
    /// Those that the list of the client is selected from: for a modern client, of all sessions that
    /// share the list.
    List,
    /// Those of the session itself.
    Session,
}

/// The composition of a list for one client.
#[derive(Debug)]
pub(super) struct ListComposer<'a> {
    pub(super) client_context: &'a ClientContext,
    pub(super) shared: &'a SharedState,
    pub(super) era: Era,
}

impl ListComposer<'_> {
    /// Returns the list that the client would get from a catalog now.
    pub(super) async fn select_list(
        &self,
        lists: &Arc<Lists>,
        session: SessionRef,
        catalog: &Arc<Catalog>,
    ) -> Arc<ShownList> {
        let recorder = &self.shared.recorder;
        let client = self.client_context.client_name();
        let mut request =
            (self.client_context).list_request(&client, session.key, self.era, recorder.now());
        request.client_hash = Some(self.client_context.client_hash(recorder));
        let stated = (self.shared).stated_intent(session.row, session.key, request.now);
        request.stated = stated.as_ref();
        let intent = if lists.is_decided(&request, catalog) {
            None
        } else {
            self.intent(session, catalog, request.now).await
        };
        request.intent = intent.as_ref();
        lists.list(&request, catalog).await
    }

    /// Selects the list of the client from a catalog. Records it if it differs from the last one, or if
    /// another part of the calls is expected under it.
    pub(super) async fn select_and_record(
        &self,
        lists: &Arc<Lists>,
        session: SessionRef,
        catalog: &Arc<Catalog>,
    ) -> Arc<ShownList> {
        let shown = self.select_list(lists, session, catalog).await;
        let recorder = &self.shared.recorder;
        let novelty = self.client_context.novelty_of_list(&shown);
        if novelty == ListNovelty::List {
            self.shared.observe_from(
                &Event::ListShown(ListShownEvent {
                    policy: shown.policy.as_str(),
                    mode: shown.mode,
                    n_shown: shown.positions().len(),
                    n_available: catalog.tools().len(),
                    shown_tokens: shown.shown_tokens,
                    available_tokens: shown.available_tokens,
                }),
                &EventOrigin::of_session(&self.client_context.principal, session.key)
                    .with_connection(session.row),
            );
        }
        if novelty != ListNovelty::Same {
            recorder
                .list_shown(ListShown {
                    session: session.row,
                    principal: self.client_context.principal.clone(),
                    shown_at: recorder.now(),
                    epoch: shown.epoch,
                    policy: shown.policy.as_str().into(),
                    tools: shown.tool_set(),
                    n_available: catalog.tools().len() as u64,
                    selection: Some(SelectionDetails {
                        mode: shown.mode,
                        is_fallback: shown.is_fallback,
                        reason: shown.reason,
                        size_choice: shown.size_choice.clone(),
                        expected_coverage: shown.expected_coverage,
                        pool: (*shown.pool).clone(),
                        shown_tokens: shown.shown_tokens,
                        available_tokens: shown.available_tokens,
                    }),
                })
                .await;
        }
        shown
    }

    /// Returns the prediction for the client over a catalog.
    pub(super) async fn forecast(
        &self,
        lists: &Arc<Lists>,
        session: SessionRef,
        catalog: &Arc<Catalog>,
        limit: usize,
        basis: ForecastBasis,
    ) -> Option<ListForecast> {
        let recorder = &self.shared.recorder;
        let client = self.client_context.client_name();
        let mut request =
            (self.client_context).list_request(&client, session.key, self.era, recorder.now());
        request.client_hash = Some(self.client_context.client_hash(recorder));
        let intent = self.intent(session, catalog, request.now).await;
        request.intent = intent.as_ref();
        let stated = (self.shared).stated_intent(session.row, session.key, request.now);
        request.stated = stated.as_ref();
        match basis {
            ForecastBasis::List => lists.forecast(&request, catalog, limit).await,
            ForecastBasis::Session => lists.forecast_of_session(&request, catalog, limit).await,
        }
    }

    /// Returns the known intent of the session and the fit of each tool to it.
    async fn intent(
        &self,
        session: SessionRef,
        catalog: &Arc<Catalog>,
        now: Timestamp,
    ) -> Option<ListIntent> {
        let intents = self.shared.intents()?;
        // A request may state its intent before its work session is known. Then the intent is
        // stored under the connection.
        let known = intents
            .current(session.key, now)
            .or_else(|| intents.current(SessionKey::Connection(session.row), now))?;
        let Some(tool) = self.shared.enabled_own_tools() else {
            return Some(ListIntent {
                text: known.text,
                ..ListIntent::default()
            });
        };
        let TextFit { fits, vector } = (tool.service)
            .fits(
                catalog,
                &known.text,
                &self.client_context.principal,
                session.row,
            )
            .await;
        Some(ListIntent {
            text: known.text,
            fits,
            vector,
        })
    }

    /// Returns the list that the client sees as part of `session` if one was selected.
    pub(super) fn current(&self, session: SessionKey) -> Option<Arc<ShownList>> {
        let lists = self.shared.selection.lists()?;
        let now = self.shared.recorder.now();
        let client = self.client_context.client_name();
        lists.shown_list(&(self.client_context).list_request(&client, session, self.era, now))
    }

    /// Returns the JSON array of a page, with the own tools of the proxy in their positions, without
    /// those in `left_out`.
    pub(super) fn tools(&self, shown: &ShownList, page: &Page, left_out: OwnToolSet) -> String {
        let text = shown.page(page.start, page.n);
        let Some(tools) = self.shared.enabled_own_tools() else {
            return array(&[], &text, &[]);
        };
        let used = shown.own_tools();
        self.client_context.note_own_tools();
        let revision = self.client_context.revision();
        let mut own: Vec<(OwnTool, &str)> = tools.definitions(revision.as_ref(), left_out);
        own.retain(|(tool, _)| match tool {
            OwnTool::Search => used != OwnToolsUse::None,
            OwnTool::CallTool | OwnTool::SetContext => used == OwnToolsUse::All,
            _ => true,
        });
        let is_before = |tool: OwnTool| tool == OwnTool::Search && shown.search_first;
        let own: Vec<(OwnTool, Cow<'_, str>)> = (own.into_iter())
            .map(|(tool, definition)| match tool {
                OwnTool::Search => (tool, with_servers(definition, shown.servers())),
                _ => (tool, definition.into()),
            })
            .collect();
        let part = |before: bool| -> Vec<&str> {
            let own = own.iter().filter(|(tool, _)| is_before(*tool) == before);
            own.map(|(_, definition)| &**definition).collect()
        };
        let before = if page.start == 0 {
            part(true)
        } else {
            Vec::new()
        };
        let behind = if page.is_last() {
            part(false)
        } else {
            Vec::new()
        };
        array(&before, &text, &behind)
    }
}

#[derive(Debug)]
pub(super) struct Page {
    start: usize,
    n: usize,
    n_all: usize,
    version: String,
}

impl Page {
    /// Returns the page for a cursor, or the first page without a cursor.
    ///
    /// # Errors
    ///
    /// Returns a description of the error in the cursor.
    pub(super) fn of(
        shown: &ShownList,
        cursor: Option<&str>,
        n: usize,
    ) -> Result<Self, &'static str> {
        // The version binds a cursor to the catalog, the epoch and the order.
        let order = shown.order().to_be_bytes();
        let version = format!(
            "{}-{}{}",
            shown.epoch,
            hex::encode(&shown.catalog().id()[..6]),
            hex::encode(&order[..4])
        );
        let n_all = shown.positions().len();
        let start = match cursor {
            None => 0,
            Some(cursor) => {
                let place = cursor.rsplit_once('.');
                let (of, start) = place
                    .and_then(|(of, start)| Some((of, start.parse::<usize>().ok()?)))
                    .ok_or("unknown cursor; list again from the start")?;
                if of != version {
                    return Err(
                        "the list has changed since the cursor was issued; list again from the \
                         start",
                    );
                }
                if start >= n_all {
                    return Err("the cursor is past the end of the list");
                }
                start
            }
        };
        Ok(Self {
            start,
            n: n.max(1),
            n_all,
            version,
        })
    }

    /// Returns whether a cursor has the form of [`Self::next_cursor`].
    pub(super) fn is_cursor(cursor: &str) -> bool {
        let is_hex = |text: &str| text.len() == 20 && text.bytes().all(|it| it.is_ascii_hexdigit());
        let parts = cursor.rsplit_once('.').and_then(|(version, start)| {
            let (epoch, list) = version.split_once('-')?;
            Some((
                epoch.parse::<u64>().ok()?,
                list,
                start.parse::<usize>().ok()?,
            ))
        });
        parts.is_some_and(|(_, list, _)| is_hex(list))
    }

    fn is_last(&self) -> bool {
        self.start.saturating_add(self.n) >= self.n_all
    }

    /// Returns the JSON text of the cursor for the next page.
    pub(super) fn next_cursor(&self) -> Option<String> {
        let next = self.start.saturating_add(self.n);
        (!self.is_last()).then(|| Value::from(format!("{}.{next}", self.version)).to_string())
    }
}

/// Joins definitions to one JSON array, with own tools of the proxy before or after the others.
fn array(before: &[&str], tools: &str, behind: &[&str]) -> String {
    let parts = before
        .iter()
        .copied()
        .chain([tools])
        .chain(behind.iter().copied());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let n_bytes: usize = parts.iter().map(|part| part.len() + 1).sum();
    let mut all = String::with_capacity(n_bytes + 2);
    all.push('[');
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            all.push(',');
        }
        all.push_str(part);
    }
    all.push(']');
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_of_selected_lists_are_recognized() {
        let page = Page {
            start: 0,
            n: 2,
            n_all: 3,
            version: format!("7-{}{}", hex::encode([1; 6]), hex::encode([2; 4])),
        };
        let cursor: String = serde_json::from_str(&page.next_cursor().unwrap()).unwrap();
        assert!(Page::is_cursor(&cursor), "{cursor}");
        for other in [
            "",
            "2",
            "7-0.2",
            "0101010101010101.4",
            "x-01010101010102020202.2",
        ] {
            assert!(!Page::is_cursor(other), "{other}");
        }
    }

    #[test]
    fn definitions_are_joined_in_their_order() {
        assert_eq!(array(&[], "", &[]), "[]");
        assert_eq!(array(&["1"], "", &[]), "[1]");
        assert_eq!(array(&["1"], "2,3", &["4", "5"]), "[1,2,3,4,5]");
        assert_eq!(array(&[], "2", &["4"]), "[2,4]");
    }
}
