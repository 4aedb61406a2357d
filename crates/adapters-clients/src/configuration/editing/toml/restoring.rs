//! Entries of an earlier version of a TOML document, put back with their very bytes.

use std::ops::Range;

use toml_edit::{Item, Table};

use super::super::EditError;
use super::super::text::{Splice, line_end, line_start, newline, splice};
use super::{
    EntryParts, EntryPlace, blank_line_before, collect_table, inline_collection, insert_inline,
    parts, with_block,
};
use crate::configuration::document::toml::scan;

/// Adds an entry of another version of the text.
pub(in crate::configuration::editing) fn restore(
    text: &str,
    source: &str,
    place: EntryPlace<'_>,
) -> Result<String, EditError> {
    let Some(parts) = parts(source, place)? else {
        return Ok(text.to_owned());
    };
    let document = scan(text)?;
    let container = document.as_table().get(place.container);
    let inline = inline_collection(container, place)?;
    let layout = || EditError::Layout {
        key: place.container.to_owned(),
    };
    match (parts, inline) {
        (EntryParts::Inline { entry, .. }, Some(collection)) => {
            let (edited, _) = insert_inline(text, place, &source[entry], &collection);
            Ok(edited)
        }
        (EntryParts::Lines { ranges, .. }, None) => {
            let is_block =
                |range: &Range<usize>| source[range.clone()].trim_start().starts_with('[');
            let (blocks, pairs): (Vec<_>, Vec<_>) = ranges.into_iter().partition(is_block);
            let pairs: Vec<&str> = (pairs.into_iter()).map(|range| &source[range]).collect();
            let edited = if pairs.is_empty() {
                text.to_owned()
            } else {
                let places = (is_dotted(source, place)?, is_dotted(text, place)?);
                if places.0 != places.1 {
                    return Err(layout());
                }
                with_pairs(text, place, &pairs.concat()).ok_or_else(layout)?
            };
            if blocks.is_empty() {
                return Ok(edited);
            }
            Ok(with_block(&edited, &block_text(source, &blocks)))
        }
        _ => Err(layout()),
    }
}

/// Returns the text of blocks, with the blank lines between them, without the last line end.
fn block_text(source: &str, blocks: &[Range<usize>]) -> String {
    let mut text = String::new();
    for range in blocks {
        let start = if text.is_empty() {
            range.start
        } else {
            blank_line_before(source, range.start)
        };
        text.push_str(&source[start..range.end]);
    }
    let body = text.trim_end_matches('\n');
    body.trim_end_matches('\r').to_owned()
}

/// Returns whether the entries are lines `container.name = …` at the top of the document.
fn is_dotted(text: &str, place: EntryPlace<'_>) -> Result<bool, EditError> {
    let document = scan(text)?;
    let container = document.as_table().get(place.container);
    Ok(container
        .and_then(Item::as_table)
        .is_some_and(Table::is_dotted))
}

/// Returns a text with lines at the end of the table of entries; none if there is no place for them.
fn with_pairs(text: &str, place: EntryPlace<'_>, pairs: &str) -> Option<String> {
    let document = scan(text).ok()?;
    let container = document.as_table().get(place.container);
    let newline = newline(text);
    let table = container.and_then(Item::as_table);
    let end = match table {
        Some(table) if table.is_dotted() => {
            let mut ranges = Vec::new();
            collect_table(text, table, &mut ranges);
            ranges.iter().map(|range| range.end).max()?
        }
        Some(table) if !table.is_implicit() => {
            let header = table.span()?;
            let mut ranges = Vec::new();
            collect_table(text, table, &mut ranges);
            // The lines of the table itself begin with its header.
            let start = line_start(text, header.start);
            let own = ranges.iter().find(|range| range.start == start);
            own.map_or(line_end(text, header.end), |range| range.end)
        }
        _ => {
            let body = pairs.trim_end_matches('\n').trim_end_matches('\r');
            let header = super::rendering::key_text(place.container);
            return Some(with_block(text, &format!("[{header}]{newline}{body}")));
        }
    };
    let is_open = !text[..end].ends_with('\n');
    let body = pairs.trim_end_matches('\n').trim_end_matches('\r');
    let lines = if is_open {
        format!("{newline}{body}")
    } else {
        format!("{body}{newline}")
    };
    Some(splice(
        text,
        vec![Splice {
            range: end..end,
            text: lines,
        }],
    ))
}
