//! Recording of sessions and calls.

mod entropy;
mod recorder;

pub(crate) use recorder::micros;
pub use recorder::{CallDetails, Recorder, RecorderOptions, RecordingRefused, SessionDetails};
