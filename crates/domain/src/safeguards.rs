//! Safeguards: rules that limit the tokens and the call rate of agents, and that detect searches
//! with diminishing returns.

pub mod admission;
pub mod budget;
pub mod diminishing_returns;
pub mod limiter;
