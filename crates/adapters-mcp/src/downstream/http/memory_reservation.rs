//! Memory reservations for messages that wait for clients.

use std::sync::{Arc, OnceLock, Weak};

use riglm_app::proxy::{ClientSession, ReservedMemory};
use riglm_domain::mcp::message::Message;

/// The session of a link, once it is known. It is not kept alive.
#[derive(Debug, Default)]
pub(super) struct LinkSession(OnceLock<Weak<ClientSession>>);

impl LinkSession {
    /// Sets the session. Only the first call has an effect.
    pub(super) fn set(&self, session: &Arc<ClientSession>) {
        // An error means that a session is already set.
        let _ = self.0.set(Arc::downgrade(session));
    }

    /// Returns the session, if it is known and still exists.
    pub(super) fn get(&self) -> Option<Arc<ClientSession>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

/// Returns a message with a reservation for its size. If the memory limit is reached, and
/// `has_made_room` frees none, responses are replaced by errors, and other messages are dropped.
pub(super) fn with_reservation(
    session: Option<&ClientSession>,
    message: &Message,
    mut has_made_room: impl FnMut() -> bool,
) -> Option<(Message, Option<ReservedMemory>)> {
    let Some(session) = session else {
        return Some((message.clone(), None));
    };
    let error = loop {
        match session.reserve_memory(message.raw().len()) {
            Ok(room) => return Some((message.clone(), Some(room))),
            Err(error) if !has_made_room() => break error,
            Err(_) => {}
        }
    };
    let answers = message.envelopes().iter().filter(|part| part.is_response());
    let errors: Vec<String> = answers.map(|part| error.to_json(part.id())).collect();
    if errors.is_empty() {
        tracing::debug!("dropped a message: its client has too much unread data");
        return None;
    }
    let text = if message.is_batch() {
        format!("[{}]", errors.join(","))
    } else {
        errors.concat()
    };
    let replaced = Message::from_text(text);
    replaced.ok().map(|message| (message, None))
}
