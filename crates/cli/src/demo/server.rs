//! A server of the demonstration: a table of tools behind the MCP protocol.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::sandbox::Sandbox;
use super::tool::DemoTool;

/// A server with a table of tools.
pub(super) struct ToolServer {
    pub(super) tools: &'static [DemoTool],
    pub(super) sandbox: Sandbox,
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.iter().map(DemoTool::definition);
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tools.iter().find(|tool| tool.name == request.name) else {
            let text = format!("unknown tool {:?}", request.name);
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = match tool.call(&self.sandbox, &arguments) {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(failure) => CallToolResult::error(vec![ContentBlock::text(failure.0)]),
        };
        Ok(result.into())
    }
}
