//! Between the eras of the protocol: clients and servers that speak revision 2026-07-28 ("modern")
//! and those that speak earlier ones ("legacy", basic/versioning).
//!
//! [`EraConnector`] stands in front of an upstream and finds out which eras it speaks. A client of
//! an era that the upstream speaks is passed through verbatim. For the others, `legacy_client`
//! presents a modern upstream as a legacy server, and `modern_client` the other way round.

mod detection;
mod era;
mod legacy_client;
mod modern_client;
mod options;

pub use era::EraConnector;
pub use modern_client::ModernClientLink;
pub use options::BridgeOptions;
