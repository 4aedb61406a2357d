//! Knowledge of operators about tools: notes, which are searched as documents that point at tools,
//! and pinned tools.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::excerpt::excerpt;
use riglm_domain::retrieval::{
    CURATED_WEIGHT, IndexedTool, Query, RankingRules, SearchHit, ToolIndex, ToolText, ToolVectors,
    VectorCentre, check_weight, fit_probability,
};

use serde::Deserialize;
use validator::{Validate, ValidationError};

use crate::search::catalog::{Catalog, CatalogTool};

/// Maximum number of notes.
const MAX_NOTES: usize = 1_000;
/// Maximum number of characters of a note.
const MAX_NOTE_CHARS: usize = 4_000;
/// Maximum number of patterns of a note.
const MAX_PATTERNS: usize = 100;

/// Maximum number of characters of a note that an answer quotes.
const MAX_QUOTED: usize = 300;

/// An entry of `search.notes.entries`: a note of an operator about tools.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Patterns of the tools, matched against names for clients and names at upstreams.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<NamePattern>,
    /// Purpose of the tools, in words that a query for them would use.
    #[validate(custom(function = "check_text"))]
    pub text: String,
}

/// The subsection `search.notes`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "check_number"))]
pub struct NotesConfig {
    /// Weight of a match with a note; a match with the text of a tool has weight 1.
    #[validate(custom(function = "check_weight"))]
    pub weight: f64,
    /// Whether pinned tools count like tools with a note.
    pub pins: bool,
    /// The notes.
    #[validate(nested)]
    pub entries: Vec<Note>,
}

impl Default for NotesConfig {
    fn default() -> Self {
        Self {
            weight: CURATED_WEIGHT,
            pins: true,
            entries: Vec::new(),
        }
    }
}

fn check_number(config: &NotesConfig) -> Result<(), ValidationError> {
    if config.entries.len() <= MAX_NOTES {
        return Ok(());
    }
    Err(length_error(format!("expected at most {MAX_NOTES} notes")))
}

fn check_patterns(patterns: &[NamePattern]) -> Result<(), ValidationError> {
    let has_empty = patterns.iter().any(|it| it.as_str().is_empty());
    if !has_empty && (1..=MAX_PATTERNS).contains(&patterns.len()) {
        return Ok(());
    }
    let message = format!("expected 1 to {MAX_PATTERNS} names or patterns of tools");
    Err(length_error(message))
}

fn check_text(text: &str) -> Result<(), ValidationError> {
    if !text.trim().is_empty() && text.chars().count() <= MAX_NOTE_CHARS {
        return Ok(());
    }
    let message = format!("expected a text of 1 to {MAX_NOTE_CHARS} characters");
    Err(length_error(message))
}

fn length_error(message: String) -> ValidationError {
    ValidationError::new("length").with_message(message.into())
}

impl Note {
    fn is_about(&self, tool: &CatalogTool) -> bool {
        let fits = |name: &ToolName| self.tools.iter().any(|pattern| pattern.matches(name));
        !self.tools.is_empty() && tool.names().iter().any(fits)
    }
}

/// Whether the warning about notes without a tool was logged.
#[derive(Debug, Default)]
pub(in crate::search) struct IdleNoteWarning(AtomicBool);

impl IdleNoteWarning {
    /// Logs, once, the notes that match no tool of a complete catalog.
    fn warn_once(&self, rules: &NotesConfig, catalog: &Catalog) {
        let is_idle = |note: &&Note| {
            !note.tools.is_empty() && catalog.tools().iter().all(|it| !note.is_about(it))
        };
        let idle: Vec<&Note> = rules.entries.iter().filter(is_idle).collect();
        if idle.is_empty() || catalog.is_truncated() || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let patterns = idle.iter().flat_map(|note| &note.tools);
        let patterns: Vec<&str> = patterns.map(NamePattern::as_str).take(10).collect();
        tracing::warn!(
            "search.notes: {} of {} notes match no listed tool: {}",
            idle.len(),
            rules.entries.len(),
            patterns.join(", ")
        );
    }
}

/// Search index of the notes about the tools of a catalog.
#[derive(Debug)]
pub(in crate::search) struct NotesIndex {
    /// Index of the tools, followed by the notes. The tools are included so that word frequencies
    /// are the same as in the tool index.
    by_words: ToolIndex,
    /// The same index with vectors, one per encoder that has finished.
    with_vectors: Vec<OnceLock<ToolIndex>>,
    n_tools: usize,
    /// Texts, and the positions of the tools that each is about.
    notes: Vec<(String, Vec<usize>)>,
}

impl NotesIndex {
    /// Builds the index of the notes about the tools of a catalog. Returns `None` if there are
    /// none.
    pub(in crate::search) fn new(
        rules: &NotesConfig,
        warned: &IdleNoteWarning,
        catalog: &Catalog,
        tools: &[IndexedTool],
        n_tiers: usize,
    ) -> Option<Self> {
        if rules.entries.is_empty() {
            return None;
        }
        warned.warn_once(rules, catalog);
        // Documents of the index need a tool reference. This one never leaves the index.
        let upstream = UpstreamName::parse("notes").ok()?;
        let mut documents = tools.to_vec();
        let mut notes = Vec::new();
        for note in &rules.entries {
            let positions = catalog.tools().iter().enumerate();
            let positions = positions.filter(|(_, tool)| note.is_about(tool));
            let positions: Vec<usize> = positions.map(|(position, _)| position).collect();
            if positions.is_empty() {
                continue;
            }
            let tool = ToolRef {
                upstream: upstream.clone(),
                tool: ToolName::from(format!("note {}", notes.len()).as_str()),
            };
            let text = ToolText {
                description: note.text.trim().into(),
                ..ToolText::default()
            };
            documents.push(IndexedTool::new(tool, text));
            notes.push((note.text.trim().to_owned(), positions));
        }
        (!notes.is_empty()).then(|| Self {
            by_words: ToolIndex::new(documents),
            with_vectors: (0..n_tiers).map(|_| OnceLock::new()).collect(),
            n_tools: tools.len(),
            notes,
        })
    }

    /// Returns the notes as documents.
    pub(in crate::search) fn documents(&self) -> &[IndexedTool] {
        &self.by_words.tools()[self.n_tools..]
    }

    /// Adds the vectors of an encoder, for the tools and for the notes.
    pub(in crate::search) fn add_vectors(
        &self,
        tier: usize,
        model: &str,
        tools: &[ToolVectors],
        notes: &[ToolVectors],
        centre: &VectorCentre,
    ) {
        if let Some(place) = self.with_vectors.get(tier) {
            let all = [tools, notes].concat();
            // Two tasks with the same catalog compute the same vectors, so the first one wins.
            let _ = place.set(self.by_words.with_vectors(model, &all, centre));
        }
    }

    /// Returns the fit of each note for a query.
    fn fits(&self, query: &Query, ranking: &RankingRules) -> Vec<f64> {
        let done = self.with_vectors.iter().filter_map(OnceLock::get);
        let index = done.fold(self.by_words.clone(), ToolIndex::with_vectors_of);
        let mut fits = vec![0.0; self.notes.len()];
        for hit in index.rank(query, ranking, None, index.tools().len()) {
            if let Some(place) = hit.position.checked_sub(self.n_tools) {
                fits[place] = fit_probability(&hit);
            }
        }
        fits
    }
}

/// Notes and pins that match a query.
#[derive(Clone, Debug, Default)]
pub(in crate::search) struct OperatorMatches {
    /// The best fit of the notes and pins of a tool, by the position of the tool.
    pub(in crate::search) fits: BTreeMap<usize, f64>,
    /// Tools that answer the query, best first. Empty if nothing fits well enough.
    pub(in crate::search) answer: Vec<usize>,
    /// The note of the answer about these tools.
    pub(in crate::search) said: Option<String>,
}

impl OperatorMatches {
    /// Matches notes and pins with a query. `hits` has all tools, best first. `pinned` has the
    /// positions of the pinned tools. A fit of at least `enough` answers the query.
    pub(in crate::search) fn new(
        notes: Option<&NotesIndex>,
        query: &Query,
        ranking: &RankingRules,
        hits: &[SearchHit],
        pinned: &[usize],
        enough: f64,
    ) -> Self {
        let mut curated = Self::default();
        let places: BTreeMap<usize, usize> = (hits.iter().enumerate())
            .map(|(place, hit)| (hit.position, place))
            .collect();
        // Fit, rank and position of each tool that answers.
        let mut answer: Vec<(f64, usize, usize)> = Vec::new();
        if let Some(notes) = notes {
            let fits = notes.fits(query, ranking);
            // The answer quotes only the best note.
            let mut best = enough;
            for ((text, positions), fit) in notes.notes.iter().zip(fits) {
                for position in positions {
                    curated.add_fit(*position, fit);
                    if fit >= enough {
                        let place = places.get(position).copied().unwrap_or(usize::MAX);
                        answer.push((fit, place, *position));
                    }
                }
                if fit >= best {
                    best = fit;
                    curated.said = Some(quote_note(text));
                }
            }
        }
        for position in pinned {
            let Some(place) = places.get(position) else {
                continue;
            };
            let fit = fit_probability(&hits[*place]);
            curated.add_fit(*position, fit);
            if fit >= enough {
                answer.push((fit, *place, *position));
                let said = "Matching tools pinned by the operator come first.";
                curated.said.get_or_insert_with(|| said.into());
            }
        }
        answer.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, _, position) in answer {
            if !curated.answer.contains(&position) {
                curated.answer.push(position);
            }
        }
        curated
    }

    fn add_fit(&mut self, position: usize, fit: f64) {
        let known = self.fits.entry(position).or_default();
        *known = known.max(fit);
    }
}

/// Returns the quotation of a note in an answer.
fn quote_note(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = excerpt(&line, MAX_QUOTED);
    format!("Note of the operator: {shown}")
}
