//! Other words for queries that little fits, as the proxy would have tried them.

use std::collections::BTreeMap;

use riglm_domain::retrieval::{ExpansionRules, Query, ToolIndex, Variant, VariantSource, nearness};
use riglm_ports::encoder::EncoderError;

use super::{EvaluationOptions, LabelledCatalog};
use crate::search::encoders::Tier;

/// The variants of queries, each with how much it is trusted.
#[derive(Debug, Default)]
pub(super) struct Variants(BTreeMap<usize, Vec<(f64, Query)>>);

impl Variants {
    /// Returns those of a query.
    pub(super) fn of(&self, number: usize) -> &[(f64, Query)] {
        self.0.get(&number).map_or(&[], Vec::as_slice)
    }
}

/// Returns the variants of the queries at these places. With history, what the queries of other
/// groups asked counts as what was searched for earlier.
pub(super) async fn variants(
    catalog: &LabelledCatalog,
    index: &ToolIndex,
    (queries, low): (&[Query], &[usize]),
    tiers: &[Tier],
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
            earlier(catalog, queries, *number, rules.n_variants)
        } else {
            Vec::new()
        };
        let mut of_query = Vec::new();
        for variant in rules.chosen(text, &[history, synonyms]) {
            let query = asked(&variant.text, tiers, options).await?;
            of_query.push((variant.trust, query));
        }
        variants.insert(*number, of_query);
    }
    Ok(Variants(variants))
}

async fn asked(
    text: &str,
    tiers: &[Tier],
    options: &EvaluationOptions,
) -> Result<Query, EncoderError> {
    let mut query = Query::new(text, &options.synonyms);
    for tier in tiers {
        let vector = tier.fresh_query(Query::cut(text)).await?;
        if let Some(vector) = tier.centred(&vector) {
            query = query.with_vector(vector);
        }
    }
    Ok(query)
}

/// Returns the nearest queries of other groups, the nearest first.
fn earlier(catalog: &LabelledCatalog, queries: &[Query], number: usize, n: usize) -> Vec<Variant> {
    let Some(own) = queries[number].vectors().first() else {
        return Vec::new();
    };
    let group = catalog.queries[number].group;
    let all = catalog.queries.iter().zip(queries);
    let others = all.filter(|(labelled, _)| labelled.group != group);
    let near = others.filter_map(|(labelled, query)| {
        let cosine = nearness(own, query.vectors().first()?);
        let trust = ExpansionRules::history_trust(cosine)?;
        Some((trust, &labelled.text))
    });
    let mut near: Vec<(f64, &String)> = near.collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let variant = |(trust, text): (f64, &String)| Variant {
        text: text.clone(),
        source: VariantSource::History,
        trust,
    };
    near.into_iter().take(n).map(variant).collect()
}
