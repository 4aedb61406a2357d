//! Conversion of a Unigram vocabulary to the `tokenizer.json` of the `tokenizers` library.

use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NFC, Precompiled, Replace, Sequence};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

use super::super::piece_type;
use crate::encoder::unigram::{DoubleArray, Replacements, Vocabulary, VocabularyError};

/// Returns the content of the file.
///
/// # Errors
///
/// Returns the problem if the vocabulary is invalid.
pub(super) fn of(vocabulary: &Vocabulary) -> tokenizers::Result<String> {
    let names = vocabulary
        .pieces
        .iter()
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .collect::<Vec<_>>();
    let name = |mark: u32| {
        let pieces = names.len();
        let name = names.get(mark as usize).cloned();
        name.ok_or(VocabularyError::Mark { mark, pieces })
    };
    let (begin, end) = (name(vocabulary.begin)?, name(vocabulary.end)?);
    let marks = names
        .iter()
        .zip(&vocabulary.types)
        .filter(|(_, kind)| **kind != piece_type::NORMAL)
        .map(|(name, _)| AddedToken::from(name.clone(), true))
        .collect::<Vec<_>>();
    let scored = names
        .into_iter()
        .zip(vocabulary.scores.iter().copied().map(f64::from))
        .collect();
    let model = Unigram::from(scored, Some(vocabulary.unknown as usize), false)?;
    let template = TemplateProcessing::builder()
        .try_single(format!("{begin} $A {end}"))
        .and_then(|builder| builder.try_pair(format!("{begin} $A {end} {end} $B {end}")))?
        .special_tokens(vec![(begin, vocabulary.begin), (end, vocabulary.end)])
        .build()?;

    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(normalizer(&vocabulary.replacements)?))?
        .with_pre_tokenizer(Some(Metaspace::new(
            '\u{2581}',
            PrependScheme::Always,
            true,
        )))
        .with_post_processor(Some(template));
    tokenizer.add_special_tokens(marks)?;
    tokenizer.to_string(false)
}

fn normalizer(replacements: &Replacements) -> tokenizers::Result<Sequence> {
    let table = Precompiled::from(&character_map(replacements)?)?;
    let replace =
        |pattern: &str, text: &str| Replace::new(ReplacePattern::Regex(pattern.to_owned()), text);
    Ok(Sequence::new(vec![
        NFC.into(),
        table.into(),
        replace(" {2,}", " ")?.into(),
        replace("^ | $", "")?.into(),
    ]))
}

/// Returns the table of replacements in the format of `SentencePiece`: the length of a trie, the
/// trie, and the replacements, each terminated by a zero byte.
fn character_map(replacements: &Replacements) -> tokenizers::Result<Vec<u8>> {
    let mut texts = Vec::new();
    let mut keys = Vec::new();
    for (character, replacement) in replacements.entries()? {
        let start = u32::try_from(texts.len())?;
        keys.push((character.to_string(), start));
        texts.extend_from_slice(replacement.as_bytes());
        texts.push(0);
    }
    let mut entries = keys
        .iter()
        .map(|(key, start)| (key.as_bytes(), *start))
        .collect::<Vec<_>>();
    let trie = DoubleArray::build(&mut entries)?;
    let length = u32::try_from(trie.units().len() * 4)?;
    let mut map = length.to_le_bytes().to_vec();
    map.extend(trie.units().iter().flat_map(|unit| unit.to_le_bytes()));
    map.extend(texts);
    Ok(map)
}
