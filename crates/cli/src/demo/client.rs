//! The clients of the demonstration: real MCP clients over Streamable HTTP.

use std::time::{Duration, Instant};

use anyhow::Context;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, JsonObject,
    ProtocolVersion, Tool,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use serde::Deserialize;
use strum::VariantArray;

use super::DemoServer;

/// The deadline of a request.
const DEADLINE: Duration = Duration::from_secs(30);

/// A client of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, VariantArray, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemoClient {
    /// A client of a revision with handshakes and sessions.
    Earlier,
    /// A client of revision 2026-07-28.
    Modern,
}

impl DemoClient {
    /// All clients.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the protocol revision of the client.
    #[must_use]
    pub fn revision(self) -> &'static str {
        match self {
            Self::Earlier => "2025-11-25",
            Self::Modern => "2026-07-28",
        }
    }

    fn protocol(self) -> ProtocolVersion {
        match self {
            Self::Earlier => ProtocolVersion::V_2025_11_25,
            Self::Modern => ProtocolVersion::V_2026_07_28,
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Earlier => ClientLifecycleMode::Initialize,
            Self::Modern => ClientLifecycleMode::Discover {
                preferred_versions: vec![self.protocol()],
            },
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// The text of the result.
    pub text: String,
    /// Whether the tool failed.
    pub is_failure: bool,
    /// The time from the request to the answer.
    pub took: Duration,
}

/// An open connection of a client.
#[derive(Debug)]
pub struct Connection {
    client: RunningService<RoleClient, ClientConfig>,
}

impl Connection {
    /// Connects a client to the MCP server at `url`.
    ///
    /// # Errors
    ///
    /// Returns the error of connecting.
    pub async fn open(client: DemoClient, url: &str) -> anyhow::Result<Self> {
        Self::over(client, StreamableHttpClientTransport::from_uri(url)).await
    }

    /// Starts a server, and connects a client to it without a proxy.
    ///
    /// # Errors
    ///
    /// Returns the error of starting the server, or of connecting.
    pub async fn direct(server: DemoServer) -> anyhow::Result<(Self, tokio::process::Child)> {
        let program = std::env::current_exe().context("failed to find the riglm program")?;
        let mut process = tokio::process::Command::new(program)
            .args(["__demo-server", server.name()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start a server")?;
        let output = process.stdout.take().context("the server has no output")?;
        let input = process.stdin.take().context("the server has no input")?;
        let connection = Self::over(DemoClient::Earlier, (output, input)).await?;
        Ok((connection, process))
    }

    pub(super) async fn over<T, E, A>(client: DemoClient, transport: T) -> anyhow::Result<Self>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let myself = Implementation::new("riglm-demo", env!("CARGO_PKG_VERSION"));
        let serving = ClientConfig::new(ClientCapabilities::default(), myself)
            .with_protocol_version(client.protocol())
            .serve_with_lifecycle(transport, client.lifecycle());
        // The future of connecting is large.
        let client = Box::pin(within(async { Ok(serving.await?) })).await;
        Ok(Self {
            client: client.context("failed to connect")?,
        })
    }

    /// Returns the listed tools.
    ///
    /// # Errors
    ///
    /// Returns the error of the request.
    pub async fn list(&self) -> anyhow::Result<Vec<Tool>> {
        let listed = within(async { Ok(self.client.list_all_tools().await?) }).await;
        listed.context("failed to list the tools")
    }

    /// Calls a tool.
    ///
    /// # Errors
    ///
    /// Returns the error of the request. A failure of the tool is an answer.
    pub async fn call(&self, name: &str, arguments: &JsonObject) -> anyhow::Result<CallAnswer> {
        let request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
        let begun = Instant::now();
        let result = within(async { Ok(self.client.call_tool(request).await?) }).await;
        let took = begun.elapsed();
        let result = result.with_context(|| format!("failed to call {name}"))?;
        let texts = result.content.iter();
        let texts = texts.filter_map(|block| block.as_text().map(|text| text.text.as_str()));
        Ok(CallAnswer {
            text: texts.collect::<Vec<_>>().join("\n"),
            is_failure: result.is_error.unwrap_or(false),
            took,
        })
    }

    /// Disconnects.
    ///
    /// # Errors
    ///
    /// Returns the error of the task of the connection.
    pub async fn close(self) -> anyhow::Result<()> {
        self.client.cancel().await.context("failed to disconnect")?;
        Ok(())
    }
}

async fn within<T>(request: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let answered = tokio::time::timeout(DEADLINE, request).await;
    answered.with_context(|| format!("no answer within {} s", DEADLINE.as_secs()))?
}
