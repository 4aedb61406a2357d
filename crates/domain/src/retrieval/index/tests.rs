//! Rankings with missing vectors, and with vectors of another dimension.

use super::*;
use crate::id::{ToolName, UpstreamName};
use crate::retrieval::Synonyms;
use crate::retrieval::embedding::Embedding;

fn index(n_tools: usize) -> ToolIndex {
    let tools = (0..n_tools).map(|number| {
        let name = format!("tool{number}");
        let tool = ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: ToolName::from(name.as_str()),
        };
        let text = ToolText {
            name,
            ..ToolText::default()
        };
        IndexedTool::new(tool, text)
    });
    ToolIndex::new(tools.collect())
}

fn both(vectors: &[&[f32]]) -> Vec<ToolVectors> {
    let both = |vector: &&[f32]| ToolVectors {
        full: vector.to_vec(),
        short: vector.to_vec(),
    };
    vectors.iter().map(both).collect()
}

/// Returns positions and cosines of all tools for a query with these vectors and without known
/// words.
fn rank_all(index: &ToolIndex, vectors: &[(&str, &[f32])]) -> Vec<(usize, Option<f64>)> {
    let query = Query::new("unheard", &Synonyms::default());
    let query = vectors.iter().fold(query, |query, (model, vector)| {
        query.with_vector(Embedding::new(model, vector.to_vec()).unwrap())
    });
    let hits = index.rank(&query, &RankingRules::default(), None, 10);
    assert!(hits.iter().all(|hit| hit.score.is_finite()));
    hits.iter().map(|hit| (hit.position, hit.cosine)).collect()
}

#[test]
fn a_model_of_another_dimension_is_ignored() {
    let rows: [&[f32]; 2] = [&[0.0, 1.0], &[1.0, 0.0]];
    let one = index(2).with_vectors("one", &both(&rows), &VectorCentre::none());
    let other: [&[f32]; 2] = [&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]];
    let query: &[f32] = &[1.0, 0.0];
    let alone = rank_all(&one, &[("one", query)]);
    assert_eq!(alone, [(1, Some(1.0)), (0, Some(0.0))]);
    let second = one.with_vectors("other", &both(&other), &VectorCentre::none());
    assert_eq!(
        rank_all(&second, &[("one", query), ("other", query)]),
        alone
    );
    let first = index(2).with_vectors("other", &both(&other), &VectorCentre::none());
    let first = first.with_vectors("one", &both(&rows), &VectorCentre::none());
    assert_eq!(rank_all(&first, &[("one", query), ("other", query)]), alone);
}

#[test]
fn a_tool_without_a_vector_ranks_in_the_middle() {
    for missing in [&[][..], &[1.0], &[1.0, 0.0, 0.0]] {
        for place in 0..3 {
            let mut rows: Vec<&[f32]> = vec![&[0.0, 1.0], &[1.0, 0.0]];
            rows.insert(place, missing);
            let index = index(3).with_vectors("m", &both(&rows), &VectorCentre::none());
            let order = rank_all(&index, &[("m", &[1.0, 0.0])]);
            let cosines: Vec<Option<f64>> = order.iter().map(|(_, cosine)| *cosine).collect();
            assert_eq!(cosines, [Some(1.0), None, Some(0.0)], "{missing:?}");
            assert_eq!(order[1].0, place);
        }
    }
}

#[test]
fn a_tool_without_one_vector_is_compared_by_the_other() {
    let rows: [&[f32]; 3] = [&[0.0, 1.0], &[1.0, 0.0], &[]];
    let index = index(3).with_vectors("one", &both(&rows), &VectorCentre::none());
    let rows: [&[f32]; 3] = [&[0.0, 1.0], &[1.0, 0.0], &[1.0, 0.0]];
    let index = index.with_vectors("other", &both(&rows), &VectorCentre::none());
    let query: &[f32] = &[1.0, 0.0];
    let order = rank_all(&index, &[("one", query), ("other", query)]);
    assert_eq!(order[0], (1, Some(1.0)));
    assert_eq!((order[1].0, order[2].0), (2, 0));
    assert!(
        order[1]
            .1
            .is_some_and(|cosine| (cosine - 2.0 / 3.0).abs() < 1e-9)
    );
}

#[test]
fn words_decide_alone_without_matching_vectors() {
    let rows: [&[f32]; 2] = [&[], &[]];
    let index = index(2).with_vectors("m", &both(&rows), &VectorCentre::none());
    assert_eq!(
        rank_all(&index, &[("m", &[1.0, 0.0])]),
        [(0, None), (1, None)]
    );
}
