//! A tool of the demonstration: its definition as data, and the check of its arguments.

use std::sync::Arc;

use jiff::civil::Date;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::sandbox::Sandbox;

/// The text of a call that failed, for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolFailure(pub(super) String);

impl<E: std::error::Error> From<E> for ToolFailure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// The result of a call: a text for the model.
pub(super) type Answer = Result<String, ToolFailure>;

/// A tool.
pub(super) struct DemoTool {
    pub(super) name: &'static str,
    pub(super) effect: Effect,
    pub(super) description: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) run: fn(&Sandbox, &Arguments<'_>) -> Answer,
}

/// The effect of a tool on its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing changes.
    Reads,
    /// Something new comes.
    Adds,
    /// Something that was there changes or goes.
    Changes,
}

/// A parameter of a tool.
pub(super) struct Parameter {
    name: &'static str,
    kind: Kind,
    is_required: bool,
    description: &'static str,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A list of texts.
    Texts,
    /// A list of numbers.
    Numbers,
    /// One of these texts.
    Choice(&'static [&'static str]),
}

/// Returns a parameter that each call needs.
pub(super) const fn mandatory(
    name: &'static str,
    kind: Kind,
    description: &'static str,
) -> Parameter {
    Parameter {
        name,
        kind,
        is_required: true,
        description,
    }
}

/// Returns a parameter that a call may leave out.
pub(super) const fn optional(
    name: &'static str,
    kind: Kind,
    description: &'static str,
) -> Parameter {
    Parameter {
        name,
        kind,
        is_required: false,
        description,
    }
}

/// A problem with an argument.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArgumentError {
    /// A required argument is missing.
    #[error("argument {0} is missing")]
    Missing(&'static str),
    /// An argument has another type.
    #[error("argument {0} must be {1}")]
    Type(&'static str, String),
    /// No parameter has the name.
    #[error("unknown argument {0:?}")]
    Unknown(String),
    /// A value is not allowed.
    #[error("argument {0} must be {1}")]
    Value(&'static str, &'static str),
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Integer => json!({"type": "integer"}),
            Self::Number => json!({"type": "number"}),
            Self::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Self::Numbers => json!({"type": "array", "items": {"type": "number"}}),
            Self::Choice(values) => json!({"type": "string", "enum": values}),
        }
    }

    fn admits(self, value: &Value) -> bool {
        let is_list_of = |is_item: fn(&Value) -> bool| {
            let items = value.as_array();
            items.is_some_and(|items| items.iter().all(is_item))
        };
        match self {
            Self::Text => value.is_string(),
            Self::Integer => value.is_i64(),
            Self::Number => value.is_number(),
            Self::Texts => is_list_of(Value::is_string),
            Self::Numbers => is_list_of(Value::is_number),
            Self::Choice(values) => value.as_str().is_some_and(|value| values.contains(&value)),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Integer => "a whole number".into(),
            Self::Number => "a number".into(),
            Self::Texts => "a list of texts".into(),
            Self::Numbers => "a list of numbers".into(),
            Self::Choice(values) => format!("one of {}", values.join(", ")),
        }
    }
}

impl DemoTool {
    /// Returns the definition that clients see.
    pub(super) fn definition(&self) -> Tool {
        let mut properties = JsonObject::new();
        for parameter in self.parameters {
            let mut schema = parameter.kind.schema();
            schema["description"] = parameter.description.into();
            properties.insert(parameter.name.into(), schema);
        }
        let required = self.parameters.iter().filter(|one| one.is_required);
        let required: Vec<&str> = required.map(|one| one.name).collect();
        let mut schema = JsonObject::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        schema.insert("required".into(), required.into());
        schema.insert("additionalProperties".into(), false.into());
        let annotations = ToolAnnotations::with_title(self.title())
            .read_only(self.effect == Effect::Reads)
            .destructive(self.effect == Effect::Changes)
            .open_world(false);
        Tool::new(self.name, self.description, Arc::new(schema)).with_annotations(annotations)
    }

    /// Returns the name in words.
    fn title(&self) -> String {
        let words = self.name.replace('_', " ");
        let (first, rest) = words.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    }

    /// Checks the arguments and makes the call.
    pub(super) fn call(&self, sandbox: &Sandbox, arguments: &JsonObject) -> Answer {
        for parameter in self.parameters {
            match arguments.get(parameter.name) {
                None if parameter.is_required => {
                    return Err(ArgumentError::Missing(parameter.name).into());
                }
                Some(value) if !parameter.kind.admits(value) => {
                    let words = parameter.kind.words();
                    return Err(ArgumentError::Type(parameter.name, words).into());
                }
                _ => {}
            }
        }
        let is_known = |name: &str| self.parameters.iter().any(|one| one.name == name);
        if let Some(unknown) = arguments.keys().find(|name| !is_known(name)) {
            return Err(ArgumentError::Unknown(unknown.clone()).into());
        }
        (self.run)(sandbox, &Arguments(arguments))
    }
}

/// The checked arguments of a call.
pub(super) struct Arguments<'a>(&'a JsonObject);

impl<'a> Arguments<'a> {
    /// Returns a text; an empty one if the argument is left out.
    pub(super) fn text(&self, name: &str) -> &'a str {
        self.optional_text(name).unwrap_or_default()
    }

    /// Returns a text, if there is one.
    pub(super) fn optional_text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Returns a text that is not blank.
    pub(super) fn words(&self, name: &'static str) -> Result<&'a str, ArgumentError> {
        let text = self.text(name).trim();
        if text.is_empty() {
            return Err(ArgumentError::Value(name, "a text that is not empty"));
        }
        Ok(text)
    }

    /// Returns a whole number, if there is one.
    pub(super) fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    /// Returns a position, counted from 1, as an index.
    pub(super) fn index(&self, name: &'static str) -> Result<usize, ArgumentError> {
        let number = self.integer(name).unwrap_or(0);
        let index = usize::try_from(number)
            .ok()
            .and_then(|it| it.checked_sub(1));
        index.ok_or(ArgumentError::Value(name, "1 or more"))
    }

    /// Returns a number; 0 if the argument is left out.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// Returns a list of texts; an empty one if the argument is left out.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let items = self.0.get(name).and_then(Value::as_array);
        let texts = items.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// Returns a list of numbers that is not empty.
    pub(super) fn numbers(&self, name: &'static str) -> Result<Vec<f64>, ArgumentError> {
        let items = self.0.get(name).and_then(Value::as_array);
        let numbers: Vec<f64> = (items.into_iter().flatten())
            .filter_map(Value::as_f64)
            .collect();
        if numbers.is_empty() {
            return Err(ArgumentError::Value(name, "a list with a number at least"));
        }
        Ok(numbers)
    }

    /// Returns a date.
    pub(super) fn date(&self, name: &'static str) -> Result<Date, ArgumentError> {
        let date = self.text(name).parse();
        date.map_err(|_| ArgumentError::Value(name, "a date as YYYY-MM-DD"))
    }
}
