//! The client of the demonstration: a real MCP client over Streamable HTTP.

use std::time::Duration;

use anyhow::Context;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};

use super::script::{Expected, ScriptedCall};

/// How long the whole conversation may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// One thing that the client did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it did.
    pub action: String,
    /// What came back.
    pub answer: String,
    /// Whether that was to be expected.
    pub is_expected: bool,
}

/// Connects to the MCP server at `url`, lists its tools, makes the calls and says goodbye.
///
/// # Errors
///
/// Returns what kept the conversation from coming to its end, within 30 s. An answer other than
/// the expected one is no error but a step that says so.
pub async fn drive(url: &str, calls: &[ScriptedCall]) -> anyhow::Result<Vec<Step>> {
    let transport = StreamableHttpClientTransport::from_uri(url);
    tokio::time::timeout(DEADLINE, converse(transport, calls))
        .await
        .with_context(|| format!("the conversation took longer than {} s", DEADLINE.as_secs()))?
}

async fn converse<T, E, A>(transport: T, calls: &[ScriptedCall]) -> anyhow::Result<Vec<Step>>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let myself = Implementation::new("riglm-demo", env!("CARGO_PKG_VERSION"));
    let client = ClientConfig::new(ClientCapabilities::default(), myself)
        .serve(transport)
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
        is_expected: calls.iter().all(|call| names.contains(&call.tool)),
    })
}

async fn make(client: &Client, call: &ScriptedCall) -> anyhow::Result<Step> {
    let arguments = call.arguments.as_object().cloned().unwrap_or_default();
    let result = client
        .call_tool(CallToolRequestParams::new(call.tool).with_arguments(arguments))
        .await
        .with_context(|| format!("failed to call {}", call.tool))?;
    let text = result
        .content
        .iter()
        .filter_map(|block| block.as_text().map(|text| text.text.as_str()))
        .collect::<Vec<_>>()
        .join("\n");
    let is_failure = result.is_error.unwrap_or(false);
    let is_expected = match call.expected {
        Expected::Text(expected) => !is_failure && text == expected,
        Expected::Failure(expected) => is_failure && text == expected,
    };
    Ok(Step {
        action: format!("tools/call {} {}", call.tool, call.arguments),
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
    async fn every_server_answers_its_script_as_expected() {
        for server in DemoServer::ALL {
            let (near, far) = tokio::io::duplex(65_536);
            let serving = tokio::spawn(serve(server, far));
            let calls = script(server);
            let steps = converse(near, &calls).await.unwrap();
            assert_eq!(steps.len(), calls.len() + 1);
            for step in &steps {
                assert!(step.is_expected, "{step:?}");
            }
            serving.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn an_answer_that_was_not_expected_is_told() {
        let (near, far) = tokio::io::duplex(65_536);
        let serving = tokio::spawn(serve(DemoServer::Calc, far));
        let calls = [ScriptedCall {
            tool: "evaluate",
            arguments: serde_json::json!({"expression": "1 + 1"}),
            expected: Expected::Failure("2"),
        }];
        let steps = converse(near, &calls).await.unwrap();
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
