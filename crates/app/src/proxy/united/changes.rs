//! Changes that the client is told of: of lists, by members or by the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::message::Message;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::downstream::Route;
use riglm_ports::observer::Event;
use serde_json::Map;
use tokio::time::Instant;

use super::State;
use super::list_kind::ChangeKind;
use super::seen::Look;
use crate::proxy::member::Member;
use crate::proxy::session::ClientSession;
use crate::proxy::upstream_set::UpstreamSet;

/// Changes within this time are told as one.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The pause after a member said that its list changed, although it did not. It doubles as
/// long as the member goes on so, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// How long requests in flight to an upstream that was taken out of use may take to end.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Until when a member is not asked again for a list that it says has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calm {
    pause: Duration,
    until: Instant,
}

impl Calm {
    /// Returns the next one after a list was looked at in vain.
    fn after(before: Option<&Self>, now: Instant) -> Self {
        let goes_on = before.filter(|calm| now < calm.until + calm.pause);
        let pause = goes_on.map_or(FIRST_PAUSE, |calm| (calm.pause * 2).min(LAST_PAUSE));
        Self {
            pause,
            until: now + pause,
        }
    }
}

impl State {
    /// Notes that a list may have changed. Members that are left alone are asked later.
    fn note_change(&mut self, kind: ChangeKind, members: &[u64], now: Instant) {
        *self.n_changes.entry(kind).or_default() += 1;
        let (later, at_once): (Vec<u64>, Vec<u64>) =
            (members.iter()).partition(|number| self.is_left_alone(kind, **number, now));
        if !later.is_empty() {
            self.put_off.entry(kind).or_default().extend(later);
        }
        if !at_once.is_empty() || members.is_empty() {
            self.changed.entry(kind).or_default().extend(at_once);
        }
    }

    fn is_left_alone(&self, kind: ChangeKind, number: u64, now: Instant) -> bool {
        let calm = self.calm.get(&(kind, number));
        calm.is_some_and(|calm| now < calm.until)
    }

    /// Takes out the changes that can be looked at now.
    fn take_due(&mut self, now: Instant) -> BTreeMap<ChangeKind, BTreeSet<u64>> {
        for (kind, members) in std::mem::take(&mut self.put_off) {
            let (later, due): (BTreeSet<u64>, BTreeSet<u64>) =
                (members.into_iter()).partition(|number| self.is_left_alone(kind, *number, now));
            if !later.is_empty() {
                self.put_off.insert(kind, later);
            }
            if !due.is_empty() {
                self.changed.entry(kind).or_default().extend(due);
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// Returns whether a list may have changed and was not looked at yet.
    pub(super) fn is_changing(&self, kind: ChangeKind) -> bool {
        self.changed.contains_key(&kind) || self.put_off.contains_key(&kind)
    }

    /// Notes what came of looking at a list that members said had changed.
    fn note_look(&mut self, kind: ChangeKind, members: &BTreeSet<u64>, look: Look) {
        let now = Instant::now();
        for number in members {
            let member = (kind, *number);
            match look {
                Look::None => {}
                Look::Same => {
                    let calm = Calm::after(self.calm.get(&member), now);
                    self.calm.insert(member, calm);
                }
                Look::Other => {
                    self.calm.remove(&member);
                }
            }
        }
    }
}

impl ClientSession {
    /// Notes that a list may have changed. A little later it is looked at, and the client is told
    /// if it is another one than the client was shown. `members` are those that have to be asked
    /// for it again; one that said so in vain before is left alone for a while.
    pub(super) fn changed(self: &Arc<Self>, kind: ChangeKind, members: &[u64]) {
        if kind == ChangeKind::Tools {
            self.caller.search.forget_offer();
        }
        let is_telling = {
            let mut state = self.united.state();
            state.note_change(kind, members, Instant::now());
            std::mem::replace(&mut state.is_telling, true)
        };
        if is_telling {
            return;
        }
        let session = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(DEBOUNCE).await;
                let Some(session) = session.upgrade() else {
                    return;
                };
                // One at a time: a client that does not read must not pile them up.
                if !session.tell().await {
                    return;
                }
            }
        });
    }

    /// Notes that another list of tools may be shown, although no upstream said that its own
    /// changed.
    pub(in crate::proxy) fn tools_changed(self: &Arc<Self>) {
        self.changed(ChangeKind::Tools, &[]);
    }

    /// Notes that a member may list other tools.
    pub(in crate::proxy) fn tools_changed_at(self: &Arc<Self>, member: &Member) {
        self.changed(ChangeKind::Tools, &[member.number]);
    }

    /// Notes that every list of a member may have changed.
    pub(in crate::proxy) fn all_changed_at(self: &Arc<Self>, member: &Member) {
        for kind in ChangeKind::ALL {
            self.changed(kind, &[member.number]);
        }
    }

    /// Notes that a member said that a list of its own changed. Clients without a handshake may have
    /// the list from another session, and are told of it over the streams that they opened for that.
    pub(super) fn changed_by(self: &Arc<Self>, kind: ChangeKind, number: u64) {
        if !self.caller.is_initialized() {
            let mut state = self.united.state();
            let is_seen = kind
                .lists()
                .iter()
                .any(|list| state.seen.contains_key(list));
            if !is_seen {
                state.told_anyhow.insert(kind);
            }
        }
        self.changed(kind, &[number]);
    }

    /// Tells the client of what has changed. Returns whether there was anything to look at.
    async fn tell(self: &Arc<Self>) -> bool {
        let changed = {
            let mut state = self.united.state();
            let is_over = state.changed.is_empty() && state.put_off.is_empty();
            if is_over || self.is_closed() {
                state.is_telling = false;
                return false;
            }
            state.take_due(Instant::now())
        };
        for (kind, members) in changed {
            let is_told_anyhow = self.united.state().told_anyhow.remove(&kind);
            let look = if is_told_anyhow {
                // Whether it is another one is not known.
                Look::Same
            } else {
                self.look_at_changed(kind, &members).await
            };
            self.united.state().note_look(kind, &members, look);
            if !is_told_anyhow && look != Look::Other {
                continue;
            }
            if kind == ChangeKind::Tools {
                self.caller.note_told(std::time::Instant::now());
                self.shared
                    .observe_from(&Event::ListChangeTold, &self.caller.origin());
            }
            if self.caller.is_initialized() {
                let text = format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, kind.method());
                if let Ok(message) = Message::from_text(text) {
                    self.client.deliver(message, Route::Standalone).await;
                }
            }
            let listens: Vec<_> = {
                let state = self.united.state();
                state.listens.values().cloned().collect()
            };
            for listen in listens.iter().filter(|listen| listen.wants(kind)) {
                let text = listen.notification(kind.method(), Map::new());
                self.say(listen, text).await;
            }
        }
        true
    }

    /// Takes over a changed configuration. What did not change goes on undisturbed; requests in
    /// flight to what is gone may end within a limit.
    pub(in crate::proxy) fn reconfigure(self: &Arc<Self>, set: &UpstreamSet) {
        let was_united = self.is_united();
        let (new, gone) = self.take_over(set);
        if new.is_empty() && gone.is_empty() {
            return;
        }
        for member in gone {
            let session = Arc::clone(self);
            tokio::spawn(async move { session.retire(&member).await });
        }
        let session = Arc::clone(self);
        tokio::spawn(async move {
            if !was_united {
                session.united.state().told_anyhow.extend(ChangeKind::ALL);
                for member in session.members().iter() {
                    session.end_streams_of(member).await;
                }
            }
            for member in &new {
                session.attach_to_all(member);
                session.all_changed_at(member);
            }
            // Entries may be gone, and others may go by another name.
            for kind in ChangeKind::ALL {
                session.changed(kind, &[]);
            }
        });
    }

    /// Ends a member that was taken out of the configuration.
    async fn retire(&self, member: &Arc<Member>) {
        member.relay.drain(LAST_REQUESTS).await;
        let why = RpcError::new(
            RpcErrorCode::UpstreamUnavailable,
            "the upstream was taken out of the configuration",
        );
        member.relay.close(&why).await;
        self.retired(member);
        let mut state = self.united.state();
        state
            .from_members
            .retain(|_, asked| asked.number != member.number);
        state.tasks.retain(|(_, number)| *number != member.number);
        state.calm.retain(|(_, number), _| *number != member.number);
    }
}
