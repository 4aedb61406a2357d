//! Text normalization: replaces compatibility characters, composes letters with their accents, and
//! collapses spaces.

use std::borrow::Cow;

use tokenizers::NormalizedString;

/// The character for a space, with which pieces at the start of a word begin.
const SPACE: char = '\u{2581}';

/// The first combining character. Below it, no character composes with others.
const FIRST_COMBINING: char = '\u{300}';

/// Maximum ratio between the length of a text and its normal form. A longer text is truncated.
const MAX_SHRINKAGE: usize = 4;

/// Replacements of characters, as stored in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replacements {
    /// The replaced characters, ascending.
    pub(crate) code_points: Vec<u32>,
    /// The length of each replacement in characters.
    pub(crate) lengths: Vec<u32>,
    /// The concatenated replacements.
    pub(crate) characters: Vec<u32>,
}

/// The reason why a table of replacements is invalid.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReplacementsError {
    /// A number is not a character.
    #[error("{0:#x} is not a character")]
    Character(u32),
    /// There are more or fewer replacements than characters.
    #[error("{characters} characters have {replacements} replacements")]
    Count {
        /// The number of replaced characters.
        characters: usize,
        /// The number of replacements.
        replacements: usize,
    },
    /// The replaced characters do not ascend.
    #[error("the replaced characters are not in order")]
    Order,
    /// The text of a replacement is missing.
    #[error("replacements are missing")]
    Missing,
    /// There is more text than the replacements have.
    #[error("{0} characters of the replacements are not used")]
    Unused(usize),
}

impl Replacements {
    /// Returns each character with its replacement.
    ///
    /// # Errors
    ///
    /// Returns the problem if the table is invalid.
    pub(crate) fn entries(&self) -> Result<Vec<(char, String)>, ReplacementsError> {
        let character =
            |number: &u32| char::from_u32(*number).ok_or(ReplacementsError::Character(*number));
        if self.lengths.len() != self.code_points.len() {
            return Err(ReplacementsError::Count {
                characters: self.code_points.len(),
                replacements: self.lengths.len(),
            });
        }
        if !self.code_points.is_sorted_by(|one, next| one < next) {
            return Err(ReplacementsError::Order);
        }
        let mut rest = self.characters.as_slice();
        let mut entries = Vec::with_capacity(self.code_points.len());
        for (code_point, length) in self.code_points.iter().zip(&self.lengths) {
            let Some((text, after)) = rest.split_at_checked(*length as usize) else {
                return Err(ReplacementsError::Missing);
            };
            let text = text.iter().map(character).collect::<Result<_, _>>()?;
            entries.push((character(code_point)?, text));
            rest = after;
        }
        if rest.is_empty() {
            Ok(entries)
        } else {
            Err(ReplacementsError::Unused(rest.len()))
        }
    }
}

/// The table in a form for lookups.
#[derive(Debug)]
pub(crate) struct Normalizer {
    replaced: Vec<char>,
    ends: Vec<usize>,
    text: String,
}

impl Normalizer {
    /// Builds the table.
    ///
    /// # Errors
    ///
    /// Returns the problem if the table is invalid.
    pub(crate) fn new(replacements: &Replacements) -> Result<Self, ReplacementsError> {
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

    /// Returns the normal form of a text, with [`SPACE`] before each word.
    ///
    /// The result is truncated to `most` bytes.
    pub(super) fn apply(&self, text: &str, most: usize) -> String {
        let text = &text[..text.floor_char_boundary(most.saturating_mul(MAX_SHRINKAGE))];
        let mut normal = String::with_capacity(most.min(text.len() + text.len() / 4));
        let mut space = true;
        for character in compose(text).chars() {
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

/// Appends a character. Spaces are delayed until a word follows, so that there are none at the end.
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

/// Composes letters with the accents after them, because the table has only single characters.
fn compose(text: &str) -> Cow<'_, str> {
    if text.chars().all(|character| character < FIRST_COMBINING) {
        return Cow::Borrowed(text);
    }
    let mut composed = NormalizedString::from(text);
    composed.nfc();
    Cow::Owned(composed.get().to_owned())
}
