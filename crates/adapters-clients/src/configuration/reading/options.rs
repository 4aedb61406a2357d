//! The login and the selection of tools of an entry.

use serde_json::Value;

use super::members::{Members, malformed_member};
use super::variables::TextTranslator;
use crate::configuration::server::{ConfiguredOauth, ToolSelection, UnusableServer};

/// Returns the registration for OAuth, if the entry has one.
pub(super) fn oauth(
    members: Members<'_>,
    translator: &mut TextTranslator<'_>,
) -> Result<Option<ConfiguredOauth>, UnusableServer> {
    let Some((key, value)) = members.first(&["oauth", "auth"]) else {
        let client_id = members.text(&["oauth_client_id"], translator)?;
        return Ok(client_id.map(|client_id| ConfiguredOauth {
            client_id: Some(client_id),
            client_secret: None,
            scopes: Vec::new(),
        }));
    };
    let inner = match value {
        Value::Bool(false) => return Ok(None),
        Value::Bool(true) | Value::String(_) => return Ok(Some(ConfiguredOauth::default())),
        Value::Object(inner) => Members(inner),
        _ => return Err(malformed_member(key)),
    };
    if inner.flag("enabled").is_ok_and(|it| it == Some(false)) {
        return Ok(None);
    }
    let mut scopes = scopes(inner)?;
    scopes.extend(self::scopes(members)?);
    Ok(Some(ConfiguredOauth {
        client_id: inner.text(&["clientId", "client_id", "CLIENT_ID"], translator)?,
        client_secret: inner.text(
            &["clientSecret", "client_secret", "CLIENT_SECRET"],
            translator,
        )?,
        scopes,
    }))
}

fn scopes(members: Members<'_>) -> Result<Vec<String>, UnusableServer> {
    let Some((key, value)) = members.first(&["scopes", "scope"]) else {
        return Ok(Vec::new());
    };
    match value {
        Value::String(text) => Ok(text.split_whitespace().map(str::to_owned).collect()),
        Value::Array(values) => {
            let texts = values.iter().map(|value| value.as_str().map(str::to_owned));
            texts
                .collect::<Option<_>>()
                .ok_or_else(|| malformed_member(key))
        }
        _ => Err(malformed_member(key)),
    }
}

/// Returns the tools that the client uses.
pub(super) fn tools(
    members: Members<'_>,
    translator: &mut TextTranslator<'_>,
) -> Result<ToolSelection, UnusableServer> {
    let allowed_keys = ["includeTools", "enabled_tools", "available_tools"];
    let mut allowed = members.words(&allowed_keys, translator)?;
    if members
        .first(&allowed_keys)
        .is_some_and(|(key, _)| key == "available_tools")
    {
        // An empty list means all there.
        allowed = allowed.filter(|tools| !tools.is_empty());
    }
    if allowed.is_none()
        && let Some((_, Value::Array(_))) = members.first(&["tools"])
    {
        allowed = members.words(&["tools"], translator)?;
    }
    let denied = ["excludeTools", "disabled_tools", "disabledTools"];
    Ok(ToolSelection {
        allowed: allowed.filter(|tools| !tools.iter().any(|tool| tool == "*")),
        denied: members.words(&denied, translator)?.unwrap_or_default(),
    })
}
