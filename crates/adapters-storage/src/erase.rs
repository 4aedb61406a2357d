//! The removal of clients from the database and from the spool.

use std::path::Path;
use std::time::Duration;

use riglm_ports::analytics::{ClientData, ClientSelector, Deleted, RecordSink, StoreError};
use riglm_ports::clock::Clock;
use tokio::time::Instant;

use crate::connect::spool_dir;
use crate::error::failing;
use crate::spool;

/// How long records of a running proxy are waited for before rows are removed again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a removal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erased {
    /// How many rows were removed.
    pub deleted: Deleted,
    /// Nothing of the clients is left, in the spool neither. Otherwise a running proxy still holds
    /// records of them.
    pub is_complete: bool,
    /// A session of theirs had not ended. What it records from now on belongs to no session, and
    /// is found by no later removal.
    pub has_open_session: bool,
}

/// Removes all that is stored of the clients, rows and what will become rows.
///
/// A running proxy on the same data directory is given `within` to carry what it holds to the
/// database; what dead ones left is carried there by this function.
///
/// # Errors
///
/// Returns [`StoreError`] when the spool cannot be read or the database fails; a part may be
/// removed then.
pub async fn erase<S: ClientData + RecordSink>(
    store: &S,
    data_dir: &Path,
    clients: &ClientSelector,
    within: Duration,
    clock: &dyn Clock,
) -> Result<Erased, StoreError> {
    let spool_dir = spool_dir(data_dir);
    let reading = "read the spool";
    let deadline = Instant::now() + within;
    let mut texts = vec![within_json(&clients.0)];
    let mut deleted = Deleted::default();
    let mut has_open = false;
    loop {
        spool::import(&spool_dir, store, clock.now()).await?;
        // What is still on its way would become rows again after they were removed.
        let has_arrived = spool::passed(&spool_dir, deadline).await;
        let sessions = sessions_of(store, clients).await?;
        has_open |= sessions.iter().any(|session| session.is_open);
        texts.extend(sessions.into_iter().map(|session| session.id));
        add(&mut deleted, store.delete(clients).await?);
        let is_gone = spool::passed(&spool_dir, deadline).await;
        let is_complete = has_arrived.map_err(failing(reading))?
            && is_gone.map_err(failing(reading))?
            && !spool::mentions(&spool_dir, &texts).map_err(failing(reading))?
            && sessions_of(store, clients).await?.is_empty();
        if is_complete || Instant::now() >= deadline {
            return Ok(Erased {
                deleted,
                is_complete,
                has_open_session: has_open,
            });
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// A session of a client.
struct ClientSession {
    /// Its identifier, under which its calls stand in the spool.
    id: String,
    /// It has not ended.
    is_open: bool,
}

async fn sessions_of(
    store: &impl ClientData,
    clients: &ClientSelector,
) -> Result<Vec<ClientSession>, StoreError> {
    let mut sessions = Vec::new();
    store
        .export(clients, &mut |row| {
            let id = row.row.get("id").and_then(|id| id.as_str());
            let is_open = row
                .row
                .get("ended_at")
                .is_none_or(serde_json::Value::is_null);
            let session = id.filter(|_| row.kind == "session");
            sessions.extend(session.map(|id| ClientSession {
                id: id.to_owned(),
                is_open,
            }));
            // Sessions come first.
            row.kind == "session"
        })
        .await?;
    Ok(sessions)
}

/// Returns a text as it stands between the quotes of a JSON string.
fn within_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn add(sum: &mut Deleted, more: Deleted) {
    sum.n_sessions += more.n_sessions;
    sum.n_calls += more.n_calls;
    sum.n_others += more.n_others;
}
