//! Agents that repeat recorded sessions through the proxy, and the costs of their prompts.
//!
//! The proxy runs in this process and consists of the same parts as the program: a database, the
//! port for Streamable HTTP, the search, the learner. Only the time is simulated: a clock is moved
//! from call to call and from session to session, so that weeks of work take seconds. An agent
//! knows only the messages that it received from the proxy over HTTP.

pub(crate) mod agent;
pub(crate) mod definitions;
pub(crate) mod measure;
pub(crate) mod reference;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod stage;
pub(crate) mod stream;
