//! What operators point at, weighed in with what was found.

use std::collections::BTreeMap;

use super::fusion::RankFusion;
use super::index::{Hit, Term};

/// How much what operators point at counts by default, where words count 1.
pub const CURATED_WEIGHT: f64 = 1.5;

/// Returns hits with what operators point at weighed in, best first; ties by position.
///
/// `fits` says for positions how well what points at them fits, from 0 to 1; what fits less than
/// `floor` does not count. Where scores are fused, `weight * fit` is added; where ranks are, the share
/// of its place among those that are pointed at: `weight / (k + rank)`.
#[must_use]
pub fn weighed_in(
    mut hits: Vec<Hit>,
    fits: &BTreeMap<usize, f64>,
    (weight, floor): (f64, f64),
    fusion: Option<&RankFusion>,
) -> Vec<Hit> {
    let fits: Vec<(usize, f64)> = (fits.iter())
        .map(|(position, fit)| (*position, *fit))
        .filter(|(_, fit)| *fit >= floor && *fit > 0.0)
        .collect();
    if fits.is_empty() || weight == 0.0 {
        return hits;
    }
    let values: Vec<f64> = fits.iter().map(|(_, fit)| *fit).collect();
    let added: Vec<f64> = match fusion {
        None => values.iter().map(|fit| weight * fit).collect(),
        Some(fusion) => fusion.shares(&values, 0.0, weight),
    };
    let added: BTreeMap<usize, f64> = (fits.iter().zip(added))
        .map(|((position, _), added)| (*position, added))
        .collect();
    for hit in &mut hits {
        if let Some(added) = added.get(&hit.position) {
            hit.score += added;
            hit.terms.push((Term::Curated, *added));
        }
    }
    sort(&mut hits);
    hits
}

/// Puts the best hit first; ties by position.
pub(super) fn sort(hits: &mut [Hit]) {
    hits.sort_by(|a, b| {
        let by_score = b.score.total_cmp(&a.score);
        by_score.then(a.position.cmp(&b.position))
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hits(scores: &[f64]) -> Vec<Hit> {
        let hit = |(position, score): (usize, &f64)| Hit {
            position,
            score: *score,
            terms: vec![(Term::Words, *score)],
            coverage: 0.1,
            cosine: None,
        };
        let mut hits: Vec<Hit> = scores.iter().enumerate().map(hit).collect();
        sort(&mut hits);
        hits
    }

    fn order(hits: &[Hit]) -> Vec<usize> {
        hits.iter().map(|hit| hit.position).collect()
    }

    #[test]
    fn what_is_pointed_at_counts_by_how_well_that_fits_and_from_the_floor_on() {
        let found = hits(&[0.9, 0.5, 0.1]);
        let with = |fit| {
            let fits = BTreeMap::from([(2, fit)]);
            weighed_in(found.clone(), &fits, (1.5, 0.05), None)
        };
        assert_eq!(order(&with(0.049)), [0, 1, 2]);
        assert_eq!(order(&with(0.2)), [0, 1, 2]);
        assert_eq!(order(&with(0.4)), [0, 2, 1]);
        let first = with(0.6);
        assert_eq!(order(&first), [2, 0, 1]);
        assert!((first[0].score - 1.0).abs() < 1e-12);
        assert!(first[0].terms.contains(&(Term::Curated, 1.5 * 0.6)));
    }

    #[test]
    fn ranks_are_fused_with_ranks() {
        let fusion = RankFusion::default();
        let found = hits(&[1.0 / 61.0, 1.0 / 62.0, 1.0 / 63.0]);
        let fits = BTreeMap::from([(1, 0.3), (2, 0.6)]);
        let fused = weighed_in(found, &fits, (1.5, 0.05), Some(&fusion));
        assert_eq!(order(&fused), [2, 1, 0]);
        assert!((fused[0].score - (1.0 / 63.0 + 1.5 / 61.0)).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn scores_stay_the_sums_of_their_terms_and_no_tool_is_lost(
            scores in proptest::collection::vec(0.0..2.0_f64, 1..20),
            fits in proptest::collection::btree_map(0..20_usize, 0.0..1.0_f64, 0..10),
        ) {
            let n = scores.len();
            let with = weighed_in(hits(&scores), &fits, (CURATED_WEIGHT, 0.05), None);
            for hit in &with {
                let sum: f64 = hit.terms.iter().map(|(_, value)| value).sum();
                prop_assert!((sum - hit.score).abs() < 1e-9);
            }
            let mut all = order(&with);
            all.sort_unstable();
            prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }
}
