//! Names that look like another one.

use super::words::words;

/// Returns the positions of the `n` names nearest to `name`, nearest first, without those that
/// have little in common with it.
///
/// Names are compared by the Jaro-Winkler similarity of their lower-case text and by the share of
/// their parts (words) that they have in common, whichever is larger.
#[must_use]
pub fn nearest_names(name: &str, names: &[&str], n: usize) -> Vec<usize> {
    /// Names below this have little in common.
    const MIN_SIMILARITY: f64 = 0.75;
    /// Longer names are compared by their beginning.
    const MAX_CHARS: usize = 200;
    let cut = |text: &str| -> String {
        text.chars()
            .take(MAX_CHARS)
            .collect::<String>()
            .to_lowercase()
    };
    let wanted = (cut(name), words(&cut_case(name, MAX_CHARS)));
    let mut near: Vec<(f64, usize)> = (names.iter().enumerate())
        .map(|(at, other)| {
            let written = strsim::jaro_winkler(&wanted.0, &cut(other));
            let parts = shared(&wanted.1, &words(&cut_case(other, MAX_CHARS)));
            (written.max(parts), at)
        })
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| names[a.1].cmp(names[b.1])));
    near.into_iter().take(n).map(|(_, at)| at).collect()
}

fn cut_case(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

/// Returns the share of the parts of both that they have in common (Dice coefficient).
fn shared(a: &[String], b: &[String]) -> f64 {
    let n = a.len() + b.len();
    if n == 0 {
        return 0.0;
    }
    let both = a.iter().filter(|part| b.contains(part)).count();
    super::lexical::as_f64(2 * both) / super::lexical::as_f64(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["read_file", "write_file", "list_directory", "sendEmail"];

    #[test]
    fn misspelt_and_rearranged_names_are_found() {
        let first = |name: &str| nearest_names(name, &NAMES, 1);
        assert_eq!(first("readfile"), [0]);
        assert_eq!(first("file_read"), [0]);
        assert_eq!(first("send_email"), [3]);
        assert_eq!(first("list_directoy"), [2]);
        assert!(nearest_names("zzz", &NAMES, 3).is_empty());
        assert!(nearest_names("", &NAMES, 3).is_empty());
    }
}
