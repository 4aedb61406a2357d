//! An authenticator with keys in memory.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;

use crate::authenticator::{Authenticator, Revocation};

/// Accepts a set of keys, which a test can change.
#[derive(Clone, Default)]
pub struct KeyTable(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    keys: HashMap<String, Principal>,
    waiting: Vec<Waker>,
}

impl KeyTable {
    /// Accepts a key, in place of an earlier principal of the same key.
    pub fn accept(&self, key: &str, principal: Principal) {
        let mut table = self.0.lock();
        table.keys.insert(key.to_owned(), principal);
        table.waiting.drain(..).for_each(Waker::wake);
    }

    /// Accepts a key no longer.
    pub fn revoke(&self, key: &str) {
        let mut table = self.0.lock();
        table.keys.remove(key);
        table.waiting.drain(..).for_each(Waker::wake);
    }
}

impl fmt::Debug for KeyTable {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.lock();
        f.debug_set().entries(table.keys.values()).finish()
    }
}

impl Authenticator for KeyTable {
    fn authenticate(&self, bearer: Option<&str>) -> Option<Principal> {
        self.0.lock().keys.get(bearer?).cloned()
    }

    fn revocation(&self, bearer: Option<&str>) -> Revocation {
        let (table, key) = (self.clone(), bearer.map(str::to_owned));
        let opened = table.authenticate(bearer);
        Box::pin(poll_fn(move |context| {
            let mut table = table.0.lock();
            let now = key.as_ref().and_then(|key| table.keys.get(key));
            if opened.is_none() || now != opened.as_ref() {
                return Poll::Ready(());
            }
            table
                .waiting
                .retain(|known| !known.will_wake(context.waker()));
            table.waiting.push(context.waker().clone());
            Poll::Pending
        }))
    }
}
