//! Text in cells of a terminal: cutting, padding, wrapping and columns, with wide characters.

use ratatui::style::Style;
use ratatui::text::Span;

/// The largest number of bytes of a character with its marks. More marks would cover other rows.
const MAX_GRAPHEME_BYTES: usize = 48;

/// Returns the number of cells of a text.
pub(super) fn cells_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns the start of a text that has at most `width` cells. A cut text ends with an ellipsis.
pub(super) fn cut(text: &str, width: usize) -> String {
    let is_long = cells_of(text) > width;
    let limit = if is_long {
        width.saturating_sub(1)
    } else {
        width
    };
    let (mut start, mut n_cells) = (String::new(), 0);
    let span = Span::raw(text);
    for grapheme in span.styled_graphemes(Style::new()) {
        let symbol = if grapheme.symbol.len() > MAX_GRAPHEME_BYTES {
            "\u{fffd}"
        } else {
            grapheme.symbol
        };
        n_cells += cells_of(symbol);
        if n_cells > limit {
            break;
        }
        start.push_str(symbol);
    }
    if is_long && width > 0 {
        start.push('…');
    }
    start
}

/// The side of a column at which its texts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Returns a text of exactly `width` cells.
pub(super) fn pad(text: &str, width: usize, side: Side) -> String {
    let shown = cut(text, width);
    let space = " ".repeat(width.saturating_sub(cells_of(&shown)));
    match side {
        Side::Left => shown + &space,
        Side::Right => space + &shown,
    }
}

/// Returns the lines of a text that is wrapped at spaces, each of at most `width` cells.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && cells_of(&line) + 1 + cells_of(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&cut(word, width));
    }
    lines.push(line);
    lines
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) heading: &'static str,
    /// Its cells. The first column is wider if there is room.
    pub(super) width: usize,
    pub(super) side: Side,
}

impl Column {
    pub(super) const fn text(heading: &'static str, width: usize) -> Self {
        let side = Side::Left;
        Self {
            heading,
            width,
            side,
        }
    }

    pub(super) const fn number(heading: &'static str, width: usize) -> Self {
        let side = Side::Right;
        Self {
            heading,
            width,
            side,
        }
    }
}

/// Returns a row of a table of `width` cells. The last columns are left out if there is no room.
pub(super) fn table_row(columns: &[Column], texts: &[&str], width: usize) -> String {
    let Some((first, others)) = columns.split_first() else {
        return String::new();
    };
    let mut free = width.saturating_sub(first.width);
    let others = others.iter().take_while(|column| {
        let room = free.checked_sub(column.width + 1);
        free = room.unwrap_or(0);
        room.is_some()
    });
    let others: Vec<&Column> = others.collect();
    let taken: usize = others.iter().map(|column| column.width + 1).sum();
    let mut texts = texts.iter();
    let mut next = || texts.next().copied().unwrap_or_default();
    let mut row = pad(next(), width.saturating_sub(taken), first.side);
    for column in others {
        row.push(' ');
        row.push_str(&pad(next(), column.width, column.side));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_padded_to_cells() {
        assert_eq!(cut("tool", 4), "tool");
        assert_eq!(cut("tools", 4), "too…");
        // Two cells each.
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("日本語", 0), "");
        assert_eq!(pad("日", 4, Side::Right), "  日");
        assert_eq!(pad("a", 3, Side::Left), "a  ");
        let marks = format!("a{}b", "\u{301}".repeat(100));
        assert_eq!(cut(&marks, 2), "\u{fffd}b");
    }

    #[test]
    fn sentences_are_wrapped_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("immeasurable", 5), ["imme…"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn the_last_columns_are_left_out_of_narrow_tables() {
        let columns = [
            Column::text("TOOL", 4),
            Column::number("CALLS", 5),
            Column::number("P95", 3),
        ];
        let row = |width| table_row(&columns, &["read", "12", "3"], width);
        assert_eq!(row(14), "read    12   3");
        assert_eq!(row(16), "read      12   3");
        assert_eq!(row(13), "read       12");
        assert_eq!(row(5), "read ");
        assert_eq!(row(2), "r…");
    }
}
