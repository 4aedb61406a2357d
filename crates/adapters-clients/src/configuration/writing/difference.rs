//! The changed lines of a text.

use std::ops::Range;

/// The number of equal lines before and after a change.
const N_CONTEXT: usize = 3;
/// The maximum number of pairs of lines that are compared.
const MAX_PAIRS: usize = 4_000_000;

/// The lines of a text that a part of a difference is about, as the head of the part names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// The number of the first line, from 1; of the line before, if there are no lines.
    pub first: usize,
    /// The number of lines.
    pub count: usize,
}

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffLine {
    /// The head of the lines that follow.
    Header {
        /// The lines of the old text.
        old: LineRange,
        /// The lines of the new text.
        new: LineRange,
    },
    /// A line that both texts have.
    Equal(String),
    /// A line of the old text only.
    Removed(String),
    /// A line of the new text only.
    Added(String),
}

impl LineRange {
    /// Creates the range of lines with these positions, from 0.
    #[must_use]
    pub fn of(positions: &Range<usize>) -> Self {
        Self {
            first: positions.start + usize::from(!positions.is_empty()),
            count: positions.len(),
        }
    }
}

impl std::fmt::Display for LineRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.first, self.count)
    }
}

impl std::fmt::Display for DiffLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header { old, new } => write!(f, "@@ -{old} +{new} @@"),
            Self::Equal(line) => write!(f, " {line}"),
            Self::Removed(line) => write!(f, "-{line}"),
            Self::Added(line) => write!(f, "+{line}"),
        }
    }
}

/// A place where the texts differ.
struct Change {
    old: Range<usize>,
    new: Range<usize>,
}

/// Returns the difference of two texts; nothing if they are equal.
pub(super) fn diff(old: &str, new: &str) -> Vec<DiffLine> {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let show = |line: &&str| line.trim_end_matches(['\r', '\n']).to_owned();
    let equal = |line: &&str| DiffLine::Equal(show(line));
    let mut lines = Vec::new();
    let changes = changes(&old, &new);
    // Changes whose lines around touch are one part.
    let touch = |one: &Change, next: &Change| next.old.start - one.old.end <= 2 * N_CONTEXT;
    for part in changes.chunk_by(touch) {
        let (Some(first), Some(last)) = (part.first(), part.last()) else {
            continue;
        };
        let n_before = first.old.start.min(N_CONTEXT);
        let n_after = (old.len() - last.old.end).min(N_CONTEXT);
        let in_old = first.old.start - n_before..last.old.end + n_after;
        let in_new = first.new.start - n_before..last.new.end + n_after;
        lines.push(DiffLine::Header {
            old: LineRange::of(&in_old),
            new: LineRange::of(&in_new),
        });
        // The line of the old text up to which all is shown.
        let mut shown = in_old.start;
        for change in part {
            lines.extend(old[shown..change.old.start].iter().map(equal));
            let removed = old[change.old.clone()].iter();
            lines.extend(removed.map(|line| DiffLine::Removed(show(line))));
            let added = new[change.new.clone()].iter();
            lines.extend(added.map(|line| DiffLine::Added(show(line))));
            shown = change.old.end;
        }
        lines.extend(old[shown..in_old.end].iter().map(equal));
    }
    lines
}

/// Returns the changes between two lists of lines, in their order.
fn changes(old: &[&str], new: &[&str]) -> Vec<Change> {
    let n_before = old
        .iter()
        .zip(new)
        .take_while(|(one, other)| one == other)
        .count();
    let n_shorter = old.len().min(new.len()) - n_before;
    let ends = old.iter().rev().zip(new.iter().rev()).take(n_shorter);
    let n_after = ends.take_while(|(one, other)| one == other).count();
    let middle = Change {
        old: n_before..old.len() - n_after,
        new: n_before..new.len() - n_after,
    };
    if middle.old.is_empty() && middle.new.is_empty() {
        return Vec::new();
    }
    if middle.old.len().saturating_mul(middle.new.len()) > MAX_PAIRS {
        return vec![middle];
    }
    common_subsequence(old, new, &middle)
}

/// Splits a change at the lines of a longest common subsequence.
fn common_subsequence(old: &[&str], new: &[&str], middle: &Change) -> Vec<Change> {
    let (old_lines, new_lines) = (&old[middle.old.clone()], &new[middle.new.clone()]);
    let width = new_lines.len() + 1;
    // The length for the rests of both lists that begin at a pair of lines.
    let mut lengths = vec![0_u32; (old_lines.len() + 1) * width];
    for (row, one) in old_lines.iter().enumerate().rev() {
        for (column, other) in new_lines.iter().enumerate().rev() {
            let (here, below) = (row * width + column, (row + 1) * width + column);
            lengths[here] = if one == other {
                lengths[below + 1] + 1
            } else {
                lengths[below].max(lengths[here + 1])
            };
        }
    }
    let mut changes: Vec<Change> = Vec::new();
    let (mut row, mut column) = (0, 0);
    let (mut old_start, mut new_start) = (0, 0);
    loop {
        let is_end = row == old_lines.len() && column == new_lines.len();
        let is_equal = !is_end && old_lines.get(row) == new_lines.get(column);
        if is_end || is_equal {
            if row > old_start || column > new_start {
                changes.push(Change {
                    old: middle.old.start + old_start..middle.old.start + row,
                    new: middle.new.start + new_start..middle.new.start + column,
                });
            }
            if is_end {
                return changes;
            }
            row += 1;
            column += 1;
            (old_start, new_start) = (row, column);
        } else if column == new_lines.len()
            || (row < old_lines.len()
                && lengths[(row + 1) * width + column] >= lengths[row * width + column + 1])
        {
            row += 1;
        } else {
            column += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(old: &str, new: &str) -> Vec<String> {
        diff(old, new).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changed_lines_are_shown_with_some_lines_around() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let expected = [
            "@@ -2,7 +2,8 @@",
            " 2",
            " 3",
            " 4",
            "-5",
            "+5 x",
            "+new",
            " 6",
            " 7",
            " 8",
        ];
        assert_eq!(lines(old, &old.replace("5\n", "5 x\nnew\n")), expected);
        assert!(diff(old, old).is_empty());
        assert_eq!(lines("", "a\n"), ["@@ -0,0 +1,1 @@", "+a"]);
        assert_eq!(lines("a\n", ""), ["@@ -1,1 +0,0 @@", "-a"]);
        let expected = ["@@ -1,3 +1,1 @@", " a", "-b", "-a"];
        assert_eq!(lines("a\nb\na\n", "a\n"), expected);
    }

    #[test]
    fn changes_that_are_far_apart_have_their_own_headers() {
        let numbers: Vec<String> = (1..=20).map(|number: u32| number.to_string()).collect();
        let old = numbers.join("\n") + "\n";
        let new = old.replace("\n2\n", "\n").replace("\n18\n", "\n18\n18b\n");
        let expected = [
            "@@ -1,5 +1,4 @@",
            " 1",
            "-2",
            " 3",
            " 4",
            " 5",
            "@@ -16,5 +15,6 @@",
            " 16",
            " 17",
            " 18",
            "+18b",
            " 19",
            " 20",
        ];
        assert_eq!(lines(&old, &new), expected);
        let near = old.replace("\n2\n", "\n").replace("\n6\n", "\n6b\n");
        let headers = lines(&old, &near)
            .into_iter()
            .filter(|line| line.starts_with('@'));
        assert_eq!(headers.count(), 1);
    }
}
