//! Rules that keep agents from going on where it does not help: what they may spend, how often they may
//! call, and when they go in circles.

pub mod budget;
pub mod circles;
pub mod limiter;
