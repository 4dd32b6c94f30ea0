//! [`Reduction`]: the entry point of the kernels, with the checks of lengths and the choice between cached and
//! streamed stores.

use rdma_core::error::{RangeError, ReachError};
use rdma_core::memory::CacheHint;
use rdma_core::{PeerSlice, Region};

use super::kernels::{self, Job, KernelChoice, MutualReduction, Operand, PairReduction, Vectors};
use super::{DataType, ReduceOp};
use crate::collective::ReduceError;

/// A way to reduce bytes of elements: their type, the operation, and whether the bytes are in a cache.
///
/// Ranges may begin at any address. Operands are taken from the left to the right, in the order that they are given
/// in; floating point is not associative, so the result depends on it. What bits come out is in
/// [`numerics`](crate::collective::numerics).
///
/// ```
/// use rdma_collective::collective::{DataType, ReduceOp, Reduction};
///
/// let (one, two, three) = (1.5_f32.to_ne_bytes(), 2.0_f32.to_ne_bytes(), 4.0_f32.to_ne_bytes());
/// let mut out = [0; 4];
/// Reduction::new(DataType::F32, ReduceOp::Prod).reduce(&mut out, &[&one, &two, &three])?;
/// assert_eq!(out, 12.0_f32.to_ne_bytes());
/// # Ok::<(), rdma_collective::collective::ReduceError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Reduction {
    kernel: KernelChoice,
    ranks: Option<u32>,
    hint: CacheHint,
}

impl Reduction {
    /// A reduction that does not finish an average, and stores through the caches.
    pub fn new(data_type: DataType, op: ReduceOp) -> Self {
        let kernel = KernelChoice { vectors: Vectors::widest(), data_type, op };
        Self { kernel, ranks: None, hint: CacheHint::Cached }
    }

    /// Makes this the last reduction of its elements, after which they contain all `ranks`: an average is divided,
    /// other operations are unchanged.
    ///
    /// Either one rank divides before it sends the elements to the others, or all ranks divide the same sum; all
    /// ranks then have the same bits. 0 ranks count as 1.
    ///
    /// ```
    /// use rdma_collective::collective::{DataType, ReduceOp, Reduction};
    ///
    /// let mut out = (-8_i64).to_ne_bytes();
    /// Reduction::new(DataType::I64, ReduceOp::Avg).over(2).reduce_into(&mut out, &[&1_i64.to_ne_bytes()])?;
    /// assert_eq!(out, (-3_i64).to_ne_bytes());
    /// # Ok::<(), rdma_collective::collective::ReduceError>(())
    /// ```
    pub fn over(mut self, ranks: u32) -> Self {
        self.ranks = Some(ranks.max(1));
        self
    }

    /// Sets whether an output that is not an input bypasses the caches; right where several reductions together store
    /// more than the caches hold ([`CacheHint::of_total`]).
    ///
    /// The stores are fenced: a thread or a peer that sees a flag stored later also sees the output.
    pub fn with_cache_hint(mut self, hint: CacheHint) -> Self {
        self.hint = hint;
        self
    }

    /// Sets other vectors than the widest, for measurements and tests.
    pub fn with(mut self, vectors: Vectors) -> Self {
        self.kernel.vectors = vectors;
        self
    }

    /// `out[i] = out[i] op sources[0][i] op sources[1][i] op …`; without sources only an average is finished.
    ///
    /// # Errors
    /// [`ReduceError`] when the lengths differ or end inside an element; `out` is then untouched.
    #[inline]
    pub fn reduce_into(self, out: &mut [u8], sources: &[&[u8]]) -> Result<(), ReduceError> {
        self.check(out.len(), sources)?;
        if !sources.is_empty() || self.divisor().is_some() {
            self.carry_out(&mut Job { out, in_place: true, inputs: sources, streamed: false });
        }
        Ok(())
    }

    /// `out[i] = inputs[0][i] op inputs[1][i] op …`, which reads every input once and writes `out` once. A single
    /// input is copied.
    ///
    /// Types that are computed in a wider one are rounded once, after the last input.
    ///
    /// # Errors
    /// As for [`reduce_into`](Self::reduce_into), and [`ReduceError::NoInputs`].
    pub fn reduce(self, out: &mut [u8], inputs: &[&[u8]]) -> Result<(), ReduceError> {
        self.check(out.len(), inputs)?;
        let first = inputs.first().ok_or(ReduceError::NoInputs)?;
        if inputs.len() == 1 && self.divisor().is_none() {
            rdma_core::memory::copy_slice(first, out, self.hint);
            return Ok(());
        }
        self.carry_out(&mut Job { out, in_place: false, inputs, streamed: self.hint == CacheHint::Streamed });
        Ok(())
    }

    /// `out[i] = local[i] op peer[i]`, with the bytes at an offset of a peer's memory. Neither operand is copied
    /// first. Operands in the other order would give the same bits.
    ///
    /// # Errors
    ///
    /// Errors of [`PeerSlice::copy_out`], and also when `local` has too few bytes. The operands are then unchanged.
    pub(crate) fn reduce_peer(
        self,
        out: &mut [u8],
        local: Operand<'_>,
        (peer, at): (&mut PeerSlice<'_>, usize),
    ) -> Result<(), ReachError> {
        let len = out.len();
        peer.run(at, len, &mut PairReduction::new(out, Some(local), self.kernel)?)
    }

    /// A reduction to be run on memory `at`: `out[i] = local[i] op at[i]`, or without `local`, `out[i] = out[i] op
    /// at[i]`.
    ///
    /// # Errors
    ///
    /// [`ReduceError::LengthsDiffer`] when `local` has fewer bytes than `out`.
    #[inline]
    pub(crate) fn onto<'a>(
        self,
        out: &'a mut [u8],
        local: Option<&'a [u8]>,
    ) -> Result<PairReduction<'a>, ReduceError> {
        let (left, right) = (out.len(), local.map_or(0, <[u8]>::len));
        PairReduction::new(out, local.map(Operand::Slice), self.kernel)
            .map_err(|_| ReduceError::LengthsDiffer { left, right })
    }

    /// `out[i] = left[i] op right[i]`, of operands in slices or regions of this process; without `left`, `out[i] =
    /// out[i] op right[i]`.
    ///
    /// # Errors
    ///
    /// An operand has fewer bytes than `out`.
    pub(crate) fn reduce_near(
        self,
        out: &mut [u8],
        left: Option<Operand<'_>>,
        right: Operand<'_>,
    ) -> Result<(), RangeError> {
        PairReduction::new(out, left, self.kernel)?.with(right)
    }

    /// `local[i] = peer[i] = local[i] op peer[i]`, in one pass over both, of at most 256 KiB, which is done at once
    /// or not at all.
    ///
    /// The `bool` says whether the region holds the whole result. If it does although the peer refused the store, the
    /// peer must be given the result from the region, because the operand in the region is overwritten.
    ///
    /// # Errors
    ///
    /// Errors of [`PeerSlice::copy_out`] and of [`PeerSlice::copy_in`].
    pub(crate) fn reduce_both(
        self,
        local: (&Region, usize),
        (peer, at): (&mut PeerSlice<'_>, usize),
        len: usize,
    ) -> (bool, Result<(), ReachError>) {
        match MutualReduction::new(local, len, self.kernel) {
            Ok(mut both) => {
                let done = peer.run(at, len, &mut both);
                (both.is_made(), done)
            }
            Err(range) => (false, Err(range.into())),
        }
    }

    #[inline]
    fn check(self, bytes: usize, inputs: &[&[u8]]) -> Result<(), ReduceError> {
        let data_type = self.kernel.data_type;
        if let Some(input) = inputs.iter().find(|input| input.len() != bytes) {
            return Err(ReduceError::LengthsDiffer { left: bytes, right: input.len() });
        }
        if !bytes.is_multiple_of(data_type.size()) {
            return Err(ReduceError::PartialElement { bytes, data_type });
        }
        Ok(())
    }

    /// The number of ranks by which the sum is divided; `None` if this reduction does not finish an average.
    #[inline]
    fn divisor(self) -> Option<u32> {
        self.ranks.filter(|_| self.kernel.op == ReduceOp::Avg)
    }

    #[inline]
    fn carry_out(self, job: &mut Job<'_>) {
        let KernelChoice { vectors, data_type, op } = self.kernel;
        match self.divisor() {
            Some(ranks) => kernels::average(vectors, job, data_type, ranks),
            None => kernels::reduce(vectors, job, data_type, op),
        }
    }
}

#[cfg(test)]
mod tests;
