//! The result of a tool call, as parts that a provider can show to its model.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The types of images that all providers accept.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
/// The type of documents that all providers accept.
const PDF: &str = "application/pdf";

/// The text of an error without one. Providers refuse blank texts, and errors without any content.
const NO_REASON: &str = "The tool failed and gave no reason.";

/// The result of a tool call for a model.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolOutput {
    /// The parts of the result, in order. No text is blank. An error has at least one part.
    pub(super) parts: Vec<OutputPart>,
    /// Whether the call failed.
    pub(super) is_error: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputPart {
    Text(String),
    /// An image of a type in [`IMAGES`].
    Image(EncodedFile),
    /// A PDF document.
    Pdf(EncodedFile),
}

/// A file in Base64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EncodedFile {
    /// Its media type.
    pub(super) media_type: String,
    /// Its content in Base64.
    pub(super) data: String,
    pub(super) name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CallResult<'a> {
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContentItem {
    r#type: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    description: Option<String>,
    blob: Option<String>,
    resource: Option<Box<ContentItem>>,
}

impl ToolOutput {
    /// Returns the output of a failed call.
    pub(super) fn failure(text: impl Into<String>) -> Self {
        let output = Self {
            parts: text_part(text.into()).into_iter().collect(),
            is_error: true,
        };
        output.with_reason()
    }

    /// Returns the output with a text if it is an error without any.
    fn with_reason(mut self) -> Self {
        if self.is_error && self.parts.is_empty() {
            self.parts.push(OutputPart::Text(NO_REASON.to_owned()));
        }
        self
    }

    /// Reads the JSON text of the result of `tools/call`. Structured content becomes a text if the
    /// result has no other text, because servers repeat it as text for clients that do not know it.
    pub(super) fn read(result: &str) -> Self {
        let Ok(result) = serde_json::from_str::<CallResult<'_>>(result) else {
            return Self::failure("The server returned a result that cannot be read.");
        };
        let mut parts: Vec<OutputPart> = result.content.iter().filter_map(|it| part(it)).collect();
        let has_text = parts.iter().any(|it| matches!(it, OutputPart::Text(_)));
        if let Some(structured) = result.structured_content.filter(|_| !has_text) {
            parts.push(OutputPart::Text(structured.get().to_owned()));
        }
        let output = Self {
            parts,
            is_error: result.is_error,
        };
        output.with_reason()
    }

    /// Returns the texts of the output, separated by blank lines.
    pub(super) fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            OutputPart::Text(text) => Some(text.as_str()),
            OutputPart::Image(_) | OutputPart::Pdf(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }
}

/// Returns the part for a text; `None` if it is blank.
fn text_part(text: String) -> Option<OutputPart> {
    (!text.trim().is_empty()).then_some(OutputPart::Text(text))
}

/// Returns the part for an item of `content`; `None` for a blank text.
fn part(item: &RawValue) -> Option<OutputPart> {
    let Ok(item) = serde_json::from_str::<ContentItem>(item.get()) else {
        return Some(OutputPart::Text("[content that cannot be read]".to_owned()));
    };
    let text = match (item.r#type.as_str(), item.resource) {
        ("text", _) => item.text.unwrap_or_default(),
        ("image" | "audio", _) => return Some(file(item.mime_type, item.data, item.name)),
        ("resource_link", _) => {
            let about = [item.name, item.mime_type, item.description];
            let about: Vec<String> = about.into_iter().flatten().collect();
            let uri = item.uri.unwrap_or_default();
            format!("[resource {uri}] {}", about.join(", "))
        }
        ("resource", Some(resource)) => match resource.text {
            Some(text) => format!("[resource {}]\n{text}", resource.uri.unwrap_or_default()),
            None => return Some(file(resource.mime_type, resource.blob, resource.uri)),
        },
        (other, _) => format!("[content of the unknown type {other:?}]"),
    };
    text_part(text)
}

/// Returns the part for a file; a text about it if providers do not accept its type.
fn file(media_type: Option<String>, data: Option<String>, name: Option<String>) -> OutputPart {
    let (media_type, data) = (media_type.unwrap_or_default(), data.unwrap_or_default());
    let name = name.unwrap_or_else(|| "file".to_owned());
    let is_empty = data.is_empty();
    let file = EncodedFile {
        media_type,
        data,
        name,
    };
    if !is_empty && IMAGES.contains(&file.media_type.as_str()) {
        OutputPart::Image(file)
    } else if !is_empty && file.media_type == PDF {
        OutputPart::Pdf(file)
    } else {
        let (name, media_type) = (&file.name, &file.media_type);
        let n_bytes = file.data.len() / 4 * 3;
        let text = format!("[{name} of type {media_type:?}, about {n_bytes} bytes, not shown]");
        OutputPart::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(result: &str) -> Vec<String> {
        let text = |part: OutputPart| match part {
            OutputPart::Text(text) => text,
            other => format!("{other:?}"),
        };
        ToolOutput::read(result)
            .parts
            .into_iter()
            .map(text)
            .collect()
    }

    #[test]
    fn every_kind_of_content_has_a_part() {
        let result = r#"{"content":[
            {"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":" \n"},
            {"type":"resource_link","uri":"file:///x","name":"x","mimeType":"text/plain"},
            {"type":"resource","resource":{"uri":"file:///y","text":"b"}},
            {"type":"audio","mimeType":"audio/wav","data":"AAAA"},
            {"type":"hologram"}, 7], "structuredContent":{"c":1}}"#;
        assert_eq!(
            texts(result),
            [
                "a",
                "[resource file:///x] x, text/plain",
                "[resource file:///y]\nb",
                "[file of type \"audio/wav\", about 3 bytes, not shown]",
                "[content of the unknown type \"hologram\"]",
                "[content that cannot be read]",
            ]
        );
    }

    #[test]
    fn images_and_documents_keep_their_data() {
        let result = r#"{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"},
            {"type":"resource","resource":{"uri":"f.pdf","mimeType":"application/pdf","blob":"BBBB"}}],
            "structuredContent":{"c":1.0}}"#;
        let output = ToolOutput::read(result);
        let [
            OutputPart::Image(image),
            OutputPart::Pdf(pdf),
            OutputPart::Text(text),
        ] = &output.parts[..]
        else {
            panic!("{output:?}");
        };
        assert_eq!((image.data.as_str(), pdf.name.as_str()), ("AAAA", "f.pdf"));
        assert_eq!(text, r#"{"c":1.0}"#);
        assert!(!output.is_error);
    }

    #[test]
    fn failures_and_unreadable_results_are_errors() {
        let output =
            ToolOutput::read(r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#);
        assert_eq!(output, ToolOutput::failure("no"));
        assert!(ToolOutput::read("7").is_error);
        assert_eq!(ToolOutput::read("{}"), ToolOutput::default());
    }

    #[test]
    fn an_error_always_has_a_text() {
        let reason = ToolOutput::failure(NO_REASON);
        for result in [
            r#"{"isError":true}"#,
            r#"{"isError":true,"content":[{"type":"text","text":"\t "}]}"#,
        ] {
            assert_eq!(ToolOutput::read(result), reason);
        }
        assert_eq!(ToolOutput::failure(" "), reason);
        let structured = ToolOutput::read(r#"{"isError":true,"structuredContent":{"c":1}}"#);
        assert_eq!(structured, ToolOutput::failure(r#"{"c":1}"#));
    }
}
