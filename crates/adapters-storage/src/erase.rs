//! The removal of clients from the database and from the spool.

use std::path::Path;
use std::time::Duration;

use riglm_ports::analytics::{ClientData, ClientSelector, Deleted, RecordSink, StoreError};
use riglm_ports::clock::Clock;
use tokio::time::Instant;

use crate::connect::spool_dir;
use crate::error::failing;
use crate::spool;

/// What a removal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erased {
    /// How many rows were removed.
    pub deleted: Deleted,
    /// Nothing of the clients is left, in the spool neither. Otherwise a running proxy still holds
    /// records of them.
    pub is_complete: bool,
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
    loop {
        spool::import(&spool_dir, store, clock.now()).await?;
        // What is still on its way would become rows again after they were removed.
        let has_arrived = spool::passed(&spool_dir, deadline).await;
        texts.extend(sessions_of(store, clients).await?);
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
            });
        }
    }
}

/// Returns the ids of the clients' sessions, under which their calls stand in the spool.
async fn sessions_of(
    store: &impl ClientData,
    clients: &ClientSelector,
) -> Result<Vec<String>, StoreError> {
    let mut sessions = Vec::new();
    store
        .export(clients, &mut |row| {
            let id = row.row.get("id").and_then(|id| id.as_str());
            sessions.extend(id.filter(|_| row.kind == "session").map(str::to_owned));
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
