//! The control port: HTTP for operators, beside the port that speaks MCP.
//!
//! It answers `GET /health`, and takes what operators decide about the tools of lists and about the
//! settings of the process. The crate holds the socket, routes,
//! bodies and status codes; it decides nothing, and depends on the domain and the application
//! alone. It is the only crate besides the MCP server that knows axum.

mod access;
mod admission;
mod body;
mod config;
mod handlers;
mod problem;
mod router;
mod server;

pub use access::{ControlKey, ControlKeys, Scope};
pub use config::{
    ControlAddress, ControlAddressError, ControlConfig, ControlKeyConfig, ControlSecret,
};
pub use handlers::health::{
    EncoderHealth, EncoderState, Encoders, HealthSource, Learning, LearningCondition,
    LearningHealth, Store, StoreCondition, StoreHealth, UpstreamCondition, UpstreamHealth,
    Upstreams,
};
pub use router::{ControlParts, router};
pub use server::serve;
