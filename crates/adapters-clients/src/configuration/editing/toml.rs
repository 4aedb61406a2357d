//! Entries of TOML documents, changed in the text.

mod rendering;
mod restoring;

use std::ops::Range;

use serde_json::Value;
use toml_edit::{Item, Key, Table, Value as TomlValue};

use self::rendering::{block, inline, key_text};
pub(super) use self::restoring::restore;
use super::text::{Splice, line_end, line_start, newline, splice};
use super::{ContainerBefore, EditError};
use crate::configuration::client::MapShape;
use crate::configuration::document::toml::scan;

/// The place of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPlace<'a> {
    pub(super) container: &'a str,
    pub(super) shape: MapShape,
    pub(super) name: &'a str,
}

/// Adds an entry, and returns the new text and the state of the collection before.
pub(super) fn insert(
    text: &str,
    place: EntryPlace<'_>,
    value: &Value,
) -> Result<(String, ContainerBefore), EditError> {
    let document = scan(text)?;
    let container = document.as_table().get(place.container);
    if let Some(collection) = inline_collection(container, place)? {
        let entry = match place.shape {
            MapShape::Map => format!("{} = {}", key_text(place.name), inline(value)),
            MapShape::List => inline(value),
        };
        return Ok(insert_inline(text, place, &entry, &collection));
    }
    let before = if container.is_some() {
        ContainerBefore::Filled
    } else {
        ContainerBefore::Absent
    };
    let newline = newline(text);
    let block = block(place, value).join(newline);
    Ok((with_block(text, &block), before))
}

/// Returns a text with the lines of an entry at the end, which have no last line end.
fn with_block(text: &str, block: &str) -> String {
    let newline = newline(text);
    // The end of the last line is mirrored, so that removing the block restores the text.
    if text.is_empty() {
        format!("{block}{newline}")
    } else if text.ends_with('\n') {
        format!("{text}{newline}{block}{newline}")
    } else {
        format!("{text}{newline}{newline}{block}")
    }
}

/// Returns the collection if it is in one line; none if its entries have lines of their own.
fn inline_collection(
    container: Option<&Item>,
    place: EntryPlace<'_>,
) -> Result<Option<InlineCollection>, EditError> {
    let (span, last) = match container {
        None | Some(Item::None) => return Ok(None),
        Some(Item::Table(_)) if place.shape == MapShape::Map => return Ok(None),
        Some(Item::ArrayOfTables(_)) if place.shape == MapShape::List => return Ok(None),
        Some(Item::Value(TomlValue::InlineTable(table))) if place.shape == MapShape::Map => {
            let last = table.iter().last().and_then(|(_, value)| value.span());
            (table.span(), last)
        }
        Some(Item::Value(TomlValue::Array(values))) if place.shape == MapShape::List => {
            let last = values.iter().last().and_then(TomlValue::span);
            (values.span(), last)
        }
        Some(_) => {
            return Err(EditError::WrongKind {
                key: place.container.to_owned(),
                expected: match place.shape {
                    MapShape::Map => "a table",
                    MapShape::List => "a list of tables",
                },
            });
        }
    };
    let span = span.ok_or(EditError::Layout {
        key: place.container.to_owned(),
    })?;
    Ok(Some(InlineCollection { span, last }))
}

/// A collection in one line.
struct InlineCollection {
    span: Range<usize>,
    /// The place of the last value.
    last: Option<Range<usize>>,
}

fn insert_inline(
    text: &str,
    place: EntryPlace<'_>,
    entry: &str,
    collection: &InlineCollection,
) -> (String, ContainerBefore) {
    let (range, addition, before) = if let Some(last) = &collection.last {
        let addition = format!(", {entry}");
        (last.end..last.end, addition, ContainerBefore::Filled)
    } else {
        let span = collection.span.clone();
        let whole = text[span.clone()].to_owned();
        let addition = match place.shape {
            MapShape::Map => format!("{{ {entry} }}"),
            MapShape::List => format!("[{entry}]"),
        };
        (span, addition, ContainerBefore::Empty { text: whole })
    };
    let splices = vec![Splice {
        range,
        text: addition,
    }];
    (splice(text, splices), before)
}

/// Replaces an entry at its place.
pub(super) fn replace(
    text: &str,
    place: EntryPlace<'_>,
    value: &Value,
) -> Result<String, EditError> {
    let Some(parts) = parts(text, place)? else {
        return Ok(text.to_owned());
    };
    let newline = newline(text);
    let splices = match parts {
        EntryParts::Inline { value: span, .. } => vec![Splice {
            range: span,
            text: inline(value),
        }],
        EntryParts::Lines {
            mut ranges,
            is_pair,
        } => {
            let mut block = if is_pair {
                format!("{} = {}", key_text(place.name), inline(value))
            } else {
                block(place, value).join(newline)
            };
            let first = ranges.remove(0);
            if text[first.clone()].ends_with('\n') {
                block.push_str(newline);
            }
            let mut splices = vec![Splice {
                range: first,
                text: block,
            }];
            splices.extend(ranges.into_iter().map(without));
            splices
        }
    };
    Ok(splice(text, splices))
}

/// Removes an entry. The collection is left as it was before, if that is known.
pub(super) fn remove(
    text: &str,
    place: EntryPlace<'_>,
    before: Option<&ContainerBefore>,
) -> Result<String, EditError> {
    let Some(parts) = parts(text, place)? else {
        return Ok(text.to_owned());
    };
    let splices = match parts {
        EntryParts::Inline {
            entry,
            container,
            is_alone,
            ..
        } => match before {
            Some(ContainerBefore::Empty { text: whole }) if is_alone => vec![Splice {
                range: container,
                text: whole.clone(),
            }],
            _ => vec![without(with_comma(text, entry))],
        },
        EntryParts::Lines { ranges, .. } => {
            let ranges = ranges.into_iter().map(|range| with_blank_line(text, range));
            ranges.map(without).collect()
        }
    };
    Ok(splice(text, splices))
}

fn without(range: Range<usize>) -> Splice {
    Splice {
        range,
        text: String::new(),
    }
}

/// Returns the range of a block with the blank line before it.
fn with_blank_line(text: &str, range: Range<usize>) -> Range<usize> {
    let Range { mut start, end } = range;
    if !text[start..end].trim_start().starts_with('[') {
        return start..end;
    }
    let is_last = end == text.len() && !text.ends_with('\n');
    start = blank_line_before(text, start);
    if is_last && text[..start].ends_with('\n') {
        start -= 1;
        if text[..start].ends_with('\r') {
            start -= 1;
        }
    }
    start..end
}

/// Returns the start of the blank line before a line; that of the line itself if there is none.
fn blank_line_before(text: &str, start: usize) -> usize {
    let previous = start.checked_sub(1).map(|end| line_start(text, end));
    previous
        .filter(|previous| text[*previous..start].trim().is_empty())
        .unwrap_or(start)
}

/// Returns the range of an entry of an inline collection with one comma.
fn with_comma(text: &str, entry: Range<usize>) -> Range<usize> {
    let before = text[..entry.start].trim_end();
    if before.ends_with(',') {
        return before.len() - 1..entry.end;
    }
    let after = &text[entry.end..];
    let rest = after.trim_start();
    match rest.strip_prefix(',') {
        Some(rest) => entry.start..text.len() - rest.trim_start_matches(' ').len(),
        None => entry,
    }
}

/// The parts of a text that an entry consists of.
enum EntryParts {
    /// A member of a collection in one line.
    Inline {
        /// The key and the value.
        entry: Range<usize>,
        value: Range<usize>,
        container: Range<usize>,
        is_alone: bool,
    },
    /// The entry has whole lines of its own.
    Lines {
        ranges: Vec<Range<usize>>,
        /// Whether it is one line `name = { … }`.
        is_pair: bool,
    },
}

fn parts(text: &str, place: EntryPlace<'_>) -> Result<Option<EntryParts>, EditError> {
    let document = scan(text)?;
    let layout = || EditError::Layout {
        key: place.container.to_owned(),
    };
    let container = document.as_table().get(place.container);
    let mut ranges = Vec::new();
    let mut is_pair = false;
    match container {
        Some(Item::Table(table)) => {
            let Some((key, item)) = table.get_key_value(place.name) else {
                return Ok(None);
            };
            is_pair = item.is_value();
            collect_lines(text, key, item, &mut ranges);
        }
        Some(Item::ArrayOfTables(tables)) => {
            let is_it = |table: &&Table| {
                let name = table.get("name").and_then(Item::as_str);
                name == Some(place.name)
            };
            let Some(table) = tables.iter().find(is_it) else {
                return Ok(None);
            };
            collect_table(text, table, &mut ranges);
        }
        Some(Item::Value(TomlValue::InlineTable(table))) => {
            let Some((key, item)) = table.get_key_value(place.name) else {
                return Ok(None);
            };
            let value = item.span().ok_or_else(layout)?;
            let start = key.span().ok_or_else(layout)?.start;
            return Ok(Some(EntryParts::Inline {
                entry: start..value.end,
                value,
                container: table.span().ok_or_else(layout)?,
                is_alone: table.len() == 1,
            }));
        }
        Some(Item::Value(TomlValue::Array(values))) => {
            let is_it = |value: &&TomlValue| {
                let table = value.as_inline_table();
                let name = table.and_then(|table| table.get("name"));
                name.and_then(TomlValue::as_str) == Some(place.name)
            };
            let Some(value) = values.iter().find(is_it) else {
                return Ok(None);
            };
            let value = value.span().ok_or_else(layout)?;
            return Ok(Some(EntryParts::Inline {
                entry: value.clone(),
                value,
                container: values.span().ok_or_else(layout)?,
                is_alone: values.len() == 1,
            }));
        }
        _ => return Ok(None),
    }
    ranges.sort_by_key(|range| range.start);
    if ranges.is_empty() {
        return Err(layout());
    }
    Ok(Some(EntryParts::Lines { ranges, is_pair }))
}

/// Collects the lines of an item of a table.
fn collect_lines(text: &str, key: &Key, item: &Item, ranges: &mut Vec<Range<usize>>) {
    match item {
        Item::None => {}
        Item::Value(value) => {
            if let (Some(key), Some(value)) = (key.span(), value.span()) {
                ranges.push(line_start(text, key.start)..line_end(text, value.end));
            }
        }
        Item::Table(table) => collect_table(text, table, ranges),
        Item::ArrayOfTables(tables) => {
            for table in tables {
                collect_table(text, table, ranges);
            }
        }
    }
}

/// Collects the lines of a table: its header and its values, and those of its tables.
fn collect_table(text: &str, table: &Table, ranges: &mut Vec<Range<usize>>) {
    let has_header = !table.is_dotted() && !table.is_implicit();
    let header = table.span().filter(|_| has_header);
    let mut values = Vec::new();
    let mut inner = Vec::new();
    for (name, item) in table {
        let Some((key, _)) = table.get_key_value(name) else {
            continue;
        };
        let is_in_block = match item {
            Item::Value(_) => true,
            Item::Table(table) => table.is_dotted(),
            _ => false,
        };
        let target = if is_in_block { &mut values } else { &mut inner };
        collect_lines(text, key, item, target);
    }
    match header {
        // Comments between the values belong to the block.
        Some(header) => {
            let end = line_end(text, header.end);
            let end = values.iter().map(|range| range.end).fold(end, usize::max);
            ranges.push(line_start(text, header.start)..end);
        }
        None => ranges.append(&mut values),
    }
    ranges.append(&mut inner);
}
