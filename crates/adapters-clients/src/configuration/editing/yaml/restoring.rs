//! Entries of an earlier version of a YAML document, put back line by line.
//!
//! Comments, anchors and quotes in an entry are in its lines, so they come back with it. The caller
//! checks by parsing that the entry has its old values at its new column.

use super::super::EditError;
use super::super::toml::EntryPlace;
use super::{Lines, find, insert_lines};

/// Adds an entry of another version of the text. Its lines are the same, except that they are moved
/// to the column of the other entries.
pub(in crate::configuration::editing) fn restore(
    text: &str,
    source: &str,
    place: EntryPlace<'_>,
) -> Result<String, EditError> {
    let lines = Lines::of(source);
    let Some(found) = find(source, &lines, place)? else {
        return Ok(text.to_owned());
    };
    let entry = &lines.lines[found.range];
    let (edited, _) = insert_lines(text, place, &|column| {
        let moved = entry.iter().map(|line| {
            let line = line.trim_end_matches(['\r', '\n']);
            moved_line(line, found.column, column)
        });
        moved.collect()
    })?;
    Ok(edited)
}

/// Returns a line moved from one column to another. One that begins further to the left stays.
fn moved_line(line: &str, from: usize, to: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    if indent < from {
        line.to_owned()
    } else {
        format!("{}{}", " ".repeat(to), &line[from..])
    }
}
