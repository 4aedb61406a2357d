//! Query expansion: alternative wordings of a query with a poor match, and the fusion of their
//! hits.

use std::collections::BTreeMap;

use strum::{IntoStaticStr, VariantArray};

use super::curation::sort_hits;
use super::index::{RankingTerm, SearchHit, ToolIndex};
use super::quality::fit_probability;
use super::synonyms::Synonyms;
use super::words::words;

/// The score of the best other hit, relative to the last of the hits that stay first.
const SCALE_BELOW_FIRST: f64 = 0.999;

/// The source of an alternative wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum VariantSource {
    /// Words with the same meaning.
    Synonyms,
    /// Earlier searches of the same principal that were followed by a successful call.
    History,
    /// A language model.
    Model,
}

impl VariantSource {
    /// All sources.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the source.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An alternative wording of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryVariant {
    /// The words.
    pub text: String,
    /// The source of the words.
    pub source: VariantSource,
    /// The weight of hits of this wording, from 0 to 1. The query itself has weight 1.
    pub trust: f64,
}

/// The rules for alternative wordings of a query with a poor match.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpansionRules {
    /// The maximum number of variants, from 0 to [`Self::MAX_VARIANTS`].
    pub n_variants: usize,
    /// Whether words are replaced by synonyms.
    pub synonyms: bool,
    /// Whether earlier searches are used.
    pub history: bool,
}

impl ExpansionRules {
    /// The maximum number of variants of a query.
    pub const MAX_VARIANTS: usize = 3;
    /// The trust in hits of synonyms. It is low, since a word of a group has many meanings.
    pub const SYNONYM_TRUST: f64 = 0.5;
    /// The trust in hits of a wording by a language model.
    pub const MODEL_TRUST: f64 = 0.75;
    /// The minimum cosine between the vectors of the query and of an earlier search that is used.
    pub const MIN_COSINE: f64 = 0.5;
    /// The maximum cosine. An earlier search above it is the same search, and finds nothing else.
    pub const MAX_COSINE: f64 = 0.97;
    /// The number of first hits of the query that stay first, in their order, and the probability
    /// of a fit that this needs. Alternative wordings add to poor matches, and take nothing from
    /// good ones.
    const N_KEPT: usize = 5;
    const KEPT_FIT: f64 = 0.05;
    /// The maximum number of words. A longer text is a task, in which no single word is the search
    /// word.
    const MAX_WORDS: usize = 40;

    /// Returns the trust in an earlier search with this cosine to the query; `None` if it is not
    /// used.
    #[must_use]
    pub fn history_trust(cosine: f64) -> Option<f64> {
        (Self::MIN_COSINE..=Self::MAX_COSINE)
            .contains(&cosine)
            .then_some(cosine)
    }

    /// Selects variants from several sources, each ordered best first: the first one of each
    /// source, then the second ones, up to the maximum number. Variants with the text of the query
    /// or of an earlier variant are left out.
    #[must_use]
    pub fn select_variants(&self, query: &str, sources: &[Vec<QueryVariant>]) -> Vec<QueryVariant> {
        let n_variants = self.n_variants.min(Self::MAX_VARIANTS);
        let longest = sources.iter().map(Vec::len).max().unwrap_or(0);
        let mut chosen: Vec<QueryVariant> = Vec::new();
        for place in 0..longest {
            for variant in sources.iter().filter_map(|source| source.get(place)) {
                let is_same = |text: &str| text.eq_ignore_ascii_case(&variant.text);
                let is_known = is_same(query) || chosen.iter().any(|known| is_same(&known.text));
                if !is_known && chosen.len() < n_variants {
                    chosen.push(variant.clone());
                }
            }
        }
        chosen
    }
}

impl Default for ExpansionRules {
    fn default() -> Self {
        Self {
            n_variants: Self::MAX_VARIANTS,
            synonyms: true,
            history: true,
        }
    }
}

impl ToolIndex {
    /// Returns at most `n` alternative texts for a query, made of synonyms that tools have.
    ///
    /// Words that no tool has are replaced, if any of them has synonyms; otherwise all words with
    /// synonyms are. Variant `i` has the `i`-th synonym of each word. A text of more than 40 words
    /// has no variants.
    #[must_use]
    pub fn synonym_variants(&self, text: &str, synonyms: &Synonyms, n: usize) -> Vec<QueryVariant> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        if parts.len() > ExpansionRules::MAX_WORDS {
            return Vec::new();
        }
        let mut known: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        let mut unknown: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (at, part) in parts.iter().enumerate() {
            let terms = words(part);
            let [term] = terms.as_slice() else {
                continue;
            };
            let others = synonyms.of(term).iter();
            let others = others.filter(|other| self.has_term(other));
            let others: Vec<&str> = others.filter_map(|other| synonyms.word_of(other)).collect();
            if others.is_empty() {
                continue;
            }
            let place = if self.has_term(term) {
                &mut known
            } else {
                &mut unknown
            };
            place.insert(at, others);
        }
        let replaced = if unknown.is_empty() { known } else { unknown };
        let n_others = replaced.values().map(Vec::len).max().unwrap_or(0);
        let variant = |number: usize| {
            let mut parts = parts.clone();
            for (at, others) in &replaced {
                // A word with fewer synonyms keeps its last one.
                parts[*at] = others[number.min(others.len() - 1)];
            }
            QueryVariant {
                text: parts.join(" "),
                source: VariantSource::Synonyms,
                trust: ExpansionRules::SYNONYM_TRUST,
            }
        };
        (0..n_others.min(n)).map(variant).collect()
    }
}

/// Fuses the hits of a query with the hits of its variants, each with its trust. Returns them best
/// first; ties by position.
///
/// A score, and each of its terms, is the weighted mean over the query, with weight 1, and the
/// variants, with their trust as weight. This is correct for sums of reciprocal ranks too. The
/// coverage and the cosine of a tool are the maximum over all wordings, each times its trust. The
/// first five hits of the query stay first, in their order, if they fit at all or were used after
/// similar queries.
#[must_use]
pub fn fuse_variants(query: &[SearchHit], variants: &[(f64, Vec<SearchHit>)]) -> Vec<SearchHit> {
    let total = 1.0 + variants.iter().map(|(trust, _)| trust).sum::<f64>();
    let mut by_position: BTreeMap<usize, (SearchHit, BTreeMap<RankingTerm, f64>)> = BTreeMap::new();
    let whole = std::iter::once((1.0, query));
    let all = whole.chain(
        variants
            .iter()
            .map(|(trust, hits)| (*trust, hits.as_slice())),
    );
    for (trust, hits) in all {
        for hit in hits {
            let (fused, terms) = by_position.entry(hit.position).or_insert_with(|| {
                let none = SearchHit {
                    position: hit.position,
                    score: 0.0,
                    terms: Vec::new(),
                    coverage: 0.0,
                    cosine: None,
                };
                (none, BTreeMap::new())
            });
            fused.score += trust * hit.score / total;
            fused.coverage = fused.coverage.max(trust * hit.coverage);
            let cosine = hit.cosine.map(|cosine| trust * cosine);
            fused.cosine = match (fused.cosine, cosine) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
            for (term, value) in &hit.terms {
                *terms.entry(*term).or_default() += trust * value / total;
            }
        }
    }
    let hits = by_position.into_values().map(|(mut hit, terms)| {
        hit.terms = terms.into_iter().collect();
        hit
    });
    let mut hits: Vec<SearchHit> = hits.collect();
    sort_hits(&mut hits);
    keep_first(query, hits)
}

/// Returns whether a hit of the query can stay first: it fits by its text, or was used after
/// similar queries.
fn stays_first(hit: &SearchHit) -> bool {
    let was_used =
        (hit.terms.iter()).any(|(term, value)| *term == RankingTerm::Memory && *value > 0.0);
    hit.score > 0.0 && (was_used || fit_probability(hit) >= ExpansionRules::KEPT_FIT)
}

/// Puts the hits of the query that stay first before all others, with their original scores. If
/// other hits have higher scores, all of these are scaled down, so that the order agrees with the
/// scores.
fn keep_first(query: &[SearchHit], fused: Vec<SearchHit>) -> Vec<SearchHit> {
    let first = query.iter().take(ExpansionRules::N_KEPT);
    let kept: Vec<&SearchHit> = first.filter(|hit| stays_first(hit)).collect();
    let Some(last) = kept.last().map(|hit| hit.score) else {
        return fused;
    };
    let is_kept = |hit: &SearchHit| kept.iter().any(|kept| kept.position == hit.position);
    let (first, mut others): (Vec<SearchHit>, Vec<SearchHit>) =
        fused.into_iter().partition(is_kept);
    let largest = others.first().map_or(0.0, |hit| hit.score);
    if largest >= last {
        let scale = SCALE_BELOW_FIRST * last / largest;
        for hit in &mut others {
            hit.score *= scale;
            for (_, value) in &mut hit.terms {
                *value *= scale;
            }
        }
    }
    let both = kept.iter().filter_map(|kept| {
        let fused = first.iter().find(|hit| hit.position == kept.position)?;
        Some(SearchHit {
            coverage: fused.coverage,
            cosine: fused.cosine,
            ..(*kept).clone()
        })
    });
    let mut both: Vec<SearchHit> = both.collect();
    both.extend(others);
    both
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::tool::ToolRef;
    use crate::id::{ToolName, UpstreamName};
    use crate::retrieval::{IndexedTool, Query, RankingRules, ToolText};

    fn index(names: &[&str]) -> ToolIndex {
        let tool = |name: &&str| {
            let tool = ToolRef {
                upstream: UpstreamName::parse("u").unwrap(),
                tool: ToolName::from(*name),
            };
            let text = ToolText {
                name: (*name).into(),
                ..ToolText::default()
            };
            IndexedTool::new(tool, text)
        };
        ToolIndex::new(names.iter().map(tool).collect())
    }

    fn texts(index: &ToolIndex, query: &str, n: usize) -> Vec<String> {
        let groups = "erase delete remove drop\nphoto picture image\nbig large";
        let synonyms = Synonyms::default().with(groups).unwrap();
        let variants = index.synonym_variants(query, &synonyms, n);
        variants.into_iter().map(|variant| variant.text).collect()
    }

    #[test]
    fn words_unknown_to_all_tools_are_replaced_by_synonyms() {
        let index = index(&["delete_image", "remove_picture", "list_image"]);
        let both = ["delete the picture", "remove the image"];
        assert_eq!(texts(&index, "erase the photo", 3), both);
        assert_eq!(texts(&index, "erase the photo", 1), both[..1]);
        assert!(texts(&index, "erase the photo", 0).is_empty());
        // Words that tools have stay while there are words that no tool has.
        assert_eq!(
            texts(&index, "erase image", 3),
            ["delete image", "remove image"]
        );
        assert_eq!(texts(&index, "list image", 3), ["list picture"]);
        // No tool has any of these words.
        assert!(texts(&index, "big bang", 3).is_empty());
        assert!(texts(&index, "", 3).is_empty());
    }

    #[test]
    fn a_query_of_over_forty_words_is_not_expanded() {
        let index = index(&["delete_image"]);
        let query = |n: usize| format!("erase {}", "x ".repeat(n - 1));
        assert_eq!(texts(&index, &query(40), 3).len(), 1);
        assert!(texts(&index, &query(41), 3).is_empty());
    }

    #[test]
    fn hits_of_variants_count_by_their_trust() {
        let index = index(&["alpha", "beta", "gamma"]);
        let rank = |text: &str| {
            let query = Query::new(text, &Synonyms::default());
            index.rank(&query, &RankingRules::default(), None, 3)
        };
        let (first, second) = (rank("alpha"), rank("beta"));
        let order = |trust: f64| {
            let fused = fuse_variants(&first, &[(trust, second.clone())]);
            let positions: Vec<usize> = fused.iter().map(|hit| hit.position).collect();
            (positions, fused)
        };
        assert_eq!(order(0.5).0, [0, 1, 2]);
        let (_, fused) = order(0.5);
        let beta = fused.iter().find(|hit| hit.position == 1).unwrap();
        assert!(beta.score <= first[0].score * 0.5);
        assert!((beta.coverage - 0.5 * second[0].coverage).abs() < 1e-12);
        assert_eq!(super::fuse_variants(&first, &[]), first);
    }

    #[test]
    fn similar_but_different_earlier_searches_are_trusted() {
        for (cosine, expected) in [
            (0.499, None),
            (0.5, Some(0.5)),
            (0.97, Some(0.97)),
            (0.971, None),
            (f64::NAN, None),
        ] {
            assert_eq!(ExpansionRules::history_trust(cosine), expected);
        }
    }

    #[test]
    fn variants_alternate_between_sources_without_repetitions() {
        let variant = |text: &str| QueryVariant {
            text: text.into(),
            source: VariantSource::History,
            trust: 0.5,
        };
        let of = |texts: &[&str]| texts.iter().map(|text| variant(text)).collect::<Vec<_>>();
        let sources = [of(&["a", "b", "c"]), of(&["A", "Query", "d"])];
        let chosen = |n_variants| {
            let rules = ExpansionRules {
                n_variants,
                ..ExpansionRules::default()
            };
            let chosen = rules.select_variants("query", &sources).into_iter();
            chosen.map(|variant| variant.text).collect::<Vec<_>>()
        };
        assert_eq!(chosen(3), ["a", "b", "c"]);
        assert_eq!(chosen(2), ["a", "b"]);
        assert_eq!(chosen(9), chosen(3));
        assert!(chosen(0).is_empty());
    }

    #[test]
    fn variants_displace_only_unfitting_first_hits() {
        let hit = |position: usize, coverage: f64, score: f64| SearchHit {
            position,
            score,
            terms: vec![(RankingTerm::Words, score)],
            coverage,
            cosine: None,
        };
        // A fit of 0.05 needs a coverage of 0.0081.
        let found = |coverage: f64| vec![hit(0, coverage, 0.2), hit(1, 0.0, 0.1)];
        let with = vec![hit(1, 0.5, 1.0), hit(0, 0.0, 0.0)];
        let first =
            |coverage: f64| fuse_variants(&found(coverage), &[(0.5, with.clone())])[0].position;
        assert_eq!(first(0.009), 0);
        assert_eq!(first(0.007), 1);
        let mut used = found(0.0);
        used[0].terms = vec![(RankingTerm::Memory, 0.2)];
        assert_eq!(fuse_variants(&used, &[(0.5, with.clone())])[0].position, 0);
    }

    proptest! {
        #[test]
        fn fused_scores_are_in_order_and_the_sums_of_their_terms(
            found in proptest::collection::vec((0.0..1.0_f64, -0.5..2.0_f64), 1..12),
            with in proptest::collection::vec((0.0..1.0_f64, -0.5..2.0_f64), 1..12),
            trust in 0.1..1.0_f64,
        ) {
            let hits = |values: &[(f64, f64)]| {
                let hit = |(position, (coverage, score)): (usize, &(f64, f64))| SearchHit {
                    position,
                    score: *score,
                    terms: vec![(RankingTerm::Words, *score)],
                    coverage: *coverage,
                    cosine: None,
                };
                let mut hits: Vec<SearchHit> = values.iter().enumerate().map(hit).collect();
                sort_hits(&mut hits);
                hits
            };
            let (found, with) = (hits(&found), hits(&with));
            let fused = fuse_variants(&found, &[(trust, with.clone())]);
            prop_assert_eq!(fused.len(), found.len().max(with.len()));
            prop_assert!(fused.is_sorted_by(|a, b| a.score >= b.score));
            for hit in &fused {
                let sum: f64 = hit.terms.iter().map(|(_, value)| value).sum();
                prop_assert!((sum - hit.score).abs() < 1e-9);
            }
        }

        #[test]
        fn any_text_can_be_expanded(text in ".{0,200}", n in 0..4_usize) {
            let index = index(&["delete_image", "remove_picture"]);
            prop_assert!(texts(&index, &text, n).len() <= n);
        }
    }
}
