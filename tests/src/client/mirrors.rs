//! The arguments of tools that a client repeats in `Mcp-Param-*` headers, as the received tool
//! lists define them (`x-mcp-header`).

use serde_json::Value;

use crate::envelope::{Envelope, raw_at};
use crate::header_value::encode;

#[derive(Clone, Debug)]
struct MirroredArgument {
    tool: String,
    path: Vec<String>,
    header: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MirroredArguments {
    known: Vec<MirroredArgument>,
}

impl MirroredArguments {
    /// Replaces the entries of all tools in a received list.
    pub(super) fn learn(&mut self, message: &str) {
        let Some(tools) = raw_at(message, &["result", "tools"]) else {
            return;
        };
        for tool in serde_json::from_str::<Vec<Value>>(&tools).unwrap_or_default() {
            let Some(name) = tool["name"].as_str() else {
                continue;
            };
            self.known.retain(|mirror| mirror.tool != name);
            collect(name, &tool["inputSchema"], &[], &mut self.known);
        }
    }

    /// Returns the `Mcp-Param-*` headers of a call.
    pub(super) fn headers(&self, envelope: &Envelope, name: &str) -> Vec<(String, String)> {
        let params = envelope.member("params").unwrap_or("null");
        let arguments = raw_at(params, &["arguments"]).unwrap_or_default();
        self.known
            .iter()
            .filter(|mirror| mirror.tool == name)
            .filter_map(|mirror| {
                let path: Vec<&str> = mirror.path.iter().map(String::as_str).collect();
                let raw = raw_at(&arguments, &path).filter(|raw| raw != "null")?;
                let text = serde_json::from_str(&raw).unwrap_or(raw);
                Some((format!("Mcp-Param-{}", mirror.header), encode(&text)))
            })
            .collect()
    }
}

fn collect(tool: &str, schema: &Value, path: &[String], found: &mut Vec<MirroredArgument>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = [path, std::slice::from_ref(name)].concat();
        if let Some(header) = property["x-mcp-header"].as_str() {
            found.push(MirroredArgument {
                tool: tool.to_owned(),
                path: path.clone(),
                header: header.to_owned(),
            });
        }
        collect(tool, property, &path, found);
    }
}
