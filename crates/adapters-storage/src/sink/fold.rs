//! A batch of records, sorted by the rows that they make, with one entry for each call.

use std::collections::HashMap;

use jiff::Timestamp;
use riglm_domain::context::Context;
use riglm_domain::exchange::Exchange;
use riglm_domain::feedback::Feedback;
use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::invocation::{CallTokens, Invocation, InvocationEnd, Outcome};
use riglm_domain::list_shown::ListShown;
use riglm_domain::recommendation::Recommendation;
use riglm_domain::record::Record;
use riglm_domain::search::Search;
use riglm_domain::session::Session;
use riglm_domain::tool::ToolListing;

/// What the batch says of one call.
#[derive(Clone, Copy, Debug, Default)]
struct Call<'a> {
    /// An end that stands before any beginning: it is that of a row, if there is one.
    early_end: Option<&'a InvocationEnd>,
    opened: Option<&'a Invocation>,
    /// An end that stands after the beginning.
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
    pub(super) tokens: Vec<&'a CallTokens>,
    pub(super) lists_shown: Vec<&'a ListShown>,
    pub(super) searches: Vec<&'a Search>,
    pub(super) contexts: Vec<&'a Context>,
    pub(super) recommendations: Vec<&'a Recommendation>,
    pub(super) feedback: Vec<&'a Feedback>,
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

    /// Returns a batch of nothing but ends of calls.
    pub(super) fn of_ends(ends: &'a [InvocationEnd]) -> Self {
        let mut folded = Self::default();
        for end in ends {
            folded.call(end.id).early_end = Some(end);
        }
        folded
    }

    /// Returns the calls whose beginning stands in the batch, with the ends that follow it.
    pub(super) fn calls(
        &self,
    ) -> impl Iterator<Item = (&'a Invocation, Option<&'a InvocationEnd>)> {
        self.calls
            .iter()
            .filter_map(|call| Some((call.opened?, call.end)))
    }

    /// Returns the ends before which no beginning stands in the batch, one for each call. They
    /// come before [`Self::calls`].
    pub(super) fn ends(&self) -> impl Iterator<Item = &'a InvocationEnd> {
        self.calls.iter().filter_map(|call| call.early_end)
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
                let known = match call.opened {
                    Some(_) => &mut call.end,
                    None => &mut call.early_end,
                };
                if known.is_none_or(|first| replaces(end, first)) {
                    *known = Some(end);
                }
            }
            Record::Exchanged(exchange) => self.exchanges.push(exchange),
            Record::CallMeasured(tokens) => self.tokens.push(tokens),
            Record::ListShown(list) => self.lists_shown.push(list),
            Record::Searched(search) => self.searches.push(search),
            Record::ContextGiven(context) => self.contexts.push(context),
            Record::Recommended(recommendation) => self.recommendations.push(recommendation),
            Record::FeedbackGiven(feedback) => self.feedback.push(feedback),
            Record::RunLost { .. } => {}
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
