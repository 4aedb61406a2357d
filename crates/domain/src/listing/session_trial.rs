//! What a list of each size would have meant for one session.

use serde::{Deserialize, Serialize};

use super::size::LIST_SIZES;

/// The most tools that the largest of the followed lists has.
const LONGEST: usize = LIST_SIZES[LIST_SIZES.len() - 1];

/// How many likely tools the answer of the proxy's search carries beside the one that was found.
const N_CARRIED: usize = 9;
/// How many tools a client's own search loads beside the one that was found: such searches return
/// three to five.
const N_LOADED: usize = 4;

/// Follows a session with lists of all [`LIST_SIZES`] at once: which of its tools each of them would
/// have lacked, and how many searches that would have taken. Every list has the tools that were most
/// likely when the session began. The answer of a search is assumed to carry the tool that was
/// needed and the most likely ones of that moment that the client does not know; a client's own
/// search, which goes by words, is assumed to do the same with fewer.
///
/// `T` names a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionTrial<T> {
    /// The most likely tools at the beginning, with the probability that each is called next.
    first: Vec<(T, f64)>,
    used: Vec<T>,
    /// What answers of searches would have carried, for each size.
    found: [Vec<T>; LIST_SIZES.len()],
    /// What a client's own searches would have loaded, for each size.
    loaded: [Vec<T>; LIST_SIZES.len()],
    n_calls: u32,
    searches: [u32; LIST_SIZES.len()],
    loads: [u32; LIST_SIZES.len()],
}

/// What came of a [`SessionTrial`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialOutcome {
    /// How many calls there were.
    pub n_calls: u32,
    /// How many searches a list of each size would have needed.
    pub searches: [u32; LIST_SIZES.len()],
    /// How many times a client would have searched itself with a list of each size.
    pub loads: [u32; LIST_SIZES.len()],
}

impl<T: Copy + Eq> SessionTrial<T> {
    /// Begins with what is predicted before the first call, the most likely first.
    #[must_use]
    pub fn new(ranked: impl IntoIterator<Item = (T, f64)>) -> Self {
        Self {
            first: ranked.into_iter().take(LONGEST).collect(),
            used: Vec::new(),
            found: Default::default(),
            loaded: Default::default(),
            n_calls: 0,
            searches: Default::default(),
            loads: Default::default(),
        }
    }

    /// Notes a call. `ranked` gives the tools by what is predicted before it, the most likely first;
    /// it is asked only where a list would have lacked the tool.
    pub fn call<R: IntoIterator<Item = T>>(&mut self, tool: T, ranked: impl FnOnce() -> R) {
        self.n_calls = self.n_calls.saturating_add(1);
        if self.used.contains(&tool) {
            return;
        }
        self.used.push(tool);
        let place = self.first.iter().position(|(listed, _)| *listed == tool);
        let mut ranked = Some(ranked);
        let mut likely: Vec<T> = Vec::new();
        for (at, size) in LIST_SIZES.into_iter().enumerate() {
            if place.is_some_and(|place| place < size) {
                // Longer lists have it, too.
                break;
            }
            let listed = &self.first[..size.min(self.first.len())];
            for (known, n, n_carried) in [
                (&mut self.found[at], &mut self.searches[at], N_CARRIED),
                (&mut self.loaded[at], &mut self.loads[at], N_LOADED),
            ] {
                if known.contains(&tool) {
                    continue;
                }
                if let Some(ranked) = ranked.take() {
                    likely.extend(ranked());
                }
                *n = n.saturating_add(1);
                known.push(tool);
                carry(listed, &likely, n_carried, known);
            }
        }
    }

    /// Returns what came of it so far.
    #[must_use]
    pub fn outcome(&self) -> TrialOutcome {
        TrialOutcome {
            n_calls: self.n_calls,
            searches: self.searches,
            loads: self.loads,
        }
    }

    /// Returns how many different tools the session called.
    #[must_use]
    pub fn n_used(&self) -> usize {
        self.used.len()
    }

    /// Returns the probability that the first call was for one of the tools that were listed.
    #[must_use]
    pub fn mass(&self, is_listed: impl Fn(T) -> bool) -> f64 {
        let listed = self.first.iter().filter(|(tool, _)| is_listed(*tool));
        listed
            .map(|(_, probability)| probability)
            .sum::<f64>()
            .clamp(0.0, 1.0)
    }
}

/// Has a client know the likeliest tools that it does not know yet, at most `n_carried` of them.
fn carry<T: Copy + Eq>(listed: &[(T, f64)], likely: &[T], n_carried: usize, known: &mut Vec<T>) {
    let n = known.len() + n_carried;
    for tool in likely {
        if known.len() == n {
            break;
        }
        let is_listed = listed.iter().any(|(listed, _)| listed == tool);
        if !is_listed && !known.contains(tool) {
            known.push(*tool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session over 100 tools, of which those with low numbers are likely at first and those with
    /// high numbers later.
    fn trial() -> SessionTrial<usize> {
        SessionTrial::new((0..100).map(|tool| (tool, 0.01)))
    }

    #[test]
    fn a_tool_that_a_list_lacks_takes_a_search_and_brings_others() {
        let mut trial = trial();
        trial.call(3, || -> Vec<usize> { panic!("every list has it") });
        trial.call(15, || 50..100);
        // Carried by the answers of the proxy to those who had lists of 5 and 10.
        trial.call(58, || 90..100);
        trial.call(15, || -> Vec<usize> { panic!("it was used") });
        assert_eq!(
            trial.outcome(),
            TrialOutcome {
                n_calls: 4,
                searches: [1, 1, 1, 1, 0],
                loads: [2, 2, 1, 1, 0],
            }
        );
        assert_eq!(trial.n_used(), 3);
        assert!((trial.mass(|tool| tool < 20) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_longer_list_needs_fewer_searches() {
        let mut trial = trial();
        for tool in [99, 3, 45, 7, 81, 12, 30, 99] {
            trial.call(tool, || (0..100).rev());
        }
        let outcome = trial.outcome();
        assert!(outcome.loads[4] <= outcome.loads[0], "{outcome:?}");
        assert_eq!(outcome.n_calls, 8);
    }
}
