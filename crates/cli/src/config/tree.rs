//! Paths into a tree of configuration values.

use config::{Map, Value, ValueKind};

/// Parts of a path that mark secrets: every value at or below them is one.
const SECRET_PARTS: [&str; 6] = [
    "token",
    "client_secret",
    "api_key",
    "headers",
    "env",
    "keys",
];

/// Joins a key and a part with a dot, unless the key is empty.
pub(super) fn join(key: &str, part: &str) -> String {
    if key.is_empty() {
        part.into()
    } else {
        format!("{key}.{part}")
    }
}

/// Returns whether the value at this path may be a secret.
pub(super) fn is_secret(path: &[&str]) -> bool {
    if let ["control", "keys", _, part] = path
        && part.split('[').next() == Some("scopes")
    {
        return false;
    }
    // Credentials in place of the section for them are secrets too.
    matches!(path.last(), Some(&("auth" | "credentials")))
        || is_database_url(path)
        || path.iter().any(|part| SECRET_PARTS.contains(part))
}

/// Returns whether the value at this path is the URL of a database, or is in place of the section
/// with it.
pub(super) fn is_database_url(path: &[&str]) -> bool {
    matches!(
        path,
        ["storage", "postgres"] | ["storage", "postgres", "url"]
    )
}

/// Removes the value at `path`; returns whether there was one.
pub(super) fn without(table: &mut Map<String, Value>, path: &[&str]) -> bool {
    match path {
        [] => false,
        [last] => table.remove(*last).is_some(),
        [first, rest @ ..] => match table.get_mut(*first).map(|value| &mut value.kind) {
            Some(ValueKind::Table(inner)) => without(inner, rest),
            // A list is removed as a whole.
            Some(_) => table.remove(*first).is_some(),
            None => false,
        },
    }
}

/// Returns the origin of the value at `path`, or of the nearest value above it.
pub(super) fn origin_of(table: &Map<String, Value>, path: &[&str]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let value = table.get(*first)?;
    let deeper = match &value.kind {
        ValueKind::Table(inner) => origin_of(inner, rest).or_else(|| any_origin(inner)),
        _ => None,
    };
    deeper.or_else(|| value.origin().map(str::to_owned))
}

/// Returns the origin of the first value in a table, by the order of the keys. The origin of the
/// table itself is lost when layers are merged.
fn any_origin(table: &Map<String, Value>) -> Option<String> {
    let mut keys: Vec<&String> = table.keys().collect();
    keys.sort();
    keys.into_iter()
        .find_map(|key| origin_of(table, &[key.as_str()]))
}
