//! The description of a client and its identity. The description comes from the handshake of a legacy
//! revision, or from the metadata of requests of a modern revision.

use std::collections::{BTreeMap, BTreeSet};

use riglm_domain::id::ProfileName;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::scan::{members, unescape};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::session::ClientInfo;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::session_app;

/// The maximum number of capabilities that are recorded.
const MAX_CAPABILITIES: usize = 64;

/// The description of a client in the row of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientDescription {
    pub(super) info: ClientInfo,
    /// Further metadata by name. `capabilities` has the names of the declared capabilities, sorted
    /// and separated by commas. `title` is the display name. Missing values have no entry.
    pub(super) metadata: BTreeMap<String, String>,
    /// Whether it declares that it shows apps.
    pub(super) shows_apps: bool,
}

impl ClientDescription {
    /// Returns the description and the requested revision from the `params` of `initialize`.
    pub(super) fn of_initialize(params: Option<&str>) -> (Self, Option<String>) {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct InitializeParams<'a> {
            protocol_version: Option<String>,
            #[serde(borrow)]
            client_info: Option<&'a RawValue>,
            #[serde(borrow)]
            capabilities: Option<&'a RawValue>,
        }
        let hello: InitializeParams<'_> = params
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let description = Self::read(
            hello.client_info.map(RawValue::get),
            hello.capabilities.map(RawValue::get),
        );
        (description, hello.protocol_version)
    }

    /// Returns the description from a request of a modern revision.
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
            .and_then(unescape)
            .map(|title| truncate_name(&title));
        let names = capabilities.map(capability_names);
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
            shows_apps: capabilities.is_some_and(session_app::shows_apps),
        }
    }
}

/// Returns the names of the declared capabilities, sorted and separated by commas.
fn capability_names(capabilities: &str) -> String {
    let names: BTreeSet<String> = members(capabilities)
        .filter(|(_, value)| *value != "null")
        .map(|(name, _)| truncate_name(&name))
        .filter(|name| !name.is_empty())
        .take(MAX_CAPABILITIES)
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    names.join(",")
}

/// Removes control characters and truncates a text to the maximum length of client names.
fn truncate_name(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(ClientInfo::MAX_CHARS)
        .collect()
}

/// The principal and the profile under which a client opens a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientIdentity {
    /// The principal of the client.
    pub principal: Principal,
    /// The profile that the client selected by address or option; `None` if it selected none.
    pub profile: Option<ProfileName>,
}

impl From<&Principal> for ClientIdentity {
    fn from(principal: &Principal) -> Self {
        Self {
            principal: principal.clone(),
            profile: None,
        }
    }
}

impl From<&Self> for ClientIdentity {
    fn from(visitor: &Self) -> Self {
        visitor.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata_of(client_info: &str, capabilities: &str) -> Vec<(String, String)> {
        let read = ClientDescription::read(Some(client_info), Some(capabilities));
        read.metadata.into_iter().collect()
    }

    #[test]
    fn initialize_params_without_client_information_are_accepted() {
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
        assert_eq!(metadata_of("{}", capabilities), expected);
        assert_eq!(metadata_of("{}", "{}"), []);
        assert_eq!(metadata_of("{}", "7"), []);
    }

    #[test]
    fn long_titles_are_cut_and_invalid_titles_ignored() {
        let title = format!(r#"{{"title":"\n{}"}}"#, "é".repeat(200));
        let expected = [("title".into(), "é".repeat(ClientInfo::MAX_CHARS))];
        assert_eq!(metadata_of(&title, "{}"), expected);
        let odd = r#"{"name":"n","version":"1","title":7}"#;
        let read = ClientDescription::read(Some(odd), None);
        assert_eq!(read.info, ClientInfo::new("n", "1"));
        assert!(read.metadata.is_empty());
    }

    #[test]
    fn recorded_capabilities_are_limited_in_number() {
        let members: Vec<String> = (100..300).map(|n| format!(r#""c{n}":{{}}"#)).collect();
        let kept = capability_names(&format!("{{{}}}", members.join(",")));
        assert_eq!(kept.split(',').count(), MAX_CAPABILITIES);
    }
}
