//! Usage counts: numbers of calls, outcomes, latencies, tools used together, and tools that follow
//! each other.
//!
//! Every count is a sum of whole numbers over rows. It is kept up to date by adding the
//! contribution of a new row and subtracting the contribution of a removed row. A rebuild from all
//! rows gives the same result. Rounds that continue a call ([`Invocation::continues`]) are not
//! counted.
//!
//! [`Invocation::continues`]: crate::usage::invocation::Invocation::continues

mod change;
pub mod feedback;
mod hour;
pub mod invocation;
mod latency;
pub mod learned_state;
pub mod record;
pub mod session;
mod session_tools;
mod statistics;
pub mod work_session;

pub use change::{CallCount, CountedCall, LatencyCount, PairCount, TransitionCount, UsageChange};
pub use hour::Hour;
pub use latency::{LatencyBucket, LatencyHistogram};
pub use session_tools::{SessionTool, SessionTools};
pub use statistics::{
    ToolCooccurrence, ToolFrequency, ToolSessions, ToolStatistics, ToolTransition,
};
