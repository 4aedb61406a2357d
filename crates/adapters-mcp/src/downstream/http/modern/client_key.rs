//! Whose message it is, where no session of the transport tells.

use std::fmt::Write as _;

use riglm_app::proxy::Visitor;
use riglm_domain::edit::member;
use riglm_domain::scan::unescaped;
use sha2::{Digest, Sha256};

/// The longest part of a key that is kept as it is, in bytes.
const MAX_BYTES: usize = 128;

/// What tells the clients of the port apart: who is calling, under which profile, the name and the version of the
/// program, and the session that it asks for, if it does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClientKey {
    visitor: Visitor,
    name: Box<str>,
    version: Box<str>,
    label: Option<Box<str>>,
}

impl ClientKey {
    /// Returns the key of a client that says this of itself, as JSON text.
    pub(super) fn new(visitor: &Visitor, client_info: Option<&str>, label: Option<&str>) -> Self {
        let part = |name| {
            let text = client_info.and_then(|info| member(info, name));
            bounded(&text.and_then(unescaped).unwrap_or_default())
        };
        Self {
            visitor: visitor.clone(),
            name: part("name"),
            version: part("version"),
            label: label.map(bounded),
        }
    }

    /// Returns who is calling.
    pub(super) fn visitor(&self) -> &Visitor {
        &self.visitor
    }
}

/// Returns a text, or its digest if it is long: keys stay small and different ones different.
fn bounded(text: &str) -> Box<str> {
    if text.len() <= MAX_BYTES {
        return text.into();
    }
    let digest = Sha256::digest(text.as_bytes());
    let hex = digest
        .iter()
        .fold(String::from("sha256:"), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}"); // Writing to a String cannot fail.
            hex
        });
    hex.into()
}

#[cfg(test)]
mod tests {
    use riglm_domain::principal::Principal;

    use super::*;

    #[test]
    fn clients_are_told_apart_by_all_that_they_say() {
        let key = |principal: &str, info: Option<&str>, label: Option<&str>| {
            ClientKey::new(&Visitor::from(&Principal::named(principal)), info, label)
        };
        let one = r#"{"name":"n\u0061","version":"1"}"#;
        let same = r#"{"version":"1","title":"x","name":"na"}"#;
        assert_eq!(key("p", Some(one), None), key("p", Some(same), None));
        for other in [
            key("q", Some(one), None),
            key("p", None, None),
            key("p", Some(r#"{"name":"na","version":"2"}"#), None),
            key("p", Some(one), Some("a")),
        ] {
            assert_ne!(key("p", Some(one), None), other);
        }
    }

    #[test]
    fn long_parts_are_kept_short_and_apart() {
        let label = |end: &str| {
            let label = "x".repeat(4_096) + end;
            ClientKey::new(&Visitor::from(&Principal::local()), None, Some(&label)).label
        };
        assert_ne!(label("a"), label("b"));
        assert!(label("a").is_some_and(|label| label.len() <= MAX_BYTES));
    }
}
