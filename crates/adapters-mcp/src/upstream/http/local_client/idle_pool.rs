//! Connections that wait for their next request.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::LocalConnection;
use crate::upstream::http::endpoint::{MAX_IDLE_CONNECTIONS, POOL_IDLE_TIMEOUT};

/// The idle connections to one server. They are closed after [`POOL_IDLE_TIMEOUT`].
#[derive(Debug, Default)]
pub(super) struct IdlePool(Mutex<IdleConnections>);

#[derive(Debug, Default)]
struct IdleConnections {
    /// The connections and when they became idle, the longest idle one first.
    connections: Vec<(LocalConnection, Instant)>,
    /// Closes those that are idle for too long, as long as there are any.
    cleaner: Option<JoinHandle<()>>,
}

impl IdlePool {
    /// Returns the connection that was used last, if it is usable.
    pub(super) fn take(&self) -> Option<LocalConnection> {
        loop {
            let (mut connection, since) = self.0.lock().connections.pop()?;
            if since.elapsed() < POOL_IDLE_TIMEOUT && connection.is_usable() {
                return Some(connection);
            }
        }
    }

    /// Adds a connection whose response has ended. It is closed if it cannot be used again, or if
    /// there are enough.
    pub(super) fn put(self: &Arc<Self>, mut connection: LocalConnection) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.0.lock();
        if idle.connections.len() >= MAX_IDLE_CONNECTIONS {
            return;
        }
        idle.connections.push((connection, Instant::now()));
        let is_cleaned = idle.cleaner.as_ref().is_some_and(|it| !it.is_finished());
        if !is_cleaned && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let pool = Arc::downgrade(self);
            idle.cleaner = Some(runtime.spawn(async move { clean(&pool).await }));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().connections.len()
    }

    /// Closes the connections that are idle for too long, and returns when the next one will be.
    /// Returns `None` if there are none left; the cleaner then ends.
    fn close_old(&self) -> Option<Instant> {
        let mut idle = self.0.lock();
        let now = Instant::now();
        let is_old = |since: Instant| now.duration_since(since) >= POOL_IDLE_TIMEOUT;
        let n_old = (idle.connections).partition_point(|(_, since)| is_old(*since));
        let old: Vec<_> = idle.connections.drain(..n_old).collect();
        let next = idle.connections.first();
        let next = next.map(|(_, since)| *since + POOL_IDLE_TIMEOUT);
        if next.is_none() {
            idle.cleaner = None;
        }
        drop(idle);
        drop(old);
        next
    }
}

impl Drop for IdleConnections {
    fn drop(&mut self) {
        if let Some(cleaner) = &self.cleaner {
            cleaner.abort();
        }
    }
}

async fn clean(pool: &Weak<IdlePool>) {
    loop {
        // The pool is not kept alive while this waits.
        let next = pool.upgrade().and_then(|pool| pool.close_old());
        let Some(next) = next else {
            return;
        };
        tokio::time::sleep_until(next).await;
    }
}
