//! What is counted of calls: how often tools are called, what becomes of the calls, how long they
//! take, which tools are used together and which follow each other.
//!
//! Every count is a sum of whole numbers over rows, so that it can be kept up to date by adding
//! what a new row contributes and taking away what a removed row did, and comes out the same when
//! it is made anew from all rows. Rounds that continue a call ([`Invocation::continues`]) are not
//! counted.
//!
//! [`Invocation::continues`]: crate::invocation::Invocation::continues

mod change;
mod hour;
mod latency;
mod session_tools;
mod statistics;

pub use change::{CallCount, CountedCall, LatencyCount, PairCount, TransitionCount, UsageChange};
pub use hour::Hour;
pub use latency::{LatencyBucket, LatencyHistogram};
pub use session_tools::{SessionTool, SessionTools};
pub use statistics::{
    ToolCooccurrence, ToolFrequency, ToolSessions, ToolStatistics, ToolTransition,
};
