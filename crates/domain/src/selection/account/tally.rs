//! Running totals of costs and misses of a session, event by event.

use std::collections::BTreeSet;

use super::{Calibration, ListActivity, ListTokens, RecordedCall, RecordedSearch, SeenList};
use crate::catalog::tool::ToolRef;
use crate::id::WorkSessionId;
use crate::num::to_f64;
use crate::selection::economics::CostModel;
use crate::usage::invocation::ToolSource;

/// The totals of a session so far.
pub(super) struct Tally<'a> {
    prices: &'a CostModel,
    /// The current list.
    list: Option<&'a SeenList>,
    /// The list of the last prompt.
    prompted: Option<&'a SeenList>,
    /// Actual cost. Without hidden tools and searches it is the sum of the same numbers as `all`,
    /// so that the difference is exactly 0.
    pub(super) paid: f64,
    /// The part of `paid` for searches: their prompts and answers.
    pub(super) paid_for_searches: f64,
    /// Cost of showing all tools.
    all: f64,
    /// The called tools of each work session.
    pub(super) used: BTreeSet<(Option<WorkSessionId>, &'a ToolRef)>,
    pub(super) n_misses: u64,
    pub(super) n_escalations: u64,
    pub(super) n_changes: u64,
    pub(super) tokens_saved: i64,
    pub(super) calibration: Calibration,
}

impl<'a> Tally<'a> {
    fn new(prices: &'a CostModel) -> Self {
        Self {
            prices,
            list: None,
            prompted: None,
            paid: 0.0,
            paid_for_searches: 0.0,
            all: 0.0,
            used: BTreeSet::new(),
            n_misses: 0,
            n_escalations: 0,
            n_changes: 0,
            tokens_saved: 0,
            calibration: Calibration::default(),
        }
    }

    /// Returns the totals of all events of an activity.
    pub(super) fn of(activity: &'a ListActivity, prices: &'a CostModel) -> Self {
        let mut tally = Self::new(prices);
        for event in events_in_order(activity) {
            match event {
                ActivityEvent::List(list) => tally.add_list(list),
                ActivityEvent::Search(search) => tally.add_search(search),
                ActivityEvent::Call(call) => tally.add_call(call),
            }
        }
        tally
    }

    fn add_list(&mut self, list: &'a SeenList) {
        let is_another = |before: &SeenList| before.tools.id() != list.tools.id();
        self.n_changes += u64::from(self.list.is_some_and(is_another));
        if let Some(expected) = list.expected_coverage {
            self.calibration.add_list(expected);
        }
        self.list = Some(list);
    }

    fn add_search(&mut self, search: &RecordedSearch) {
        // Without token counts the savings of the list are unknown, so the cost is not counted
        // either.
        if self.list.and_then(|list| list.tokens).is_none() {
            return;
        }
        let answer = self.answer_price(search);
        let tokens = self.add_prompt();
        let price = self.prices.prompt(to_f64(tokens.shown)) + answer;
        self.paid += price;
        self.paid_for_searches += price;
    }

    fn add_call(&mut self, call: &'a RecordedCall) {
        let is_first = self.used.insert((call.work_session, &call.tool));
        // Calls of unknown names are not misses: no list has these tools.
        let is_miss = matches!(call.source, ToolSource::Found | ToolSource::Hidden);
        self.n_misses += u64::from(is_first && is_miss);
        self.n_escalations += u64::from(call.source == ToolSource::Hidden);
        if let Some(expected) = self.list.and_then(|list| list.expected_coverage) {
            self.calibration.add_call(expected, call.source);
        }
        let tokens = self.add_prompt();
        self.paid += self.prices.prompt(to_f64(tokens.shown));
        self.all += self.prices.prompt(to_f64(tokens.available));
        let saved = i128::from(tokens.available) - i128::from(tokens.shown);
        let saved = i64::try_from(saved).unwrap_or(if saved < 0 { i64::MIN } else { i64::MAX });
        self.tokens_saved = self.tokens_saved.saturating_add(saved);
    }

    /// Returns the difference; 0 if the prices are too high to be subtracted (infinite).
    pub(super) fn cost_avoided(&self) -> f64 {
        let avoided = self.all - self.paid;
        if avoided.is_finite() { avoided } else { 0.0 }
    }

    /// Adds the cost of writing the list of the next prompt to the cache. Returns the tokens of the
    /// list.
    fn add_prompt(&mut self) -> ListTokens {
        const NONE: ListTokens = ListTokens {
            shown: 0,
            available: 0,
        };
        let Some(list) = self.list else {
            return NONE;
        };
        let tokens = list.tokens.unwrap_or(NONE);
        let (shown, available) = (to_f64(tokens.shown), to_f64(tokens.available));
        match self.prompted {
            None => {
                self.paid += self.prices.list_written(shown);
                self.all += self.prices.list_written(available);
            }
            // Without token counts of both lists the cost of the change is unknown.
            Some(before) if before.tokens.is_none() || list.tokens.is_none() => {}
            Some(before) => {
                if has_changed(before, list) {
                    self.paid += self.prices.prompt_rewritten(shown);
                }
                if would_have_changed(before, list) {
                    self.all += self.prices.prompt_rewritten(available);
                }
            }
        }
        self.prompted = Some(list);
        tokens
    }

    /// Returns the cost of the request and the answer of a search, without the prompt.
    fn answer_price(&self, search: &RecordedSearch) -> f64 {
        let estimated = || {
            let list = self.list?;
            let n_available = (list.n_available > 0).then_some(list.n_available)?;
            let each = to_f64(list.tokens?.available) / to_f64(n_available);
            Some(each * to_f64(search.n_results))
        };
        let tokens = search.answer_tokens.map(to_f64).or_else(estimated);
        tokens.map_or(self.prices.search, |tokens| {
            self.prices.inline_search + self.prices.list_written(tokens)
        })
    }
}

/// Returns whether the text of a list differs from the one before.
fn has_changed(before: &SeenList, list: &SeenList) -> bool {
    let shown = |list: &SeenList| list.tokens.map(|tokens| tokens.shown);
    before.tools.id() != list.tools.id() || shown(before) != shown(list)
}

/// Returns whether the text of a list of all tools would differ: the available tools have changed.
fn would_have_changed(before: &SeenList, list: &SeenList) -> bool {
    let available = |list: &SeenList| {
        let tokens = list.tokens.map(|tokens| tokens.available);
        (list.n_available, tokens)
    };
    let both_are_whole = hides_nothing(before) && hides_nothing(list);
    available(before) != available(list) || both_are_whole && before.tools.id() != list.tools.id()
}

/// Returns whether no tool is hidden.
fn hides_nothing(list: &SeenList) -> bool {
    list.tools.tools().len() as u64 == list.n_available
}

enum ActivityEvent<'a> {
    List(&'a SeenList),
    Search(&'a RecordedSearch),
    Call(&'a RecordedCall),
}

/// Returns the events by time. At equal times, lists come first and calls last.
fn events_in_order(activity: &ListActivity) -> Vec<ActivityEvent<'_>> {
    let lists = activity
        .lists
        .iter()
        .map(|list| (list.at, ActivityEvent::List(list)));
    let searches =
        (activity.searches.iter()).map(|search| (search.at, ActivityEvent::Search(search)));
    let calls = activity
        .calls
        .iter()
        .map(|call| (call.at, ActivityEvent::Call(call)));
    let mut events: Vec<_> = lists.chain(searches).chain(calls).collect();
    // A stable sort keeps lists, searches and calls in this order at equal times.
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(_, event)| event).collect()
}
