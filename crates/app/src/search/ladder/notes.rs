//! What operators know about tools: notes, which are searched as documents that point at tools, and
//! tools that are pinned.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use riglm_domain::excerpt::excerpt;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::{
    CURATED_WEIGHT, Centre, Hit, IndexedTool, Query, RankingRules, ToolIndex, ToolText,
    ToolVectors, fit,
};
use riglm_domain::tool::ToolRef;

use crate::search::offer::{Offer, OfferedTool};

/// How much of a note an answer repeats, in characters.
const MAX_REPEATED: usize = 300;

/// What an operator knows about tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Which tools it is about, by the names that clients know or their upstreams do.
    pub tools: Vec<NamePattern>,
    /// What it says.
    pub text: String,
}

/// How what operators point at is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteRules {
    /// How much it counts, where words count 1.
    pub weight: f64,
    /// Whether tools that are pinned count as pointed at.
    pub pins: bool,
    /// The notes.
    pub notes: Vec<Note>,
}

impl Default for NoteRules {
    fn default() -> Self {
        Self {
            weight: CURATED_WEIGHT,
            pins: true,
            notes: Vec::new(),
        }
    }
}

impl Note {
    fn is_about(&self, tool: &OfferedTool) -> bool {
        let fits = |name: &ToolName| self.tools.iter().any(|pattern| pattern.matches(name));
        !self.tools.is_empty() && tool.names().iter().any(fits)
    }
}

/// Which notes were said to be about no tool.
#[derive(Debug, Default)]
pub(in crate::search) struct Warned(AtomicBool);

impl Warned {
    /// Says, once, which notes are about no tool of an offer that has all of them.
    fn tell(&self, rules: &NoteRules, offer: &Offer) {
        let is_idle = |note: &&Note| {
            !note.tools.is_empty() && offer.tools().iter().all(|it| !note.is_about(it))
        };
        let idle: Vec<&Note> = rules.notes.iter().filter(is_idle).collect();
        if idle.is_empty() || offer.is_partial() || self.0.swap(true, Ordering::Relaxed) {
            return;
        }
        let patterns = idle.iter().flat_map(|note| &note.tools);
        let patterns: Vec<&str> = patterns.map(NamePattern::as_str).take(10).collect();
        tracing::warn!(
            "search.notes: {} of {} notes are about no tool that is listed: {}",
            idle.len(),
            rules.notes.len(),
            patterns.join(", ")
        );
    }
}

/// The notes about the tools of an offer, ready to be searched beside these.
#[derive(Debug)]
pub(in crate::search) struct PreparedNotes {
    /// The tools and, behind them, the notes: words are as rare as they are among the tools.
    by_words: ToolIndex,
    /// The same with vectors, for each encoder that is done with it.
    with_vectors: Vec<OnceLock<ToolIndex>>,
    n_tools: usize,
    /// The texts, and the positions of the tools that they are about.
    notes: Vec<(String, Vec<usize>)>,
}

impl PreparedNotes {
    /// Prepares the notes about the tools of an offer; `None` where there are none.
    pub(in crate::search) fn new(
        (rules, warned): (&NoteRules, &Warned),
        offer: &Offer,
        tools: &[IndexedTool],
        n_tiers: usize,
    ) -> Option<Self> {
        if rules.notes.is_empty() {
            return None;
        }
        warned.tell(rules, offer);
        let upstream = UpstreamName::parse("notes").ok()?;
        let mut documents = tools.to_vec();
        let mut notes = Vec::new();
        for note in &rules.notes {
            let positions = offer.tools().iter().enumerate();
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
                description: note.text.clone(),
                ..ToolText::default()
            };
            documents.push(IndexedTool::new(tool, text));
            notes.push((note.text.clone(), positions));
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

    /// Adds the vectors of an encoder: those of the tools, and those of the notes.
    pub(in crate::search) fn add_vectors(
        &self,
        (tier, model): (usize, &str),
        (tools, notes): (&[ToolVectors], &[ToolVectors]),
        centre: &Centre,
    ) {
        if let Some(place) = self.with_vectors.get(tier) {
            let all = [tools, notes].concat();
            // Two of the same offer make the same vectors.
            let _ = place.set(self.by_words.with_vectors(model, &all, centre));
        }
    }

    /// Returns how well each note fits a query, by its place.
    fn fits(&self, query: &Query, ranking: &RankingRules) -> Vec<f64> {
        let done = self.with_vectors.iter().filter_map(OnceLock::get);
        let index = done.fold(self.by_words.clone(), ToolIndex::with_vectors_of);
        let mut fits = vec![0.0; self.notes.len()];
        for hit in index.rank(query, ranking, None, index.tools().len()) {
            if let Some(place) = hit.position.checked_sub(self.n_tools) {
                fits[place] = fit(&hit);
            }
        }
        fits
    }
}

/// What operators point at for a query.
#[derive(Clone, Debug, Default)]
pub(in crate::search) struct Curated {
    /// How well what points at a tool fits, by the position of the tool.
    pub(in crate::search) fits: BTreeMap<usize, f64>,
    /// The tools that answer the query, best first; none where nothing fits well enough.
    pub(in crate::search) answer: Vec<usize>,
    /// What the answer says of them.
    pub(in crate::search) said: Option<String>,
}

impl Curated {
    /// Finds what operators point at. `hits` are all tools, best first, `pinned` the positions of those
    /// that are pinned; what fits at least as well as `enough` answers the query.
    pub(in crate::search) fn new(
        notes: Option<&PreparedNotes>,
        (query, ranking): (&Query, &RankingRules),
        hits: &[Hit],
        pinned: &[usize],
        enough: f64,
    ) -> Self {
        let mut curated = Self::default();
        let places: BTreeMap<usize, usize> = (hits.iter().enumerate())
            .map(|(place, hit)| (hit.position, place))
            .collect();
        // Tools that answer, each with how well what points at it fits, and its place.
        let mut answer: Vec<(f64, usize, usize)> = Vec::new();
        if let Some(notes) = notes {
            let fits = notes.fits(query, ranking);
            let mut best = enough;
            for ((text, positions), fit) in notes.notes.iter().zip(fits) {
                for position in positions {
                    curated.note(*position, fit);
                    if fit >= enough {
                        let place = places.get(position).copied().unwrap_or(usize::MAX);
                        answer.push((fit, place, *position));
                    }
                }
                if fit >= best {
                    best = fit;
                    curated.said = Some(repeated(text));
                }
            }
        }
        for position in pinned {
            let Some(place) = places.get(position) else {
                continue;
            };
            let fit = fit(&hits[*place]);
            curated.note(*position, fit);
            if fit >= enough {
                answer.push((fit, *place, *position));
                let said = "The operator pinned a tool that fits; it comes first.";
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

    fn note(&mut self, position: usize, fit: f64) {
        let known = self.fits.entry(position).or_default();
        *known = known.max(fit);
    }
}

/// Returns what an answer repeats of a note.
fn repeated(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = excerpt(&line, MAX_REPEATED);
    format!("From a note of the operator: {shown}")
}
