//! What a client says of itself: in the handshake of a legacy revision, or in the metadata that
//! requests of a modern revision have in its place.

use std::collections::{BTreeMap, BTreeSet};

use riglm_domain::edit::member;
use riglm_domain::meta::RequestMeta;
use riglm_domain::scan::{members, unescaped};
use riglm_domain::session::ClientInfo;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most capabilities of a client that are recorded.
const MAX_CAPABILITIES: usize = 64;

/// What the row of a session tells of its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientDescription {
    /// Name and version.
    pub(super) info: ClientInfo,
    /// The rest, by name; what the client does not say is not there. `capabilities` are the names
    /// of what it declares, sorted, with commas between them; `title` is the name for people.
    pub(super) metadata: BTreeMap<String, String>,
}

impl ClientDescription {
    /// Returns what the `params` of `initialize` say of the client, and the revision that it asks
    /// for.
    pub(super) fn of_initialize(params: Option<&str>) -> (Self, Option<String>) {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Hello<'a> {
            protocol_version: Option<String>,
            #[serde(borrow)]
            client_info: Option<&'a RawValue>,
            #[serde(borrow)]
            capabilities: Option<&'a RawValue>,
        }
        let hello: Hello<'_> = params
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let description = Self::read(
            hello.client_info.map(RawValue::get),
            hello.capabilities.map(RawValue::get),
        );
        (description, hello.protocol_version)
    }

    /// Returns what a request of a modern revision says of the client.
    pub(super) fn of_request(meta: &RequestMeta<'_>) -> Self {
        Self::read(meta.client_info, meta.client_capabilities)
    }

    /// Reads the JSON texts of `clientInfo` and of the capabilities.
    fn read(client_info: Option<&str>, capabilities: Option<&str>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Info {
            name: String,
            version: String,
        }
        let info: Info = client_info
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let title = client_info
            .and_then(|text| member(text, "title"))
            .and_then(unescaped)
            .map(|title| cut(&title));
        let names = capabilities.map(declared);
        let metadata = [("capabilities", names), ("title", title)]
            .into_iter()
            .filter_map(|(name, value)| {
                let value = value.filter(|value| !value.is_empty())?;
                Some((name.to_owned(), value))
            })
            .collect();
        Self {
            info: ClientInfo::new(&info.name, &info.version),
            metadata,
        }
    }
}

/// Returns the names of the capabilities that are declared, sorted, with commas between them.
fn declared(capabilities: &str) -> String {
    let names: BTreeSet<String> = members(capabilities)
        .filter(|(_, value)| *value != "null")
        .map(|(name, _)| cut(&name))
        .filter(|name| !name.is_empty())
        .take(MAX_CAPABILITIES)
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    names.join(",")
}

/// Returns a text without control characters, cut as names of clients are.
fn cut(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(ClientInfo::MAX_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(client_info: &str, capabilities: &str) -> Vec<(String, String)> {
        let read = ClientDescription::read(Some(client_info), Some(capabilities));
        read.metadata.into_iter().collect()
    }

    #[test]
    fn a_hello_without_information_is_still_a_hello() {
        let nothing = (ClientDescription::default(), None);
        assert_eq!(ClientDescription::of_initialize(None), nothing);
        let text =
            r#"{"protocolVersion":"2025-06-18","clientInfo":{"name":"n\u0007","version":"1"}}"#;
        let (description, requested) = ClientDescription::of_initialize(Some(text));
        assert_eq!(description.info, ClientInfo::new("n", "1"));
        assert!(description.metadata.is_empty());
        assert_eq!(requested.as_deref(), Some("2025-06-18"));
    }

    #[test]
    fn declared_capabilities_are_named_in_order_and_without_control_characters() {
        let capabilities =
            r#"{"sampling":{"tools":{}},"roots":null,"elicitation":{},"a\u0000b":1,"sampling":{}}"#;
        let expected = [("capabilities".into(), "ab,elicitation,sampling".into())];
        assert_eq!(described("{}", capabilities), expected);
        assert_eq!(described("{}", "{}"), []);
        assert_eq!(described("{}", "7"), []);
    }

    #[test]
    fn a_title_is_cut_and_one_that_is_no_text_spoils_nothing() {
        let title = format!(r#"{{"title":"\n{}"}}"#, "é".repeat(200));
        let expected = [("title".into(), "é".repeat(ClientInfo::MAX_CHARS))];
        assert_eq!(described(&title, "{}"), expected);
        let odd = r#"{"name":"n","version":"1","title":7}"#;
        let read = ClientDescription::read(Some(odd), None);
        assert_eq!(read.info, ClientInfo::new("n", "1"));
        assert!(read.metadata.is_empty());
    }

    #[test]
    fn no_more_than_so_many_capabilities_are_kept() {
        let members: Vec<String> = (100..300).map(|n| format!(r#""c{n}":{{}}"#)).collect();
        let kept = declared(&format!("{{{}}}", members.join(",")));
        assert_eq!(kept.split(',').count(), MAX_CAPABILITIES);
    }
}
