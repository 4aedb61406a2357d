//! A batch of records, grouped by the rows that they create, with one entry for each call.

use std::collections::HashMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolListing;
use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::shown::ListShown;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::{CallTokens, Invocation, InvocationEnd, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::Session;

use crate::repository::invocation::NewCall;

/// The records of one call in the batch.
#[derive(Clone, Copy, Debug, Default)]
struct FoldedCall<'a> {
    /// An end before any beginning in the batch. It belongs to an existing row, if there is one.
    early_end: Option<&'a InvocationEnd>,
    opened: Option<&'a Invocation>,
    /// An end after the beginning.
    end: Option<&'a InvocationEnd>,
    /// The first count of each text.
    tokens: Option<CallTokens>,
}

/// The rows of a batch, without lost runs.
#[derive(Debug, Default)]
pub(super) struct FoldedBatch<'a> {
    pub(super) sessions: Vec<&'a Session>,
    pub(super) closed_sessions: Vec<(SessionId, Timestamp)>,
    pub(super) pages: Vec<(&'a ToolListing, Timestamp)>,
    pub(super) listed: Vec<(SessionId, &'a str, Timestamp)>,
    pub(super) exchanges: Vec<&'a Exchange>,
    pub(super) lists_shown: Vec<&'a ListShown>,
    pub(super) searches: Vec<&'a Search>,
    pub(super) contexts: Vec<&'a Context>,
    pub(super) recommendations: Vec<&'a Recommendation>,
    pub(super) feedback: Vec<&'a Feedback>,
    /// In the order of their first records in the batch.
    calls: Vec<FoldedCall<'a>>,
    places: HashMap<InvocationId, usize>,
}

impl<'a> FoldedBatch<'a> {
    pub(super) fn new(records: &'a [Record]) -> Self {
        let mut folded = Self::default();
        for record in records {
            folded.add(record);
        }
        folded
    }

    /// Returns a batch that contains only ends of calls.
    pub(super) fn of_ends(ends: &'a [InvocationEnd]) -> Self {
        let mut folded = Self::default();
        for end in ends {
            folded.call(end.id).early_end = Some(end);
        }
        folded
    }

    /// Returns the calls whose beginning is in the batch, with the ends that follow it.
    pub(super) fn calls(&self) -> impl Iterator<Item = NewCall<'a>> {
        self.calls.iter().filter_map(|call| {
            Some(NewCall {
                opened: call.opened?,
                end: call.end,
                tokens: call.tokens,
            })
        })
    }

    /// Returns the token counts of calls, one for each call.
    pub(super) fn tokens(&self) -> impl Iterator<Item = CallTokens> {
        self.calls.iter().filter_map(|call| call.tokens)
    }

    /// Returns the ends without an earlier beginning in the batch, one for each call. They must be
    /// written before [`Self::calls`].
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
            Record::CallMeasured(tokens) => {
                let known = &mut self.call(tokens.id).tokens;
                let known = known.get_or_insert(*tokens);
                known.request = known.request.or(tokens.request);
                known.response = known.response.or(tokens.response);
            }
            Record::ListShown(list) => self.lists_shown.push(list),
            Record::Searched(search) => self.searches.push(search),
            Record::ContextGiven(context) => self.contexts.push(context),
            Record::Recommended(recommendation) => self.recommendations.push(recommendation),
            Record::FeedbackGiven(feedback) => self.feedback.push(feedback),
            Record::RunLost { .. } => {}
        }
    }

    fn call(&mut self, id: InvocationId) -> &mut FoldedCall<'a> {
        let place = *self.places.entry(id).or_insert_with(|| {
            self.calls.push(FoldedCall::default());
            self.calls.len() - 1
        });
        &mut self.calls[place]
    }
}

/// Returns whether a later end replaces the first: only a known outcome replaces `unknown`.
fn replaces(later: &InvocationEnd, first: &InvocationEnd) -> bool {
    first.outcome == Outcome::Unknown && later.outcome != Outcome::Unknown
}
