//! What predictors and list policies would have done on calls that were made.
//!
//! Everything is prequential (Dawid 1984): a call is predicted from what was before it, measured,
//! and learned from only then. Sessions are replayed one after the other in the order of their
//! beginnings; nothing of a call that is still to come reaches a [`Forecaster`].

mod driver;
mod folds;
mod forecaster;
mod history;
mod listed;
mod predicted;
mod session;

pub use driver::{PredictorReport, ReplayOptions, ReplayReport, replay};
pub use forecaster::{CallContext, Called, Forecaster, ReplayedPredictor, SessionContext};
pub use history::{History, history_catalog};
pub use session::{ReplayCall, ReplayCatalog, ReplaySession, ReplayTool, SessionSource};
