//! The bridge between the two eras of the protocol: revision 2026-07-28 ("modern") and all earlier
//! revisions ("legacy", basic/versioning).
//!
//! [`EraConnector`] wraps the connector of an upstream and detects the eras that the upstream
//! speaks. If client and upstream share an era, messages pass verbatim. Otherwise `legacy_client`
//! presents a modern upstream as a legacy server, and `modern_client` presents a legacy upstream as
//! a modern server.

mod connector;
mod detection;
mod legacy_client;
mod link_tasks;
mod modern_client;
mod options;
mod tasks;

pub use connector::EraConnector;
pub use modern_client::ModernClientLink;
pub use options::BridgeOptions;
