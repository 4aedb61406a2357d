//! Source of the unique part of identifiers.

use std::sync::atomic::{AtomicU64, Ordering};

use riglm_domain::id::Entropy;

/// Returns a different value each time: random bits of the run, and a count from a random start.
///
/// Identifiers must differ, but need not be secret; a system call for each would cost more than the
/// rest of creating it. Identifiers of the same millisecond sort in the order of creation.
#[derive(Debug)]
pub struct EntropySource {
    of_run: [u8; 4],
    count: AtomicU64,
}

impl Default for EntropySource {
    fn default() -> Self {
        Self::new()
    }
}

impl EntropySource {
    /// Creates a source that differs from the sources of all other runs.
    pub fn new() -> Self {
        let mut random = [0; 12];
        if let Err(error) = getrandom::fill(&mut random) {
            // The identifiers still differ between runs, because their other half is the time.
            tracing::warn!("failed to get random numbers from the operating system: {error}");
        }
        let [a, b, c, d, start @ ..] = random;
        // The top bit stays zero, so that the count does not wrap during a run.
        let start = u64::from_be_bytes(start) & COUNT_MASK >> 1;
        Self {
            of_run: [a, b, c, d],
            count: AtomicU64::new(start),
        }
    }

    /// Returns the next value.
    pub fn next(&self) -> Entropy {
        let count = self.count.fetch_add(1, Ordering::Relaxed) & COUNT_MASK;
        let mut entropy = Entropy::default();
        entropy[..4].copy_from_slice(&self.of_run);
        entropy[4..].copy_from_slice(&count.to_be_bytes()[2..]);
        entropy
    }
}

/// The 48 bits of a count.
const COUNT_MASK: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn values_differ_and_grow() {
        let source = EntropySource::new();
        let values: Vec<Entropy> = (0..1_000).map(|_| source.next()).collect();
        assert!(values.is_sorted());
        assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), 1_000);
        assert_ne!(EntropySource::new().next()[..4], source.next()[..4]);
    }
}
