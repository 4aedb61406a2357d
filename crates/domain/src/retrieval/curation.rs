//! Curation: search results with the weight of tools that operators point at.

use std::collections::BTreeMap;

use super::fusion::RankFusion;
use super::index::{RankingTerm, SearchHit};

/// The default weight of curation. The weight of words is 1.
pub const CURATED_WEIGHT: f64 = 1.5;

/// Adds curation to hits, and returns them best first; ties by position.
///
/// `fits` has the fit of curated tools by position, from 0 to 1; a fit below `floor` does not
/// count. If scores are fused, `weight * fit` is added. If ranks are fused, the share of the rank
/// among the curated tools is added: `weight / (k + rank)`.
#[must_use]
pub fn add_curation(
    mut hits: Vec<SearchHit>,
    fits: &BTreeMap<usize, f64>,
    weight: f64,
    floor: f64,
    fusion: Option<&RankFusion>,
) -> Vec<SearchHit> {
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
        Some(fusion) => fusion.rank_shares(&values, 0.0, weight),
    };
    let added: BTreeMap<usize, f64> = (fits.iter().zip(added))
        .map(|((position, _), added)| (*position, added))
        .collect();
    for hit in &mut hits {
        if let Some(added) = added.get(&hit.position) {
            hit.score += added;
            hit.terms.push((RankingTerm::Curated, *added));
        }
    }
    sort_hits(&mut hits);
    hits
}

/// Sorts hits, best first; ties by position.
pub(super) fn sort_hits(hits: &mut [SearchHit]) {
    hits.sort_by(|a, b| {
        let by_score = b.score.total_cmp(&a.score);
        by_score.then(a.position.cmp(&b.position))
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hits(scores: &[f64]) -> Vec<SearchHit> {
        let hit = |(position, score): (usize, &f64)| SearchHit {
            position,
            score: *score,
            terms: vec![(RankingTerm::Words, *score)],
            coverage: 0.1,
            cosine: None,
        };
        let mut hits: Vec<SearchHit> = scores.iter().enumerate().map(hit).collect();
        sort_hits(&mut hits);
        hits
    }

    fn order(hits: &[SearchHit]) -> Vec<usize> {
        hits.iter().map(|hit| hit.position).collect()
    }

    #[test]
    fn curated_tools_gain_by_their_fit_above_the_floor() {
        let found = hits(&[0.9, 0.5, 0.1]);
        let with = |fit| {
            let fits = BTreeMap::from([(2, fit)]);
            add_curation(found.clone(), &fits, 1.5, 0.05, None)
        };
        assert_eq!(order(&with(0.049)), [0, 1, 2]);
        assert_eq!(order(&with(0.2)), [0, 1, 2]);
        assert_eq!(order(&with(0.4)), [0, 2, 1]);
        let first = with(0.6);
        assert_eq!(order(&first), [2, 0, 1]);
        assert!((first[0].score - 1.0).abs() < 1e-12);
        assert!(first[0].terms.contains(&(RankingTerm::Curated, 1.5 * 0.6)));
    }

    #[test]
    fn curated_fits_are_fused_by_their_ranks() {
        let fusion = RankFusion::default();
        let found = hits(&[1.0 / 61.0, 1.0 / 62.0, 1.0 / 63.0]);
        let fits = BTreeMap::from([(1, 0.3), (2, 0.6)]);
        let fused = add_curation(found, &fits, 1.5, 0.05, Some(&fusion));
        assert_eq!(order(&fused), [2, 1, 0]);
        assert!((fused[0].score - (1.0 / 63.0 + 1.5 / 61.0)).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn curated_scores_are_sums_of_terms_for_every_tool(
            scores in proptest::collection::vec(0.0..2.0_f64, 1..20),
            fits in proptest::collection::btree_map(0..20_usize, 0.0..1.0_f64, 0..10),
        ) {
            let n = scores.len();
            let with = add_curation(hits(&scores), &fits, CURATED_WEIGHT, 0.05, None);
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
