//! The transport sessions of the MCP server, by the id that their client sends.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_app::proxy::{ClientIdentity, ClientSession};

/// The number of additions after which ended sessions are removed from the map.
const SWEEP_EVERY: usize = 64;

/// The maximum number of sessions that one network connection keeps present.
const MAX_HELD: usize = 16;

/// The sessions whose clients have used one network connection, the newest ones. Their clients count
/// as present as long as it is open.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldSessions(Arc<Mutex<VecDeque<Arc<()>>>>);

impl HeldSessions {
    /// Adds a session whose client has sent something.
    pub(super) fn hold(&self, session: &ClientSession) {
        let (mut held, presence) = (self.0.lock(), session.presence());
        if !held.iter().any(|known| Arc::ptr_eq(known, &presence)) {
            held.push_back(presence);
            let n_more = held.len().saturating_sub(MAX_HELD);
            held.drain(..n_more);
        }
    }
}

type Entry<L> = (Arc<ClientSession>, Arc<L>);

/// Sessions with their transport state.
#[derive(Debug)]
pub(super) struct Sessions<L> {
    by_id: Mutex<HashMap<String, Entry<L>>>,
}

impl<L> Sessions<L> {
    pub(super) fn new() -> Self {
        Self {
            by_id: Mutex::new(HashMap::new()),
        }
    }

    /// Adds a session and returns its new id: 128 random bits.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system when it gives no random numbers.
    pub(super) fn add(
        &self,
        session: Arc<ClientSession>,
        link: Arc<L>,
    ) -> Result<String, getrandom::Error> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes)?;
        let id = hex::encode(bytes);
        let mut by_id = self.by_id.lock();
        if by_id.len().is_multiple_of(SWEEP_EVERY) {
            by_id.retain(|_, (session, _)| !session.is_closed());
        }
        by_id.insert(id.clone(), (session, link));
        Ok(id)
    }

    /// Returns the session with this id if it is open and belongs to this client.
    pub(super) fn find(&self, id: &str, visitor: &ClientIdentity) -> Option<Entry<L>> {
        let mut by_id = self.by_id.lock();
        let (session, link) = by_id.get(id)?;
        if session.is_closed() {
            by_id.remove(id);
            return None;
        }
        session
            .is_of(visitor)
            .then(|| (Arc::clone(session), Arc::clone(link)))
    }

    pub(super) fn remove(&self, id: &str) {
        self.by_id.lock().remove(id);
    }
}
