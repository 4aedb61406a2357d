//! The key that identifies a client without a transport session.

use riglm_app::proxy::ClientIdentity;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::scan::unescape;
use sha2::{Digest, Sha256};

/// The maximum length of a part of a key that is stored unchanged, in bytes.
const MAX_BYTES: usize = 128;

/// The identity of a client of the MCP server: the principal and the profile, the name and the
/// version of the program, and the label of a separate session, if it asks for one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) struct ClientKey {
    visitor: ClientIdentity,
    name: Box<str>,
    version: Box<str>,
    label: Option<Box<str>>,
}

impl ClientKey {
    /// Returns the key of a client with this `clientInfo`, as JSON text.
    pub(in super::super) fn new(
        visitor: &ClientIdentity,
        client_info: Option<&str>,
        label: Option<&str>,
    ) -> Self {
        let part = |name| {
            let text = client_info.and_then(|info| member(info, name));
            bound_length(&text.and_then(unescape).unwrap_or_default())
        };
        Self {
            visitor: visitor.clone(),
            name: part("name"),
            version: part("version"),
            label: label.map(bound_length),
        }
    }

    pub(in super::super) fn visitor(&self) -> &ClientIdentity {
        &self.visitor
    }
}

/// Returns a text, or its digest if it is long. So keys stay small, and different texts give
/// different keys.
fn bound_length(text: &str) -> Box<str> {
    if text.len() <= MAX_BYTES {
        return text.into();
    }
    let digest = Sha256::digest(text.as_bytes());
    format!("sha256:{}", hex::encode(digest)).into()
}

#[cfg(test)]
mod tests {
    use riglm_domain::privacy::principal::Principal;

    use super::*;

    #[test]
    fn clients_are_distinguished_by_principal_info_and_label() {
        let key = |principal: &str, info: Option<&str>, label: Option<&str>| {
            ClientKey::new(
                &ClientIdentity::from(&Principal::from_name(principal)),
                info,
                label,
            )
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
    fn long_labels_are_shortened_but_stay_distinct() {
        let label = |end: &str| {
            let label = "x".repeat(4_096) + end;
            ClientKey::new(
                &ClientIdentity::from(&Principal::local()),
                None,
                Some(&label),
            )
            .label
        };
        assert_ne!(label("a"), label("b"));
        assert!(label("a").is_some_and(|label| label.len() <= MAX_BYTES));
    }
}
