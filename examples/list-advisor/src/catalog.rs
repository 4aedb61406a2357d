//! The tools that could have been called, with the lengths of their definitions.

use std::fmt;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{IdError, UpstreamName};
use riglm_domain::num::to_f64;
use serde_json::Value;

/// Tools from a file; none without one.
#[derive(Debug, Default)]
pub(crate) struct KnownTools {
    pub(crate) tools: Vec<ToolRef>,
    /// The known numbers of tokens of definitions.
    tokens: Vec<u64>,
}

/// The reason for which a file is not a list of tools.
#[derive(Debug)]
pub(crate) enum CatalogError {
    NotAnArray(serde_json::Error),
    /// The entry with this number, from 1, has neither form.
    NotATool(usize),
    Name(usize, IdError),
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnArray(error) => write!(f, "expected a JSON array of tools: {error}"),
            Self::NotATool(at) => write!(
                f,
                "entry {at}: expected UPSTREAM/TOOL, or an object with `upstream` and `tool`"
            ),
            Self::Name(at, error) => write!(f, "entry {at}: {error}"),
        }
    }
}

impl KnownTools {
    /// Reads a JSON array of `UPSTREAM/TOOL`, or the output of `riglm tools --json`.
    pub(crate) fn parse(text: &str) -> Result<Self, CatalogError> {
        let entries: Vec<Value> = serde_json::from_str(text).map_err(CatalogError::NotAnArray)?;
        let mut known = Self::default();
        for (entry, at) in entries.iter().zip(1..) {
            known.tools.push(parse_tool(entry, at)?);
            known.tokens.extend(entry["tokens"].as_u64());
        }
        Ok(known)
    }

    /// Returns the mean number of tokens of a definition, with `assumed` for tools without a known
    /// number.
    pub(crate) fn mean_tokens(&self, assumed: f64) -> f64 {
        if self.tools.is_empty() {
            return assumed;
        }
        let n_unknown = self.tools.len() - self.tokens.len();
        let known: f64 = self.tokens.iter().map(|tokens| to_f64(*tokens)).sum();
        (known + to_f64(n_unknown) * assumed) / to_f64(self.tools.len())
    }
}

fn parse_tool(entry: &Value, at: usize) -> Result<ToolRef, CatalogError> {
    let named = |error| CatalogError::Name(at, error);
    if let Some(name) = entry.as_str() {
        return name.parse().map_err(named);
    }
    let (Some(upstream), Some(tool)) = (entry["upstream"].as_str(), entry["tool"].as_str()) else {
        return Err(CatalogError::NotATool(at));
    };
    Ok(ToolRef {
        upstream: UpstreamName::parse(upstream).map_err(named)?,
        tool: tool.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_tool_are_read_with_their_tokens() {
        let text = r#"["a/x", {"upstream": "b", "tool": "y/z", "tokens": 300}]"#;
        let known = KnownTools::parse(text).unwrap();
        let names: Vec<String> = known.tools.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a/x", "b/y/z"]);
        assert!((known.mean_tokens(100.0) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn an_invalid_tool_is_named_with_its_place() {
        let refused = |text| KnownTools::parse(text).unwrap_err().to_string();
        assert!(refused(r#"["a/x", 3]"#).starts_with("entry 2: expected UPSTREAM/TOOL"));
        assert!(refused(r#"["x"]"#).starts_with("entry 1: tool \"x\" must be"));
        assert!(refused("{}").starts_with("expected a JSON array of tools"));
    }
}
