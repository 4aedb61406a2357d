//! A batch of records, sorted by the rows that they make, with one entry for each call.

use std::collections::HashMap;

use jiff::Timestamp;
use riglm_domain::exchange::Exchange;
use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::invocation::{Invocation, InvocationEnd, Outcome};
use riglm_domain::record::Record;
use riglm_domain::session::Session;
use riglm_domain::tool::ToolListing;

/// What the batch says of one call.
#[derive(Clone, Copy, Debug, Default)]
struct Call<'a> {
    opened: Option<&'a Invocation>,
    end: Option<&'a InvocationEnd>,
}

/// The rows of a batch. Lost runs are not among them.
#[derive(Debug, Default)]
pub(super) struct Folded<'a> {
    pub(super) sessions: Vec<&'a Session>,
    pub(super) closed_sessions: Vec<(SessionId, Timestamp)>,
    pub(super) pages: Vec<(&'a ToolListing, Timestamp)>,
    pub(super) listed: Vec<(SessionId, &'a str, Timestamp)>,
    pub(super) exchanges: Vec<&'a Exchange>,
    /// In the order in which the batch first names them.
    calls: Vec<Call<'a>>,
    places: HashMap<InvocationId, usize>,
}

impl<'a> Folded<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        let mut folded = Self::default();
        for record in records {
            folded.add(record);
        }
        folded
    }

    /// Returns the calls whose beginning stands in the batch, with their ends where known.
    pub(super) fn calls(
        &self,
    ) -> impl Iterator<Item = (&'a Invocation, Option<&'a InvocationEnd>)> {
        self.calls
            .iter()
            .filter_map(|call| Some((call.opened?, call.end)))
    }

    /// Returns the ends of the calls whose beginning does not stand in the batch, one for each.
    pub(super) fn ends(&self) -> impl Iterator<Item = &'a InvocationEnd> {
        self.calls
            .iter()
            .filter(|call| call.opened.is_none())
            .filter_map(|call| call.end)
    }

    fn add(&mut self, record: &'a Record) {
        match record {
            Record::SessionOpened(session) => self.sessions.push(session),
            Record::SessionClosed { session, ended_at } => {
                self.closed_sessions.push((*session, *ended_at));
            }
            Record::ToolsSeen { listing, seen_at } => self.pages.push((listing, *seen_at)),
            Record::ToolsListed {
                session,
                listing,
                listed_at,
            } => self.listed.push((*session, listing, *listed_at)),
            Record::CallOpened(call) => {
                self.call(call.id).opened.get_or_insert(call);
            }
            Record::CallClosed(end) => {
                let call = self.call(end.id);
                if call.end.is_none_or(|first| replaces(end, first)) {
                    call.end = Some(end);
                }
            }
            Record::Exchanged(exchange) => self.exchanges.push(exchange),
            // The schema that takes these comes with the next version of it.
            Record::CallMeasured(_)
            | Record::ListShown(_)
            | Record::Searched(_)
            | Record::ContextGiven(_)
            | Record::Recommended(_)
            | Record::FeedbackGiven(_)
            | Record::RunLost { .. } => {}
        }
    }

    fn call(&mut self, id: InvocationId) -> &mut Call<'a> {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.calls.push(Call::default());
            self.calls.len() - 1
        });
        &mut self.calls[place]
    }
}

/// Returns whether a later end takes the place of the first: only knowledge replaces `unknown`.
fn replaces(later: &InvocationEnd, first: &InvocationEnd) -> bool {
    first.outcome == Outcome::Unknown && later.outcome != Outcome::Unknown
}
