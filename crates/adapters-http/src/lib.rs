//! The control port: the HTTP API for operators, on a different port than MCP.
//!
//! It shows state and records of the proxy, and accepts decisions of operators. The folder `page` has
//! the page for operators, which uses the same API. The crate has the socket, routes, bodies and
//! status codes; it contains no business logic, and depends only on the domain, discovery and the
//! application. Besides the MCP server, it is the only crate that knows axum.

mod access;
mod admission;
mod body;
mod config;
mod handlers;
mod openapi;
mod page;
mod path;
mod problem;
mod query;
mod router;
mod server;
mod state;
mod views;

pub use access::{ControlKey, ControlKeys, Scope};
pub use config::{
    ControlAddress, ControlAddressError, ControlConfig, ControlKeyConfig, ControlSecret,
};
pub use handlers::health::{
    EncoderHealth, EncoderState, Encoders, HealthSource, Learning, LearningCondition,
    LearningHealth, Store, StoreCondition, StoreHealth, UpstreamCondition, UpstreamHealth,
    Upstreams,
};
pub use handlers::metrics::MetricsSource;
pub use handlers::setup::{SetupCheck, SetupClient, SetupReport, SetupSource, SetupStatus};
pub use router::router;
pub use server::serve;
pub use state::ControlParts;
