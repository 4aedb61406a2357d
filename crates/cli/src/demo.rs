//! The demonstration: small MCP servers, and clients that call them.
//!
//! Each server is a process, `riglm __demo-server NAME`, that speaks MCP over standard input and
//! output. Its tools and their answers are data, `demo/servers.json`; what a call changes is in
//! memory. The clients speak Streamable HTTP: one in a revision with handshakes and sessions, one in
//! a revision without. They play recorded sessions of agents through one proxy.

mod answer;
mod client;
mod script;
mod server;
mod template;

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock;
use rmcp::model::Tool;
use rmcp::transport::IntoTransport;
use rmcp::{RoleServer, ServiceExt};
use serde::Deserialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

pub use client::{CallAnswer, Connection, DemoClient};
pub use script::{ExpectedResult, Script, ScriptedCall, ScriptedSession};

use server::{SERVERS, ServerData, ToolServer};

/// A server of the demonstration.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString, VariantArray, Deserialize,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum DemoServer {
    /// A server for the files of a team.
    Files,
    /// A server that stores notes.
    Notes,
    /// A server for the issues of a project.
    Tracker,
    /// A server for a calendar.
    Calendar,
    /// A server that counts, compares and rewrites text.
    Text,
    /// A server that evaluates arithmetic, converts units and counts days.
    Calc,
}

impl DemoServer {
    /// All servers.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the server.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the definitions of all tools, with the names that they have behind the proxy.
    #[must_use]
    pub fn definitions(self) -> Vec<Tool> {
        let definitions = self.data().tools.iter();
        let named = definitions.map(|tool| {
            let mut tool = tool.definition.clone();
            tool.name = format!("{}__{}", self.name(), tool.name).into();
            tool
        });
        named.collect()
    }

    fn data(self) -> &'static ServerData {
        &SERVERS[self.name()]
    }
}

/// A clock that lags behind that of the system, by a time that can be made shorter.
///
/// A session of an agent is over, and learned from as a whole, an hour after its last call. So the
/// demonstration plays each session as if it were some time after the one before, up to now.
#[derive(Debug, Default)]
pub struct DemoClock {
    behind: AtomicI64,
}

impl DemoClock {
    /// Sets how far the clock is behind.
    pub fn lag(&self, behind: SignedDuration) {
        self.behind.store(behind.as_secs(), Ordering::Relaxed);
    }
}

impl Clock for DemoClock {
    fn now(&self) -> Timestamp {
        let behind = SignedDuration::from_secs(self.behind.load(Ordering::Relaxed));
        let now = SystemClock.now();
        now.checked_sub(behind).unwrap_or(now)
    }
}

/// Runs a server over standard input and output, until the input ends.
///
/// # Errors
///
/// Returns the error of serving the client.
pub async fn serve_stdio(server: DemoServer) -> anyhow::Result<()> {
    serve(server, rmcp::transport::stdio()).await
}

async fn serve<T, E, A>(server: DemoServer, transport: T) -> anyhow::Result<()>
where
    T: IntoTransport<RoleServer, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let running = ToolServer::new(server.data())
        .serve(transport)
        .await
        .context("failed to initialize the session with the client")?;
    running
        .waiting()
        .await
        .context("failed to serve the client")?;
    Ok(())
}

#[cfg(test)]
mod tests;
