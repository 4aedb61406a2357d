//! Blocks of a model that ask for a tool, whatever their provider.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::ToolOutput;

/// The id of a search that came without a block.
pub(super) const NO_ID: &str = "";
/// The maximum number of blocks of one request.
pub(super) const MAX_BLOCKS: usize = 128;

/// A block that asks for a search or a call.
#[derive(Debug)]
pub(super) struct ToolBlock {
    /// The id of the block, which its result repeats.
    pub(super) id: String,
    pub(super) kind: BlockKind,
    /// The name of the tool for the provider; empty for a search facility of the provider.
    pub(super) name: String,
    /// The JSON text of the arguments.
    pub(super) arguments: String,
}

/// The way in which a block names its tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// It names a tool, which may be the search tool.
    Call,
    /// It is the search of the provider, which the agent executes.
    Search,
}

#[derive(Debug)]
pub(super) struct BlockRequest {
    pub(super) blocks: Vec<ToolBlock>,
    /// The form in which they came, which the answer has too.
    pub(super) form: RequestForm,
}

/// The form of the blocks in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestForm {
    /// One block.
    One,
    /// An array of blocks, or an object with one.
    Many,
    /// The arguments of a search without a block.
    Arguments,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Output(ToolOutput),
    /// The found tools, and the text of the answer.
    Found(FoundTools),
}

#[derive(Debug)]
pub(super) struct FoundTools {
    /// The names in lists of the tools, the best one first.
    pub(super) names: Vec<String>,
    /// The answer in words.
    pub(super) output: ToolOutput,
}

/// The reason why a body cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum BlockError {
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// The body has none of the forms.
    #[error("the body must be a block, an array of blocks, or a message")]
    Form,
    /// The member with the blocks is no array.
    #[error("{0:?} must be an array of blocks")]
    NoArray(String),
    /// There are too many blocks.
    #[error("the body has {0} blocks; the limit is {MAX_BLOCKS}")]
    TooMany(usize),
    /// A block has members of other types.
    #[error("a block of the body is not valid: {0}")]
    Invalid(serde_json::Error),
    /// A member of a block is missing.
    #[error("a block of the type {kind:?} needs {member:?}")]
    Missing {
        /// The type of the block.
        kind: &'static str,
        member: &'static str,
    },
    #[error("a block of the body has no \"type\"")]
    NoType,
    /// The arguments of a block are no object.
    #[error("\"input\" of the tool_use block {0:?} is no object")]
    Input(String),
}

/// Returns the JSON texts of the blocks in a body, and their form. `key` names the member of an
/// object that has an array of blocks.
///
/// # Errors
///
/// Returns the reason why the body has no blocks.
pub(super) fn split<'a>(
    body: &'a str,
    key: &str,
) -> Result<(Vec<&'a RawValue>, RequestForm), BlockError> {
    #[derive(Deserialize)]
    struct Head {
        r#type: Option<String>,
        query: Option<serde_json::Value>,
    }
    let whole: &RawValue = serde_json::from_str(body).map_err(BlockError::NotJson)?;
    let array = |text: &'a str| {
        serde_json::from_str::<Vec<&RawValue>>(text)
            .map_err(|_| BlockError::NoArray(key.to_owned()))
    };
    let (blocks, form) = if whole.get().starts_with('[') {
        (array(whole.get())?, RequestForm::Many)
    } else {
        let inside = riglm_domain::mcp::edit::member(whole.get(), key);
        let head: Head = serde_json::from_str(whole.get()).map_err(|_| BlockError::Form)?;
        match inside {
            Some(inside) if inside.starts_with('[') => (array(inside)?, RequestForm::Many),
            _ if head.r#type.is_none() && head.query.is_some() => {
                (vec![whole], RequestForm::Arguments)
            }
            _ => (vec![whole], RequestForm::One),
        }
    };
    if blocks.len() > MAX_BLOCKS {
        return Err(BlockError::TooMany(blocks.len()));
    }
    Ok((blocks, form))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: &str) -> Result<(usize, RequestForm), String> {
        let split = split(body, "content");
        let form = split.map(|(blocks, form)| (blocks.len(), form));
        form.map_err(|error| error.to_string())
    }

    #[test]
    fn blocks_come_alone_in_arrays_and_in_messages() {
        assert_eq!(form(r#"{"type":"tool_use"}"#), Ok((1, RequestForm::One)));
        assert_eq!(form(r#" [{"type":"a"},{}]"#), Ok((2, RequestForm::Many)));
        let message = r#"{"role":"assistant","content":[{"type":"a"}]}"#;
        assert_eq!(form(message), Ok((1, RequestForm::Many)));
        assert_eq!(form(r#"{"query":"x"}"#), Ok((1, RequestForm::Arguments)));
    }

    #[test]
    fn other_bodies_are_refused_with_the_reason() {
        for (body, reason) in [
            ("{", "the body is not JSON"),
            ("7", "must be a block, an array of blocks, or a message"),
            (r#"{"type":7}"#, "must be a block"),
        ] {
            let error = form(body).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let many = format!("[{}]", vec!["{}"; MAX_BLOCKS + 1].join(","));
        assert!(form(&many).unwrap_err().contains("129 blocks"));
    }
}
