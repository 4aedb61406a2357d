//! From ranked tools to the answer.

use std::sync::Arc;

use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{Hit, Past, Query, ToolIndex, grade};
use riglm_domain::search::ScoredTool;

use super::Shared;
use super::fitting::fits_of;
use crate::learning::Intent;
use crate::search::ahead::ahead;
use crate::search::alike::Group;
use crate::search::answer::{Found, Predicted, write};
use crate::search::judging::Judged;
use crate::search::prepared::Prepared;
use crate::search::request::{SearchCall, SearchReply};

/// All that an answer is made of.
pub(super) struct Asked {
    pub(super) call: SearchCall,
    pub(super) text: String,
    pub(super) query: Query,
    pub(super) limit: usize,
    pub(super) prepared: Arc<Prepared>,
    /// The vector of the text as it is recorded.
    pub(super) vector: Option<Embedding>,
}

impl Shared {
    /// Ranks the tools and writes the answer.
    pub(super) fn reply(&self, asked: &Asked) -> SearchReply {
        let call = &asked.call;
        let whose = (&call.principal, call.session);
        let hits = self.rank(whose, &asked.query, &asked.prepared.index());
        let (_, quality) = grade(&hits, &self.rules.quality);
        let fits = fits_of(&hits);
        let mut judged = Judged::new(&asked.text, hits, quality, &call.offer, &self.rules);
        if call.offer.is_partial() {
            let n_tools = call.offer.tools().len();
            let note = format!("Only the first {n_tools} tools are searched; there are more.");
            judged.notes.push(note);
        }
        self.written(asked, &judged, &fits)
    }

    /// Ranks the tools, with what is known of the principal. All of them: many may be the same.
    pub(super) fn rank(
        &self,
        (principal, session): (&Principal, SessionId),
        query: &Query,
        index: &ToolIndex,
    ) -> Vec<Hit> {
        let memories = &self.memories;
        memories.with_history(principal, session, |history, session_tools| {
            let past = history.map(|history| Past {
                history,
                session_tools,
                now: self.clock.now(),
                without: None,
            });
            index.rank(query, &self.rules.ranking, past, index.tools().len())
        })
    }

    fn written(&self, asked: &Asked, judged: &Judged, fits: &[(usize, f64)]) -> SearchReply {
        let Asked { call, prepared, .. } = asked;
        let Judged {
            hits,
            quality,
            notes,
        } = judged;
        let groups = prepared.alike.groups(hits, asked.limit);
        let offered = call.offer.tools();
        let tools = prepared.by_words.tools();
        let found: Vec<Found<'_>> = (groups.iter())
            .map(|Group { hit, others }| Found {
                name: &offered[hit.position].name,
                text: tools[hit.position].text(),
                definition: &offered[hit.position].definition,
                score: hit.score,
                same: (others.iter())
                    .map(|other| offered[*other].name.as_str())
                    .collect(),
            })
            .collect();
        let mut named: Vec<usize> = (groups.iter())
            .flat_map(|group| group.others.iter().copied().chain([group.hit.position]))
            .collect();
        named.sort_unstable();
        let next = self.next_tools.as_deref().map_or_else(Vec::new, |next| {
            let n = self.rules.answer.n_predicted;
            let intent = Intent {
                text: &asked.text,
                fits,
                vector: asked.vector.as_ref(),
            };
            ahead(next, call, intent, &named, (n, self.clock.now()))
        });
        let predicted: Vec<Predicted<'_>> = (next.iter())
            .map(|ahead| Predicted {
                name: &offered[ahead.position].name,
                text: tools[ahead.position].text(),
                definition: &offered[ahead.position].definition,
                reason: &ahead.reason,
            })
            .collect();
        let draft = (found.as_slice(), predicted.as_slice());
        let written = write(draft, notes, *quality, &self.rules.answer, &*self.counter);
        let answered = written.shown.iter().map(|at| &groups[*at]);
        // What is the same fits as well.
        let scored = answered.flat_map(|Group { hit, others }| {
            let positions = std::iter::once(hit.position).chain(others.iter().copied());
            positions.map(|position| ScoredTool {
                tool: offered[position].tool.clone(),
                score: hit.score,
            })
        });
        SearchReply {
            results: scored.collect(),
            predicted: (written.predicted.iter())
                .map(|at| offered[next[*at].position].tool.clone())
                .collect(),
            text: written.text,
            structured: written.structured,
            quality: *quality,
            query_vector: None,
            was_cached: false,
        }
    }
}
