//! Detection of searches with diminishing returns: the same query again, the same results again,
//! results that fit worse each time, or search after search without a call.
//!
//! Only the searches since the last tool call count. A session that calls a found tool makes
//! progress, and may search for the same once more to see the effect of the call. At the first sign
//! the model gets the list of tried queries. If the next search shows a sign again, the model
//! should ask the user.

mod results;
mod words;

use std::collections::VecDeque;
use std::fmt::Write as _;

use strum::{IntoStaticStr, VariantArray, VariantNames};

pub use results::ResultSet;
pub use words::{normalize_query, quote_query};

/// The maximum number of remembered searches. Older ones are counted, but no longer compared.
const MAX_REMEMBERED: usize = 16;
/// The maximum number of quoted queries, the last ones.
const MAX_QUOTED: usize = 5;

/// The thresholds for searches with diminishing returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiminishingReturnsRules {
    /// The share of the results of a search that an earlier one had. Above it the results count as
    /// the same. It is above 0 and at most 1; at 1 no results count as the same.
    pub overlap: f64,
    /// The minimum length of a series of searches that each fit worse than the one before, the
    /// first search included; at least 2.
    pub falling: usize,
    /// The number of searches without a call that is too many; at least 2.
    pub without_call: usize,
}

impl Default for DiminishingReturnsRules {
    fn default() -> Self {
        Self {
            overlap: 0.8,
            falling: 3,
            without_call: 3,
        }
    }
}

/// One search and its results.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchSummary {
    /// The query in its normal form, for comparison: see [`normalize_query`].
    pub query: String,
    /// The words that notices quote.
    pub words: String,
    /// The results.
    pub results: ResultSet,
    /// The fit of the best result; `None` if unknown. Larger is better.
    pub top_score: Option<f64>,
}

/// A sign of diminishing returns.
#[derive(Clone, Copy, Debug, PartialEq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum DiminishingSign {
    /// An earlier search had the same query.
    SameQuery,
    /// An earlier search had this share of the results.
    SameResults(f64),
    /// The best results of this number of searches fit worse each time.
    FallingScores(usize),
    /// There was this number of searches without a call.
    WithoutCall(usize),
}

impl DiminishingSign {
    /// The names of all signs.
    pub const NAMES: &'static [&'static str] = Self::VARIANTS;

    /// Returns the name of the sign in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn write(self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Self::SameQuery => write!(text, "you searched for the same before"),
            Self::SameResults(share) => write!(
                text,
                "{:.0} % of these results were found before",
                (share * 100.0).floor()
            ),
            Self::FallingScores(n) => write!(text, "the last {n} searches found less and less"),
            Self::WithoutCall(n) => write!(text, "{n} searches without calling a tool"),
        };
    }
}

/// The advice to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DiminishingAdvice {
    /// Use the results, or search for something else.
    Warning,
    /// Ask the user.
    AskUser,
}

impl DiminishingAdvice {
    /// All kinds of advice.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the advice in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A search with diminishing returns.
#[derive(Clone, Debug, PartialEq)]
pub struct DiminishingFinding {
    /// The advice to the model.
    pub advice: DiminishingAdvice,
    /// The signs, at least one.
    pub signs: Vec<DiminishingSign>,
    /// The quoted queries, the last search last.
    pub tried: Vec<String>,
}

impl DiminishingFinding {
    /// Returns the notice: one line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = String::from(match self.advice {
            DiminishingAdvice::Warning => "Searching in circles: ",
            DiminishingAdvice::AskUser => "Still searching in circles: ",
        });
        for (at, sign) in self.signs.iter().enumerate() {
            line.push_str(if at == 0 { "" } else { "; " });
            sign.write(&mut line);
        }
        line.push_str(". Tried: ");
        line.push_str(&self.tried.join(", "));
        line.push_str(match self.advice {
            DiminishingAdvice::Warning => {
                ". Use what was found, or search for something different."
            }
            DiminishingAdvice::AskUser => {
                ". Stop searching and ask the user: say what was tried and what is missing."
            }
        });
        line
    }
}

/// The data of a search for comparison with later ones.
#[derive(Clone, Debug)]
struct ComparedSearch {
    query: u64,
    results: ResultSet,
    top_score: Option<f64>,
    /// The quoted words.
    words: String,
}

/// The searches of one work session since its last tool call.
#[derive(Clone, Debug, Default)]
pub struct SearchHistory {
    row: VecDeque<ComparedSearch>,
    /// The number of searches in the row, with the forgotten ones.
    n_in_row: usize,
    is_warned: bool,
}

impl SearchHistory {
    /// Adds a search. Returns a finding if it shows diminishing returns.
    pub fn record_search(
        &mut self,
        search: &SearchSummary,
        rules: &DiminishingReturnsRules,
    ) -> Option<DiminishingFinding> {
        let past = ComparedSearch {
            query: results::hash_of(&search.query),
            results: search.results.clone(),
            top_score: search.top_score.filter(|score| score.is_finite()),
            words: quote_query(&search.words),
        };
        let signs = self.signs(&past, rules);
        if self.row.len() >= MAX_REMEMBERED {
            self.row.pop_front();
        }
        self.row.push_back(past);
        self.n_in_row = self.n_in_row.saturating_add(1);
        if signs.is_empty() {
            return None;
        }
        let advice = if std::mem::replace(&mut self.is_warned, true) {
            DiminishingAdvice::AskUser
        } else {
            DiminishingAdvice::Warning
        };
        let n_left_out = self.row.len().saturating_sub(MAX_QUOTED);
        let tried = self.row.iter().skip(n_left_out);
        Some(DiminishingFinding {
            advice,
            signs,
            tried: tried.map(|past| past.words.clone()).collect(),
        })
    }

    /// Ends the row after a call of a tool that does not search. Returns the number of searches in
    /// the row.
    pub fn record_call(&mut self) -> usize {
        self.row.clear();
        self.is_warned = false;
        std::mem::take(&mut self.n_in_row)
    }

    /// Returns the number of searches since the last call.
    #[must_use]
    pub fn n_in_row(&self) -> usize {
        self.n_in_row
    }

    /// Returns whether there was a warning in this row.
    #[must_use]
    pub fn is_warned(&self) -> bool {
        self.is_warned
    }

    /// Returns the signs of a search that is not in the row yet.
    fn signs(
        &self,
        search: &ComparedSearch,
        rules: &DiminishingReturnsRules,
    ) -> Vec<DiminishingSign> {
        let mut signs = Vec::new();
        if self.row.iter().any(|past| past.query == search.query) {
            signs.push(DiminishingSign::SameQuery);
        } else {
            // The same query has the same results, which are no separate sign.
            let shares = self.row.iter();
            let shares = shares.filter_map(|past| search.results.share_in(&past.results));
            let share = shares.fold(0.0, f64::max);
            if share > rules.overlap {
                signs.push(DiminishingSign::SameResults(share));
            }
        }
        let n_falling = self.n_falling(search);
        if n_falling >= rules.falling.max(2) {
            signs.push(DiminishingSign::FallingScores(n_falling));
        }
        let n_in_row = self.n_in_row.saturating_add(1);
        if n_in_row >= rules.without_call.max(2) {
            signs.push(DiminishingSign::WithoutCall(n_in_row));
        }
        signs
    }

    /// Returns the number of last searches, this one included, that fit worse each time.
    fn n_falling(&self, search: &ComparedSearch) -> usize {
        let Some(mut score) = search.top_score else {
            return 0;
        };
        let mut n = 1;
        for past in self.row.iter().rev() {
            match past.top_score {
                Some(earlier) if earlier > score => {
                    score = earlier;
                    n += 1;
                }
                _ => break,
            }
        }
        n
    }
}

#[cfg(test)]
mod tests;
