//! The experts: each makes a distribution over all tools from one kind of evidence.

mod client;
mod context_knn;
mod cooccurrence;
mod frequency;
mod markov;
mod recency;
mod server;
mod sessions;
mod text;
mod time;

pub(super) use cooccurrence::with_fallback as cooccurrence_with_fallback;
pub use text::text_scores;

use super::view::View;

/// A kind of evidence for what is called next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expert {
    /// How often each tool is called.
    Frequency,
    /// How often each tool is the first one of a session.
    FirstCall,
    /// What was called lately in the session.
    Recency,
    /// What followed the last call.
    LastCall,
    /// What followed the last one to five calls.
    Markov,
    /// What is used for the first time after the last one to five different tools.
    Workflow,
    /// What is used in the same sessions as the tools of this one, later.
    Cooccurrence,
    /// The servers that follow the last one, and how often each of their tools is called.
    Server,
    /// The tools of earlier sessions that are like this one.
    SimilarSessions,
    /// The tools that came next in earlier sessions that went like this one.
    NextInSessions,
    /// The tools that were used after similar texts.
    ContextKnn,
    /// How well tools fit the text.
    Text,
    /// What is called at this hour and on this weekday.
    Time,
    /// What this kind of client calls.
    Client,
}

/// Some of the experts: those that a mix is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSet(u32);

impl ExpertSet {
    /// All of them.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns the set of these experts.
    #[must_use]
    pub fn of(experts: &[Expert]) -> Self {
        let bits = experts.iter().map(|expert| 1 << (*expert as u32));
        Self(bits.fold(0, |all, bit: u32| all | bit))
    }

    /// Returns whether an expert is among them.
    #[must_use]
    pub fn contains(self, expert: Expert) -> bool {
        self.0 & (1 << (expert as u32)) != 0
    }
}

impl Expert {
    /// All experts, in the order in which they are mixed.
    pub const ALL: [Self; 14] = [
        Self::Frequency,
        Self::FirstCall,
        Self::Recency,
        Self::LastCall,
        Self::Markov,
        Self::Workflow,
        Self::Cooccurrence,
        Self::Server,
        Self::SimilarSessions,
        Self::NextInSessions,
        Self::ContextKnn,
        Self::Text,
        Self::Time,
        Self::Client,
    ];

    /// Returns the name under which the expert is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frequency => "frequency",
            Self::FirstCall => "first_call",
            Self::Recency => "recency",
            Self::LastCall => "last_call",
            Self::Markov => "markov",
            Self::Workflow => "workflow",
            Self::Cooccurrence => "cooccurrence",
            Self::Server => "server",
            Self::SimilarSessions => "similar_sessions",
            Self::NextInSessions => "next_in_sessions",
            Self::ContextKnn => "context_knn",
            Self::Text => "text",
            Self::Time => "time",
            Self::Client => "client",
        }
    }

    /// Returns the weights that the expert has before any was learned: for tools that the session
    /// did not use yet, for those that it did, and for whether one of those is used again. They are
    /// what streams of different kinds (a proxy in daily use, agents on many servers, dialogues)
    /// agree on, rounded: the means of what was learned on each, six times over, from equal ones on.
    pub(super) fn start_weights(self) -> (f64, f64, f64) {
        match self {
            Self::Frequency => (0.0, 0.02, 0.02),
            Self::FirstCall => (0.04, 0.03, 0.05),
            Self::Recency => (0.01, 0.3, 0.02),
            Self::LastCall => (0.07, 0.13, 0.09),
            Self::Markov => (0.16, 0.18, 0.19),
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

    /// Returns the distribution over the slots of the vocabulary: finite, not negative, and with
    /// the sum one.
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
        }
    }

    /// Returns in words what the evidence for a tool is, where there is any.
    pub(super) fn evidence(self, view: &View<'_>, slot: super::vocabulary::Slot) -> Option<String> {
        match self {
            Self::Frequency | Self::FirstCall => frequency::evidence(self, view, slot),
            Self::Recency => recency::evidence(view, slot),
            Self::LastCall | Self::Markov | Self::Workflow => markov::evidence(self, view, slot),
            Self::Cooccurrence => cooccurrence::evidence(view, slot),
            Self::Server => server::evidence(view, slot),
            Self::SimilarSessions => Some("used in sessions like this one".into()),
            Self::NextInSessions => Some("came next in sessions that went like this one".into()),
            Self::ContextKnn => Some("used after similar texts".into()),
            Self::Text => Some("fits the text".into()),
            Self::Time => Some("usual at this time".into()),
            Self::Client => Some("usual with this client".into()),
        }
    }
}
