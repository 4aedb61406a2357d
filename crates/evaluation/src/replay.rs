//! Replay: evaluation of predictors and list policies on recorded calls.
//!
//! The evaluation is prequential (Dawid 1984): each call is first predicted from earlier data, then
//! measured, and only then learned. Sessions are replayed in the order of their start times. No
//! data of a future call reach a [`Forecaster`].

mod driver;
mod folds;
mod forecaster;
mod history;
mod list_catalog;
mod predictor_forecaster;
mod replay_texts;
mod session;

pub use driver::{PredictorReport, ReplayOptions, ReplayReport, replay};
pub use forecaster::{
    AskExternal, CallContext, Forecaster, ObservedCall, ReplayedPredictor, SessionContext,
};
pub use history::{ReplayHistory, history_catalog};
pub use replay_texts::{ReplayTexts, texts_of};
pub use session::{ReplayCall, ReplayCatalog, ReplaySession, ReplayTool, SessionSource};
