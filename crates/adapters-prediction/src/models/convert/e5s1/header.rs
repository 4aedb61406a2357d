//! Parser of the header of an `E5S1` file.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use super::super::super::bert_layout::{self, BertSizes};
use super::super::super::field_reader::{FieldError, FieldReader};
use super::super::super::gguf::ByteStrings;
use super::super::super::gguf::block::{BLOCK, BlockForm};
use super::super::{ConvertError, piece_type};

#[derive(Debug)]
pub(super) struct E5s1 {
    pub(super) sizes: BertSizes,
    pub(super) marks: SpecialTokens,
    pub(super) pieces: ByteStrings,
    pub(super) scores: Vec<f32>,
    pub(super) types: Vec<u32>,
    pub(super) code_points: Vec<u32>,
    pub(super) lengths: Vec<u32>,
    pub(super) replacements: Vec<u32>,
    pub(super) directory: HashMap<String, TensorLocation>,
}

/// Numbers of the special pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpecialTokens {
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) padding: u32,
    pub(super) unknown: u32,
}

/// Location of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorLocation {
    pub(super) form: BlockForm,
    pub(super) weights: u64,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// The reason why the header cannot be read.
#[derive(Debug)]
pub(super) enum HeaderError {
    Field(FieldError),
    Content(String),
}

impl HeaderError {
    /// Converts the error, with the path of the file.
    pub(super) fn of(self, path: &Path) -> ConvertError {
        match self {
            Self::Field(error) => ConvertError::field(path, error),
            Self::Content(reason) => ConvertError::content(path, reason),
        }
    }
}

impl From<FieldError> for HeaderError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

fn wrong<T>(reason: String) -> Result<T, HeaderError> {
    Err(HeaderError::Content(reason))
}

pub(super) fn read<R: Read>(reader: &mut FieldReader<R>) -> Result<E5s1, HeaderError> {
    if &reader.array::<4>("the first four bytes")? != b"E5S1" {
        return wrong("it does not begin with E5S1".to_owned());
    }
    let version = reader.u32("the version")?;
    if version != 1 {
        return wrong(format!("it has version {version}, not 1"));
    }
    let sizes = read_sizes(reader)?;
    let count = reader.u32("the number of pieces")?;
    let marks = read_marks(reader, count)?;
    if u64::from(count) > sizes.words as u64 {
        return wrong(format!(
            "it has {count} pieces, but only {} rows",
            sizes.words
        ));
    }
    let (pieces, scores) = read_pieces(reader, count)?;
    let types = types_of(&pieces, marks);
    let (code_points, lengths, replacements) = read_replacements(reader)?;
    Ok(E5s1 {
        sizes,
        marks,
        pieces,
        scores,
        types,
        code_points,
        lengths,
        replacements,
        directory: read_directory(reader)?,
    })
}

fn read_sizes<R: Read>(reader: &mut FieldReader<R>) -> Result<BertSizes, HeaderError> {
    let mut size = |what: &'static str| {
        let number = reader.u32(what)?;
        bert_layout::size_of(number.into())
            .map_or_else(|| wrong(format!("{what} is out of range: {number}")), Ok)
    };
    let sizes = BertSizes {
        hidden: size("the length of vectors")?,
        layers: size("the number of layers")?,
        heads: size("the number of heads")?,
        feed_forward: size("the length of inner vectors")?,
        words: size("the number of rows of the word table")?,
        positions: size("the number of positions")?,
        token_types: size("the number of token types")?,
        epsilon: reader.f32("the epsilon")?,
    };
    let block = reader.u32("the size of blocks")?;
    if block as usize != BLOCK {
        return wrong(format!("its blocks have {block} weights, not {BLOCK}"));
    }
    sizes
        .check()
        .map_err(|error| HeaderError::Content(error.to_string()))?;
    Ok(sizes)
}

fn read_marks<R: Read>(
    reader: &mut FieldReader<R>,
    count: u32,
) -> Result<SpecialTokens, HeaderError> {
    let mut mark = |what: &'static str| {
        let number = reader.u32(what)?;
        if number < count {
            Ok(number)
        } else {
            wrong(format!(
                "{what} is {number}, but there are only {count} pieces"
            ))
        }
    };
    Ok(SpecialTokens {
        begin: mark("the number of the begin mark")?,
        end: mark("the number of the end mark")?,
        padding: mark("the number of the padding mark")?,
        unknown: mark("the number of the unknown piece")?,
    })
}

/// Returns the pieces and their scores.
fn read_pieces<R: Read>(
    reader: &mut FieldReader<R>,
    count: u32,
) -> Result<(ByteStrings, Vec<f32>), HeaderError> {
    const WHAT: &str = "the pieces";
    let length = reader.u64("the length of the pieces")?;
    let starts = reader.words(
        u64::from(count) + 1,
        u32::from_le_bytes,
        "the starts of the pieces",
    )?;
    if starts.first() != Some(&0) || starts.last().map(|end| u64::from(*end)) != Some(length) {
        return wrong(format!("its pieces do not fill their {length} bytes"));
    }
    let scores = reader.words(count.into(), f32::from_le_bytes, "the scores")?;
    if let Some(piece) = scores.iter().position(|score| !score.is_finite()) {
        return wrong(format!("the score of piece {piece} is not finite"));
    }
    let bytes = reader.bytes(length, WHAT)?;
    let mut pieces = ByteStrings::default();
    for (piece, ends) in starts.windows(2).enumerate() {
        let text = bytes.get(ends[0] as usize..ends[1] as usize);
        match text.map(std::str::from_utf8) {
            Some(Ok(text)) if pieces.push(text.as_bytes()) => {}
            _ => return wrong(format!("piece {piece} is not a valid text")),
        }
    }
    Ok((pieces, scores))
}

/// Returns the types of the pieces. `<mask>` is a mark without a number in the header.
fn types_of(pieces: &ByteStrings, marks: SpecialTokens) -> Vec<u32> {
    let mut types = pieces
        .iter()
        .map(|piece| {
            if piece == b"<mask>" {
                piece_type::CONTROL
            } else {
                piece_type::NORMAL
            }
        })
        .collect::<Vec<_>>();
    for (mark, kind) in [
        (marks.begin, piece_type::CONTROL),
        (marks.end, piece_type::CONTROL),
        (marks.padding, piece_type::CONTROL),
        (marks.unknown, piece_type::UNKNOWN),
    ] {
        if let Some(entry) = types.get_mut(mark as usize) {
            *entry = kind;
        }
    }
    types
}

type Replacements = (Vec<u32>, Vec<u32>, Vec<u32>);

fn read_replacements<R: Read>(reader: &mut FieldReader<R>) -> Result<Replacements, HeaderError> {
    const WHAT: &str = "the table of replacements";
    let count = reader.u32(WHAT)?;
    let bytes = u64::from(reader.u32(WHAT)?);
    let end = reader.position() + bytes;
    let (mut code_points, mut lengths, mut replacements) = Replacements::default();
    // The smallest entry: a code point (4 bytes) and a length (1).
    for entry in 0..reader.room_for(count.into(), 5, WHAT)? {
        let code_point = reader.u32(WHAT)?;
        if code_points.last().is_some_and(|last| *last >= code_point) {
            return wrong(format!("{WHAT} is not in order at its entry {entry}"));
        }
        let length = reader.u8(WHAT)?;
        let characters = reader.words(length.into(), u32::from_le_bytes, WHAT)?;
        if let Some(number) = std::iter::once(&code_point)
            .chain(&characters)
            .find(|number| char::from_u32(**number).is_none())
        {
            return wrong(format!("{WHAT} has {number:#x}, which is not a character"));
        }
        code_points.push(code_point);
        lengths.push(length.into());
        replacements.extend(characters);
    }
    if reader.position() == end {
        Ok((code_points, lengths, replacements))
    } else {
        wrong(format!("{WHAT} does not have the expected {bytes} bytes"))
    }
}

fn read_directory<R: Read>(
    reader: &mut FieldReader<R>,
) -> Result<HashMap<String, TensorLocation>, HeaderError> {
    const WHAT: &str = "the list of tensors";
    let count = reader.u32(WHAT)?;
    let mut directory = HashMap::new();
    // The smallest entry: the length of the name (2 bytes), the form (1), the number of weights
    // (4), the start (8), and the size (8).
    for _ in 0..reader.room_for(count.into(), 23, WHAT)? {
        let length = reader.u16(WHAT)?;
        let Ok(name) = String::from_utf8(reader.bytes(length.into(), WHAT)?) else {
            return wrong(format!("{WHAT} has a name that is not UTF-8"));
        };
        let form = match reader.u8(WHAT)? {
            0 => BlockForm::F32,
            1 => BlockForm::Q4,
            other => return wrong(format!("tensor {name} has the unknown form {other}")),
        };
        let place = TensorLocation {
            form,
            weights: reader.u32(WHAT)?.into(),
            start: reader.u64(WHAT)?,
            bytes: reader.u64(WHAT)?,
        };
        directory.insert(name, place);
    }
    Ok(directory)
}
