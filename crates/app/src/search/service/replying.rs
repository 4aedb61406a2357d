//! From ranked tools to the answer.

use std::sync::Arc;

use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::{Hit, Past, Query, RankingRules, ToolIndex, grade, weighed_in};
use riglm_domain::search::{ScoredTool, SearchQuality};
use riglm_ports::observer::Event;

use super::Shared;
use super::fitting::fits_of;
use crate::learning::Intent;
use crate::search::ahead::ahead;
use crate::search::alike::Group;
use crate::search::answer::{Found, Predicted, write};
use crate::search::judging::{Judged, fits, is_named, with_first};
use crate::search::ladder::Curated;
use crate::search::prepared::Prepared;
use crate::search::request::{SearchCall, SearchReply};

/// What operators point at does not count where it fits less well than this.
const MIN_POINTED: f64 = 0.05;

/// All that an answer is made of.
pub(super) struct Asked {
    pub(super) call: SearchCall,
    /// How tools are ranked for who asks.
    pub(super) ranking: RankingRules,
    pub(super) text: String,
    pub(super) query: Query,
    pub(super) limit: usize,
    pub(super) prepared: Arc<Prepared>,
    /// The vector of the text as it is recorded.
    pub(super) vector: Option<Embedding>,
}

/// What was found, before it is written.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// All tools, best first, before anybody put them into another order.
    pub(super) ranked: Vec<Hit>,
    /// The same as they are answered.
    pub(super) hits: Vec<Hit>,
    pub(super) quality: SearchQuality,
    /// Whether any of them fits.
    pub(super) fits: bool,
    /// What operators point at.
    pub(super) curated: Curated,
    /// What the answer says of how they were found.
    pub(super) notes: Vec<String>,
    /// Nothing else is to be tried.
    pub(super) is_final: bool,
}

impl Shared {
    /// Ranks the tools. What operators point at ends the search where it fits well.
    pub(super) fn found(&self, asked: &Asked) -> Finding {
        let call = &asked.call;
        let whose = (&call.principal, call.session);
        let index = asked.prepared.index();
        let ranked = self.rank(whose, &asked.query, (&index, &asked.ranking));
        let rules = &self.ladder.notes;
        let pinned: &[usize] = if rules.pins { &call.pinned } else { &[] };
        let is_named = is_named(&asked.text, call.offer.tools());
        let curated = if is_named || asked.query.is_empty() {
            Curated::default()
        } else {
            Curated::new(
                asked.prepared.notes.as_ref(),
                (&asked.query, &asked.ranking),
                &ranked,
                pinned,
                self.rules.quality.high,
            )
        };
        let found = self.judged(ranked, curated, asked);
        if found.curated.answer.is_empty() {
            return Finding {
                is_final: is_named || asked.query.is_empty(),
                ..found
            };
        }
        self.ladder
            .observer
            .observe_from(&Event::SearchCurated, &call.origin());
        Finding {
            hits: with_first(&found.curated.answer, found.hits),
            quality: SearchQuality::High,
            fits: true,
            notes: found.curated.said.clone().into_iter().collect(),
            is_final: true,
            ..found
        }
    }

    /// Grades a ranking, with what operators point at weighed in.
    pub(super) fn judged(&self, ranked: Vec<Hit>, curated: Curated, asked: &Asked) -> Finding {
        let weight = (self.ladder.notes.weight, MIN_POINTED);
        let fusion = asked.ranking.rank_fusion.as_ref();
        let hits = weighed_in(ranked.clone(), &curated.fits, weight, fusion);
        let (_, quality) = grade(&hits, &self.rules.quality);
        Finding {
            fits: fits(&hits, self.rules.min_fit),
            hits,
            ranked,
            quality,
            curated,
            notes: Vec::new(),
            is_final: false,
        }
    }

    /// Writes the answer.
    pub(super) fn reply(&self, asked: &Asked, found: &Finding) -> SearchReply {
        let call = &asked.call;
        let hits = (found.hits.clone(), found.fits);
        let mut judged = Judged::new(&asked.text, hits, found.quality, &call.offer);
        judged.notes.splice(0..0, found.notes.iter().cloned());
        if call.offer.is_partial() {
            let n_tools = call.offer.tools().len();
            let note = format!("Only the first {n_tools} tools are searched; there are more.");
            judged.notes.push(note);
        }
        self.written(asked, &judged, &fits_of(&found.ranked))
    }

    /// Ranks the tools, with what is known of the principal. All of them: many may be the same.
    pub(super) fn rank(
        &self,
        (principal, session): (&Principal, SessionId),
        query: &Query,
        (index, ranking): (&ToolIndex, &RankingRules),
    ) -> Vec<Hit> {
        let memories = &self.memories;
        memories.with_history(principal, session, |history, session_tools| {
            let past = history.map(|history| Past {
                history,
                session_tools,
                now: self.clock.now(),
                without: None,
            });
            index.rank(query, ranking, past, index.tools().len())
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
        let rules = self.rules.answer.with_room_to_say_again(&*self.counter);
        let written = write(draft, notes, *quality, &rules, &*self.counter);
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
