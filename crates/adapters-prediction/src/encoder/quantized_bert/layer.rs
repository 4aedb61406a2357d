//! A transformer layer: attention, then two linear maps. Each part is added to its input and
//! normalised.

use candle_core::Tensor;
use candle_nn::ops;
use riglm_domain::num::to_f64;

use super::matrix::Matrix;
use super::source::{LoadError, TensorSource};
use crate::models::bert_layout::BertSizes;

/// Layer normalization: mean 0 and variance 1, then scale and shift.
#[derive(Debug)]
pub(super) struct Norm {
    scale: Tensor,
    shift: Tensor,
    epsilon: f32,
}

impl Norm {
    /// Reads the tensors `NAME.weight` and `NAME.bias`.
    pub(super) fn load(
        source: &TensorSource,
        sizes: &BertSizes,
        name: &str,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            scale: source.floats(&format!("{name}.weight"))?,
            shift: source.floats(&format!("{name}.bias"))?,
            epsilon: sizes.epsilon,
        })
    }

    pub(super) fn apply(&self, states: &Tensor) -> candle_core::Result<Tensor> {
        ops::layer_norm(
            &states.contiguous()?,
            &self.scale,
            &self.shift,
            self.epsilon,
        )
    }
}

#[derive(Debug)]
pub(super) struct Layer {
    heads: usize,
    /// Queries, keys and values.
    attention_in: Matrix,
    attention_out: Matrix,
    attention_norm: Norm,
    up: Matrix,
    down: Matrix,
    norm: Norm,
}

impl Layer {
    /// Reads the layer with this index, from 0.
    pub(super) fn load(
        source: &TensorSource,
        sizes: &BertSizes,
        index: usize,
    ) -> Result<Self, LoadError> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let attention = ["attn_q", "attn_k", "attn_v"].map(name);
        Ok(Self {
            heads: sizes.heads,
            attention_in: Matrix::load(source, &attention, sizes.hidden)?,
            attention_out: Matrix::load(source, &[name("attn_output")], sizes.hidden)?,
            attention_norm: Norm::load(source, sizes, &name("attn_output_norm"))?,
            up: Matrix::load(source, &[name("ffn_up")], sizes.hidden)?,
            down: Matrix::load(source, &[name("ffn_down")], sizes.feed_forward)?,
            norm: Norm::load(source, sizes, &name("layer_output_norm"))?,
        })
    }

    /// Computes the layer. Each row of `states` is a token.
    pub(super) fn apply(&self, states: &Tensor, buffer: &Tensor) -> candle_core::Result<Tensor> {
        let attended = self.attend(states, buffer)?;
        let attended = self.attention_out.apply(&attended, buffer)?;
        let states = self.attention_norm.apply(&(attended + states)?)?;
        let inner = self.up.apply(&states, buffer)?.gelu_erf()?;
        let inner = self.down.apply(&inner, buffer)?;
        self.norm.apply(&(inner + &states)?)
    }

    fn attend(&self, states: &Tensor, buffer: &Tensor) -> candle_core::Result<Tensor> {
        let (tokens, hidden) = states.dims2()?;
        let size = hidden / self.heads;
        let mixed = self
            .attention_in
            .apply(states, buffer)?
            .reshape((tokens, 3, self.heads, size))?
            .permute((1, 2, 0, 3))?
            .contiguous()?;
        let (queries, keys, values) = (mixed.get(0)?, mixed.get(1)?, mixed.get(2)?);
        let scale = 1.0 / to_f64(size).sqrt();
        let scores = (queries.matmul(&keys.t()?)? * scale)?;
        ops::softmax_last_dim(&scores)?
            .matmul(&values)?
            .transpose(0, 1)?
            .reshape((tokens, hidden))
    }
}
