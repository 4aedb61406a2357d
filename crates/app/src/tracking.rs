//! Recording of sessions and calls.

mod counting_budget;
mod entropy;
mod recorder;
mod token_meter;
mod watched_journal;

pub(crate) use entropy::EntropySource;
pub(crate) use recorder::micros;
pub use recorder::{
    CallDetails, Recorder, RecorderOptions, RecordingPolicy, RecordingRefused, SearchDetails,
    SessionDetails,
};
