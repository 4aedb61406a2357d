//! Recording of sessions and calls.

mod counting_budget;
mod known_sessions;
mod lossy_journal;
mod past_sessions;
mod recorder;
mod text_queue;
mod token_count_cache;
mod token_meter;

pub(crate) use counting_budget::CountingBudget;
pub use known_sessions::OpenSessions;
pub use past_sessions::{
    PastArguments, PastSession, PastSessionCall, PastSessionRecorder, PastSessionRows, is_imported,
};
pub(crate) use recorder::micros;
pub use recorder::{
    CallDetails, CallTimes, Recorder, RecorderOptions, RecordingPolicy, RecordingRefused,
    SearchDetails, SessionDetails,
};
pub(crate) use text_queue::TextQueue;
pub use token_count_cache::CachedTokenCounter;
