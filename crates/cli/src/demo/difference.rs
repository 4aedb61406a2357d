//! A line-by-line difference of two texts, from their longest common subsequence.

/// The largest number of lines of a text. The table of lengths has a cell for each pair of lines.
const MAX_LINES: usize = 1_000;

/// A text has too many lines to be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("texts may have {MAX_LINES} lines at most")]
pub(super) struct TooManyLines;

/// Returns every line with a mark: `-` for lines that only `before` has, `+` for lines that only
/// `after` has, and a blank for common ones.
///
/// # Errors
///
/// Returns [`TooManyLines`] if a text has more than [`MAX_LINES`] lines.
pub(super) fn difference(before: &str, after: &str) -> Result<String, TooManyLines> {
    let before: Vec<&str> = before.lines().collect();
    let after: Vec<&str> = after.lines().collect();
    if before.len().max(after.len()) > MAX_LINES {
        return Err(TooManyLines);
    }
    if before == after {
        return Ok("no difference".into());
    }
    let common = common_lengths(&before, &after);
    let mut lines = Vec::with_capacity(before.len() + after.len());
    let (mut old, mut new) = (0, 0);
    while old < before.len() || new < after.len() {
        let (mark, line) = match (before.get(old), after.get(new)) {
            (Some(removed), Some(added)) if removed == added => (' ', removed),
            (Some(removed), Some(_)) if common[old + 1][new] >= common[old][new + 1] => {
                ('-', removed)
            }
            (_, Some(added)) => ('+', added),
            (Some(removed), None) => ('-', removed),
            (None, None) => break,
        };
        lines.push(format!("{mark}{line}"));
        old += usize::from(mark != '+');
        new += usize::from(mark != '-');
    }
    Ok(lines.join("\n"))
}

/// Returns the lengths of the longest common subsequences: cell `[i][j]` is the length for
/// `before[i..]` and `after[j..]`.
fn common_lengths(before: &[&str], after: &[&str]) -> Vec<Vec<u32>> {
    let mut lengths = vec![vec![0; after.len() + 1]; before.len() + 1];
    for old in (0..before.len()).rev() {
        for new in (0..after.len()).rev() {
            lengths[old][new] = if before[old] == after[new] {
                lengths[old + 1][new + 1] + 1
            } else {
                lengths[old + 1][new].max(lengths[old][new + 1])
            };
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_lines_stay_and_the_others_are_marked() {
        assert_eq!(
            difference("a\nb\nc\nd", "a\nc\nx\nd"),
            Ok(" a\n-b\n c\n+x\n d".into())
        );
        assert_eq!(difference("", "a"), Ok("+a".into()));
        assert_eq!(difference("a\nb", ""), Ok("-a\n-b".into()));
        assert_eq!(difference("a", "a"), Ok("no difference".into()));
        assert!(difference(&"x\n".repeat(MAX_LINES + 1), "").is_err());
    }
}
