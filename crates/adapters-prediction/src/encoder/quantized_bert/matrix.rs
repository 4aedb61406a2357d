//! A quantized matrix, which is converted to floats for each multiplication.

use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor};
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use super::source::{LoadError, TensorSource};
use crate::models::gguf::block::BlockForm;

/// Rows per unit of parallel conversion.
const ROWS_AT_ONCE: usize = 96;

/// A linear map: a matrix, whose rows are the components of the result, and a bias.
pub(super) struct Matrix {
    form: BlockForm,
    bytes: Vec<u8>,
    rows: usize,
    columns: usize,
    bias: Tensor,
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Matrix")
            .field("form", &self.form)
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl Matrix {
    /// Reads matrices with the same number of columns and concatenates their rows. Their tensors
    /// are `NAME.weight` and `NAME.bias`.
    pub(super) fn load(
        source: &TensorSource,
        names: &[String],
        columns: usize,
    ) -> Result<Self, LoadError> {
        let weights = names.iter().map(|name| format!("{name}.weight"));
        let weights = weights.collect::<Vec<_>>();
        let weights = weights.iter().map(String::as_str).collect::<Vec<_>>();
        let (form, bytes) = source.blocks(&weights)?;
        let biases = names
            .iter()
            .map(|name| source.floats(&format!("{name}.bias")))
            .collect::<Result<Vec<_>, _>>()?;
        let bias = Tensor::cat(&biases, 0)?;
        Ok(Self {
            form,
            bytes,
            rows: bias.dim(0)?,
            columns,
            bias,
        })
    }

    /// Applies the map to each row of `states`. `buffer` must have at least as many floats as the
    /// matrix.
    pub(super) fn apply(&self, states: &Tensor, buffer: &Tensor) -> candle_core::Result<Tensor> {
        let weights = buffer
            .narrow(0, 0, self.rows * self.columns)?
            .reshape((self.rows, self.columns))?;
        weights.inplace_op1(&Expand(self))?;
        // With the small matrix on the right, the large one is not packed a second time.
        weights.matmul(&states.t()?)?.t()?.broadcast_add(&self.bias)
    }
}

/// Writes the weights of a matrix into a tensor.
struct Expand<'a>(&'a Matrix);

impl InplaceOp1 for Expand<'_> {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let matrix = self.0;
        let CpuStorage::F32(weights) = storage else {
            candle_core::bail!("the buffer has no floats");
        };
        let target = layout
            .contiguous_offsets()
            .and_then(|(start, end)| weights.get_mut(start..end));
        let row_bytes = matrix.bytes.len() / matrix.rows.max(1);
        let Some(target) = target.filter(|target| target.len() == matrix.rows * matrix.columns)
        else {
            candle_core::bail!("the buffer has not the size of the matrix");
        };
        target
            .par_chunks_mut(ROWS_AT_ONCE * matrix.columns)
            .zip(matrix.bytes.par_chunks(ROWS_AT_ONCE * row_bytes))
            .for_each(|(weights, bytes)| matrix.form.expand(bytes, weights));
        Ok(())
    }
}
