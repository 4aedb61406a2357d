//! What operators see of sessions that are open.

use std::sync::{Arc, PoisonError};

use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;

use super::Proxy;
use super::caller::Caller;
use super::listing::Listing;
use super::session::ClientSession;
use crate::filtering::ListForecast;
use crate::search::Offer;

/// Why nothing is predicted for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoForecast {
    /// No open session has the identifier.
    #[error("no open session has this identifier")]
    NotOpen,
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

    /// Returns what is predicted for an open session, which is named by its work session, its
    /// connection or the identifier of its transport: the `limit` most likely tools.
    ///
    /// # Errors
    ///
    /// Returns why nothing is.
    pub async fn forecast(&self, id: &str, limit: usize) -> Result<SessionForecast, NoForecast> {
        let session = self.open_session_named(id).ok_or(NoForecast::NotOpen)?;
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
