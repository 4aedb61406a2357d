//! The searchable texts of a tool definition.

use std::borrow::Cow;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::words::words;
use crate::retrieval::excerpt::excerpt;

/// The maximum number of parameters that are read of one tool.
const MAX_PARAMETERS: usize = 100;
/// The maximum depth at which objects inside of parameters are read.
const MAX_DEPTH: usize = 4;
/// The maximum number of values that are read of an enumeration.
const MAX_VALUES: usize = 30;
/// The maximum number of characters that are read of a description.
const MAX_DESCRIPTION_CHARS: usize = 8_000;
/// The maximum number of characters that are read of a first sentence.
const MAX_SENTENCE_CHARS: usize = 200;

/// A parameter of a tool, or a member of a parameter that is an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterText {
    /// Its name.
    pub name: String,
    /// Its description; empty without one.
    pub description: String,
    /// The allowed values, if the schema lists them.
    pub values: Vec<String>,
    /// Its JSON type, as a word; empty if the schema names none or several.
    pub kind: String,
    /// Its format, like `uri` or `date-time`; empty without one.
    pub format: String,
    /// Whether every call must have it.
    pub is_required: bool,
    /// The depth in the schema: 0 for a parameter of the tool itself.
    pub depth: usize,
}

/// The searchable texts of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolText {
    /// The name of its server, as it is configured.
    pub server: String,
    /// The title of the server and the first sentence of its instructions.
    pub about_server: String,
    /// The name of the tool.
    pub name: String,
    /// Its title; empty without one.
    pub title: String,
    /// Its description; empty without one.
    pub description: String,
    /// Its parameters. The members of an object follow the parameter that contains them.
    pub parameters: Vec<ParameterText>,
}

impl ToolText {
    /// Reads the JSON text of a definition. Fields that are missing, or have another type than
    /// expected, are empty. All fields are empty for a text that is not an object.
    #[must_use]
    pub fn of_definition(name: &str, definition: &str) -> Self {
        let value: Value = serde_json::from_str(definition).unwrap_or_default();
        // Catalog files for evaluations use the second spelling.
        let schema = ["inputSchema", "input_schema"]
            .into_iter()
            .find_map(|key| value.get(key));
        let mut parameters = Vec::new();
        if let Some(schema) = schema {
            read_members(schema, 0, &mut parameters);
        }
        let title = text_of(&value, "title");
        let annotated = || {
            value
                .get("annotations")
                .map(|notes| text_of(notes, "title"))
        };
        Self {
            name: name.into(),
            title: if title.is_empty() {
                annotated().unwrap_or_default()
            } else {
                title
            },
            description: text_of(&value, "description"),
            parameters,
            ..Self::default()
        }
    }

    /// Returns the tool with the name, the title and the instructions of its server.
    #[must_use]
    pub fn on_server(mut self, name: &str, title: &str, instructions: &str) -> Self {
        self.server = name.into();
        let first = first_sentence(instructions);
        self.about_server = if title.is_empty() || title == name {
            first.into()
        } else {
            format!("{title}. {first}").trim_end().into()
        };
        self
    }

    /// Returns the text for the vector of the whole tool: server, name, description and the names
    /// of its parameters.
    #[must_use]
    pub fn full_text(&self) -> String {
        let mut text = format!(
            "{} {}: {}",
            as_words(&self.server),
            self.name_as_words(),
            self.description
        );
        let mut names = self.parameters.iter().filter(|it| it.depth == 0).peekable();
        if names.peek().is_some() {
            text.push_str(" Parameters:");
            for parameter in names {
                text.push(' ');
                text.push_str(&as_words(&parameter.name));
                text.push(',');
            }
            text.pop();
        }
        text.trim_start().into()
    }

    /// Returns the text for the vector of the tool's purpose: its name and the first sentence of
    /// its description.
    #[must_use]
    pub fn short_text(&self) -> String {
        let sentence = first_sentence(&self.description);
        format!("{}: {sentence}", self.name_as_words())
    }

    /// Returns the first sentence of the description, for people and models. A longer one than 200
    /// characters is truncated after a word.
    #[must_use]
    pub fn summary(&self) -> Cow<'_, str> {
        let sentence = sentence_in(&self.description, usize::MAX);
        excerpt(sentence, MAX_SENTENCE_CHARS)
    }

    /// Returns the hash of the content: SHA-256 over all texts, in hexadecimal.
    #[must_use]
    pub fn content_hash(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            // The length keeps neighbouring texts apart: "ab", "c" and "a", "bc" have different
            // hashes.
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        for text in [
            &self.server,
            &self.about_server,
            &self.name,
            &self.title,
            &self.description,
        ] {
            add(text);
        }
        for parameter in &self.parameters {
            add(&parameter.name);
            add(&parameter.description);
            add(&parameter.kind);
            add(&parameter.format);
            for value in &parameter.values {
                add(value);
            }
            add("");
        }
        hex::encode(digest.finalize())
    }

    /// Returns the parameters of the tool itself as a short signature, like
    /// `(path: string, depth?: integer)`. A question mark follows each optional parameter.
    #[must_use]
    pub fn signature(&self) -> String {
        let own = self.parameters.iter().filter(|it| it.depth == 0);
        let parts: Vec<String> = own
            .map(|parameter| {
                let optional = if parameter.is_required { "" } else { "?" };
                let separator = if parameter.kind.is_empty() { "" } else { ": " };
                format!("{}{optional}{separator}{}", parameter.name, parameter.kind)
            })
            .collect();
        format!("({})", parts.join(", "))
    }

    fn name_as_words(&self) -> String {
        let name = as_words(&self.name);
        if self.title.is_empty() || words(&self.title) == words(&self.name) {
            name
        } else {
            format!("{name} ({})", self.title)
        }
    }
}

/// Returns a name as words in lower case, with spaces between them.
fn as_words(name: &str) -> String {
    let mut spoken = String::with_capacity(name.len() + 8);
    let mut last = ' ';
    for character in name.chars() {
        let is_boundary = matches!(character, '_' | '-' | '.' | '/' | ':' | ' ');
        let is_first_of_part = is_boundary || (character.is_uppercase() && last.is_lowercase());
        if is_first_of_part && !spoken.is_empty() && !spoken.ends_with(' ') {
            spoken.push(' ');
        }
        if !is_boundary {
            spoken.extend(character.to_lowercase());
        }
        last = character;
    }
    spoken
}

/// Returns the first sentence or line of a text, as much of it as is read.
fn first_sentence(text: &str) -> &str {
    sentence_in(text, MAX_SENTENCE_CHARS)
}

/// Returns the first sentence or line of a text, or its first `max_chars` characters.
fn sentence_in(text: &str, max_chars: usize) -> &str {
    let text = text.trim_start();
    let mut end = text.len();
    let mut n_chars = 0;
    for (at, character) in text.char_indices() {
        n_chars += 1;
        let is_end = match character {
            '.' | '!' | '?' => is_new_sentence(&text[at + 1..]),
            '\n' | '。' | '！' | '？' => true,
            _ => false,
        };
        if is_end || n_chars >= max_chars {
            end = at + character.len_utf8();
            break;
        }
    }
    text[..end].trim_end()
}

/// Returns whether the text after a full stop begins a new sentence: "e.g. this" does not.
fn is_new_sentence(rest: &str) -> bool {
    let mut characters = rest.chars();
    match (characters.next(), characters.next()) {
        (None | Some('\n' | '\r'), _) => true,
        (Some(space), next) => {
            space.is_whitespace() && next.is_none_or(|next| !next.is_lowercase())
        }
    }
}

fn text_of(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str).unwrap_or_default();
    match text.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => text[..end].into(),
        None => text.into(),
    }
}

/// Reads the members of an object schema, and of the objects in it.
fn read_members(schema: &Value, depth: usize, into: &mut Vec<ParameterText>) {
    if depth >= MAX_DEPTH {
        return;
    }
    let required: Vec<&str> = (schema.get("required").and_then(Value::as_array))
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let members = schema.get("properties").and_then(Value::as_object);
    for (name, member) in members.into_iter().flatten() {
        if into.len() >= MAX_PARAMETERS {
            return;
        }
        into.push(ParameterText {
            name: name.clone(),
            description: text_of(member, "description"),
            values: values_of(member),
            kind: text_of(member, "type"),
            format: text_of(member, "format"),
            is_required: required.contains(&name.as_str()),
            depth,
        });
        read_members(member, depth + 1, into);
        if let Some(items) = member.get("items") {
            read_members(items, depth + 1, into);
        }
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        let variants = schema.get(key).and_then(Value::as_array);
        for variant in variants.into_iter().flatten() {
            read_members(variant, depth + 1, into);
        }
    }
}

fn values_of(member: &Value) -> Vec<String> {
    let listed = |schema: &Value| schema.get("enum").and_then(Value::as_array).cloned();
    let values = listed(member).or_else(|| member.get("items").and_then(listed));
    let values = values.unwrap_or_default();
    let texts = values.iter().filter_map(Value::as_str);
    texts.take(MAX_VALUES).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"{"name":"readFile","description":"Reads a file, e.g. a log.\nReturns its text. Use it often.",
        "inputSchema":{"type":"object","required":["path"],"properties":{
            "path":{"type":"string","description":"Where it is"},
            "options":{"type":"object","properties":{"encoding":{"type":"string","enum":["utf-8","latin1"]}}}}}}"#;

    #[test]
    fn a_definition_is_read_with_its_parameters() {
        let tool = ToolText::of_definition("readFile", DEFINITION).on_server("files", "", "");
        let names: Vec<_> = (tool.parameters.iter())
            .map(|parameter| (parameter.name.as_str(), parameter.depth))
            .collect();
        assert_eq!(names, [("path", 0), ("options", 0), ("encoding", 1)]);
        assert_eq!(tool.parameters[2].values, ["utf-8", "latin1"]);
        assert_eq!(tool.signature(), "(path: string, options?: object)");
        assert_eq!(tool.short_text(), "read file: Reads a file, e.g. a log.");
        assert_eq!(
            tool.full_text(),
            "files read file: Reads a file, e.g. a log.\nReturns its text. Use it often. \
             Parameters: path, options"
        );
    }

    #[test]
    fn summaries_are_the_first_sentence_cut_at_a_word() {
        let of = |description: String| ToolText {
            description,
            ..ToolText::default()
        };
        assert_eq!(
            of("Reads it, e.g. here. More.".into()).summary(),
            "Reads it, e.g. here."
        );
        let long = of("Reads whatever files there are ".repeat(20))
            .summary()
            .into_owned();
        assert!(long.ends_with(" there are Reads…"), "{long}");
        assert!(long.chars().count() <= MAX_SENTENCE_CHARS);
        assert_eq!(
            of("読".repeat(300)).summary().chars().count(),
            MAX_SENTENCE_CHARS
        );
    }

    #[test]
    fn definitions_of_any_form_are_read_as_far_as_they_go() {
        for text in [
            "",
            "[]",
            "null",
            r#"{"inputSchema":3,"description":[]}"#,
            "{",
        ] {
            let tool = ToolText::of_definition("x", text);
            assert_eq!(
                (tool.name.as_str(), tool.signature()),
                ("x", "()".into()),
                "{text}"
            );
            assert_eq!(tool.description, "");
        }
        let deep = r#"{"inputSchema":"#.to_owned()
            + &r#"{"properties":{"a":"#.repeat(60)
            + "{}"
            + &"}}".repeat(60)
            + "}";
        assert_eq!(
            ToolText::of_definition("x", &deep).parameters.len(),
            MAX_DEPTH
        );
    }

    #[test]
    fn content_hashes_depend_only_on_known_fields() {
        let of = |text: &str| ToolText::of_definition("x", text).content_hash();
        assert_eq!(of("{}"), of(r#"{"unknown":1}"#));
        assert_ne!(of("{}"), of(r#"{"description":"d"}"#));
    }
}
