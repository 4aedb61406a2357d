//! The transport sessions of the MCP port, by the id that their client presents.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use riglm_app::proxy::{ClientSession, Visitor};

/// Every so many additions, sessions that ended by themselves are dropped from the map.
const SWEEP_EVERY: usize = 64;

/// A session and its way to the client.
type Entry<L> = (Arc<ClientSession>, Arc<L>);

/// Sessions with what the transport keeps for each of them.
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
        let id = bytes
            .iter()
            .fold(String::with_capacity(32), |mut id, byte| {
                let _ = write!(id, "{byte:02x}"); // Writing to a String cannot fail.
                id
            });
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if by_id.len().is_multiple_of(SWEEP_EVERY) {
            by_id.retain(|_, (session, _)| !session.is_closed());
        }
        by_id.insert(id.clone(), (session, link));
        Ok(id)
    }

    /// Returns the session with this id if it is running and is this visitor's.
    pub(super) fn find(&self, id: &str, visitor: &Visitor) -> Option<Entry<L>> {
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        let (session, link) = by_id.get(id)?;
        if session.is_closed() {
            by_id.remove(id);
            return None;
        }
        session
            .is_of(visitor)
            .then(|| (Arc::clone(session), Arc::clone(link)))
    }

    /// Takes a session out.
    pub(super) fn remove(&self, id: &str) {
        self.by_id
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
    }
}
