//! The literal results of the legacy server: capabilities, tools, resources and prompts, in unusual
//! but legal forms.

/// The cursor of the second page of tools. Opaque to clients and proxies.
pub(super) const TOOL_CURSOR: &str = r#""b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70""#;

/// The result of `initialize`. The text `$VERSION` stands for the revision.
pub(super) const INITIALIZE: &str = r#"{"x-first":null,"serverInfo":{"version":"1.0","name":"odd","title":"Odd \u2014 \"server\"","icons":[{"src":"data:,x","x":1e3}]},"capabilities":{"tools":{"listChanged":true,"x":1.0},"resources":{"subscribe":true},"prompts":{},"logging":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{"x":1.0}}}},"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}},"experimental":{"x.example/odd":{"n":18446744073709551616}},"x-capability":null},"instructions":"Line one.\nLine \u0074wo.","protocolVersion":"$VERSION","_meta":{"x.example/k":[1.0,1e3,0.70]}}"#;

pub(super) const TOOLS_PAGE_1: &str = r#"{"nextCursor":"b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string","maxLength":1e3,"x-note":null}},"$defs":{"a":{"const":1.0}}},"description":"Echoes \u00ab text \u00bb","annotations":{"readOnlyHint":true,"x-hint":18446744073709551616},"x-vendor":{"deep":[[[{"n":0.70}]]]},"_meta":{"x.example/tag":"\ud83d\ude00","n":-0.0}},{"execution":{"taskSupport":"optional","x":null},"securitySchemes":[{"type":"oauth2","scopes":["a.b"]}],"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"title":null,"inputSchema":{"type":"object"},"name":"structured"},{"name":"odd","inputSchema":{"type":"object","additionalProperties":false},"icons":[{"src":"data:,y","sizes":["any"]}]}],"x-page":1.0}"#;

/// The second page of tools. The text `$NAMES` stands for the definitions of [`PLAIN_TOOLS`].
pub(super) const TOOLS_PAGE_2: &str = r#"{"tools":[$NAMES],"_meta":{"last":true,"n":1.50}}"#;

/// The tools of the second page.
pub(super) const PLAIN_TOOLS: [&str; 30] = [
    "structured_only",
    "empty",
    "unknown_content",
    "is_error",
    "fail",
    "progress",
    "wait_cancel",
    "sample",
    "elicit",
    "roots",
    "ping_client",
    "custom_request",
    "notify",
    "change_list",
    "log",
    "update_resource",
    "order",
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
    "drip",
    "cut_stream",
    "exit_silently",
];

/// The result of `structured_only`, which has no content for people.
pub(super) const STRUCTURED_ONLY: &str =
    r#"{"structuredContent":[1.0,null,{"a":18446744073709551616}]}"#;

/// A result with unusual forms of everything.
pub(super) const ODD_RESULT: &str = r#"{"x-before":[],"content":[{"type":"hologram","payload":{"a":1e3,"b":null},"annotations":{"priority":0.70}},{"text":"snowman \u2603 and \/ slash","type":"text","_meta":{"n":1.0}},{"type":"resource","resource":{"uri":"odd://r/1","text":"","annotations":{"audience":["user"]},"x":null}},{"type":"resource_link","uri":"odd://r/2","name":"r2","size":18446744073709551616}],"structuredContent":{"n":1.0,"big":123456789012345678901234567890,"small":1E-7,"null":null},"isError":false,"_meta":{"x.example/a":{"b":[]}},"x-after":-0}"#;

/// The result of `resources/list`. Over HTTP the body is pretty-printed.
pub(super) const RESOURCES: &str = "{\n  \"resources\": [\n    {\"uri\": \"odd://r/1\", \"name\": \"one\",\n     \"x\": {\"n\": 1.0}, \"size\": 1e3}\n  ],\n  \"_meta\": { \"a\" : null }\n}";

pub(super) const PROMPTS: &str = r#"{"prompts":[{"name":"p","arguments":[{"name":"a","required":null,"x":0.70}],"title":"P"}],"x":[]}"#;

/// Returns a definition with minimal content. The tool `fail` has an input schema, so that
/// arguments can violate it.
pub(super) fn plain_tool(name: &str) -> String {
    let properties = if name == "fail" {
        r#","properties":{"code":{"type":"integer"},"note":{"type":"string"}}"#
    } else {
        ""
    };
    format!(r#"{{"inputSchema":{{"type":"object"{properties}}},"name":"{name}"}}"#)
}

pub(super) fn tools_page_2() -> String {
    let names: Vec<String> = PLAIN_TOOLS.iter().map(|name| plain_tool(name)).collect();
    TOOLS_PAGE_2.replace("$NAMES", &names.join(","))
}
