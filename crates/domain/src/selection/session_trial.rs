//! Simulation of one session with lists of all sizes: the searches that each list would have
//! needed.

use serde::{Deserialize, Serialize};

use super::size::LIST_SIZES;

/// The largest number of tools that is simulated.
const LONGEST: usize = LIST_SIZES[LIST_SIZES.len() - 1];

/// Number of likely tools in the answer of the proxy's search, in addition to the found one.
const N_CARRIED: usize = 9;
/// Number of tools that a client's own search loads, in addition to the found one. Such searches
/// return three to five tools.
const N_LOADED: usize = 4;

/// Follows a session with lists of all [`LIST_SIZES`] at once. For each list it counts the used
/// tools that were missing, and the searches for them. Every list has the tools that the session
/// was most likely to use at its start. The answer of a search is assumed to have the needed tool
/// and the tools that the session will most likely use and that the client does not know. A client's
/// own search, which matches words, is assumed to load the needed tool and some of the tools that
/// are most likely next.
///
/// `T` identifies a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionTrial<T> {
    /// The most likely tools at the start.
    first: Vec<T>,
    /// The marked tools for a client that loads others on demand.
    marked: Vec<T>,
    used: Vec<T>,
    /// Tools in answers of searches so far, for each list size.
    found: [Vec<T>; LIST_SIZES.len()],
    /// Tools loaded by a client's own searches so far, for each list size.
    loaded: [Vec<T>; LIST_SIZES.len()],
    n_calls: u32,
    searches: [u32; LIST_SIZES.len()],
    loads: [u32; LIST_SIZES.len()],
    needs: [f64; LIST_SIZES.len()],
}

/// The result of a [`SessionTrial`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialOutcome {
    /// Number of calls.
    pub n_calls: u32,
    /// Number of searches that a list of each size would have needed.
    pub searches: [u32; LIST_SIZES.len()],
    /// Number of a client's own searches with a list of each size.
    pub loads: [u32; LIST_SIZES.len()],
    /// Predicted number of needed tools missing from a list of each size. It includes tools that
    /// the session did without.
    pub needs: [f64; LIST_SIZES.len()],
}

impl<T: Copy + Eq> SessionTrial<T> {
    /// Starts with the tools that the session is predicted to use, the most likely first.
    #[must_use]
    pub fn new(ranked: impl IntoIterator<Item = T>) -> Self {
        Self {
            first: ranked.into_iter().take(LONGEST).collect(),
            marked: Vec::new(),
            used: Vec::new(),
            found: Default::default(),
            loaded: Default::default(),
            n_calls: 0,
            searches: Default::default(),
            loads: Default::default(),
            needs: Default::default(),
        }
    }

    /// Sets the marked tools, the best first, for clients that load tools on demand.
    #[must_use]
    pub fn with_marked(self, ranked: impl IntoIterator<Item = T>) -> Self {
        let marked = ranked.into_iter().take(LONGEST).collect();
        Self { marked, ..self }
    }

    /// Adds a call. `ranked` returns the tools with the probability of being called, as predicted
    /// before this call, the most likely first. It is called only for the first call of each tool.
    /// `answer` returns the tools that the answer of a search for the tool may have in addition,
    /// the best first. It is called only if a list lacks the tool.
    pub fn call<R: IntoIterator<Item = (T, f64)>>(
        &mut self,
        tool: T,
        ranked: impl FnOnce() -> R,
        answer: impl FnOnce() -> Vec<T>,
    ) {
        self.n_calls = self.n_calls.saturating_add(1);
        if self.used.contains(&tool) {
            return;
        }
        let ranked: Vec<(T, f64)> = ranked().into_iter().collect();
        self.add_predicted_needs(&ranked);
        self.used.push(tool);
        let likely: Vec<T> = ranked.into_iter().map(|(tool, _)| tool).collect();
        let marked = if self.marked.is_empty() {
            &self.first
        } else {
            &self.marked
        };
        let shortest = &self.first[..LIST_SIZES[0].min(self.first.len())];
        let answer = if shortest.contains(&tool) {
            Vec::new()
        } else {
            answer()
        };
        for (listed, known, numbers, n_carried, likely) in [
            (
                &self.first,
                &mut self.found,
                &mut self.searches,
                N_CARRIED,
                &answer,
            ),
            (marked, &mut self.loaded, &mut self.loads, N_LOADED, &likely),
        ] {
            let place = listed.iter().position(|listed| *listed == tool);
            for (at, size) in LIST_SIZES.into_iter().enumerate() {
                if place.is_some_and(|place| place < size) {
                    // Longer lists have it, too.
                    break;
                }
                if known[at].contains(&tool) {
                    continue;
                }
                numbers[at] = numbers[at].saturating_add(1);
                known[at].push(tool);
                add_likely_tools(
                    &listed[..size.min(listed.len())],
                    likely,
                    n_carried,
                    &mut known[at],
                );
            }
        }
    }

    /// Adds the probability that the next call is of a tool missing from a list of each size, and
    /// neither used nor found before.
    fn add_predicted_needs(&mut self, ranked: &[(T, f64)]) {
        for (at, size) in LIST_SIZES.into_iter().enumerate() {
            let listed = &self.first[..size.min(self.first.len())];
            let is_known = |tool: &T| {
                listed.contains(tool) || self.used.contains(tool) || self.found[at].contains(tool)
            };
            let lacked = ranked.iter().filter(|(tool, _)| !is_known(tool));
            self.needs[at] += lacked
                .map(|(_, probability)| probability)
                .sum::<f64>()
                .clamp(0.0, 1.0);
        }
    }

    /// Returns the called tools, each once.
    #[must_use]
    pub fn used_tools(&self) -> &[T] {
        &self.used
    }

    /// Returns the result so far.
    #[must_use]
    pub fn outcome(&self) -> TrialOutcome {
        TrialOutcome {
            n_calls: self.n_calls,
            searches: self.searches,
            loads: self.loads,
            needs: self.needs,
        }
    }

    /// Returns the predicted number of needed tools missing from a list of `n_listed` tools.
    #[must_use]
    pub fn predicted_needs(&self, n_listed: usize) -> f64 {
        let n_fitting = LIST_SIZES.partition_point(|size| *size <= n_listed);
        self.needs[n_fitting.saturating_sub(1)]
    }
}

/// Adds the most likely tools that the client does not know yet to `known`, at most `n_carried`.
fn add_likely_tools<T: Copy + Eq>(
    listed: &[T],
    likely: &[T],
    n_carried: usize,
    known: &mut Vec<T>,
) {
    let n = known.len() + n_carried;
    for tool in likely {
        if known.len() == n {
            break;
        }
        if !listed.contains(tool) && !known.contains(tool) {
            known.push(*tool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with 100 tools. Low numbers are likely at first, high numbers later.
    fn trial() -> SessionTrial<usize> {
        SessionTrial::new(0..100)
    }

    /// Predicts these tools with equal probabilities.
    fn even(tools: std::ops::Range<usize>) -> impl FnOnce() -> Vec<(usize, f64)> {
        let n = u32::try_from(tools.len()).unwrap();
        move || tools.map(|tool| (tool, 1.0 / f64::from(n))).collect()
    }

    #[test]
    fn a_missing_tool_costs_a_search_and_loads_others() {
        let mut trial = trial();
        trial.call(3, even(0..10), || panic!("every list has it"));
        trial.call(15, even(50..100), || (60..100).collect());
        // In the answers of the proxy's search for lists of 5 and 10.
        trial.call(68, even(90..100), || (90..100).collect());
        let used = || -> Vec<(usize, f64)> { panic!("it was used") };
        trial.call(15, used, Vec::new);
        // In the tools that a client's own search for 15 loads.
        trial.call(53, even(90..100), Vec::new);
        let outcome = trial.outcome();
        assert_eq!(outcome.n_calls, 5);
        assert_eq!(outcome.searches, [2, 2, 2, 2, 0]);
        assert_eq!(outcome.loads, [2, 2, 2, 2, 0]);
    }

    #[test]
    fn predicted_tools_outside_a_list_are_needs_even_if_uncalled() {
        let mut trial = trial();
        // Half of the probability is outside a list of five.
        trial.call(0, even(0..10), Vec::new);
        assert!((trial.predicted_needs(5) - 0.5).abs() < 1e-9);
        assert!(trial.predicted_needs(10) < 1e-9 && trial.predicted_needs(99) < 1e-9);
        // All of it is outside every list except the longest. A tool is needed only once.
        trial.call(1, even(40..80), Vec::new);
        trial.call(0, even(40..80), Vec::new);
        let needs = trial.outcome().needs;
        assert!(
            (needs[0] - 1.5).abs() < 1e-9 && (needs[3] - 1.0).abs() < 1e-9,
            "{needs:?}"
        );
        assert!(needs[4] < 1e-9 && (trial.predicted_needs(0) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn marked_tools_save_loads_but_no_searches() {
        let mut trial = trial().with_marked([90, 91]);
        trial.call(90, even(0..10), Vec::new);
        let outcome = trial.outcome();
        assert_eq!((outcome.searches, outcome.loads), ([1; 5], [0; 5]));
        assert_eq!(trial.used_tools(), [90]);
    }

    #[test]
    fn a_longer_list_needs_fewer_searches() {
        let mut trial = trial();
        for tool in [99, 3, 45, 7, 81, 12, 30, 99] {
            trial.call(tool, even(0..100), || (0..100).collect());
        }
        let outcome = trial.outcome();
        assert!(outcome.searches.is_sorted_by(|a, b| a >= b), "{outcome:?}");
        assert!(outcome.needs.is_sorted_by(|a, b| a >= b), "{outcome:?}");
        assert_eq!(outcome.n_calls, 8);
    }
}
