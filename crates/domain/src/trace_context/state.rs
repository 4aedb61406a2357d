//! `tracestate`: what tracing systems add to a place in a trace, an entry for each of them.

use super::trimmed;

/// The most entries.
const MAX_ENTRIES: usize = 32;
/// The longest key, and the longest value, in bytes.
const MAX_PART_BYTES: usize = 256;
/// The longest name of a tenant, and of a system that has tenants, in bytes.
const MAX_TENANT_BYTES: usize = 241;
const MAX_SYSTEM_BYTES: usize = 14;
/// What has to be passed on at the least, in bytes; more is cut.
const MAX_BYTES: usize = 512;
/// Entries that are longer are the first to go.
const LONG_ENTRY_BYTES: usize = 128;

/// The entries as they are passed on: `key=value`, in their order, at most 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Reads the value of a header; `None` where it is malformed or has no entry.
    ///
    /// What is longer than 512 bytes is cut as the recommendation says: first go entries of more
    /// than 128 bytes, then those at the end, which are the oldest.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut entries: Vec<&str> = Vec::new();
        for entry in text.split(',').map(trimmed) {
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
        cut(&mut entries);
        (!entries.is_empty()).then(|| Self(entries.join(",").into()))
    }

    /// Returns the value of the header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn cut(entries: &mut Vec<&str>) {
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
    // A space at the end was cut off with the white space around the entry.
    let is_allowed = |byte: u8| matches!(byte, b' '..=b'~') && !b",=".contains(&byte);
    (1..=MAX_PART_BYTES).contains(&value.len()) && value.bytes().all(is_allowed)
}
