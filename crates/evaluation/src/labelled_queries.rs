//! Offline evaluation of search quality on queries with known right tools.

mod expanding;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Encoders, RankingMetrics, RelevantItems};
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::recommendation::{
    Candidate, CandidateIndex, FactorWeights, IntentAnalysis, Lexicon, PerformanceTable,
    Successions, ToolPerformance, rank_candidates,
};
use riglm_domain::retrieval::search::SearchQuality;
use riglm_domain::retrieval::{
    ExpansionRules, IndexedTool, QualityRules, Query, RankingHistory, RankingRules, SearchHit,
    Synonyms, ToolIndex, UsageHistory, fuse_variants, grade_answer,
};
use riglm_ports::encoder::EncoderError;

use self::expanding::Variants;
use riglm_discovery::search::EncoderTier;
use riglm_discovery::search::fits;

/// An answer counts as good if a right tool is among this many first ones.
const N_GRADED: usize = 5;

/// Tools, and queries whose right tools are known.
#[derive(Debug)]
pub struct LabelledCatalog {
    /// The tools.
    pub tools: Vec<IndexedTool>,
    /// The queries, in the order in which they were asked.
    pub queries: Vec<LabelledQuery>,
    /// Texts of queries that match no tool of the catalog.
    pub foreign: Vec<String>,
}

/// A query with its right tools.
#[derive(Debug)]
pub struct LabelledQuery {
    /// Text of the query.
    pub text: String,
    /// Positions of the right tools. A position beyond the end of the catalog stands for a tool
    /// that the catalog lacks. It is never found and counts as a miss.
    pub gold: RelevantItems<usize>,
    /// The task or session of the query. A query never learns from queries of its own group.
    pub group: u64,
}

/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationOptions {
    /// Ranking rules.
    pub ranking: RankingRules,
    /// The synonyms.
    pub synonyms: Synonyms,
    /// Rules for grading answers.
    pub quality: QualityRules,
    /// The lowest fit at which a hit counts as a match. Below it, the answer says that no tool
    /// matches.
    pub min_fit: f64,
    /// Whether a query is ranked with the tool use of all other groups.
    pub with_history: bool,
    /// The number of tools to rank, at least the largest cut-off of the metrics.
    pub limit: usize,
    /// Options for ranking as recommendations, or `None` for searches.
    pub recommending: Option<Recommending>,
    /// Rules for expanding queries whose answer is graded low, or `None` for no expansion.
    pub expansion: Option<ExpansionRules>,
}

/// Options for ranking as recommendations.
#[derive(Clone, Debug)]
pub struct Recommending {
    /// The lexicon that analyses the intent.
    pub lexicon: Lexicon,
    /// Weights of the factors.
    pub weights: FactorWeights,
    /// The number of ranked candidates.
    pub n_candidates: usize,
    /// The number of recommended tools.
    pub n_recommended: usize,
}

/// Result of all answers with one grade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GradeCounts {
    /// The number of answers with this grade.
    pub n_answers: u64,
    /// The number of these answers with a right tool in the first five places.
    pub n_found: u64,
}

/// A fraction of a number of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryShare {
    /// The number of queries for which a condition holds.
    pub part: u64,
    /// The number of all queries.
    pub whole: u64,
}

impl QueryShare {
    fn add(&mut self, holds: bool) {
        self.part += u64::from(holds);
        self.whole += 1;
    }
}

/// Results of an evaluation.
#[derive(Debug)]
pub struct EvaluationReport {
    /// Ranking metrics.
    pub metrics: RankingMetrics,
    /// The number of different recommended tools, and of answers with at least one right tool. Both
    /// are 0 for searches.
    pub recommended: (usize, u64),
    /// Results per grade.
    pub grades: BTreeMap<SearchQuality, GradeCounts>,
    /// Queries with a matching tool for which the answer says that no tool matches.
    pub false_no_match: QueryShare,
    /// Queries without a matching tool for which the answer does not say so.
    pub missed_no_match: QueryShare,
    /// Queries without a matching tool whose answer is not even graded low.
    pub missed_uncertain: QueryShare,
    /// The number of expanded queries, and the number of these whose grade improved.
    pub expanded: (u64, u64),
    /// Ranking times without the encoder, ascending.
    pub rank_times: Vec<Duration>,
    /// Encoding times of the queries, ascending. Empty without an encoder.
    pub encode_times: Vec<Duration>,
    /// Indexes of the queries whose answers are graded low.
    low: Vec<usize>,
}

/// Ranks every query and computes the metrics. The encoders, if any, are given with the better one
/// first. `progress` gets the present step, the number of finished items and the number of all
/// items.
///
/// # Errors
///
/// Returns [`EncoderError`] when the encoder fails.
pub async fn evaluate(
    catalog: &LabelledCatalog,
    encoders: &Encoders,
    options: &EvaluationOptions,
    progress: &(dyn Fn(&str, usize, usize) + Sync),
) -> Result<EvaluationReport, EncoderError> {
    let mut index = ToolIndex::new(catalog.tools.clone());
    let labelled = catalog.queries.iter().map(|query| query.text.as_str());
    let foreign = catalog.foreign.iter().map(String::as_str);
    let texts: Vec<&str> = labelled.chain(foreign).collect();
    let mut queries: Vec<Query> = (texts.iter())
        .map(|text| Query::new(text, &options.synonyms))
        .collect();
    let mut tiers: Vec<EncoderTier> = Vec::new();
    let n_encoded = if encoders.is_empty() {
        0
    } else {
        queries.len()
    };
    let mut encode_times = vec![Duration::ZERO; n_encoded];
    for encoder in encoders {
        let tier = EncoderTier::new(Arc::clone(encoder), None);
        let told = |done: usize, all: usize| progress("embedding tools", done, all);
        let (vectors, centre) = tier.tools(&catalog.tools, &told).await?;
        index = index.with_vectors(tier.model(), &vectors, &centre);
        for (number, query) in queries.iter_mut().enumerate() {
            let text = Query::readable_part(texts[number]);
            let started = Instant::now();
            let vector = tier.encode_uncached(text).await?;
            encode_times[number] += started.elapsed();
            if let Some(vector) = tier.subtract_mean(&vector) {
                *query = query.clone().with_vector(vector);
            }
            progress("encoding queries", number + 1, n_encoded);
        }
        tiers.push(tier);
    }
    let (queries, foreign) = queries.split_at(catalog.queries.len());
    let none = Variants::default();
    let variants = match &options.expansion {
        None => none,
        Some(rules) => {
            let first = rank_all(catalog, &index, queries, &none, options, &|_, _, _| {});
            let low = first.low.as_slice();
            let asked = (queries, low);
            expanding::variants(catalog, &index, asked, &tiers, (options, rules)).await?
        }
    };
    let mut report = rank_all(catalog, &index, queries, &variants, options, progress);
    for query in foreign {
        let hits = index.rank(query, &options.ranking, None, N_GRADED);
        report.missed_no_match.add(fits(&hits, options.min_fit));
        let (_, quality) = grade_answer(&hits, &options.quality);
        (report.missed_uncertain).add(quality != SearchQuality::Low);
    }
    encode_times.truncate(queries.len());
    report.encode_times = encode_times;
    report.encode_times.sort_unstable();
    Ok(report)
}

fn rank_all(
    catalog: &LabelledCatalog,
    index: &ToolIndex,
    queries: &[Query],
    variants: &Variants,
    options: &EvaluationOptions,
    progress: &(dyn Fn(&str, usize, usize) + Sync),
) -> EvaluationReport {
    let mut others = options
        .with_history
        .then(|| OtherGroups::new(catalog, queries));
    let mut metrics = RankingMetrics::default();
    let mut grades: BTreeMap<SearchQuality, GradeCounts> = BTreeMap::new();
    let mut rank_times = Vec::with_capacity(queries.len());
    let reranker = (options.recommending.as_ref()).map(|rules| Reranker::new(rules, index));
    let mut recommended: BTreeSet<usize> = BTreeSet::new();
    let mut n_right = 0;
    let mut false_no_match = QueryShare::default();
    let mut expanded = (0, 0);
    let mut low = Vec::new();
    for (number, (query, labelled)) in queries.iter().zip(&catalog.queries).enumerate() {
        let other_words = variants.of(number);
        let rank = |past: Option<RankingHistory<'_>>| {
            let limit = if other_words.is_empty() {
                options.limit
            } else {
                index.tools().len()
            };
            let hits = index.rank(query, &options.ranking, past, limit);
            better_graded(index, hits, other_words, past, options)
        };
        let (hits, ranking) = match &mut others {
            None => measure_time(&mut rank_times, || {
                let hits = rank(None);
                let ranking = reranked_positions(reranker.as_ref(), &labelled.text, &hits, None);
                (hits, ranking)
            }),
            Some(others) => others.rank_without(labelled.group, number, |past| {
                measure_time(&mut rank_times, || {
                    let hits = rank(Some(past));
                    let text = &labelled.text;
                    let ranking = reranked_positions(reranker.as_ref(), text, &hits, Some(past));
                    (hits, ranking)
                })
            }),
        };
        let n_tools = index.tools().len();
        if labelled.gold.items().any(|tool| *tool < n_tools) {
            false_no_match.add(!fits(&hits, options.min_fit));
        }
        let (_, quality) = grade_answer(&hits, &options.quality);
        if quality == SearchQuality::Low {
            low.push(number);
        }
        if !other_words.is_empty() {
            expanded.0 += 1;
            expanded.1 += u64::from(quality < SearchQuality::Low);
        }
        if let Some(rules) = &options.recommending {
            let first = &ranking[..ranking.len().min(rules.n_recommended)];
            recommended.extend(first);
            n_right += u64::from(labelled.gold.items().any(|tool| first.contains(tool)));
        }
        let first = &ranking[..ranking.len().min(N_GRADED)];
        let of_grade = grades.entry(quality).or_default();
        of_grade.n_answers += 1;
        of_grade.n_found += u64::from(labelled.gold.items().any(|tool| first.contains(tool)));
        metrics.add(&ranking, &labelled.gold);
        progress("ranking", number + 1, queries.len());
    }
    rank_times.sort_unstable();
    EvaluationReport {
        metrics,
        recommended: (recommended.len(), n_right),
        grades,
        rank_times,
        encode_times: Vec::new(),
        false_no_match,
        missed_no_match: QueryShare::default(),
        missed_uncertain: QueryShare::default(),
        expanded,
        low,
    }
}

/// Returns the hits of the expanded query if their grade is better, or else the given hits.
fn better_graded(
    index: &ToolIndex,
    hits: Vec<SearchHit>,
    variants: &[(f64, Query)],
    past: Option<RankingHistory<'_>>,
    options: &EvaluationOptions,
) -> Vec<SearchHit> {
    if variants.is_empty() {
        return hits;
    }
    // Ranks of all tools are fused, as in the proxy.
    let n_tools = index.tools().len();
    let found = variants.iter().map(|(trust, query)| {
        let found = index.rank(query, &options.ranking, past, n_tools);
        (*trust, found)
    });
    let found: Vec<(f64, Vec<SearchHit>)> = found.collect();
    let both = fuse_variants(&hits, &found);
    // `SearchQuality` sorts better grades first.
    let is_better =
        grade_answer(&both, &options.quality).1 < grade_answer(&hits, &options.quality).1;
    let mut best = if is_better { both } else { hits };
    best.truncate(options.limit);
    best
}

/// Ranks hits in the same way as the recommender.
struct Reranker<'a> {
    rules: &'a Recommending,
    index: &'a ToolIndex,
    candidates: CandidateIndex,
}

impl<'a> Reranker<'a> {
    fn new(rules: &'a Recommending, index: &'a ToolIndex) -> Self {
        Self {
            candidates: CandidateIndex::new(index.tools(), &rules.lexicon),
            rules,
            index,
        }
    }

    /// Returns the positions of the recommended tools, best first. The only statistics of tools are
    /// the calls by other groups and the tools that the session has called.
    fn rerank(
        &self,
        text: &str,
        hits: &[SearchHit],
        past: Option<RankingHistory<'_>>,
    ) -> Vec<usize> {
        let intent = IntentAnalysis::of(text, &self.rules.lexicon);
        let neighbours: Vec<usize> = hits.iter().map(|hit| hit.position).collect();
        let n = self.rules.n_candidates;
        let candidates = self.candidates.candidates(&intent, &neighbours, n);
        let tools = self.index.tools();
        let mut scores = vec![0.0; tools.len()];
        for hit in hits {
            scores[hit.position] = hit.score;
        }
        let standing = |candidate: &Candidate| {
            let tool = &tools[candidate.position];
            let uses = past.map_or(0.0, |past| past.history.calls(tool.key()));
            let standing = ToolPerformance {
                uses,
                ..ToolPerformance::default()
            };
            (tool.tool().clone(), standing)
        };
        let standings = PerformanceTable::new(candidates.iter().map(standing).collect());
        let factors = |candidate: &Candidate, relevance| {
            let tool = &tools[candidate.position];
            let used = past.is_some_and(|past| past.session_tools.contains(&tool.key()));
            let session = if used { Successions::USED } else { 0.0 };
            standings.factors(tool.tool(), relevance, session)
        };
        let ranked = rank_candidates(&intent, candidates, &scores, &self.rules.weights, factors);
        ranked.into_iter().map(|one| one.tool.position).collect()
    }
}

/// Returns the positions of the hits, best first, in the order of the recommender if there is one.
fn reranked_positions(
    reranker: Option<&Reranker<'_>>,
    text: &str,
    hits: &[SearchHit],
    past: Option<RankingHistory<'_>>,
) -> Vec<usize> {
    match reranker {
        Some(reranker) => reranker.rerank(text, hits, past),
        None => hits.iter().map(|hit| hit.position).collect(),
    }
}

fn measure_time<T>(times: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    times.push(started.elapsed());
    done
}

/// Tool use of all groups, from which one group at a time is excluded.
struct OtherGroups {
    history: UsageHistory,
    /// The queries of each group, with the tools that they used.
    groups: BTreeMap<u64, Vec<(usize, Vec<ToolKey>)>>,
}

impl OtherGroups {
    fn new(catalog: &LabelledCatalog, queries: &[Query]) -> Self {
        let mut others = Self {
            history: UsageHistory::exact(),
            groups: BTreeMap::new(),
        };
        for (number, (query, labelled)) in queries.iter().zip(&catalog.queries).enumerate() {
            // A tool that the catalog lacks was never offered, so it cannot have been used.
            let tools = labelled.gold.items();
            let tools = tools.filter_map(|at| catalog.tools.get(*at));
            let tools: Vec<ToolKey> = tools.map(IndexedTool::key).collect();
            if let Some(vector) = query.vectors().first() {
                for tool in &tools {
                    let used = (*tool, 1.0);
                    others
                        .history
                        .remember(vector, used, Timestamp::UNIX_EPOCH, labelled.group);
                }
            }
            let group = others.groups.entry(labelled.group).or_default();
            group.push((number, tools));
        }
        for group in others.groups.values() {
            count(&mut others.history, group, 1.0);
        }
        others
    }

    /// Ranks with the tool use of the other groups. The tools of the group's earlier queries count
    /// as used in the session.
    fn rank_without<T>(
        &mut self,
        group: u64,
        number: usize,
        rank: impl FnOnce(RankingHistory<'_>) -> T,
    ) -> T {
        let Self { history, groups } = self;
        let own = groups.get(&group).map_or(&[][..], Vec::as_slice);
        count(history, own, -1.0);
        let earlier = own.iter().filter(|(other, _)| *other < number);
        let session: BTreeSet<ToolKey> = earlier.flat_map(|(_, tools)| tools).copied().collect();
        let session: Vec<ToolKey> = session.into_iter().collect();
        let ranked = rank(RankingHistory {
            history,
            session_tools: &session,
            now: Timestamp::UNIX_EPOCH,
            without: Some(group),
        });
        // Restored for the next group.
        count(history, own, 1.0);
        ranked
    }
}

/// Adds `n` times the calls of a group, and the group as one session. A negative `n` removes them.
fn count(history: &mut UsageHistory, group: &[(usize, Vec<ToolKey>)], n: f64) {
    let mut used: BTreeSet<ToolKey> = BTreeSet::new();
    for tool in group.iter().flat_map(|(_, tools)| tools) {
        history.count_calls(*tool, n);
        used.insert(*tool);
    }
    let used: Vec<ToolKey> = used.into_iter().collect();
    for (place, tool) in used.iter().enumerate() {
        history.count_sessions(*tool, n);
        for other in &used[place + 1..] {
            history.count_together(*tool, *other, n);
        }
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::catalog::tool::ToolRef;
    use riglm_domain::id::{ToolName, UpstreamName};
    use riglm_domain::retrieval::ToolText;

    use super::*;

    fn tool(name: &str, description: &str) -> IndexedTool {
        let tool = ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: ToolName::from(name),
        };
        let text = ToolText {
            name: name.into(),
            description: description.into(),
            ..ToolText::default()
        };
        IndexedTool::new(tool, text)
    }

    fn query(text: &str, gold: &[usize], group: u64) -> LabelledQuery {
        LabelledQuery {
            text: text.into(),
            gold: RelevantItems::all_of(gold.to_vec()),
            group,
        }
    }

    fn catalog() -> LabelledCatalog {
        LabelledCatalog {
            tools: vec![
                tool("read", "Reads text"),
                tool("stamp", ""),
                tool("mail", "Sends mail"),
            ],
            queries: vec![
                query("read it", &[0, 1], 1),
                query("read this", &[0, 1], 2),
                query("mail this", &[2], 3),
            ],
            foreign: Vec::new(),
        }
    }

    fn options(with_history: bool) -> EvaluationOptions {
        EvaluationOptions {
            ranking: RankingRules::default(),
            synonyms: Synonyms::default(),
            quality: QualityRules::default(),
            min_fit: 0.001,
            with_history,
            limit: 20,
            recommending: None,
            expansion: None,
        }
    }

    #[tokio::test]
    async fn companions_are_learned_only_from_other_groups() {
        let silent = |_: &str, _, _| {};
        let plain = evaluate(&catalog(), &[], &options(false), &silent)
            .await
            .unwrap();
        assert_eq!((plain.metrics.n_queries(), plain.rank_times.len()), (3, 3));
        let n_answers: u64 = plain.grades.values().map(|grade| grade.n_answers).sum();
        let n_found: u64 = plain.grades.values().map(|grade| grade.n_found).sum();
        assert_eq!((n_answers, n_found), (3, 3), "{:?}", plain.grades);
        let mut same_group = catalog();
        for labelled in &mut same_group.queries {
            labelled.group = 1;
        }
        let known = evaluate(&catalog(), &[], &options(true), &silent)
            .await
            .unwrap();
        let unknown = evaluate(&same_group, &[], &options(true), &silent)
            .await
            .unwrap();
        assert!(known.metrics.recall(3) >= plain.metrics.recall(3));
        assert!((unknown.metrics.mrr() - plain.metrics.mrr()).abs() < 1e-12);
    }

    #[tokio::test]
    async fn no_match_answers_are_measured_with_and_without_relevant_tools() {
        let mut catalog = catalog();
        catalog.queries.push(query("imprint", &[1], 4));
        catalog.foreign = vec!["paint the fence".into(), "read the stars".into()];
        let report = evaluate(&catalog, &[], &options(false), &|_, _, _| {})
            .await
            .unwrap();
        let share = |part, whole| QueryShare { part, whole };
        assert_eq!(report.false_no_match, share(1, 4));
        assert_eq!(report.missed_no_match, share(1, 2));
        assert_eq!(report.missed_uncertain.whole, 2);
    }

    #[tokio::test]
    async fn a_relevant_tool_outside_the_catalog_is_never_found() {
        let mut partly = catalog();
        let n_tools = partly.tools.len();
        partly.queries[0] = query("read it", &[0, n_tools], 1);
        partly.queries.push(query("gone", &[n_tools + 1], 4));
        let report = evaluate(&partly, &[], &options(true), &|_, _, _| {})
            .await
            .unwrap();
        assert_eq!(report.metrics.n_queries(), 4);
        assert!(report.metrics.recall(20) < 1.0);
        let n_found: u64 = report.grades.values().map(|grade| grade.n_found).sum();
        assert_eq!(n_found, 3);
    }
}
