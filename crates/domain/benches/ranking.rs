//! Cost of a ranking: by words alone, and with vectors of 256 and 384 numbers, the dimensions of
//! the encoders.
//!
//! `cargo bench -p riglm-domain --bench ranking`
#![expect(clippy::unwrap_used, reason = "a measurement may fail")]

use divan::Bencher;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{
    IndexedTool, Query, RankingRules, Synonyms, ToolIndex, ToolText, ToolVectors, VectorCentre,
};

const N_TOOLS: [usize; 2] = [1_000, 5_000];
const SHORT: &str = "find the open issues that were assigned to me last week";
const VERBS: [&str; 8] = [
    "create", "get", "list", "update", "delete", "find", "export", "share",
];
const NOUNS: [&str; 12] = [
    "issue", "invoice", "meeting", "customer", "photo", "branch", "calendar", "flight", "sensor",
    "recipe", "payment", "document",
];

fn main() {
    divan::main();
}

fn tool(number: usize) -> IndexedTool {
    let verb = VERBS[number % VERBS.len()];
    let noun = NOUNS[number / VERBS.len() % NOUNS.len()];
    let server = format!("server-{}", number / (VERBS.len() * NOUNS.len()));
    let name = format!("{verb}_{noun}_{number}");
    let definition = format!(
        r#"{{"description":"{verb} a {noun} that belongs to account {number}. The answer has its fields, the people it is assigned to and when it last changed.","inputSchema":{{"type":"object","properties":{{"{noun}_id":{{"type":"string","description":"Which {noun} it is."}},"since":{{"type":"string","description":"Only what changed in the week after this date."}},"limit":{{"type":"integer"}}}}}}}}"#
    );
    let text = ToolText::of_definition(&name, &definition).on_server(&server, "", "");
    let tool = ToolRef {
        upstream: UpstreamName::parse(&server).unwrap(),
        tool: name.as_str().into(),
    };
    IndexedTool::new(tool, text)
}

/// Returns a vector that differs for each seed. Only the dimension affects the measured time.
fn vector(seed: usize, dimension: usize) -> Vec<f32> {
    let mut state = u64::try_from(seed).unwrap() + 1;
    (0..dimension)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let high = u8::try_from(state >> 56).unwrap();
            f32::from(high) - 127.5
        })
        .collect()
}

fn index(n_tools: usize) -> ToolIndex {
    ToolIndex::new((0..n_tools).map(tool).collect())
}

fn with_vectors(index: &ToolIndex, model: &str, dimension: usize) -> ToolIndex {
    let vectors: Vec<ToolVectors> = (0..index.tools().len())
        .map(|number| ToolVectors {
            full: vector(number * 2, dimension),
            short: vector(number * 2 + 1, dimension),
        })
        .collect();
    index.with_vectors(model, &vectors, &VectorCentre::none())
}

fn with_vector(query: Query, model: &str, dimension: usize) -> Query {
    query.with_vector(Embedding::new(model, vector(7, dimension)).unwrap())
}

#[divan::bench(args = N_TOOLS)]
fn words(bencher: Bencher<'_, '_>, n_tools: usize) {
    let (index, synonyms) = (index(n_tools), Synonyms::built_in());
    let rules = RankingRules::default();
    bencher.bench(|| index.rank(&Query::new(SHORT, &synonyms), &rules, None, 10));
}

#[divan::bench(args = N_TOOLS)]
fn words_and_embedded(bencher: Bencher<'_, '_>, n_tools: usize) {
    let index = with_vectors(&index(n_tools), "embedded", 256);
    let (rules, synonyms) = (RankingRules::default(), Synonyms::built_in());
    bencher.bench(|| {
        let query = with_vector(Query::new(SHORT, &synonyms), "embedded", 256);
        index.rank(&query, &rules, None, 10)
    });
}

#[divan::bench(args = N_TOOLS)]
fn words_embedded_and_model(bencher: Bencher<'_, '_>, n_tools: usize) {
    let index = with_vectors(&index(n_tools), "model", 384);
    let index = with_vectors(&index, "embedded", 256);
    let (rules, synonyms) = (RankingRules::default(), Synonyms::built_in());
    bencher.bench(|| {
        let query = with_vector(Query::new(SHORT, &synonyms), "model", 384);
        let query = with_vector(query, "embedded", 256);
        index.rank(&query, &rules, None, 10)
    });
}

/// Cost of building the index of a catalog, without its vectors.
#[divan::bench(args = N_TOOLS, sample_count = 20)]
fn make_index(bencher: Bencher<'_, '_>, n_tools: usize) {
    let tools: Vec<IndexedTool> = (0..n_tools).map(tool).collect();
    bencher.bench(|| ToolIndex::new(tools.clone()));
}
