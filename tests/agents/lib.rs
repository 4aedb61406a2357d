//! Agents that work through the proxy as recorded sessions did, and what that costs them.
//!
//! The proxy is put together in this process from the parts that the program is made of: a database,
//! the port for Streamable HTTP, the search, what learns. Only time is not real: a clock is moved
//! from call to call and from session to session, so that weeks of work take seconds. What an agent
//! knows it knows from what the proxy told it over HTTP.

pub(crate) mod agent;
pub(crate) mod definitions;
pub(crate) mod measure;
pub(crate) mod reference;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod stage;
pub(crate) mod stream;
