//! What operators see of sessions that are open.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, PoisonError};

use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;

use super::Proxy;
use super::caller::Caller;
use super::listing::Listing;
use super::session::ClientSession;
use crate::filtering::ListForecast;
use crate::names::{NamedSession, quoted};
use crate::search::Offer;

/// Why nothing is predicted for a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoForecast {
    /// No open session has the identifier.
    #[error("no session {0} is open")]
    NotOpen(String),
    /// Lists are not chosen by what is learned.
    #[error("lists are not chosen by what is learned: filtering.strategy is not prediction")]
    NotChosen,
    /// The session has not listed its tools yet.
    #[error("the session has not listed its tools yet")]
    NotListed,
    /// There is no predictor, or it failed.
    #[error("nothing is predicted: learning is off, or the predictor failed")]
    NotPredicted,
}

/// What is predicted for an open session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionForecast {
    /// What its calls belong to.
    pub session: CallSession,
    /// The prediction.
    pub forecast: ListForecast,
}

impl Proxy {
    /// Returns the row of the open session with this identifier of its transport.
    #[must_use]
    pub fn connection_of(&self, transport_id: &str) -> Option<SessionId> {
        let is_it = |session: &ClientSession| session.transport_id() == Some(transport_id);
        self.open_session(is_it)?.caller.known_row()
    }

    /// Returns the probability that a client looks for a hidden tool that it needs, by what it did so far;
    /// `None` where that is not known.
    #[must_use]
    pub fn seeks(&self, principal: &Principal, client: &str) -> Option<f64> {
        self.shared.filter.lists()?.seeks(principal, client)
    }

    /// Returns the open session with this identifier, of its work session, its connection or its
    /// transport, as far as it is recorded.
    #[must_use]
    pub fn session_named(&self, id: &str) -> Option<NamedSession> {
        let session = self.open_session_named(id)?;
        let caller = &session.caller;
        let row = caller.known_row()?;
        let work = id.parse::<WorkSessionId>().ok();
        let work = work.filter(|work| caller.known_work() == Some(*work));
        Some(NamedSession {
            id: work.map_or_else(|| row.to_string(), |work| work.to_string()),
            is_modern: caller.is_modern(),
        })
    }

    /// Returns the clients of open sessions that give themselves this name, and the one whose keyed hash
    /// in hexadecimal it is.
    #[must_use]
    pub fn clients_named(&self, name: &str) -> BTreeSet<KeyedHash> {
        let wanted = KeyedHash::from_hex(name);
        let open = self.open_sessions();
        let recorded = open.iter().filter(|one| one.caller.known_row().is_some());
        let clients = recorded.filter_map(|session| {
            let hash = session.caller.client_hash(&self.shared.recorder);
            let is_it = session.caller.client_name() == name || wanted == Some(hash);
            is_it.then_some(hash)
        });
        clients.collect()
    }

    /// Returns whether an open session was offered a tool of this name.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        let mut seen = HashSet::new();
        self.open_sessions().iter().any(|session| {
            let offer = session.caller.search.last_whole_offer();
            // Most sessions are offered the same.
            offer
                .filter(|offer| seen.insert(offer.id()))
                .is_some_and(|offer| {
                    let mut tools = offer.tools().iter();
                    tools.any(|one| one.name == tool || one.tool.is_named(tool))
                })
        })
    }

    fn open_sessions(&self) -> Vec<Arc<ClientSession>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let open = sessions.values().filter(|session| !session.is_closed());
        open.cloned().collect()
    }

    /// Returns what is predicted for an open session, which is named by its work session, its
    /// connection or the identifier of its transport: the `limit` most likely tools.
    ///
    /// # Errors
    ///
    /// Returns why nothing is.
    pub async fn forecast(&self, id: &str, limit: usize) -> Result<SessionForecast, NoForecast> {
        let session = self.open_session_named(id);
        let session = session.ok_or_else(|| NoForecast::NotOpen(quoted(id)))?;
        let caller = &session.caller;
        let lists = self.shared.filter.lists().ok_or(NoForecast::NotChosen)?;
        let row = caller.known_row().ok_or(NoForecast::NotListed)?;
        let offer = self.offer_of(&session).ok_or(NoForecast::NotListed)?;
        let listing = Listing {
            caller,
            shared: &self.shared,
            is_modern: caller.is_modern(),
        };
        let together = caller.together(row);
        let forecast = listing
            .forecast(lists, (row, together), &offer, limit)
            .await
            .ok_or(NoForecast::NotPredicted)?;
        Ok(SessionForecast {
            session: together,
            forecast,
        })
    }

    /// Returns what a session could call: what it was shown last, or else what an open session of the
    /// same principal was shown that sees the same upstreams.
    pub(super) fn offer_of(&self, session: &ClientSession) -> Option<Arc<Offer>> {
        let caller = &session.caller;
        let whole = caller.search.last_whole_offer();
        let whole = whole.or_else(|| self.known_offer(&caller.principal, Some(caller)))?;
        Some(self.shared.permitted(caller, &whole))
    }

    /// Returns what the open session of a principal that was heard of last was shown, under the profile
    /// of `like` where one is given, with the tools that are forbidden.
    pub(super) fn known_offer(
        &self,
        principal: &Principal,
        like: Option<&Caller>,
    ) -> Option<Arc<Offer>> {
        let session = self.open_session(|session| {
            let caller = &session.caller;
            caller.principal == *principal
                && like.is_none_or(|like| like.profile_name() == caller.profile_name())
                && caller.search.last_whole_offer().is_some()
        });
        session?.caller.search.last_whole_offer()
    }

    /// Returns the open session with this identifier, of its work session, its connection or its
    /// transport, that was heard of last.
    pub(super) fn open_session_named(&self, id: &str) -> Option<Arc<ClientSession>> {
        let work = id.parse::<WorkSessionId>().ok();
        let row = id.parse::<SessionId>().ok();
        self.open_session(|session| {
            let caller = &session.caller;
            (work.is_some() && caller.known_work() == work)
                || (row.is_some() && caller.known_row() == row)
                || session.transport_id() == Some(id)
        })
    }

    /// Returns the open session that fits and was heard of last.
    pub(super) fn open_session(
        &self,
        is_it: impl Fn(&ClientSession) -> bool,
    ) -> Option<Arc<ClientSession>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::time::Instant::now();
        let open = sessions.values().filter(|session| !session.is_closed());
        let found = open.filter(|session| is_it(session));
        found
            .min_by_key(|session| session.caller.silent_for(now).unwrap_or_default())
            .cloned()
    }
}
