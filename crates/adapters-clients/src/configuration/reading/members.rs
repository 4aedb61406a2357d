//! Access to the members of an entry. A wrong value is reported with its key and never shown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::variables::TextTranslator;
use crate::configuration::server::{ServerNote, UnusableServer};

/// The members of an entry. A member that is null counts as absent.
#[derive(Clone, Copy)]
pub(super) struct Members<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Members<'a> {
    /// Returns the first of several members that is there, with its key.
    pub(super) fn first(self, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        keys.iter().find_map(|key| {
            let value = self.0.get(*key).filter(|value| !value.is_null())?;
            Some((*key, value))
        })
    }

    /// Returns the raw text of the first of several members.
    pub(super) fn raw_text(
        self,
        keys: &[&'static str],
    ) -> Result<Option<(&'static str, &'a str)>, UnusableServer> {
        let Some((key, value)) = self.first(keys) else {
            return Ok(None);
        };
        let text = value.as_str().ok_or_else(|| malformed_member(key))?;
        Ok(Some((key, text)))
    }

    /// Returns the translated text of the first of several members.
    pub(super) fn text(
        self,
        keys: &[&'static str],
        translator: &mut TextTranslator<'_>,
    ) -> Result<Option<String>, UnusableServer> {
        let found = self.raw_text(keys)?;
        Ok(found.map(|(key, text)| translator.translate(text, key)))
    }

    /// Returns whether a member is true; `default` if it is absent.
    pub(super) fn flag(self, key: &'static str) -> Result<Option<bool>, UnusableServer> {
        let value = self.first(&[key]);
        value
            .map(|(_, value)| value.as_bool().ok_or_else(|| malformed_member(key)))
            .transpose()
    }

    /// Returns the members of the first of several objects.
    pub(super) fn object(
        self,
        keys: &[&'static str],
    ) -> Result<Option<Members<'a>>, UnusableServer> {
        let value = self.first(keys);
        value
            .map(|(key, value)| {
                value
                    .as_object()
                    .map(Members)
                    .ok_or_else(|| malformed_member(key))
            })
            .transpose()
    }

    /// Returns the raw words of the first of several lists.
    pub(super) fn words(
        self,
        keys: &[&'static str],
        translator: &mut TextTranslator<'_>,
    ) -> Result<Option<Vec<String>>, UnusableServer> {
        let Some((key, value)) = self.first(keys) else {
            return Ok(None);
        };
        let values = value.as_array().ok_or_else(|| malformed_member(key))?;
        let words = values
            .iter()
            .map(|value| scalar_text(value, key, translator));
        words.collect::<Result<_, _>>().map(Some)
    }

    /// Returns the texts of several maps as one, translated.
    pub(super) fn map(
        self,
        keys: &[&'static str],
        translator: &mut TextTranslator<'_>,
    ) -> Result<BTreeMap<String, String>, UnusableServer> {
        let mut entries = BTreeMap::new();
        for key in keys {
            let Some(members) = self.object(&[key])? else {
                continue;
            };
            for (name, value) in members.0.iter().filter(|(_, value)| !value.is_null()) {
                let text = scalar_text(value, key, translator)?;
                entries.insert(name.clone(), translator.translate(&text, key));
            }
        }
        Ok(entries)
    }

    /// Returns a time; `unit` is the time of the number 1.
    pub(super) fn time(
        self,
        key: &'static str,
        unit: Duration,
    ) -> Result<Option<Duration>, UnusableServer> {
        let Some((_, value)) = self.first(&[key]) else {
            return Ok(None);
        };
        let number = value.as_f64().filter(|number| *number >= 0.0);
        let seconds = number.ok_or_else(|| malformed_member(key))? * unit.as_secs_f64();
        // A number that is too large means no limit.
        Ok(Duration::try_from_secs_f64(seconds).ok())
    }
}

/// Returns the error for a member.
pub(super) fn malformed_member(member: &str) -> UnusableServer {
    UnusableServer::Malformed {
        member: member.to_owned(),
    }
}

/// Returns a text, a number or a truth value as text.
fn scalar_text(
    value: &Value,
    member: &str,
    translator: &mut TextTranslator<'_>,
) -> Result<String, UnusableServer> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => {
            translator.note(ServerNote::TakenAsText {
                member: member.to_owned(),
            });
            Ok(value.to_string())
        }
        _ => Err(malformed_member(member)),
    }
}
