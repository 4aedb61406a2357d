//! Makes one form out of the many in which a text can be written: compatibility characters are
//! replaced, accents joined with their letters, and runs of spaces made one.

use std::borrow::Cow;

use tokenizers::NormalizedString;

/// What stands for a space: the first character of pieces that begin a word.
const SPACE: char = '\u{2581}';

/// From here on there are characters that join with others.
const FIRST_COMBINING: char = '\u{300}';

/// By how much a text may be longer than what it becomes: beyond it, it is cut.
const SHRINKAGE: usize = 4;

/// Which characters are replaced by which, as it stands in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replacements {
    /// The characters that are replaced, in ascending order.
    pub(crate) code_points: Vec<u32>,
    /// By how many characters each is replaced.
    pub(crate) lengths: Vec<u32>,
    /// By which characters, one replacement after the other.
    pub(crate) characters: Vec<u32>,
}

impl Replacements {
    /// Returns each character with its replacement.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the table.
    pub(crate) fn entries(&self) -> Result<Vec<(char, String)>, String> {
        let character =
            |number: &u32| char::from_u32(*number).ok_or(format!("{number:#x} is no character"));
        if self.lengths.len() != self.code_points.len() {
            return Err(format!(
                "{} characters have {} replacements",
                self.code_points.len(),
                self.lengths.len()
            ));
        }
        if !self.code_points.is_sorted_by(|one, next| one < next) {
            return Err("the characters that are replaced are not in order".to_owned());
        }
        let mut rest = self.characters.as_slice();
        let mut entries = Vec::with_capacity(self.code_points.len());
        for (code_point, length) in self.code_points.iter().zip(&self.lengths) {
            let Some((text, after)) = rest.split_at_checked(*length as usize) else {
                return Err("replacements are missing".to_owned());
            };
            let text = text.iter().map(character).collect::<Result<_, _>>()?;
            entries.push((character(code_point)?, text));
            rest = after;
        }
        if rest.is_empty() {
            Ok(entries)
        } else {
            Err(format!("{} characters replace nothing", rest.len()))
        }
    }
}

/// The table, made for looking up.
#[derive(Debug)]
pub(crate) struct Normalizer {
    replaced: Vec<char>,
    ends: Vec<usize>,
    text: String,
}

impl Normalizer {
    /// Makes the table.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(crate) fn new(replacements: &Replacements) -> Result<Self, String> {
        let mut normalizer = Self {
            replaced: Vec::new(),
            ends: Vec::new(),
            text: String::new(),
        };
        for (character, replacement) in replacements.entries()? {
            normalizer.replaced.push(character);
            normalizer.text.push_str(&replacement);
            normalizer.ends.push(normalizer.text.len());
        }
        Ok(normalizer)
    }

    /// Returns a text in its normal form, with [`SPACE`] before each word.
    ///
    /// It is cut where it has `most` bytes.
    pub(super) fn apply(&self, text: &str, most: usize) -> String {
        let text = &text[..text.floor_char_boundary(most.saturating_mul(SHRINKAGE))];
        let mut normal = String::with_capacity(most.min(text.len() + text.len() / 4));
        let mut space = true;
        for character in composed(text).chars() {
            match self.replacement(character) {
                Some(replacement) => {
                    for character in replacement.chars() {
                        append(&mut normal, &mut space, character);
                    }
                }
                None => append(&mut normal, &mut space, character),
            }
            if normal.len() >= most {
                break;
            }
        }
        normal.truncate(normal.floor_char_boundary(most));
        normal
    }

    fn replacement(&self, character: char) -> Option<&str> {
        if (' '..='~').contains(&character) {
            return None;
        }
        let index = self.replaced.binary_search(&character).ok()?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..self.ends[index]])
    }
}

/// Spaces are kept back until a word follows, so that there are none at the end.
fn append(normal: &mut String, space: &mut bool, character: char) {
    if character == ' ' || character == SPACE {
        *space = true;
        return;
    }
    if std::mem::take(space) {
        normal.push(SPACE);
    }
    normal.push(character);
}

/// Joins letters with the accents that follow them. The table has single characters only.
fn composed(text: &str) -> Cow<'_, str> {
    if text.chars().all(|character| character < FIRST_COMBINING) {
        return Cow::Borrowed(text);
    }
    let mut composed = NormalizedString::from(text);
    composed.nfc();
    Cow::Owned(composed.get().to_owned())
}
