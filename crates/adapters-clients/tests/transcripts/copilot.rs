//! Copilot CLI.

use riglm_adapters_clients::transcripts::{CallingAgent, TranscriptClient};

use crate::scene::Scene;

const EVENTS: &str = r#"{"type":"session.start","data":{"sessionId":"p-1","version":1,"context":{"cwd":"/home/dev/shop"}},"id":"e1","timestamp":"2026-11-01T10:00:00.000Z"}
{"type":"user.message","data":{"content":"Find the cart","source":"user"},"id":"e2","timestamp":"2026-11-01T10:00:01.000Z"}
{"type":"user.message","data":{"content":"A skill","source":"skill-x"},"id":"e3","timestamp":"2026-11-01T10:00:01.500Z"}
{"type":"assistant.message","data":{"content":"","toolRequests":[{"toolCallId":"c1","name":"my-docs-find_page","mcpServerName":"my-docs"}]},"id":"e4","timestamp":"2026-11-01T10:00:02.000Z"}
{"type":"tool.execution_start","data":{"toolCallId":"c1","toolName":"my-docs-find_page","arguments":{},"mcpServerName":"my-docs","mcpToolName":"find.page"},"id":"e5","timestamp":"2026-11-01T10:00:02.000Z"}
{"type":"tool.execution_complete","data":{"toolCallId":"c1","success":true,"result":{"content":"x"}},"id":"e6","timestamp":"2026-11-01T10:00:02.250Z"}
{"type":"tool.execution_start","data":{"toolCallId":"c2","toolName":"shop-pay","mcpServerName":"shop","mcpToolName":"pay","parentToolCallId":"c0"},"id":"e7","timestamp":"2026-11-01T10:00:03.000Z"}
{"type":"tool.execution_complete","data":{"toolCallId":"c2","success":false,"error":{"message":"MCP server 'shop': no","code":"failure"}},"id":"e8","timestamp":"2026-11-01T10:00:04.000Z"}
{"type":"tool.execution_start","data":{"toolCallId":"c3","toolName":"shop-not_there"},"id":"e9","timestamp":"2026-11-01T10:00:05.000Z"}
{"type":"tool.execution_complete","data":{"toolCallId":"c3","success":false,"error":{"message":"Tool 'shop-not_there' does not exist.","code":"failure"}},"id":"e10","timestamp":"2026-11-01T10:00:05.000Z"}
{"type":"tool.execution_start","data":{"toolCallId":"c4","toolName":"shop-ship","mcpServerName":"shop","mcpToolName":"ship"},"id":"e11","timestamp":"2026-11-01T10:00:06.000Z"}
{"type":"tool.execution_complete","data":{"toolCallId":"c4","success":false,"error":{"message":"no","code":"denied"}},"id":"e12","timestamp":"2026-11-01T10:00:06.000Z"}
{"type":"tool.execution_start","data":{"toolCallId":"c5","toolName":"bash","arguments":{}},"id":"e13","timestamp":"2026-11-01T10:00:07.000Z"}
{"type":"tool.execution_complete","data":{"toolCallId":"c5","success":false,"error":{"message":"no","code":"rejected"}},"id":"e14","timestamp":"2026-11-01T10:00:08.000Z"}
{"type":"hologram.start","data":{}}
{"type":"tool.execution_start","data":{"toolCallId":7}}
{"type":"session.shut
"#;

#[test]
fn calls_and_lines_are_read() {
    let scene = Scene::empty();
    scene.write(".copilot/session-state/p-1/events.jsonl", EVENTS);
    scene.write(".copilot/session-state/p-1/other.jsonl", "{}\n");
    let reading = scene.read();
    assert_eq!(
        reading.calls(),
        [
            "p-1 my-docs find.page success 250",
            "p-1 shop pay error 1000",
            "p-1 - bash cancelled 1000",
        ]
    );
    let counts = reading.counts(TranscriptClient::Copilot);
    assert_eq!((counts.n_files, counts.n_lines), (1, 17));
    assert_eq!((counts.n_mcp_calls, counts.n_refused_calls), (2, 2));
    assert_eq!((counts.skipped.unknown, counts.skipped.malformed), (1, 2));
    assert_eq!(reading.messages()["p-1"], ["Find the cart"]);
    assert_eq!(reading.call("pay").agent, CallingAgent::Subagent);
    let project = reading.call("find.page").project.as_deref();
    assert_eq!(project, Some("/home/dev/shop"));
}

#[test]
fn a_session_without_a_start_is_named_by_its_folder() {
    let scene = Scene::empty();
    let start = r#"{"type":"tool.execution_start","data":{"toolCallId":"c","toolName":"x"}}"#;
    scene.write(
        ".copilot/session-state/p-2/events.jsonl",
        format!("{start}\n"),
    );
    assert_eq!(scene.read().calls(), ["p-2 - x unknown -"]);
}
