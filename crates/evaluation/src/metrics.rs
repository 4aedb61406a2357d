//! Ranking metrics (recall, precision, reciprocal rank, nDCG) and their means over queries.

use std::collections::HashMap;
use std::hash::Hash;

use riglm_domain::num::to_f64;

/// The relevant items of a query, in groups. One found member is enough for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelevantItems<T> {
    groups: Vec<Vec<T>>,
}

impl<T: Eq + Hash> RelevantItems<T> {
    /// Returns the relevant items with these groups. Empty groups are left out.
    #[must_use]
    pub fn new(groups: Vec<Vec<T>>) -> Self {
        let groups = groups.into_iter().filter(|group| !group.is_empty());
        Self {
            groups: groups.collect(),
        }
    }

    /// Returns relevant items with one group for each: all of them should be found.
    #[must_use]
    pub fn all_of(items: Vec<T>) -> Self {
        Self::new(items.into_iter().map(|item| vec![item]).collect())
    }

    /// Returns whether there is no relevant item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the members of all groups.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().flatten()
    }

    /// Returns the rank, from 1, of the first found member of each group. Groups without a found
    /// member are left out.
    fn group_ranks(&self, ranking: &[T]) -> Vec<usize> {
        let mut at: HashMap<&T, usize> = HashMap::new();
        for (place, item) in (1..).zip(ranking) {
            at.entry(item).or_insert(place);
        }
        let first = |group: &Vec<T>| group.iter().filter_map(|item| at.get(item).copied()).min();
        self.groups.iter().filter_map(first).collect()
    }
}

/// Means over the added queries. All are shares from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankingMetrics {
    n_queries: u64,
    hits: [f64; RankingMetrics::RECALL_AT.len()],
    n_found: [f64; RankingMetrics::RECALL_AT.len()],
    recalls: [f64; RankingMetrics::RECALL_AT.len()],
    reciprocal_rank: f64,
    ndcg_10: f64,
    all_15: f64,
}

impl RankingMetrics {
    /// The cut-offs at which [`Self::recall`] is measured.
    pub const RECALL_AT: [usize; 6] = [1, 3, 5, 10, 15, 20];

    /// Adds the ranking of one query, best first. A query without relevant items does not count.
    ///
    /// Recall at k is the share of the groups that are found among the first k. The reciprocal rank
    /// is taken from the first relevant item. nDCG at 10 has a gain of 1 for each group, at the
    /// rank of its first member (Järvelin and Kekäläinen 2002, binary relevance).
    pub fn add<T: Eq + Hash>(&mut self, ranking: &[T], gold: &RelevantItems<T>) {
        if gold.is_empty() {
            return;
        }
        let places = gold.group_ranks(ranking);
        let n_gold = gold.groups.len();
        let within = |k: usize| to_f64(places.iter().filter(|place| **place <= k).count());
        self.n_queries += 1;
        for (recall, k) in self.recalls.iter_mut().zip(Self::RECALL_AT) {
            *recall += within(k) / to_f64(n_gold);
        }
        let sums = self.hits.iter_mut().zip(&mut self.n_found);
        for ((hit, n_found), k) in sums.zip(Self::RECALL_AT) {
            *hit += within(k).min(1.0);
            *n_found += within(k);
        }
        self.reciprocal_rank += places
            .iter()
            .min()
            .map_or(0.0, |first| 1.0 / to_f64(*first));
        let gain = |place: usize| 1.0 / (to_f64(place) + 1.0).log2();
        let found: f64 = places
            .iter()
            .filter(|place| **place <= 10)
            .map(|place| gain(*place))
            .sum();
        let ideal: f64 = (1..=n_gold.min(10)).map(gain).sum();
        self.ndcg_10 += found / ideal;
        if within(15) >= to_f64(n_gold) {
            self.all_15 += 1.0;
        }
    }

    /// Returns the number of added queries.
    #[must_use]
    pub fn n_queries(&self) -> u64 {
        self.n_queries
    }

    /// Returns the share of queries with a relevant tool among the first `k`. `k` is one of
    /// [`Self::RECALL_AT`]; the result is 0 for any other cut-off.
    #[must_use]
    pub fn hit_rate(&self, k: usize) -> f64 {
        let at = Self::RECALL_AT.iter().position(|known| *known == k);
        at.map_or(0.0, |at| self.mean(self.hits[at]))
    }

    /// Returns the mean share of relevant tools among the first `k`. `k` is one of
    /// [`Self::RECALL_AT`]; the result is 0 for any other cut-off. It cannot reach 1 with fewer
    /// than `k` relevant tools.
    #[must_use]
    pub fn precision(&self, k: usize) -> f64 {
        let at = Self::RECALL_AT.iter().position(|known| *known == k);
        at.map_or(0.0, |at| self.mean(self.n_found[at]) / to_f64(k))
    }

    /// Returns the mean recall at one of [`Self::RECALL_AT`]; 0 for any other cut-off.
    #[must_use]
    pub fn recall(&self, k: usize) -> f64 {
        let at = Self::RECALL_AT.iter().position(|known| *known == k);
        at.map_or(0.0, |at| self.mean(self.recalls[at]))
    }

    /// Returns the mean reciprocal rank.
    #[must_use]
    pub fn mrr(&self) -> f64 {
        self.mean(self.reciprocal_rank)
    }

    /// Returns the mean nDCG at 10.
    #[must_use]
    pub fn ndcg_10(&self) -> f64 {
        self.mean(self.ndcg_10)
    }

    /// Returns the share of queries with every group found among the first 15.
    #[must_use]
    pub fn complete_at_15(&self) -> f64 {
        self.mean(self.all_15)
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / to_f64(self.n_queries.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranking: &[&str], gold: &RelevantItems<&str>) -> RankingMetrics {
        let mut metrics = RankingMetrics::default();
        metrics.add(ranking, gold);
        metrics
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn metrics_follow_the_places_of_relevant_items() {
        let metrics = of(
            &["x", "a", "y", "z", "b"],
            &RelevantItems::all_of(vec!["a", "b", "c"]),
        );
        assert!(near(metrics.hit_rate(1), 0.0) && near(metrics.mrr(), 0.5));
        assert!(near(metrics.recall(3), 1.0 / 3.0) && near(metrics.recall(5), 2.0 / 3.0));
        let ideal = 1.0 + 1.0 / 3.0_f64.log2() + 0.5;
        let found = 1.0 / 3.0_f64.log2() + 1.0 / 6.0_f64.log2();
        assert!(near(metrics.ndcg_10(), found / ideal));
        assert!(near(metrics.complete_at_15(), 0.0));
    }

    #[test]
    fn an_item_of_a_relevant_group_suffices() {
        let metrics = of(
            &["b", "a"],
            &RelevantItems::new(vec![vec!["a", "b"], vec![]]),
        );
        assert!(near(metrics.hit_rate(1), 1.0) && near(metrics.recall(1), 1.0));
        assert!(near(metrics.ndcg_10(), 1.0) && near(metrics.complete_at_15(), 1.0));
    }

    #[test]
    fn means_cover_only_queries_with_relevant_items() {
        let mut metrics = of(&["a"], &RelevantItems::all_of(vec!["a"]));
        metrics.add(&["b"], &RelevantItems::all_of(vec!["a"]));
        metrics.add(&["b"], &RelevantItems::all_of(vec![]));
        assert_eq!(metrics.n_queries(), 2);
        assert!(near(metrics.mrr(), 0.5));
    }
}
