//! Query expansion in evaluations, in the same way as in the proxy.

use std::collections::BTreeMap;

use riglm_domain::retrieval::{
    ExpansionRules, Query, QueryVariant, ToolIndex, VariantSource, cosine_of,
};
use riglm_ports::encoder::EncoderError;

use super::{EvaluationOptions, LabelledCatalog};
use riglm_discovery::search::EncoderTier;

/// Variants of queries, each with its weight.
#[derive(Debug, Default)]
pub(super) struct Variants(BTreeMap<usize, Vec<(f64, Query)>>);

impl Variants {
    pub(super) fn of(&self, number: usize) -> &[(f64, Query)] {
        self.0.get(&number).map_or(&[], Vec::as_slice)
    }
}

/// Returns the variants of the queries with these indexes. With history, the queries of other
/// groups count as earlier searches.
pub(super) async fn variants(
    catalog: &LabelledCatalog,
    index: &ToolIndex,
    (queries, low): (&[Query], &[usize]),
    tiers: &[EncoderTier],
    (options, rules): (&EvaluationOptions, &ExpansionRules),
) -> Result<Variants, EncoderError> {
    let mut variants = BTreeMap::new();
    for number in low {
        let text = &catalog.queries[*number].text;
        let synonyms = if rules.synonyms {
            index.synonym_variants(text, &options.synonyms, rules.n_variants)
        } else {
            Vec::new()
        };
        let history = if rules.history && options.with_history {
            similar_queries(catalog, queries, *number, rules.n_variants)
        } else {
            Vec::new()
        };
        let mut of_query = Vec::new();
        for variant in rules.select_variants(text, &[history, synonyms]) {
            let query = encode_variant(&variant.text, tiers, options).await?;
            of_query.push((variant.trust, query));
        }
        variants.insert(*number, of_query);
    }
    Ok(Variants(variants))
}

async fn encode_variant(
    text: &str,
    tiers: &[EncoderTier],
    options: &EvaluationOptions,
) -> Result<Query, EncoderError> {
    let mut query = Query::new(text, &options.synonyms);
    for tier in tiers {
        let vector = tier.encode_uncached(Query::readable_part(text)).await?;
        if let Some(vector) = tier.subtract_mean(&vector) {
            query = query.with_vector(vector);
        }
    }
    Ok(query)
}

/// Returns the most similar queries of other groups, the most similar first.
fn similar_queries(
    catalog: &LabelledCatalog,
    queries: &[Query],
    number: usize,
    n: usize,
) -> Vec<QueryVariant> {
    let Some(own) = queries[number].vectors().first() else {
        return Vec::new();
    };
    let group = catalog.queries[number].group;
    let all = catalog.queries.iter().zip(queries);
    let others = all.filter(|(labelled, _)| labelled.group != group);
    let near = others.filter_map(|(labelled, query)| {
        let cosine = cosine_of(own, query.vectors().first()?);
        let trust = ExpansionRules::history_trust(cosine)?;
        Some((trust, &labelled.text))
    });
    let mut near: Vec<(f64, &String)> = near.collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let variant = |(trust, text): (f64, &String)| QueryVariant {
        text: text.clone(),
        source: VariantSource::History,
        trust,
    };
    near.into_iter().take(n).map(variant).collect()
}
