//! Servers that were taken out of a file, put back into a later version of it.
//!
//! The client may have rewritten its file since. Each server gets the bytes that it had before, and
//! no other bytes change.

use super::verification::{check, value_of, with_entry};
use super::{EditError, is_entry, item_place, json, place, toml, yaml};
use crate::configuration::client::Client;
use crate::configuration::document::{self, DocumentFormat};

/// Servers of an earlier version of a file.
#[derive(Clone, Copy, Debug)]
pub(in crate::configuration) struct ServersToRestore<'a> {
    /// The earlier text.
    pub(in crate::configuration) source: &'a str,
    /// The names of the servers.
    pub(in crate::configuration) names: &'a [String],
}

/// The reason why a server that was taken out is not put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// A server of that name was added since.
    #[error("another server has its name now")]
    NameTaken,
    /// The backup cannot be read, or is not what was written.
    #[error("the backup is missing or was changed")]
    NoBackup,
    /// The client or its user has removed the file.
    #[error("the file does not exist any more")]
    FileMissing,
    /// The text of the file has another form than before.
    #[error("the file now has a form that cannot be changed safely")]
    Layout,
}

/// A text with servers put back.
pub(in crate::configuration) struct RestoredText {
    pub(in crate::configuration) text: String,
    /// The names of the servers that were put back.
    pub(in crate::configuration) restored: Vec<String>,
    /// The names of those that were not, with the reasons.
    pub(in crate::configuration) lost: Vec<(String, LossReason)>,
}

/// Puts servers back into the text of a file. A server that is there with its old values needs
/// nothing.
///
/// # Errors
///
/// Returns [`EditError`] if the file is malformed.
pub(in crate::configuration) fn restore_servers(
    text: &str,
    client: &Client,
    servers: ServersToRestore<'_>,
) -> Result<RestoredText, EditError> {
    let body = document::without_mark(text);
    let mark = &text[..text.len() - body.len()];
    let source = document::without_mark(servers.source);
    let mut value = document::read(body, client.format)?.value;
    let (mut restored, mut lost) = (Vec::new(), Vec::new());
    let mut edited = body.to_owned();
    let values_before = document::read(source, client.format);
    for name in servers.names {
        let before = values_before.as_ref().ok();
        let Some(before) = before.and_then(|it| value_of(&it.value, client, name)) else {
            lost.push((name.clone(), LossReason::NoBackup));
            continue;
        };
        if let Some(current) = value_of(&value, client, name) {
            if current != before {
                lost.push((name.clone(), LossReason::NameTaken));
            }
            continue;
        }
        let expected = with_entry(value.clone(), client, name, before);
        let attempt = restore(&edited, source, client, name)
            .and_then(|text| check(&text, client.format, &expected).map(|()| text));
        match attempt {
            Ok(text) => {
                edited = text;
                value = expected;
                restored.push(name.clone());
            }
            Err(_) => lost.push((name.clone(), LossReason::Layout)),
        }
    }
    Ok(RestoredText {
        text: format!("{mark}{edited}"),
        restored,
        lost,
    })
}

fn restore(text: &str, source: &str, client: &Client, name: &str) -> Result<String, EditError> {
    let place = place(client, name);
    match client.format {
        DocumentFormat::Json | DocumentFormat::JsonWithComments => {
            json::restore(text, source, item_place(place), |item| {
                is_entry(item, client.map.shape, name)
            })
        }
        DocumentFormat::Toml => toml::restore(text, source, place),
        DocumentFormat::Yaml => yaml::restore(text, source, place),
    }
}
