//! Queries of operators about open sessions.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;

use super::Proxy;
use super::client_context::ClientContext;
use super::list_composer::{ForecastBasis, ListComposer, SessionRef};
use super::session::ClientSession;
use crate::control::name_lookup::{NamedSession, quote};
use crate::selection::ListForecast;
use riglm_discovery::search::Catalog;

/// The reason for a missing forecast of a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoForecast {
    /// No open session has this id.
    #[error("session {0} is not open")]
    NotOpen(String),
    /// Lists are not selected by predictions.
    #[error("no predictions: filtering.strategy is not \"prediction\"")]
    NotChosen,
    /// The session has not listed its tools yet.
    #[error("the session has not listed its tools yet")]
    NotListed,
    /// There is no predictor, or it failed.
    #[error("no predictions: learning is off, or the predictor failed")]
    NotPredicted,
}

/// The forecast for an open session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionForecast {
    /// The session key of its calls.
    pub session: SessionKey,
    /// The forecast.
    pub forecast: ListForecast,
}

impl Proxy {
    /// Returns the row of the open session with this transport id.
    #[must_use]
    pub fn connection_of(&self, transport_id: &str) -> Option<SessionId> {
        let is_it = |session: &ClientSession| session.transport_id() == Some(transport_id);
        self.open_session(is_it)?.client_context.known_row()
    }

    /// Returns the probability that a client searches for a hidden tool that it needs, learned from
    /// its behavior so far. Returns `None` if it is not known.
    #[must_use]
    pub fn search_probability(&self, principal: &Principal, client: &str) -> Option<f64> {
        self.shared
            .selection
            .configured_lists()?
            .search_probability(principal, client)
    }

    /// Returns the open session with this id if it is recorded. The id is that of its work session,
    /// its connection or its transport.
    #[must_use]
    pub fn session_named(&self, id: &str) -> Option<NamedSession> {
        let session = self.open_session_named(id)?;
        let client_context = &session.client_context;
        let row = client_context.known_row()?;
        let work = id.parse::<WorkSessionId>().ok();
        let work = work.filter(|work| client_context.known_work() == Some(*work));
        Some(NamedSession {
            id: work.map_or_else(|| row.to_string(), |work| work.to_string()),
            is_modern: client_context.era() == Era::Modern,
        })
    }

    /// Returns the keyed hashes of clients with open sessions that have this name, or whose keyed
    /// hash in hexadecimal is `name`.
    #[must_use]
    pub fn clients_named(&self, name: &str) -> BTreeSet<KeyedHash> {
        let wanted = KeyedHash::from_hex(name);
        let open = self.open_sessions();
        let recorded = open
            .iter()
            .filter(|one| one.client_context.known_row().is_some());
        let clients = recorded.filter_map(|session| {
            let hash = session.client_context.client_hash(&self.shared.recorder);
            let is_it = session.client_context.client_name() == name || wanted == Some(hash);
            is_it.then_some(hash)
        });
        clients.collect()
    }

    /// Returns whether the catalog of an open session contains a tool of this name.
    #[must_use]
    pub fn has_tool_named(&self, tool: &str) -> bool {
        let mut seen = HashSet::new();
        self.open_sessions().iter().any(|session| {
            let catalog = session.client_context.search.last_complete_catalog();
            // Most sessions have the same catalog, so each catalog is searched once.
            catalog
                .filter(|catalog| seen.insert(catalog.id()))
                .is_some_and(|catalog| {
                    let mut tools = catalog.tools().iter();
                    tools.any(|one| one.name == tool || one.tool.is_named(tool))
                })
        })
    }

    fn open_sessions(&self) -> Vec<Arc<ClientSession>> {
        let sessions = self.sessions.lock();
        let open = sessions.values().filter(|session| !session.is_closed());
        open.cloned().collect()
    }

    /// Returns the forecast of the `limit` most likely tools for an open session. `id` is the id of
    /// its work session, its connection or its transport.
    ///
    /// # Errors
    ///
    /// Returns the reason for a missing forecast.
    pub async fn forecast(&self, id: &str, limit: usize) -> Result<SessionForecast, NoForecast> {
        let session = self.open_session_named(id);
        let session = session.ok_or_else(|| NoForecast::NotOpen(quote(id)))?;
        let client_context = &session.client_context;
        let lists = self.shared.selection.configured_lists();
        let lists = lists.ok_or(NoForecast::NotChosen)?;
        let row = client_context.known_row().ok_or(NoForecast::NotListed)?;
        let catalog = self.catalog_of(&session).ok_or(NoForecast::NotListed)?;
        let listing = ListComposer {
            client_context,
            shared: &self.shared,
            era: client_context.era(),
        };
        let session_key = client_context.session_key(row);
        let at = SessionRef {
            row,
            key: session_key,
        };
        let forecast = listing
            .forecast(lists, at, &catalog, limit, ForecastBasis::List)
            .await
            .ok_or(NoForecast::NotPredicted)?;
        Ok(SessionForecast {
            session: session_key,
            forecast,
        })
    }

    /// Returns the catalog of a session. Without a list in this session, the catalog of an open
    /// session of the same principal and profile is used.
    pub(super) fn catalog_of(&self, session: &ClientSession) -> Option<Arc<Catalog>> {
        let client_context = &session.client_context;
        let whole = client_context.search.last_complete_catalog();
        let whole = whole
            .or_else(|| self.known_catalog(&client_context.principal, Some(client_context)))?;
        Some(self.shared.permitted_catalog(client_context, &whole))
    }

    /// Returns the catalog of the most recently active open session of a principal, including
    /// forbidden tools. With `like`, the session must have the same profile.
    pub(super) fn known_catalog(
        &self,
        principal: &Principal,
        like: Option<&ClientContext>,
    ) -> Option<Arc<Catalog>> {
        let session = self.open_session(|session| {
            let client_context = &session.client_context;
            client_context.principal == *principal
                && like.is_none_or(|like| like.profile_name() == client_context.profile_name())
                && client_context.search.last_complete_catalog().is_some()
        });
        session?.client_context.search.last_complete_catalog()
    }

    /// Returns the most recently active open session with this id. The id is that of its work
    /// session, its connection or its transport.
    pub(super) fn open_session_named(&self, id: &str) -> Option<Arc<ClientSession>> {
        let work = id.parse::<WorkSessionId>().ok();
        let row = id.parse::<SessionId>().ok();
        self.open_session(|session| {
            let client_context = &session.client_context;
            (work.is_some() && client_context.known_work() == work)
                || (row.is_some() && client_context.known_row() == row)
                || session.transport_id() == Some(id)
        })
    }

    /// Returns the most recently active open session that satisfies the condition.
    pub(super) fn open_session(
        &self,
        is_it: impl Fn(&ClientSession) -> bool,
    ) -> Option<Arc<ClientSession>> {
        let sessions = self.sessions.lock();
        let now = std::time::Instant::now();
        let open = sessions.values().filter(|session| !session.is_closed());
        let found = open.filter(|session| is_it(session));
        found
            .min_by_key(|session| session.client_context.silent_for(now).unwrap_or_default())
            .cloned()
    }
}
