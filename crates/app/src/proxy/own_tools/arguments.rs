//! The arguments of the search tool and of the tool that sets the context.

use riglm_domain::intent::MAX_INTENT_CHARS;
use serde_json::{Map, Value};

use super::own_tool::OwnTool;

/// The maximum length of a query, in characters.
pub(super) const MAX_QUERY_CHARS: usize = 2_000;
/// The maximum number of tools that a call may request.
pub(super) const MAX_LIMIT: usize = 50;

/// The reason why the arguments of a call are refused, with the expected form, as text for the
/// model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct ArgumentsProblem(String);

impl ArgumentsProblem {
    /// Creates the problem with this text.
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text for the model.
    pub(in crate::proxy) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ArgumentsProblem> for String {
    fn from(problem: ArgumentsProblem) -> Self {
        problem.0
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) query: String,
    /// The maximum number of tools, for a search.
    pub(super) limit: Option<usize>,
    /// The purpose of the query, for setting the context.
    pub(super) intent: Option<String>,
}

impl Arguments {
    /// Reads the JSON text of the `arguments` of a call of this tool. Unknown members are ignored.
    ///
    /// # Errors
    ///
    /// Returns the first problem of the arguments.
    pub(super) fn read(tool: OwnTool, arguments: Option<&str>) -> Result<Self, ArgumentsProblem> {
        let read = arguments.map_or(Ok(Value::Null), serde_json::from_str);
        let arguments = match read {
            Ok(Value::Object(arguments)) => arguments,
            Ok(Value::Null) => Map::new(),
            _ => {
                return Err(ArgumentsProblem::new(
                    r#"arguments must be an object such as {"query": "send an e-mail"}"#,
                ));
            }
        };
        let query = match arguments.get("query") {
            Some(Value::String(query)) if !query.trim().is_empty() => query.trim(),
            Some(Value::String(_)) => return Err(expected_query("it is empty")),
            Some(_) => return Err(expected_query("it is not a string")),
            None => return Err(expected_query("it is missing")),
        };
        if is_too_long(query) {
            return Err(expected_query("it is too long"));
        }
        let is_context = tool == OwnTool::SetContext;
        Ok(Self {
            query: query.to_owned(),
            limit: if is_context {
                None
            } else {
                limit(arguments.get("limit"))?
            },
            intent: if is_context {
                intent(&arguments)?
            } else {
                None
            },
        })
    }

    /// Returns the query and the intent as one text.
    pub(super) fn text(&self) -> String {
        match &self.intent {
            // The line of the intent is kept, however long the query is.
            Some(intent) => {
                let room = MAX_INTENT_CHARS.saturating_sub(intent.chars().count() + 1);
                let query: String = self.query.chars().take(room).collect();
                format!("{query}\n{intent}")
            }
            None => self.query.clone(),
        }
    }
}

/// Returns the limit of a search or of a recommendation.
///
/// # Errors
///
/// Returns the problem of a limit that is not a whole number in its range.
pub(super) fn limit(limit: Option<&Value>) -> Result<Option<usize>, ArgumentsProblem> {
    match limit {
        None | Some(Value::Null) => Ok(None),
        Some(limit) => whole_number(limit).map(Some).ok_or_else(|| {
            ArgumentsProblem::new(format!(
                "limit must be a whole number from 1 to {MAX_LIMIT}, or left out"
            ))
        }),
    }
}

fn intent(arguments: &Map<String, Value>) -> Result<Option<String>, ArgumentsProblem> {
    match arguments.get("intent") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(intent)) if !is_too_long(intent) => {
            let intent = intent.trim();
            Ok((!intent.is_empty()).then(|| intent.to_owned()))
        }
        Some(_) => Err(ArgumentsProblem::new(format!(
            "intent must be a string of at most {MAX_QUERY_CHARS} characters, the purpose of the \
             query, or left out"
        ))),
    }
}

fn is_too_long(text: &str) -> bool {
    text.chars().nth(MAX_QUERY_CHARS).is_some()
}

fn expected_query(problem: &str) -> ArgumentsProblem {
    ArgumentsProblem::new(format!(
        "query must be a string of 1 to {MAX_QUERY_CHARS} characters that describes the task, for \
         example \"send an e-mail\"; {problem}"
    ))
}

/// Returns the integer value of a JSON number in any notation, if it is in the range of the limit.
fn whole_number(value: &Value) -> Option<usize> {
    let number = value.as_f64()?;
    (1..=MAX_LIMIT).find(|limit| {
        let limit = u32::try_from(*limit).map_or(f64::NAN, f64::from);
        (limit - number).abs() < f64::EPSILON
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &str) -> Result<Arguments, ArgumentsProblem> {
        Arguments::read(OwnTool::Search, Some(arguments))
    }

    #[test]
    fn only_set_context_reads_the_intent() {
        let read = |arguments| Arguments::read(OwnTool::SetContext, Some(arguments));
        let both = r#"{"query":"a","intent":" b ","limit":"x"}"#;
        assert_eq!(read(both).unwrap().text(), "a\nb");
        for without in [
            r#"{"query":"a","intent":null}"#,
            r#"{"query":"a","intent":" "}"#,
        ] {
            assert_eq!(read(without).unwrap().text(), "a");
        }
        let error = read(r#"{"query":"a","intent":7}"#).unwrap_err();
        assert!(error.as_str().starts_with("intent must"), "{error:?}");
        let search = Arguments::read(OwnTool::Search, Some(r#"{"query":"a","intent":7}"#));
        assert_eq!(search.unwrap().intent, None);
    }

    #[test]
    fn query_and_limit_are_read_and_the_rest_is_ignored() {
        let read = |text: &str| read(text).unwrap();
        assert_eq!(read(r#"{"query":" a b "}"#).query, "a b");
        assert_eq!(read(r#"{"query":"a","x":{}}"#).limit, None);
        assert_eq!(read(r#"{"query":"a","limit":null}"#).limit, None);
        for (limit, expected) in [("1", 1), ("50", 50), ("7.0", 7), ("1e1", 10)] {
            let text = format!(r#"{{"query":"a","limit":{limit}}}"#);
            assert_eq!(read(&text).limit, Some(expected), "{limit}");
        }
    }

    #[test]
    fn invalid_arguments_are_refused_with_the_expected_values() {
        let long = format!(r#"{{"query":"{}"}}"#, "x".repeat(MAX_QUERY_CHARS + 1));
        for (arguments, named, problem) in [
            ("{}", "query must", "missing"),
            (r#"{"query":" "}"#, "query must", "empty"),
            (r#"{"query":["a"]}"#, "query must", "not a string"),
            (&long, "query must", "too long"),
            (r#"{"query":"a","limit":0}"#, "limit must", "1 to 50"),
            (r#"{"query":"a","limit":51}"#, "limit must", "1 to 50"),
            (r#"{"query":"a","limit":"5"}"#, "limit must", "1 to 50"),
            (r#"{"query":"a","limit":1.5}"#, "limit must", "1 to 50"),
            ("[1]", "arguments must", "object"),
        ] {
            let error = String::from(read(arguments).unwrap_err());
            assert!(
                error.starts_with(named) && error.contains(problem),
                "{error}"
            );
        }
        assert!(
            Arguments::read(OwnTool::Search, None)
                .unwrap_err()
                .as_str()
                .contains("missing")
        );
    }
}
