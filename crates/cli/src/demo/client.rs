//! The clients of the demonstration: real MCP clients over Streamable HTTP.

use std::time::Duration;

use anyhow::Context;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService};
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use strum::VariantArray;

use super::script::{ExpectedResult, ScriptedCall};

/// The deadline of a whole conversation.
const DEADLINE: Duration = Duration::from_secs(30);

/// A client of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
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
    pub fn revision(self) -> ProtocolVersion {
        match self {
            Self::Earlier => ProtocolVersion::V_2025_11_25,
            Self::Modern => ProtocolVersion::V_2026_07_28,
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Earlier => ClientLifecycleMode::Initialize,
            Self::Modern => ClientLifecycleMode::Discover {
                preferred_versions: vec![self.revision()],
            },
        }
    }
}

/// A request of a client with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The request.
    pub action: String,
    /// The result.
    pub answer: String,
    /// Whether the result is the expected one.
    pub is_expected: bool,
}

/// Connects a client to the MCP server at `url`, lists its tools, makes the calls and disconnects.
///
/// # Errors
///
/// Returns the error of a failed request, or a timeout after 30 s. An unexpected result is not an
/// error but is marked in its step.
pub async fn drive(
    client: DemoClient,
    url: &str,
    calls: &[ScriptedCall],
) -> anyhow::Result<Vec<Step>> {
    let transport = StreamableHttpClientTransport::from_uri(url);
    tokio::time::timeout(DEADLINE, converse(client, transport, calls))
        .await
        .with_context(|| format!("the conversation took longer than {} s", DEADLINE.as_secs()))?
}

async fn converse<T, E, A>(
    client: DemoClient,
    transport: T,
    calls: &[ScriptedCall],
) -> anyhow::Result<Vec<Step>>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let myself = Implementation::new("riglm-demo", env!("CARGO_PKG_VERSION"));
    let client = ClientConfig::new(ClientCapabilities::default(), myself)
        .with_protocol_version(client.revision())
        .serve_with_lifecycle(transport, client.lifecycle())
        .await
        .context("failed to connect")?;
    let mut steps = vec![list(&client, calls).await?];
    for call in calls {
        steps.push(make(&client, call).await?);
    }
    client.cancel().await.context("failed to disconnect")?;
    Ok(steps)
}

type Client = RunningService<RoleClient, ClientConfig>;

async fn list(client: &Client, calls: &[ScriptedCall]) -> anyhow::Result<Step> {
    let tools = client
        .list_all_tools()
        .await
        .context("failed to list the tools")?;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    Ok(Step {
        action: "tools/list".into(),
        answer: names.join(", "),
        is_expected: calls.iter().all(|call| names.contains(&call.name.as_str())),
    })
}

async fn make(client: &Client, call: &ScriptedCall) -> anyhow::Result<Step> {
    let arguments = call.arguments.as_object().cloned().unwrap_or_default();
    let result = client
        .call_tool(CallToolRequestParams::new(call.name.clone()).with_arguments(arguments))
        .await
        .with_context(|| format!("failed to call {}", call.name))?;
    let text = result
        .content
        .iter()
        .filter_map(|block| block.as_text().map(|text| text.text.as_str()))
        .collect::<Vec<_>>()
        .join("\n");
    let is_failure = result.is_error.unwrap_or(false);
    let is_expected = match call.expected {
        ExpectedResult::Text(expected) => !is_failure && text == expected,
        ExpectedResult::Failure(expected) => is_failure && text == expected,
    };
    Ok(Step {
        action: format!("tools/call {} {}", call.name, call.arguments),
        answer: if is_failure {
            format!("failed: {text}")
        } else {
            text
        },
        is_expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{DemoServer, script, serve};

    #[tokio::test]
    async fn every_server_answers_its_part_of_the_scripts_as_expected() {
        for (&client, &server) in DemoClient::ALL
            .iter()
            .flat_map(|client| DemoServer::ALL.iter().map(move |server| (client, server)))
        {
            let (near, far) = tokio::io::duplex(65_536);
            let serving = tokio::spawn(serve(server, far));
            let mut calls = script(client);
            calls.retain(|call| call.server == server);
            for call in &mut calls {
                call.name = call.tool.into();
            }
            let steps = converse(client, near, &calls).await.unwrap();
            assert!(steps.len() > 1 && steps.len() == calls.len() + 1);
            for step in &steps {
                assert!(step.is_expected, "{step:?}");
            }
            serving.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn unexpected_answers_are_marked() {
        let (near, far) = tokio::io::duplex(65_536);
        let serving = tokio::spawn(serve(DemoServer::Calc, far));
        let calls = [ScriptedCall {
            server: DemoServer::Calc,
            tool: "evaluate",
            name: "evaluate".into(),
            arguments: serde_json::json!({"expression": "1 + 1"}),
            expected: ExpectedResult::Failure("2"),
        }];
        let steps = converse(DemoClient::Earlier, near, &calls).await.unwrap();
        assert_eq!(
            steps[1],
            Step {
                action: r#"tools/call evaluate {"expression":"1 + 1"}"#.into(),
                answer: "2".into(),
                is_expected: false,
            }
        );
        serving.await.unwrap().unwrap();
    }
}
