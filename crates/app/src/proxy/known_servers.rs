//! Knowledge of servers before they answer a session: the progress of their first starts, and the
//! store that keeps their answers for the next run of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::id::UpstreamName;
use riglm_ports::analytics::{ServerMemory, ServerMemoryRepository};
use sha2::{Digest, Sha256};

use super::upstream_cache::UpstreamCache;

/// The time limit for reading what is known at the start of the program.
const RECALL_DEADLINE: Duration = Duration::from_secs(2);

const UNCHECKED: u8 = 0;
const SETTLING: u8 = 1;
const SETTLED: u8 = 2;

/// The progress of the first starts of all upstreams.
#[derive(Debug, Default)]
pub(super) struct Starts(AtomicU8);

impl Starts {
    /// Registers that the upstreams are checked from now on.
    pub(super) fn begin(&self) {
        self.0.store(SETTLING, Ordering::Release);
    }

    /// Registers that no start is waited for any more.
    pub(super) fn settle(&self) {
        self.0.store(SETTLED, Ordering::Release);
    }

    /// Returns whether upstreams are checked, so that what a check will find out can be waited for.
    pub(super) fn are_checked(&self) -> bool {
        self.0.load(Ordering::Acquire) != UNCHECKED
    }

    /// Returns whether the first starts are in progress. Until they have settled, a session is shown
    /// the servers of its first list, so that it is told of the others once.
    pub(super) fn are_settling(&self) -> bool {
        self.0.load(Ordering::Acquire) == SETTLING
    }

    /// Returns whether the first starts have ended, or have taken so long that no list waits for
    /// them.
    pub(super) fn have_settled(&self) -> bool {
        self.0.load(Ordering::Acquire) == SETTLED
    }
}

/// The store of the answers of servers.
pub type ServerMemories = Arc<dyn ServerMemoryRepository>;

/// Keeps the answers of servers for the next run of the program.
#[derive(Debug)]
pub(super) struct KnowledgeStore(pub(super) Option<ServerMemories>);

/// A configured server, and the cache of its answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownServer<'a> {
    pub(super) name: &'a UpstreamName,
    /// Differs for servers with another configuration. Empty if nothing is kept.
    pub(super) fingerprint: &'a str,
    pub(super) cache: &'a UpstreamCache,
}

impl KnowledgeStore {
    /// Stores the answers of a server that were not stored before.
    pub(super) async fn save(&self, server: KnownServer<'_>, now: Timestamp) {
        let is_kept = !server.fingerprint.is_empty();
        let Some(repository) = self.0.as_ref().filter(|_| is_kept) else {
            return;
        };
        let mut new = Vec::new();
        for (part, content) in server.cache.lasting_parts() {
            let digest: [u8; 32] = Sha256::digest(&content).into();
            if server.cache.stored.lock().insert(part.clone(), digest) == Some(digest) {
                continue;
            }
            new.push(ServerMemory {
                upstream: server.name.clone(),
                fingerprint: server.fingerprint.to_owned(),
                part,
                content,
                learned_at: now,
            });
        }
        if new.is_empty() {
            return;
        }
        if let Err(error) = repository.remember_servers(&new).await {
            let name = server.name;
            tracing::warn!(
                upstream = %name,
                "failed to store what upstream {name} lists; the next start waits for it: {error}"
            );
            let mut stored = server.cache.stored.lock();
            for memory in &new {
                stored.remove(&memory.part);
            }
        }
    }

    /// Takes over the answers of these servers to earlier runs of the program.
    pub(super) async fn recall(&self, servers: &[KnownServer<'_>]) {
        let Some(repository) = &self.0 else {
            return;
        };
        let names: Vec<_> = servers.iter().map(|server| server.name.clone()).collect();
        let recalling = repository.recall_servers(&names);
        let recalled = match tokio::time::timeout(RECALL_DEADLINE, recalling).await {
            Ok(Ok(recalled)) => recalled,
            Ok(Err(error)) => {
                return tracing::warn!("failed to read what is known of the upstreams: {error}");
            }
            Err(_) => {
                return tracing::warn!("timeout while reading what is known of the upstreams");
            }
        };
        for memory in recalled {
            let mut servers = servers.iter();
            let server = servers.find(|server| {
                *server.name == memory.upstream && server.fingerprint == memory.fingerprint
            });
            if let Some(KnownServer { cache, .. }) = server {
                cache.recall(&memory.part, &memory.content);
                let digest = Sha256::digest(&memory.content).into();
                cache.stored.lock().insert(memory.part, digest);
            }
        }
    }
}
