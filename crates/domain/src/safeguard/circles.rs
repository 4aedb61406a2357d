//! Searches that lead nowhere: the same words again, the same results again, results that fit ever
//! worse, one search after the other and no call in between.
//!
//! What counts is the row of searches since the last call of a tool: who calls what was found does
//! not search in circles, and may well search for the same once more to see what came of the call.
//! At the first sign the model is told what it tried; if the next search of the row shows one again,
//! that it should ask the user.

mod results;
mod words;

use std::collections::VecDeque;
use std::fmt::Write as _;

pub use results::ResultSet;
pub use words::{normalised, quoted};

/// How many searches of a row are remembered; older ones are counted and no longer compared with.
const MAX_REMEMBERED: usize = 16;
/// How many queries are quoted at most, the last ones.
const MAX_QUOTED: usize = 5;

/// From which point on searches go in circles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CircleRules {
    /// The share of the results of a search that an earlier one had, above which they are the same:
    /// above 0 and at most 1. At 1 nothing is.
    pub overlap: f64,
    /// How many searches, one after the other, have to fit worse than the one before, the first of
    /// them included; from 2.
    pub falling: usize,
    /// How many searches without a call in between are too many; from 2.
    pub without_call: usize,
}

impl Default for CircleRules {
    fn default() -> Self {
        Self {
            overlap: 0.8,
            falling: 3,
            without_call: 3,
        }
    }
}

/// One search and what it found.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenSearch {
    /// What was searched for, in the form in which searches are compared: see [`normalised`].
    pub query: String,
    /// The words that are quoted when it is said what was tried.
    pub words: String,
    /// What was found.
    pub results: ResultSet,
    /// How well the best result fits; `None` where that is not known. Larger is better.
    pub top_score: Option<f64>,
}

/// What shows that searches go in circles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CircleSign {
    /// The same was searched for before.
    SameQuery,
    /// An earlier search had this share of the results.
    SameResults(f64),
    /// The best result of each of so many searches fits worse than that of the one before.
    FallingScores(usize),
    /// There were so many searches without a call in between.
    WithoutCall(usize),
}

impl CircleSign {
    /// The names of all signs.
    pub const NAMES: [&'static str; 4] = [
        "same_query",
        "same_results",
        "falling_scores",
        "without_call",
    ];

    /// Returns the name by which the sign is counted.
    #[must_use]
    pub fn name(self) -> &'static str {
        let place = match self {
            Self::SameQuery => 0,
            Self::SameResults(_) => 1,
            Self::FallingScores(_) => 2,
            Self::WithoutCall(_) => 3,
        };
        Self::NAMES[place]
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
            Self::FallingScores(n) => write!(text, "the last {n} searches found ever less"),
            Self::WithoutCall(n) => write!(text, "{n} searches without calling a tool"),
        };
    }
}

/// What the model should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CircleAdvice {
    /// Use what was found, or search for something else.
    Warning,
    /// Ask the user.
    AskUser,
}

impl CircleAdvice {
    /// All of it.
    pub const ALL: [Self; 2] = [Self::Warning, Self::AskUser];

    /// Returns the name by which it is counted.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::AskUser => "ask_user",
        }
    }
}

/// A search that goes in circles.
#[derive(Clone, Debug, PartialEq)]
pub struct Circling {
    /// What the model should do.
    pub advice: CircleAdvice,
    /// What shows it, at least one sign.
    pub signs: Vec<CircleSign>,
    /// What was searched for, as it is quoted, the last search last.
    pub tried: Vec<String>,
}

impl Circling {
    /// Returns what is said of it: one line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = String::from(match self.advice {
            CircleAdvice::Warning => "Searching in circles: ",
            CircleAdvice::AskUser => "Still searching in circles: ",
        });
        for (at, sign) in self.signs.iter().enumerate() {
            line.push_str(if at == 0 { "" } else { "; " });
            sign.write(&mut line);
        }
        line.push_str(". Tried: ");
        line.push_str(&self.tried.join(", "));
        line.push_str(match self.advice {
            CircleAdvice::Warning => ". Use what was found, or search for something different.",
            CircleAdvice::AskUser => {
                ". Stop searching and ask the user: say what was tried and what is missing."
            }
        });
        line
    }
}

/// A search as far as later ones are compared with it.
#[derive(Clone, Debug)]
struct Past {
    query: u64,
    results: ResultSet,
    top_score: Option<f64>,
    /// As it is quoted.
    words: String,
}

/// The searches of one work session since its last call of a tool.
#[derive(Clone, Debug, Default)]
pub struct SearchTrail {
    row: VecDeque<Past>,
    /// How many searches the row has, with those that are not remembered any more.
    n_in_row: usize,
    is_warned: bool,
}

impl SearchTrail {
    /// Notes a search. Returns what is to be said of it, if it goes in circles.
    pub fn searched(&mut self, search: &SeenSearch, rules: &CircleRules) -> Option<Circling> {
        let past = Past {
            query: results::hash_of(&search.query),
            results: search.results.clone(),
            top_score: search.top_score.filter(|score| score.is_finite()),
            words: quoted(&search.words),
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
            CircleAdvice::AskUser
        } else {
            CircleAdvice::Warning
        };
        let n_left_out = self.row.len().saturating_sub(MAX_QUOTED);
        let tried = self.row.iter().skip(n_left_out);
        Some(Circling {
            advice,
            signs,
            tried: tried.map(|past| past.words.clone()).collect(),
        })
    }

    /// Notes that a tool was called that does not search: the row ends. Returns how many searches it
    /// had.
    pub fn called(&mut self) -> usize {
        self.row.clear();
        self.is_warned = false;
        std::mem::take(&mut self.n_in_row)
    }

    /// Returns how many searches there were since the last call.
    #[must_use]
    pub fn n_in_row(&self) -> usize {
        self.n_in_row
    }

    /// Returns whether the row was spoken of.
    #[must_use]
    pub fn is_warned(&self) -> bool {
        self.is_warned
    }

    /// Returns what a search that is not in the row yet shows.
    fn signs(&self, search: &Past, rules: &CircleRules) -> Vec<CircleSign> {
        let mut signs = Vec::new();
        if self.row.iter().any(|past| past.query == search.query) {
            signs.push(CircleSign::SameQuery);
        } else {
            // The same query has the same results: that is no sign of its own.
            let shares = self.row.iter();
            let shares = shares.filter_map(|past| search.results.share_in(&past.results));
            let share = shares.fold(0.0, f64::max);
            if share > rules.overlap {
                signs.push(CircleSign::SameResults(share));
            }
        }
        let n_falling = self.n_falling(search);
        if n_falling >= rules.falling.max(2) {
            signs.push(CircleSign::FallingScores(n_falling));
        }
        let n_in_row = self.n_in_row.saturating_add(1);
        if n_in_row >= rules.without_call.max(2) {
            signs.push(CircleSign::WithoutCall(n_in_row));
        }
        signs
    }

    /// Returns how many of the last searches, with this one, each fit worse than the one before.
    fn n_falling(&self, search: &Past) -> usize {
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
