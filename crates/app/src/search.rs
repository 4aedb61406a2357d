//! Searching for tools in words, over everything that a session could call.

mod offer;

pub use offer::{Offer, OfferedTool, ServerText};
