//! Tables for people: aligned columns without a frame. Control characters are removed, so that
//! foreign text cannot act on the terminal.

use comfy_table::{CellAlignment, Table};
use jiff::Timestamp;
use riglm_domain::retrieval::excerpt::excerpt;

use crate::output::printable;

/// The longest text in a cell, in characters; longer texts are truncated.
const MAX_CELL_CHARS: usize = 48;

/// A column: its heading and alignment.
pub(super) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// Returns the rows under their headings.
pub(super) fn table(columns: &[Column], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(columns.iter().map(|column| match column {
        Column::Text(heading) | Column::Number(heading) => *heading,
    }));
    for row in rows {
        table.add_row(row);
    }
    for (position, column) in columns.iter().enumerate() {
        if let Some(cells) = table.column_mut(position) {
            cells.set_padding((0, 2));
            if matches!(column, Column::Number(_)) {
                cells.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns text of a client or a server as a printable, truncated cell.
pub(super) fn foreign_cell(text: &str) -> String {
    printable(&excerpt(text, MAX_CELL_CHARS))
}

/// Returns a time as a cell, in UTC and to the second.
pub(super) fn time_cell(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_escaped() {
        let columns = [Column::Text("TOOL"), Column::Number("N")];
        let rows = vec![
            vec![foreign_cell("a\x1b[2J"), "1".into()],
            vec![foreign_cell(&"x".repeat(60)), "100".into()],
        ];
        let shown = table(&columns, rows);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("TOOL"), "{shown}");
        assert!(lines[1].starts_with("a\\u{1b}[2J "), "{shown}");
        assert!(
            lines[2].starts_with(&format!("{}…  100", "x".repeat(47))),
            "{shown}"
        );
        assert_eq!(
            lines[1].find('1').map(|_| lines[1].len()),
            Some(lines[1].len())
        );
    }
}
