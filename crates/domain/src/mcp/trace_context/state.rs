//! `tracestate`: additional data of tracing systems at a position in a trace, one entry for each
//! system.

use super::trim_header_value;

const MAX_ENTRIES: usize = 32;
/// The maximum length of a key, and of a value, in bytes.
const MAX_PART_BYTES: usize = 256;
/// The maximum length of the name of a tenant, and of a system with tenants, in bytes.
const MAX_TENANT_BYTES: usize = 241;
const MAX_SYSTEM_BYTES: usize = 14;
/// The number of bytes that must at least be forwarded. More is cut.
const MAX_BYTES: usize = 512;
/// Entries longer than this are removed first.
const LONG_ENTRY_BYTES: usize = 128;

/// The entries in the form in which they are forwarded: `key=value`, in their order, at most 512
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Parses the value of a header; `None` if it is malformed or has no entry.
    ///
    /// A value of more than 512 bytes is cut as the recommendation says: first the entries of more
    /// than 128 bytes are removed, then the entries at the end, which are the oldest.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut entries: Vec<&str> = Vec::new();
        for entry in text.split(',').map(trim_header_value) {
            if entry.is_empty() {
                continue;
            }
            let (key, value) = entry.split_once('=')?;
            let is_known = entries.iter().any(|known| key_of(known) == key);
            if !is_key(key) || !is_value(value) || is_known || entries.len() == MAX_ENTRIES {
                return None;
            }
            entries.push(entry);
        }
        truncate_entries(&mut entries);
        (!entries.is_empty()).then(|| Self(entries.join(",").into()))
    }

    /// Returns the value of the header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn truncate_entries(entries: &mut Vec<&str>) {
    let n_bytes = |entries: &[&str]| entries.iter().map(|entry| entry.len() + 1).sum::<usize>() - 1;
    while !entries.is_empty() && n_bytes(entries) > MAX_BYTES {
        let long = (entries.iter()).rposition(|entry| entry.len() > LONG_ENTRY_BYTES);
        entries.remove(long.unwrap_or(entries.len() - 1));
    }
}

fn key_of(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(key, _)| key)
}

fn is_key(key: &str) -> bool {
    let is_part = |text: &str, may_begin_with_digit: bool, max: usize| {
        let first = text.bytes().next();
        let is_first = first.is_some_and(|byte| {
            byte.is_ascii_lowercase() || (may_begin_with_digit && byte.is_ascii_digit())
        });
        let is_other = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte)
        };
        is_first && text.len() <= max && text.bytes().all(is_other)
    };
    match key.split_once('@') {
        Some((tenant, system)) => {
            is_part(tenant, true, MAX_TENANT_BYTES) && is_part(system, false, MAX_SYSTEM_BYTES)
        }
        None => is_part(key, false, MAX_PART_BYTES),
    }
}

fn is_value(value: &str) -> bool {
    // A space at the end was removed with the white space around the entry.
    let is_allowed = |byte: u8| matches!(byte, b' '..=b'~') && !b",=".contains(&byte);
    (1..=MAX_PART_BYTES).contains(&value.len()) && value.bytes().all(is_allowed)
}
