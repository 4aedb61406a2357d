//! Lexical search: the words of tools, and their coverage of a query (BM25F).

use std::collections::HashMap;

use super::document::ToolText;
use super::words::words;
use crate::num::to_f64;

/// The fields of a tool, with their weights and length normalisation.
///
/// The order is server, name, description, names of parameters, descriptions of parameters.
const FIELDS: [FieldWeight; 5] = [
    FieldWeight {
        weight: 1.0,
        b: 0.0,
    },
    FieldWeight {
        weight: 3.0,
        b: 0.2,
    },
    FieldWeight {
        weight: 1.5,
        b: 0.6,
    },
    FieldWeight {
        weight: 0.5,
        b: 0.7,
    },
    FieldWeight {
        weight: 0.25,
        b: 0.7,
    },
];
/// The saturation of term frequency: the smaller, the sooner repetitions stop to count.
const K1: f64 = 1.2;

#[derive(Clone, Copy, Debug)]
struct FieldWeight {
    weight: f64,
    /// The length normalisation: 0 ignores the length of the field, 1 applies it in full.
    b: f64,
}

/// The terms of a tool by field, computed once for a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolTerms {
    /// Terms with their count in each field, sorted.
    terms: Vec<(Box<str>, [u16; FIELDS.len()])>,
    lengths: [u32; FIELDS.len()],
}

impl ToolTerms {
    pub(super) fn new(tool: &ToolText) -> Self {
        let names = tool.parameters.iter().map(|it| it.name.as_str());
        let notes = tool.parameters.iter().flat_map(|it| {
            let values = it.values.iter().map(String::as_str);
            std::iter::once(it.description.as_str()).chain(values)
        });
        let fields: [Vec<String>; FIELDS.len()] = [
            [words(&tool.server), words(&tool.about_server)].concat(),
            [words(&tool.name), words(&tool.title)].concat(),
            words(&tool.description),
            names.flat_map(words).collect(),
            notes.flat_map(words).collect(),
        ];
        let mut counts: HashMap<String, [u16; FIELDS.len()]> = HashMap::new();
        let mut lengths = [0; FIELDS.len()];
        for (field, terms) in fields.into_iter().enumerate() {
            lengths[field] = u32::try_from(terms.len()).unwrap_or(u32::MAX);
            for term in terms {
                let count = &mut counts.entry(term).or_default()[field];
                *count = count.saturating_add(1);
            }
        }
        let mut terms: Vec<_> = (counts.into_iter())
            .map(|(term, counts)| (term.into_boxed_str(), counts))
            .collect();
        terms.sort_unstable();
        Self { terms, lengths }
    }
}

/// A term of a query, with its synonyms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QueryTerm {
    pub(super) term: String,
    /// Other terms with the same meaning.
    pub(super) synonyms: Vec<String>,
}

/// The inverted index over the tools of a catalog.
#[derive(Clone, Debug, Default)]
pub(super) struct LexicalIndex {
    /// The tools that have each term, with the weight of its occurrences in them.
    postings: HashMap<Box<str>, Vec<(u32, f32)>>,
    n_tools: usize,
}

/// The coverage of a query by the tools.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Coverage {
    /// A number for each tool, from 0 (no word of the query) to below 1 (all of them).
    pub(super) of: Vec<f64>,
}

impl LexicalIndex {
    pub(super) fn new<'a>(tools: impl Iterator<Item = &'a ToolTerms> + Clone) -> Self {
        let mut totals = [0_u64; FIELDS.len()];
        let mut n_tools = 0;
        for tool in tools.clone() {
            n_tools += 1;
            for (total, length) in totals.iter_mut().zip(tool.lengths) {
                *total += u64::from(length);
            }
        }
        let mut postings: HashMap<Box<str>, Vec<(u32, f32)>> = HashMap::new();
        for (number, tool) in (0..).zip(tools) {
            let scales = scales(&tool.lengths, &totals, n_tools);
            for (term, counts) in &tool.terms {
                let weight: f64 = counts
                    .iter()
                    .zip(scales)
                    .map(|(count, scale)| f64::from(*count) * scale)
                    .sum();
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "a weight, not a number of things"
                )]
                let weight = weight as f32;
                match postings.get_mut(term) {
                    Some(found) => found.push((number, weight)),
                    None => {
                        postings.insert(term.clone(), vec![(number, weight)]);
                    }
                }
            }
        }
        Self { postings, n_tools }
    }

    /// Returns whether any tool has the term.
    pub(super) fn has(&self, term: &str) -> bool {
        self.postings.contains_key(term)
    }

    /// Returns the coverage of the terms by each tool.
    ///
    /// It is the sum of `idf * tf / (k1 + tf)` over the terms, divided by the sum of their idf.
    /// `tf` is the sum over the fields of `weight * count / (1 - b + b * length / mean length)`
    /// (Robertson and Zaragoza 2009, section 3.6.3). A term that no tool has counts with the
    /// largest idf. A synonym has the weight `synonym_weight`, relative to the term itself.
    pub(super) fn coverage(&self, query: &[QueryTerm], synonym_weight: f64) -> Coverage {
        let mut of = vec![0.0; self.n_tools];
        let mut total = 0.0;
        for term in query {
            let own = self.postings.get(term.term.as_str());
            let idf = self.idf(own.map_or(0, Vec::len));
            total += idf;
            // A tool that has the term and a synonym counts once, by the better one.
            let mut best: HashMap<u32, f64> = HashMap::new();
            let mut add = |number: u32, value: f64| {
                let held = best.entry(number).or_default();
                *held = held.max(value);
            };
            for (number, weight) in own.into_iter().flatten() {
                add(*number, idf * saturate(f64::from(*weight)));
            }
            for synonym in &term.synonyms {
                let Some(found) = self.postings.get(synonym.as_str()) else {
                    continue;
                };
                // A rare synonym must not count more than the term itself.
                let idf = synonym_weight * idf.min(self.idf(found.len()));
                for (number, weight) in found {
                    add(*number, idf * saturate(f64::from(*weight)));
                }
            }
            for (number, value) in best {
                of[number as usize] += value;
            }
        }
        if total > 0.0 {
            for value in &mut of {
                *value /= total;
            }
        }
        Coverage { of }
    }

    /// Returns the inverse document frequency of a term that `n` tools have:
    /// `ln(1 + (N - n + 0.5) / (n + 0.5))`. It is positive for any `n`.
    fn idf(&self, n: usize) -> f64 {
        let (all, n) = (to_f64(self.n_tools), to_f64(n));
        (1.0 + (all - n + 0.5) / (n + 0.5)).ln()
    }
}

fn saturate(weight: f64) -> f64 {
    weight / (K1 + weight)
}

/// Returns the weight of one occurrence in each field.
fn scales(
    lengths: &[u32; FIELDS.len()],
    totals: &[u64; FIELDS.len()],
    n_tools: usize,
) -> [f64; FIELDS.len()] {
    std::array::from_fn(|field| {
        let FieldWeight { weight, b } = FIELDS[field];
        let mean = to_f64(totals[field]) / to_f64(n_tools.max(1));
        let relative = if mean > 0.0 {
            f64::from(lengths[field]) / mean
        } else {
            1.0
        };
        weight / (1.0 - b + b * relative)
    })
}
