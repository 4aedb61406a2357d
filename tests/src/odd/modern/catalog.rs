//! The literal results of the modern server, in unusual but legal forms.

use crate::odd::catalog::plain_tool;

/// The `serverInfo` entry of `_meta`.
pub(super) const IDENTITY: &str = r#""io.modelcontextprotocol/serverInfo":{"version":"2.0","name":"odd","title":"Odd \u2014 \"modern\"","x":1e3}"#;

pub(super) const DISCOVERY: &str = r#"{"x-first":null,"supportedVersions":$VERSIONS,"cacheScope":"public","capabilities":{"tools":{"listChanged":true,"x":1.0},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/skills":{"directoryRead":true},"x.example/odd":{"n":18446744073709551616}},"x-capability":null},"ttlMs":3.6e6,"instructions":"Line one.\nLine \u0074wo.","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"version":"2.0","name":"odd","title":"Odd \u2014 \"modern\"","x":1e3},"x.example/k":[1.0,1e3,0.70]}}"#;

pub(super) const TOOL_CURSOR: &str = r#""b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70""#;

/// The members of the first page of tools.
pub(super) const TOOLS_PAGE_1: &str = r#""nextCursor":"b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70","ttlMs":6e4,"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"maxLength":1e3,"x-note":null}},"$defs":{"a":{"const":1.0}},"anyOf":[true]},"description":"Echoes \u00ab text \u00bb","annotations":{"readOnlyHint":true,"x-hint":18446744073709551616},"x-vendor":{"deep":[[[{"n":0.70}]]]},"_meta":{"x.example/tag":"\ud83d\ude00","n":-0.0}},{"outputSchema":{"type":["array","null"],"prefixItems":[{"type":"number"}]},"title":null,"inputSchema":{"type":"object"},"name":"structured_only"},{"name":"mirrored","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"place":{"type":"object","properties":{"number":{"type":"integer","x-mcp-header":"Place-Number"}}},"flag":{"x-mcp-header":"Flag","type":"boolean"},"plain":{"type":"string"}}},"icons":[{"src":"data:,y","sizes":["any"]}]}],"cacheScope":"private","x-page":1.0"#;

const PLAIN_TOOLS: [&str; 30] = [
    "odd",
    "empty",
    "unknown_content",
    "is_error",
    "fail",
    "progress",
    "slow",
    "await_cancelled",
    "elicit",
    "sample",
    "roots",
    "two_rounds",
    "both",
    "state_only",
    "log",
    "task",
    "change_list",
    "update_resource",
    "end_subscriptions",
    "seen",
    "pid",
    "sleep",
    "large",
    "hang",
    "exit",
    "garbage",
    "non_utf8",
    "answer_twice",
    "unknown_id",
    "cut_stream",
];

pub(super) const RESOURCES: &str = "\"ttlMs\": 0,\n  \"resources\": [\n    {\"uri\": \"odd://r/1\", \"name\": \"one\",\n     \"x\": {\"n\": 1.0}, \"size\": 1e3},\n    {\"uri\": \"odd://ask\", \"name\": \"asks\"}\n  ],\n  \"cacheScope\": \"public\"";

pub(super) const TEMPLATES: &str = r#""resourceTemplates":[{"uriTemplate":"odd://r/{id}","name":"r","x":1.0}],"cacheScope":"public","ttlMs":1.0"#;

pub(super) const PROMPTS: &str = r#""prompts":[{"name":"p","arguments":[{"name":"a","required":null,"x":0.70}],"title":"P"},{"name":"ask"}],"cacheScope":"public","x":[],"ttlMs":18446744073709551616"#;

/// The members of a result with unusual forms of everything.
const ODD_RESULT: &str = r#""x-before":[],"content":[{"type":"hologram","payload":{"a":1e3,"b":null},"annotations":{"priority":0.70}},{"text":"snowman \u2603 and \/ slash","type":"text","_meta":{"n":1.0}},{"type":"resource","resource":{"uri":"odd://r/1","text":"","annotations":{"audience":["user"]},"x":null}},{"type":"resource_link","uri":"odd://r/2","name":"r2","size":18446744073709551616}],"structuredContent":{"n":1.0,"big":123456789012345678901234567890,"small":1E-7,"null":null},"isError":false,"x-after":-0"#;

/// Returns the members of the result of a tool with a constant result.
pub(super) fn result(tool: &str) -> Option<&'static str> {
    Some(match tool {
        "odd" => ODD_RESULT,
        "structured_only" => {
            r#""content":[],"structuredContent":[1.0,null,{"a":18446744073709551616}]"#
        }
        "empty" => r#""content":[]"#,
        "unknown_content" => r#""content":[{"type":"smell","data":"AAAA","n":1e3}],"isError":null"#,
        "is_error" => {
            r#""isError":true,"content":[{"type":"text","text":"failed \u0021"}],"x":1.0"#
        }
        _ => return None,
    })
}

pub(super) fn tools_page_2() -> String {
    let names: Vec<String> = PLAIN_TOOLS.iter().map(|name| plain_tool(name)).collect();
    format!(
        r#""tools":[{}],"ttlMs":5,"cacheScope":"private""#,
        names.join(",")
    )
}
