//! Calibration of the predictions behind lists: whether as many calls were of listed tools as was
//! expected.

use std::array;

use crate::num::{ratio, to_f64};
use crate::selection::ExpectedCoverage;
use crate::usage::invocation::ToolSource;

/// The number of bins, which have the same width.
const N_BINS: usize = 10;

/// The calls under lists with an expected coverage, by this coverage. A call counts under the list
/// that was the newest one of its session.
///
/// An agent uses what it is shown, so the actual coverage is higher than it would be with another
/// list. Calls of names that no list has do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    bins: [CalibrationBin; N_BINS],
}

/// The lists in a range of expected coverages, and the calls under them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrationBin {
    /// The start of the range.
    pub from: f64,
    /// The end of the range, which belongs to the next bin, if there is one.
    pub to: f64,
    /// Number of lists. A list counts once for each session that was shown it.
    pub lists: u64,
    /// Number of calls under these lists.
    pub calls: u64,
    /// Number of these calls whose tool was listed.
    pub covered_calls: u64,
    /// Sum of the expected coverages over these calls: the expected number of covered ones.
    pub expected_calls: f64,
}

impl Default for Calibration {
    /// Returns the calibration without lists.
    fn default() -> Self {
        let edge = |n: usize| to_f64(n) / to_f64(N_BINS);
        Self {
            bins: array::from_fn(|n| CalibrationBin::new(edge(n), edge(n + 1))),
        }
    }
}

impl Calibration {
    /// Returns the bins, ascending. Together they have the range from 0 to 1.
    #[must_use]
    pub fn bins(&self) -> &[CalibrationBin] {
        &self.bins
    }

    /// Returns all lists and calls as one bin.
    #[must_use]
    pub fn total(&self) -> CalibrationBin {
        let mut total = CalibrationBin::new(0.0, 1.0);
        for bin in &self.bins {
            total.add(bin);
        }
        total
    }

    /// Adds the lists and calls of another session.
    pub fn add(&mut self, other: &Self) {
        for (bin, other) in self.bins.iter_mut().zip(&other.bins) {
            bin.add(other);
        }
    }

    /// Adds a list.
    pub(super) fn add_list(&mut self, expected: ExpectedCoverage) {
        if let Some(bin) = self.bin_of(expected) {
            bin.lists += 1;
        }
    }

    /// Adds a call under a list with this expected coverage.
    pub(super) fn add_call(&mut self, expected: ExpectedCoverage, source: ToolSource) {
        let n_covered = match source {
            ToolSource::Shown => 1,
            ToolSource::Found | ToolSource::Hidden => 0,
            // No list could have had the tool.
            ToolSource::Unlisted => return,
        };
        if let Some(bin) = self.bin_of(expected) {
            bin.calls += 1;
            bin.covered_calls += n_covered;
            bin.expected_calls += expected.get();
        }
    }

    fn bin_of(&mut self, expected: ExpectedCoverage) -> Option<&mut CalibrationBin> {
        (self.bins.iter_mut()).rfind(|bin| bin.from <= expected.get())
    }
}

impl CalibrationBin {
    fn new(from: f64, to: f64) -> Self {
        Self {
            from,
            to,
            lists: 0,
            calls: 0,
            covered_calls: 0,
            expected_calls: 0.0,
        }
    }

    /// Returns the mean expected coverage of the calls; `None` without calls.
    #[must_use]
    pub fn expected_share(&self) -> Option<f64> {
        let mean = self.expected_calls / to_f64(self.calls);
        // The sum of many equal numbers may be rounded out of the range.
        (self.calls > 0).then(|| mean.clamp(self.from, self.to))
    }

    /// Returns the share of the calls whose tool was listed; `None` without calls.
    #[must_use]
    pub fn actual_share(&self) -> Option<f64> {
        (self.calls > 0).then(|| ratio(self.covered_calls, self.calls))
    }

    fn add(&mut self, other: &Self) {
        self.lists += other.lists;
        self.calls += other.calls;
        self.covered_calls += other.covered_calls;
        self.expected_calls += other.expected_calls;
    }
}
