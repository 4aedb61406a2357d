//! A packed file of a very small model, with deterministic pseudo-random weights.

use std::collections::HashMap;

/// Pieces of the vocabulary, with the four marks first.
pub(crate) const PIECES: [(&str, f32); 20] = [
    ("<s>", 0.0),
    ("<pad>", 0.0),
    ("</s>", 0.0),
    ("<unk>", 0.0),
    ("\u{2581}", -3.0),
    ("\u{2581}hello", -6.5),
    ("\u{2581}he", -5.0),
    ("llo", -5.5),
    ("h", -7.0),
    ("e", -6.0),
    ("l", -6.25),
    ("o", -6.5),
    ("\u{e9}", -8.0),
    ("f", -8.5),
    ("i", -8.25),
    ("\u{2581}日", -7.5),
    ("本", -7.75),
    ("<", -9.0),
    ("s>", -9.5),
    ("<mask>", 0.0),
];

/// Replaced characters with their replacements.
const REPLACED: [(u32, &str); 5] = [
    (0x01, ""),
    (0x09, " "),
    (0x2581, " "),
    (0xfb01, "fi"),
    (0xff48, "h"),
];

pub(crate) const HIDDEN: usize = 64;
pub(crate) const LAYERS: usize = 2;
pub(crate) const HEADS: usize = 4;
pub(crate) const INNER: usize = 96;
pub(crate) const WORDS: usize = 24;
pub(crate) const POSITIONS: usize = 16;

/// The file, and its weights as floats.
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) weights: HashMap<String, Vec<f64>>,
}

/// A linear congruential generator with Knuth's constants.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u16 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u16::try_from(self.0 >> 48).unwrap()
    }

    /// Returns the bytes of a 4-bit block and its decoded weights.
    fn block(&mut self) -> (Vec<u8>, Vec<f64>) {
        let mantissa = self.next() & 0x3ff;
        let scale = (1.0 + f64::from(mantissa) / 1024.0) / 32.0;
        let mut bytes = ((10 << 10) | mantissa).to_le_bytes().to_vec();
        let nibbles = (0..32).map(|_| self.next() & 15).collect::<Vec<_>>();
        bytes.extend((0..16).map(|i| u8::try_from(nibbles[i] | (nibbles[i + 16] << 4)).unwrap()));
        let weights = nibbles.iter().map(|n| (f64::from(*n) - 8.0) * scale);
        (bytes, weights.collect())
    }

    fn float(&mut self, middle: f32) -> f32 {
        middle + (f32::from(self.next()) / 65_536.0 - 0.5) / 2.0
    }
}

pub(crate) fn sample() -> Sample {
    let mut bytes = b"E5S1".to_vec();
    let words = |numbers: &[usize]| {
        let numbers = numbers.iter().map(|n| u32::try_from(*n).unwrap());
        numbers.flat_map(u32::to_le_bytes).collect::<Vec<_>>()
    };
    bytes.extend(words(&[
        1, HIDDEN, LAYERS, HEADS, INNER, WORDS, POSITIONS, 2,
    ]));
    bytes.extend(1e-12_f32.to_le_bytes());
    bytes.extend(words(&[32, PIECES.len(), 0, 2, 1, 3]));
    let blob = PIECES.map(|(piece, _)| piece).concat();
    bytes.extend((blob.len() as u64).to_le_bytes());
    let mut start = 0;
    for (piece, _) in PIECES {
        bytes.extend(words(&[start]));
        start += piece.len();
    }
    bytes.extend(words(&[start]));
    bytes.extend(PIECES.iter().flat_map(|(_, score)| score.to_le_bytes()));
    bytes.extend(blob.as_bytes());
    let mut table = Vec::new();
    for (code_point, text) in REPLACED {
        table.extend(code_point.to_le_bytes());
        table.push(u8::try_from(text.chars().count()).unwrap());
        table.extend(text.chars().flat_map(|c| u32::from(c).to_le_bytes()));
    }
    bytes.extend(words(&[REPLACED.len(), table.len()]));
    bytes.extend(table);
    with_tensors(bytes)
}

fn with_tensors(mut bytes: Vec<u8>) -> Sample {
    let mut random = Random(7);
    let mut weights = HashMap::new();
    let mut tensors = Vec::new();
    for (name, count, packed) in names() {
        let mut data = Vec::new();
        let mut floats = Vec::new();
        if packed {
            for _ in 0..count / 32 {
                let (block, values) = random.block();
                data.extend(block);
                floats.extend(values);
            }
        } else {
            let middle = if name.ends_with("ln.w") { 1.0 } else { 0.0 };
            for _ in 0..count {
                let float = random.float(middle);
                data.extend(float.to_le_bytes());
                floats.push(f64::from(float));
            }
        }
        weights.insert(name.clone(), floats);
        tensors.push((name, count, packed, data));
    }
    let list = tensors
        .iter()
        .map(|tensor| tensor.0.len() + 23)
        .sum::<usize>();
    let mut start = (bytes.len() + 4 + list).next_multiple_of(64);
    bytes.extend(u32::try_from(tensors.len()).unwrap().to_le_bytes());
    for (name, count, packed, data) in &tensors {
        bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.push((*packed).into());
        bytes.extend(u32::try_from(*count).unwrap().to_le_bytes());
        bytes.extend((start as u64).to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        start = (start + data.len()).next_multiple_of(64);
    }
    for (.., data) in tensors {
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes.extend(data);
    }
    Sample { bytes, weights }
}

/// Returns the name of each tensor, its number of weights, and whether they are packed.
fn names() -> Vec<(String, usize, bool)> {
    let mut names = vec![
        ("emb.word".to_owned(), WORDS * HIDDEN, true),
        ("emb.pos".to_owned(), POSITIONS * HIDDEN, false),
        ("emb.type".to_owned(), 2 * HIDDEN, false),
        ("emb.ln.w".to_owned(), HIDDEN, false),
        ("emb.ln.b".to_owned(), HIDDEN, false),
    ];
    for layer in 0..LAYERS {
        for (part, rows, columns) in [
            ("q", HIDDEN, HIDDEN),
            ("k", HIDDEN, HIDDEN),
            ("v", HIDDEN, HIDDEN),
            ("ao", HIDDEN, HIDDEN),
            ("fi", INNER, HIDDEN),
            ("fo", HIDDEN, INNER),
        ] {
            names.push((format!("l{layer}.{part}.w"), rows * columns, true));
            names.push((format!("l{layer}.{part}.b"), rows, false));
        }
        for part in ["aln.w", "aln.b", "oln.w", "oln.b"] {
            names.push((format!("l{layer}.{part}"), HIDDEN, false));
        }
    }
    names
}
