//! The Model Context Protocol in both directions.
//!
//! `downstream` serves clients, and `upstream` connects to servers. Both move raw messages: no
//! message passes through a typed model on its way. This crate depends on the application, the
//! ports and the domain, and on no database.

pub mod downstream;
mod trace_headers;
pub mod upstream;
