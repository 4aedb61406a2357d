//! Which tool is called next, and which tools of a list a client is shown.
//!
//! An [`Engine`] learns from every call. It keeps the tools in a [`Vocabulary`], what happened in a
//! session so far in a [`Trail`], and makes a [`Forecast`] over the tools that may be called now:
//! experts that each look at one kind of evidence, mixed by what each was worth so far.
//! [`Confidence`] says how far a forecast is to be trusted. Everything here is a pure computation:
//! no I/O, no clock, no randomness.

mod aging;
mod confidence;
mod counts;
mod engine;
mod expert;
mod explanation;
mod features;
mod forecast;
mod gate;
mod memory;
mod mixers;
mod name_pattern;
mod node;
mod number;
mod pairs;
mod predictor_set;
mod selection;
mod softmax;
mod tables;
mod trail;
mod view;
mod vocabulary;
mod whole;

pub use confidence::{Band, Bands, Confidence, ConfidenceMeasure, similarity_confidence};
pub use engine::{Engine, Lesson, Method, SnapshotError, Upkeep};
pub use expert::{Expert, ExpertSet, text_scores};
pub use explanation::{Explanation, ScoreTerm};
pub use forecast::Forecast;
pub use name_pattern::NamePattern;
pub use predictor_set::PredictorSet;
pub use selection::{Selection, SelectionContext};
pub use trail::{Party, TextEvidence, Trail};
pub use vocabulary::{Slot, Vocabulary};
