//! Room in memory for messages that wait for clients.

use std::sync::{Arc, OnceLock, Weak};

use riglm_app::proxy::{ClientSession, Room};
use riglm_domain::message::{Envelope, Message};

/// The session that messages wait for, once it is known. It is not kept alive.
#[derive(Debug, Default)]
pub(super) struct Owner(OnceLock<Weak<ClientSession>>);

impl Owner {
    /// Notes the session. The first one counts.
    pub(super) fn set(&self, session: &Arc<ClientSession>) {
        // The error says that there is one already.
        let _ = self.0.set(Arc::downgrade(session));
    }

    /// Returns the session, if it is known and still there.
    pub(super) fn get(&self) -> Option<Arc<ClientSession>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

/// Returns a message with the room that it takes. Where there is none, and `has_made_room` makes
/// none, errors take the place of answers, and everything else is dropped.
pub(super) fn with_room(
    session: Option<&ClientSession>,
    message: &Message,
    mut has_made_room: impl FnMut() -> bool,
) -> Option<(Message, Option<Room>)> {
    let Some(session) = session else {
        return Some((message.clone(), None));
    };
    let error = loop {
        match session.room_for(message.raw().len()) {
            Ok(room) => return Some((message.clone(), Some(room))),
            Err(error) if !has_made_room() => break error,
            Err(_) => {}
        }
    };
    let answers = message.envelopes().iter().filter(|part| part.is_response());
    let errors: Vec<String> = answers
        .map(|part: &Envelope| error.to_json(part.id()))
        .collect();
    if errors.is_empty() {
        tracing::debug!("a message is dropped: its client leaves too much unread");
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
