//! The experts: each one computes a distribution over all tools from one kind of evidence.

mod client;
mod context_knn;
mod cooccurrence;
mod external;
mod frequency;
mod markov;
mod recency;
mod server;
mod sessions;
mod text;
mod time;

pub(super) use cooccurrence::cooccurrence_with_frequency as cooccurrence_with_fallback;
pub use text::text_scores;

use strum::{IntoStaticStr, VariantArray};

use super::session_history::SessionHistory;
use super::view::View;

/// A kind of evidence for the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Expert {
    /// Frequency of calls of each tool.
    Frequency,
    /// Frequency of each tool as the first one of a session.
    FirstCall,
    /// Recent calls in the session.
    Recency,
    /// Calls that followed the last call before.
    LastCall,
    /// Calls that followed the last one to five calls before.
    Markov,
    /// First uses of tools after the last one to five different tools.
    Workflow,
    /// Tools used later in the same sessions as the tools of this one.
    Cooccurrence,
    /// The servers that follow the last one, and the frequency of their tools.
    Server,
    /// The tools of earlier sessions similar to this one.
    SimilarSessions,
    /// The next tools in earlier sessions with a similar course.
    NextInSessions,
    /// The tools that were used after similar texts.
    ContextKnn,
    /// The fit of tools to the text.
    Text,
    /// Calls at this hour and on this weekday.
    Time,
    /// Calls of this kind of client.
    Client,
    /// The advice of a predictor outside of the engine.
    External,
}

/// A set of experts, for a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSet(u32);

impl ExpertSet {
    /// All experts.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns the set of these experts.
    #[must_use]
    pub fn of(experts: &[Expert]) -> Self {
        let bits = experts.iter().map(|expert| 1 << (*expert as u32));
        Self(bits.fold(0, |all, bit: u32| all | bit))
    }

    /// Returns the set with one more expert.
    #[must_use]
    pub fn with(self, expert: Expert) -> Self {
        Self(self.0 | 1 << (expert as u32))
    }

    /// Returns whether an expert is in the set.
    #[must_use]
    pub fn contains(self, expert: Expert) -> bool {
        self.0 & (1 << (expert as u32)) != 0
    }
}

impl Expert {
    /// All experts, in the order in which they are mixed.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the published name of the expert.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the initial weights of the expert: for tools that the session has not used yet, for
    /// tools that it has used, and for the probability of a repetition. They are rounded means of
    /// the weights that were learned on streams of different kinds (a proxy in daily use, agents on
    /// many servers, dialogues), six times over, starting from equal weights.
    pub(super) fn start_weights(self) -> (f64, f64, f64) {
        match self {
            Self::Frequency => (0.0, 0.02, 0.02),
            Self::FirstCall => (0.04, 0.03, 0.05),
            Self::Recency => (0.01, 0.3, 0.02),
            Self::LastCall => (0.07, 0.13, 0.09),
            // Nothing is known about an external predictor before it was compared with calls. It begins
            // like the best expert without a text.
            Self::Markov | Self::External => (0.16, 0.18, 0.19),
            Self::Workflow => (0.1, 0.06, -0.03),
            Self::Cooccurrence => (0.06, 0.17, -0.03),
            Self::Server => (0.03, 0.03, 0.06),
            Self::SimilarSessions => (0.06, 0.02, 0.03),
            Self::NextInSessions => (0.07, 0.02, -0.14),
            Self::ContextKnn => (0.54, 0.19, 0.28),
            Self::Text => (0.26, 0.1, 0.14),
            Self::Time => (0.05, 0.02, 0.14),
            Self::Client => (0.04, 0.08, 0.12),
        }
    }

    /// Returns whether the evidence of the expert is the text of the session.
    pub(super) fn reads_text(self) -> bool {
        matches!(self, Self::ContextKnn | Self::Text)
    }

    /// Returns whether the expert tells which servers belong to the task of a session.
    pub(super) fn knows_task(self, history: &SessionHistory) -> bool {
        match self {
            Self::Cooccurrence | Self::SimilarSessions | Self::NextInSessions => true,
            Self::ContextKnn => history.text().is_some(),
            _ => false,
        }
    }

    /// Returns whether the expert has evidence in a session. Without it, it has no influence.
    pub(super) fn has_evidence(self, history: &SessionHistory) -> bool {
        self != Self::External || history.advice().is_some()
    }

    /// Returns the distribution over the vocabulary: finite, not negative, and with the sum 1.
    pub(super) fn distribution(self, view: &View<'_>) -> Vec<f64> {
        match self {
            Self::Frequency => view.frequency.clone(),
            Self::FirstCall => view.start.clone(),
            Self::Recency => recency::distribution(view),
            Self::LastCall => markov::last_call(view),
            Self::Markov => markov::distribution(view),
            Self::Workflow => markov::workflow(view),
            Self::Cooccurrence => cooccurrence::distribution(view),
            Self::Server => server::distribution(view),
            Self::SimilarSessions => sessions::similar(view),
            Self::NextInSessions => sessions::next(view),
            Self::ContextKnn => context_knn::distribution(view),
            Self::Text => text::distribution(view),
            Self::Time => time::distribution(view),
            Self::Client => client::distribution(view),
            Self::External => external::distribution(view),
        }
    }

    /// Returns the evidence for a tool in words, if there is any.
    pub(super) fn evidence(
        self,
        view: &View<'_>,
        slot: super::vocabulary::ToolIx,
    ) -> Option<String> {
        match self {
            Self::Frequency | Self::FirstCall => frequency::evidence(self, view, slot),
            Self::Recency => recency::evidence(view, slot),
            Self::LastCall | Self::Markov | Self::Workflow => markov::evidence(self, view, slot),
            Self::Cooccurrence => cooccurrence::evidence(view, slot),
            Self::Server => server::evidence(view, slot),
            Self::SimilarSessions => Some("used in similar sessions".into()),
            Self::NextInSessions => Some("came next in similar sessions".into()),
            Self::ContextKnn => Some("used after similar texts".into()),
            Self::Text => Some("fits the text".into()),
            Self::Time => Some("usual at this time".into()),
            Self::Client => Some("usual with this client".into()),
            Self::External => external::evidence(view, slot),
        }
    }
}
