//! The demonstration: small MCP servers with real tools, and clients that call them.
//!
//! Each server is a process, `riglm __demo-server NAME`, that speaks MCP over standard input and
//! output. The clients speak Streamable HTTP: one in a revision with handshakes and sessions, one
//! in a revision without. One proxy connects them.

mod arithmetic;
mod calc;
mod client;
mod difference;
mod notes;
mod script;
mod text;
mod units;

use anyhow::Context;
use rmcp::model::{ContentBlock, IntoContents};
use rmcp::transport::IntoTransport;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use strum::{EnumString, IntoStaticStr, VariantArray};

pub use client::{DemoClient, Step, drive};
pub use script::{ExpectedResult, ScriptedCall, script};

/// A server of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DemoServer {
    /// A server that stores notes in memory.
    Notes,
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
}

/// The text of a call that failed, for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ToolFailure(String);

impl<E: std::error::Error> From<E> for ToolFailure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl IntoContents for ToolFailure {
    fn into_contents(self) -> Vec<ContentBlock> {
        self.0.into_contents()
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
    match server {
        DemoServer::Notes => until_end(notes::Notes::default(), transport).await,
        DemoServer::Text => until_end(text::Text, transport).await,
        DemoServer::Calc => until_end(calc::Calc, transport).await,
    }
}

async fn until_end<T, E, A>(server: impl ServerHandler, transport: T) -> anyhow::Result<()>
where
    T: IntoTransport<RoleServer, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let running = server
        .serve(transport)
        .await
        .context("failed to initialize the session with the client")?;
    running
        .waiting()
        .await
        .context("failed to serve the client")?;
    Ok(())
}
