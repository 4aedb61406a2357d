//! Recording of sessions and calls.

mod counting_budget;
mod entropy;
mod known_sessions;
mod recorder;
mod remembered_counts;
mod text_queue;
mod token_meter;
mod watched_journal;

pub(crate) use counting_budget::CountingBudget;
pub(crate) use entropy::EntropySource;
pub use known_sessions::KnownSessions;
pub(crate) use recorder::micros;
pub use recorder::{
    CallDetails, CallTimes, RecommendationDetails, Recorder, RecorderOptions, RecordingPolicy,
    RecordingRefused, SearchDetails, SessionDetails,
};
pub use remembered_counts::RememberedCounts;
pub(crate) use text_queue::TextQueue;
