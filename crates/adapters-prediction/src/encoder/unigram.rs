//! The Unigram tokenizer of `SentencePiece`, in a form that needs little memory.
//!
//! The vocabulary of multilingual models has 250,000 pieces. The `tokenizers` crate takes 285 MB
//! for it. A double array and the scores take 6 MB, and are built in a fraction of a second.
//!
//! A text is normalised, and its spaces become part of the pieces. It is then split into pieces so
//! that the sum of their scores is maximal. Each run of characters outside all pieces is one
//! unknown piece. Marks such as `</s>` are never found in texts.

mod double_array;
mod normalizer;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use double_array::{DoubleArray, TrieError};
pub(crate) use normalizer::{Normalizer, Replacements, ReplacementsError};

use crate::models::convert::{key, piece_type};
use crate::models::gguf::reader::{Gguf, GgufError};
use crate::models::gguf::{ByteStrings, HeaderValue};

/// Difference between the score of an unknown character and the worst score of a piece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A vocabulary as stored in a file.
#[derive(Clone, Debug)]
pub(crate) struct Vocabulary {
    /// The pieces, by their number.
    pub(crate) pieces: ByteStrings,
    /// Logarithms of their probabilities.
    pub(crate) scores: Vec<f32>,
    /// Types of the pieces.
    pub(crate) types: Vec<u32>,
    /// The mark of the beginning.
    pub(crate) begin: u32,
    /// The mark of the end.
    pub(crate) end: u32,
    /// The padding mark.
    pub(crate) padding: u32,
    /// The piece for unknown text.
    pub(crate) unknown: u32,
    /// Normalization of characters.
    pub(crate) replacements: Replacements,
}

/// The reason why a vocabulary is invalid.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum VocabularyError {
    /// The parts have different lengths.
    #[error("it has {pieces} pieces, {scores} scores and {types} types")]
    Lengths {
        /// The number of pieces.
        pieces: usize,
        /// The number of scores.
        scores: usize,
        /// The number of types.
        types: usize,
    },
    /// A score is not finite.
    #[error("the score of piece {0} is not finite")]
    Score(usize),
    /// A mark has no piece.
    #[error("mark {mark} is out of range: there are {pieces} pieces")]
    Mark {
        /// The number of the mark.
        mark: u32,
        /// The number of pieces.
        pieces: usize,
    },
    /// The pieces are invalid.
    #[error(transparent)]
    Pieces(#[from] TrieError),
    /// The replacements are invalid.
    #[error(transparent)]
    Replacements(#[from] ReplacementsError),
}

impl Vocabulary {
    /// Takes the vocabulary out of a file.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError::Content`] when the vocabulary is missing or incomplete.
    pub(crate) fn take(gguf: &mut Gguf) -> Result<Self, GgufError> {
        let wrong = |reason: String| GgufError::Content(reason);
        match gguf.value(key::MODEL) {
            Some(HeaderValue::Text(model)) if model == "t5" => {}
            other => return Err(wrong(format!("{} is {other:?}, not t5", key::MODEL))),
        }
        let mark = |key: &str| {
            u32::try_from(gguf.integer(key)?)
                .map_err(|_| wrong(format!("{key} is not the number of a piece")))
        };
        let (begin, end) = (mark(key::BEGIN)?, mark(key::END)?);
        let (padding, unknown) = (mark(key::PADDING)?, mark(key::UNKNOWN)?);
        let Some(HeaderValue::Texts(pieces)) = gguf.take(key::TOKENS) else {
            return Err(wrong(format!("{} is not a list of texts", key::TOKENS)));
        };
        let Some(HeaderValue::Floats(scores)) = gguf.take(key::SCORES) else {
            return Err(wrong(format!("{} is not a list of numbers", key::SCORES)));
        };
        let mut integers = |key: &str| match gguf.take(key) {
            Some(HeaderValue::Integers(integers)) => Ok(integers),
            _ => Err(wrong(format!("{key} is not a list of whole numbers"))),
        };
        Ok(Self {
            pieces,
            scores,
            types: integers(key::TYPES)?,
            begin,
            end,
            padding,
            unknown,
            replacements: Replacements {
                code_points: integers(key::NORMALIZED)?,
                lengths: integers(key::LENGTHS)?,
                characters: integers(key::REPLACEMENTS)?,
            },
        })
    }

    fn check(&self) -> Result<(), VocabularyError> {
        let count = self.pieces.len();
        if self.scores.len() != count || self.types.len() != count {
            return Err(VocabularyError::Lengths {
                pieces: count,
                scores: self.scores.len(),
                types: self.types.len(),
            });
        }
        if let Some(piece) = self.scores.iter().position(|score| !score.is_finite()) {
            return Err(VocabularyError::Score(piece));
        }
        for mark in [self.begin, self.end, self.padding, self.unknown] {
            if mark as usize >= count {
                return Err(VocabularyError::Mark {
                    mark,
                    pieces: count,
                });
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Unigram {
    pieces: DoubleArray,
    scores: Vec<f32>,
    unknown_score: f64,
    longest: usize,
    begin: u32,
    end: u32,
    unknown: u32,
    normalizer: Normalizer,
}

impl Unigram {
    /// Builds the tokenizer of a vocabulary.
    ///
    /// # Errors
    ///
    /// Returns the problem if the vocabulary is invalid.
    pub(crate) fn new(vocabulary: Vocabulary) -> Result<Self, VocabularyError> {
        vocabulary.check()?;
        let mut entries = Vec::with_capacity(vocabulary.pieces.len());
        let mut longest = 1;
        for (number, (piece, kind)) in (0..).zip(vocabulary.pieces.iter().zip(&vocabulary.types)) {
            // Marks are left out, so that no text can contain them.
            if *kind == piece_type::NORMAL {
                entries.push((piece, number));
                longest = longest.max(piece.len());
            }
        }
        let pieces = DoubleArray::build(&mut entries)?;
        let worst = vocabulary.scores.iter().copied().fold(0.0, f32::min);
        Ok(Self {
            pieces,
            unknown_score: f64::from(worst) - UNKNOWN_PENALTY,
            scores: vocabulary.scores,
            longest,
            begin: vocabulary.begin,
            end: vocabulary.end,
            unknown: vocabulary.unknown,
            normalizer: Normalizer::new(&vocabulary.replacements)?,
        })
    }

    /// Returns the size of the vocabulary. All token numbers are below it.
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    /// Returns the tokens of a text between the marks of beginning and end, at most `most`.
    ///
    /// The text is truncated to the length that this number of the longest pieces can cover. The
    /// cost is linear in this length.
    pub(crate) fn encode(&self, text: &str, most: usize) -> Vec<u32> {
        let content = most.saturating_sub(2);
        let normal = self
            .normalizer
            .apply(text, content.saturating_mul(self.longest));
        let mut tokens = vec![self.begin];
        tokens.extend(self.segment(&normal).into_iter().take(content));
        tokens.push(self.end);
        tokens
    }
}
