//! Lists of tools that the proxy composes: the choice for a caller, its page, its record. Where the
//! tools come from is up to `relay::listing` for one upstream and to `united::list` for several.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::id::SessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::list_shown::{ListShown, SelectionDetails};
use riglm_ports::observer::{Event, EventOrigin, ListShownEvent};
use serde_json::Value;

use super::caller::Caller;
use super::relay::listing::array;
use super::search_tool::{OwnTool, Taken};
use super::shared::Shared;
use crate::filtering::{ListForecast, ListIntent, Lists, OwnToolsUse, ShownList};
use crate::search::{Offer, TextFit};

/// A list that is made for a caller.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    pub(super) caller: &'a Caller,
    pub(super) shared: &'a Shared,
    pub(super) is_modern: bool,
}

impl Listing<'_> {
    /// Returns what the caller would see of an offer if it asked now.
    pub(super) async fn chosen(
        &self,
        lists: &Arc<Lists>,
        (row, session): (SessionId, CallSession),
        offer: &Arc<Offer>,
    ) -> Arc<ShownList> {
        let recorder = &self.shared.recorder;
        let client = self.caller.client_name();
        let mut ask = self
            .caller
            .list_ask(&client, session, self.is_modern, recorder.now());
        ask.client_hash = Some(self.caller.client_hash(recorder));
        let stated = self.shared.stated(row, session, ask.now);
        ask.stated = stated.as_ref();
        let intent = if lists.is_decided(&ask, offer) {
            None
        } else {
            self.intent((row, session), offer, ask.now).await
        };
        ask.intent = intent.as_ref();
        lists.list(&ask, offer).await
    }

    /// Chooses what the caller sees of an offer, and records it if it is another list than before.
    pub(super) async fn choose(
        &self,
        lists: &Arc<Lists>,
        (row, session): (SessionId, CallSession),
        offer: &Arc<Offer>,
    ) -> Arc<ShownList> {
        let shown = self.chosen(lists, (row, session), offer).await;
        let recorder = &self.shared.recorder;
        if self.caller.is_news(&shown) {
            self.shared.observe_from(
                &Event::ListShown(ListShownEvent {
                    policy: shown.policy.as_str(),
                    mode: shown.mode,
                    n_shown: shown.positions().len(),
                    n_available: offer.tools().len(),
                    shown_tokens: shown.shown_tokens,
                    available_tokens: shown.available_tokens,
                }),
                &EventOrigin::of_session(&self.caller.principal, session).over(row),
            );
            recorder
                .list_shown(ListShown {
                    session: row,
                    principal: self.caller.principal.clone(),
                    shown_at: recorder.now(),
                    epoch: shown.epoch,
                    policy: shown.policy.as_str().into(),
                    tools: shown.tool_set(),
                    n_available: offer.tools().len() as u64,
                    selection: Some(SelectionDetails {
                        mode: shown.mode,
                        is_fallback: shown.is_fallback,
                        reason: shown.reason,
                        pool: (*shown.pool).clone(),
                        shown_tokens: shown.shown_tokens,
                        available_tokens: shown.available_tokens,
                    }),
                })
                .await;
        }
        shown
    }

    /// Returns what is predicted for the caller, of an offer.
    pub(super) async fn forecast(
        &self,
        lists: &Arc<Lists>,
        (row, session): (SessionId, CallSession),
        offer: &Arc<Offer>,
        limit: usize,
    ) -> Option<ListForecast> {
        let recorder = &self.shared.recorder;
        let client = self.caller.client_name();
        let mut ask = self
            .caller
            .list_ask(&client, session, self.is_modern, recorder.now());
        ask.client_hash = Some(self.caller.client_hash(recorder));
        let intent = self.intent((row, session), offer, ask.now).await;
        ask.intent = intent.as_ref();
        let stated = self.shared.stated(row, session, ask.now);
        ask.stated = stated.as_ref();
        lists.forecast(&ask, offer, limit)
    }

    /// Returns what the session is doing, as far as that is known, and how well tools fit it.
    async fn intent(
        &self,
        (row, session): (SessionId, CallSession),
        offer: &Arc<Offer>,
        now: Timestamp,
    ) -> Option<ListIntent> {
        let intents = self.shared.intents.as_ref()?;
        // What a request says of itself may have come before its work session was known.
        let known = intents
            .current(session, now)
            .or_else(|| intents.current(CallSession::Connection(row), now))?;
        let Some(tool) = &self.shared.search_tool else {
            return Some(ListIntent {
                text: known.text,
                ..ListIntent::default()
            });
        };
        let TextFit { fits, vector } = (tool.service)
            .fits(offer, &known.text, (&self.caller.principal, row))
            .await;
        Some(ListIntent {
            text: known.text,
            fits,
            vector,
        })
    }

    /// Returns the list that the caller sees as part of `session`, as far as one was chosen.
    pub(super) fn current(&self, session: CallSession) -> Option<Arc<ShownList>> {
        let lists = self.shared.filter.lists()?;
        let now = self.shared.recorder.now();
        let client = self.caller.client_name();
        lists.shown(&(self.caller).list_ask(&client, session, self.is_modern, now))
    }

    /// Returns the JSON array of a page, with the tools of the proxy itself where they belong.
    pub(super) fn tools(&self, shown: &ShownList, page: &Page, taken: Taken) -> String {
        let text = shown.page(page.start, page.n);
        let Some(tools) = &self.shared.search_tool else {
            return array(&[], &text, &[]);
        };
        let used = shown.own_tools();
        let revision = self.caller.revision();
        let mut own: Vec<(OwnTool, &str)> = tools.definitions(revision.as_ref(), taken);
        own.retain(|(tool, _)| match tool {
            OwnTool::Search => used != OwnToolsUse::None,
            OwnTool::CallTool | OwnTool::SetContext => used == OwnToolsUse::All,
            _ => true,
        });
        let is_before = |tool: OwnTool| tool == OwnTool::Search && shown.search_first;
        let part = |before: bool| -> Vec<&str> {
            let own = own.iter().filter(|(tool, _)| is_before(*tool) == before);
            own.map(|(_, definition)| *definition).collect()
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

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page {
    start: usize,
    n: usize,
    n_all: usize,
    version: String,
}

impl Page {
    /// Returns the page that a cursor leads to, or the first.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the cursor.
    pub(super) fn of(
        shown: &ShownList,
        cursor: Option<&str>,
        n: usize,
    ) -> Result<Self, &'static str> {
        let mut version = format!("{}-", shown.epoch);
        let order = shown.order().to_be_bytes();
        for byte in shown.offer().id().iter().take(6).chain(&order[..4]) {
            let _ = write!(version, "{byte:02x}"); // Writing to a String cannot fail.
        }
        let n_all = shown.positions().len();
        let start = match cursor {
            None => 0,
            Some(cursor) => {
                let place = cursor.rsplit_once('.');
                let (of, start) = place
                    .and_then(|(of, start)| Some((of, start.parse::<usize>().ok()?)))
                    .ok_or("the cursor is none of this list; list again from its start")?;
                if of != version {
                    return Err("the list has changed since the cursor was given out; list again");
                }
                if start >= n_all {
                    return Err("the cursor lies behind the end of the list");
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

    fn is_last(&self) -> bool {
        self.start.saturating_add(self.n) >= self.n_all
    }

    /// Returns the JSON text of the cursor of the page behind this one.
    pub(super) fn next_cursor(&self) -> Option<String> {
        let next = self.start.saturating_add(self.n);
        (!self.is_last()).then(|| Value::from(format!("{}.{next}", self.version)).to_string())
    }
}
