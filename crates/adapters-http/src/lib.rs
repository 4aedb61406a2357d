//! The control port: HTTP for operators, beside the port that speaks MCP.
//!
//! At this stage it answers `GET /health` and nothing else. The crate holds the socket, routes,
//! bodies and status codes; it decides nothing, and depends on the domain and the application
//! alone. It is the only crate besides the MCP server that knows axum.

mod admission;
mod config;
mod handlers;
mod problem;
mod router;
mod server;

pub use config::{ControlAddress, ControlAddressError, ControlConfig};
pub use handlers::health::{
    EncoderHealth, EncoderState, Encoders, HealthSource, Learning, LearningCondition,
    LearningHealth, Store, StoreCondition, StoreHealth, UpstreamCondition, UpstreamHealth,
    Upstreams,
};
pub use router::router;
pub use server::serve;
