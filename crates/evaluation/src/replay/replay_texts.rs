//! The texts of a replay: those of the tools, and those of the users with their vectors.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use riglm_discovery::search::EncoderTier;
use riglm_domain::prediction::{TextEvidence, Vocabulary, text_scores};
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::{IndexedTool, Query, RankingRules, Synonyms, ToolIndex, ToolText};
use riglm_ports::encoder::EncoderError;

use super::predictor_forecaster::tool_ref;
use super::session::{ReplayCatalog, SessionSource};
use crate::Encoders;

/// The index of the tools of a catalog, and the vectors of the texts of users. Without encoders,
/// texts are compared with tools by words alone.
#[derive(Debug)]
pub struct ReplayTexts {
    index: ToolIndex,
    synonyms: Synonyms,
    rules: RankingRules,
    by_text: HashMap<String, TextVectors>,
}

/// The vectors of a text, one for each encoder, those of the better encoders first.
#[derive(Clone, Debug, Default)]
struct TextVectors {
    /// The vector of the first encoder, as encoded.
    first: Option<Embedding>,
    /// The vectors minus the means of their models.
    centred: Vec<Embedding>,
}

impl ReplayTexts {
    /// Returns the index of a catalog, without vectors.
    #[must_use]
    pub fn of_catalog(catalog: &ReplayCatalog) -> Self {
        Self {
            index: index_of(catalog),
            synonyms: Synonyms::built_in(),
            rules: RankingRules::default(),
            by_text: HashMap::new(),
        }
    }

    /// Adds the vectors of the tools and of these texts of users. The better encoder comes first.
    /// `progress` gets the number of encoded texts and the number of all texts.
    ///
    /// # Errors
    ///
    /// Returns [`EncoderError`] when an encoder fails.
    pub async fn with_vectors(
        mut self,
        encoders: &Encoders,
        texts: BTreeSet<String>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Self, EncoderError> {
        for encoder in encoders {
            let tier = EncoderTier::new(Arc::clone(encoder), None);
            let tools = self.index.tools().to_vec();
            let (vectors, centre) = tier.tools(&tools, &|_, _| {}).await?;
            self.index = self.index.with_vectors(tier.model(), &vectors, &centre);
            for (number, text) in texts.iter().enumerate() {
                let raw = tier.encode_uncached(Query::readable_part(text)).await?;
                let known = self.by_text.entry(text.clone()).or_default();
                known.centred.extend(tier.subtract_mean(&raw));
                if known.first.is_none() {
                    known.first = Embedding::new(tier.model(), raw).ok();
                }
                progress(number + 1, texts.len());
            }
        }
        Ok(self)
    }

    /// Returns the evidence of a text for the tools of a vocabulary, as in a running proxy.
    pub(super) fn evidence(&self, text: &str, vocabulary: &Vocabulary) -> TextEvidence {
        let vectors = self.by_text.get(text);
        let centred = vectors.iter().flat_map(|vectors| &vectors.centred);
        let query = centred.fold(Query::new(text, &self.synonyms), |query, vector| {
            query.with_vector(vector.clone())
        });
        let scores = text_scores(&self.index, &query, &self.rules, vocabulary);
        let evidence = TextEvidence::new(text).with_scores(scores);
        match vectors.and_then(|vectors| vectors.first.clone()) {
            Some(vector) => evidence.with_vector(vector),
            None => evidence,
        }
    }
}

/// Returns the texts of all sessions of a source: queries and turns. Starts the source again.
///
/// # Errors
///
/// Returns the error of the source.
pub async fn texts_of<S: SessionSource>(source: &mut S) -> Result<BTreeSet<String>, S::Error> {
    let mut texts = BTreeSet::new();
    while let Some(session) = source.next().await? {
        texts.extend(session.query);
        texts.extend(session.turns);
    }
    source.restart().await?;
    texts.remove("");
    Ok(texts)
}

/// Returns the word index of a catalog.
pub(super) fn index_of(catalog: &ReplayCatalog) -> ToolIndex {
    let indexed = catalog.tools.iter().map(|tool| {
        let text = ToolText {
            server: tool.server.clone(),
            name: tool.name.clone(),
            description: tool.description.clone(),
            ..ToolText::default()
        };
        IndexedTool::new(tool_ref(tool), text)
    });
    ToolIndex::new(indexed.collect())
}
