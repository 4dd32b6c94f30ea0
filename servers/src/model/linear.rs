//! Matrices that give a row the same bits whichever rows are beside it.
//!
//! A product of matrices is summed up in another order when it has another number of rows, so that a token would get
//! other bits alone than in a batch. Here every product has as many rows: rows that are missing are zero.

use anyhow::Result;
use candle_core::{Device, Tensor};

/// Rows of every product. Few, because a single token pays for all of them.
const ROWS: usize = 8;

/// A matrix that rows are multiplied by.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    /// A matrix of so many inputs and outputs; the weights of an input are adjacent.
    ///
    /// # Errors
    ///
    /// There are more or fewer weights.
    pub fn new(weights: Vec<f32>, inputs: usize, outputs: usize) -> Result<Self> {
        let weight = Tensor::from_vec(weights, (inputs, outputs), &Device::Cpu)?;
        Ok(Self { weight, inputs, outputs })
    }

    /// Multiplies rows, which lie one behind the other.
    ///
    /// # Errors
    ///
    /// The rows have another length, or there is no memory.
    pub fn apply(&self, rows: &[f32]) -> Result<Vec<f32>> {
        let mut outputs = Vec::with_capacity(rows.len() / self.inputs * self.outputs);
        for rows in rows.chunks(ROWS * self.inputs) {
            let mut padded = rows.to_vec();
            padded.resize(ROWS * self.inputs, 0.0);
            let product =
                Tensor::from_vec(padded, (ROWS, self.inputs), &Device::Cpu)?.matmul(&self.weight)?;
            let product = product.flatten_all()?.to_vec1::<f32>()?;
            let taken = rows.len() / self.inputs * self.outputs;
            outputs.extend(product.into_iter().take(taken));
        }
        Ok(outputs)
    }
}
