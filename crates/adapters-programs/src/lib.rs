//! Upstream servers that are programs: their start, the messages over their standard input and output,
//! the pool of their processes, and the guard that ends them if the proxy dies.
//!
//! The connectors move raw messages and know no configuration; `riglm-adapters-mcp` makes them.

pub mod compact;
pub mod guard;
pub mod huge_pages;
mod limits;
pub mod pool;
mod process_group;
mod stdio;

use std::sync::Arc;

use riglm_ports::upstream::{UpstreamConnector, UpstreamEvents, UpstreamLink};

pub use limits::{Patience, REFUSED, UpstreamLimits};
pub use stdio::{FailureLog, SkippedOutput, StartGate, StartTime, StdioConnector};

/// A connector of any kind.
pub type Connector = Arc<dyn UpstreamConnector>;
/// The receiver of a connection.
pub type Events = Arc<dyn UpstreamEvents>;
/// A connection of any kind.
pub type Link = Arc<dyn UpstreamLink>;
