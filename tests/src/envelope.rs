//! A minimal reader of JSON-RPC messages: id, method and members.
//!
//! Members stay raw text, so that comparisons are made on the bytes of the wire.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// One JSON-RPC object with its members as raw text.
#[derive(Debug)]
pub struct Envelope {
    members: BTreeMap<String, Box<RawValue>>,
}

impl Envelope {
    /// Returns the objects of a message: one, the members of a batch, or none if it is not JSON.
    pub fn all(text: &str) -> Vec<Self> {
        let text = text.trim();
        if text.starts_with('[') {
            let members: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            return members
                .into_iter()
                .filter_map(|member| Self::one(member.get()))
                .collect();
        }
        Self::one(text).into_iter().collect()
    }

    /// Parses one object. Returns `None` if `text` is not an object.
    pub fn one(text: &str) -> Option<Self> {
        serde_json::from_str(text)
            .ok()
            .map(|members| Self { members })
    }

    /// Returns the raw text of a member, including `null`.
    pub fn member(&self, name: &str) -> Option<&str> {
        self.members.get(name).map(|raw| raw.get())
    }

    /// Returns the raw text of the id.
    pub fn id(&self) -> Option<&str> {
        self.member("id")
    }

    /// Returns the method.
    pub fn method(&self) -> Option<String> {
        serde_json::from_str(self.member("method")?).ok()
    }

    /// Returns whether the object is the response to the request with this raw id.
    pub fn answers(&self, id: &str) -> bool {
        self.is_response() && self.id() == Some(id)
    }

    /// Returns whether the object is a result or an error.
    pub fn is_response(&self) -> bool {
        !self.members.contains_key("method")
            && (self.members.contains_key("result") || self.members.contains_key("error"))
    }

    /// Returns whether the object is a request.
    pub fn is_request(&self) -> bool {
        self.members.contains_key("method") && self.members.contains_key("id")
    }
}

/// Returns the raw text at a path of member names in `text`, for example
/// `["params", "_meta", "progressToken"]`.
pub fn raw_at(text: &str, path: &[&str]) -> Option<String> {
    path.iter().try_fold(text.to_owned(), |current, name| {
        Envelope::one(&current)?.member(name).map(str::to_owned)
    })
}

/// Returns the unescaped string at a path.
pub fn string_at(text: &str, path: &[&str]) -> Option<String> {
    serde_json::from_str(&raw_at(text, path)?).ok()
}

/// Returns the integer at a path.
pub fn integer_at(text: &str, path: &[&str]) -> Option<i64> {
    serde_json::from_str(&raw_at(text, path)?).ok()
}

/// Returns a JSON string literal for `text`.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
