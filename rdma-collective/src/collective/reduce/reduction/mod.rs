//! What callers reduce by: the checks, and which part of the output is stored how.

use rdma_core::error::{RangeError, ReachError};
use rdma_core::memory::CacheHint;
use rdma_core::{PeerSlice, Region};

use super::kernels::{self, Alike, Both, How, Job, Operand, Vectors};
use super::{DataType, ReduceOp};
use crate::collective::ReduceError;

/// How the bytes of elements are reduced: their type, the operation, and what else is known.
///
/// Ranges may begin at any address. Operands are taken from the left to the right, in the order that they are given in;
/// floating point is not associative, so the result depends on it. What bits come out is in
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
    data_type: DataType,
    op: ReduceOp,
    ranks: Option<u32>,
    expect: CacheHint,
    vectors: Vectors,
}

impl Reduction {
    /// One that does not finish an average, of bytes that the caches hold.
    pub fn new(data_type: DataType, op: ReduceOp) -> Self {
        Self { data_type, op, ranks: None, expect: CacheHint::Cached, vectors: Vectors::widest() }
    }

    /// The last one of elements that are then reduced over all `ranks`: an average is divided, others are as they are.
    ///
    /// Either one rank does it before the others get the elements, or all do the same for themselves, so that all have the same
    /// bits. No ranks are taken as one.
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

    /// For one of several that store more together than the caches hold ([`CacheHint::of_total`]): an output that is not an
    /// input is then stored around them. Whoever sees a flag that is stored later sees it.
    pub fn with_cache_hint(mut self, expect: CacheHint) -> Self {
        self.expect = expect;
        self
    }

    /// By other vectors than the widest, for whoever measures or tests them.
    pub fn with(mut self, vectors: Vectors) -> Self {
        self.vectors = vectors;
        self
    }

    /// `out[i] = out[i] op sources[0][i] op sources[1][i] op …`; without sources it only finishes an average.
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

    /// `out[i] = inputs[0][i] op inputs[1][i] op …`, which reads every input once and writes `out` once; one input is copied.
    ///
    /// Types that are computed in a wider one are rounded once, after the last.
    ///
    /// # Errors
    /// As for [`reduce_into`](Self::reduce_into), and [`ReduceError::NoInputs`].
    pub fn reduce(self, out: &mut [u8], inputs: &[&[u8]]) -> Result<(), ReduceError> {
        self.check(out.len(), inputs)?;
        let first = inputs.first().ok_or(ReduceError::NoInputs)?;
        if inputs.len() == 1 && self.divisor().is_none() {
            rdma_core::memory::copy_slice(first, out, self.expect);
            return Ok(());
        }
        self.carry_out(&mut Job {
            out,
            in_place: false,
            inputs,
            streamed: self.expect == CacheHint::Streamed,
        });
        Ok(())
    }

    /// `out[i] = near[i] op peer[i]`, with what lies at an offset of a peer's memory. Neither operand is copied before; the other way
    /// round the bits would be the same.
    ///
    /// # Errors
    ///
    /// Those of [`PeerSlice::copy_out`], of `near` too, and nothing is lost.
    pub(crate) fn reduce_peer(
        self,
        out: &mut [u8],
        near: Operand<'_>,
        (peer, at): (&mut PeerSlice<'_>, usize),
    ) -> Result<(), ReachError> {
        let len = out.len();
        peer.run(at, len, &mut Both::new(out, near, self.how())?)
    }

    /// What makes `out[i] = near[i] op at[i]` of what it is run on; without `near`, `out[i] = out[i] op at[i]`.
    ///
    /// # Errors
    ///
    /// [`ReduceError::LengthsDiffer`] when `near` has fewer bytes than `out`.
    #[inline]
    pub(crate) fn onto<'a>(self, out: &'a mut [u8], near: Option<&'a [u8]>) -> Result<Both<'a>, ReduceError> {
        let Some(near) = near else { return Ok(Both::onto(out, self.how())) };
        let (left, right) = (out.len(), near.len());
        Both::new(out, Operand::Slice(near), self.how())
            .map_err(|_| ReduceError::LengthsDiffer { left, right })
    }

    /// `out[i] = left[i] op right[i]`, wherever they lie.
    ///
    /// # Errors
    ///
    /// Either has fewer bytes.
    pub(crate) fn reduce_near(
        self,
        out: &mut [u8],
        left: Operand<'_>,
        right: Operand<'_>,
    ) -> Result<(), RangeError> {
        Both::new(out, left, self.how())?.with(right)
    }

    /// `near[i] = peer[i] = near[i] op peer[i]`, in one pass over both, of 256 KiB at most, which is done at once or not at all.
    ///
    /// Whether the region has all that is made comes with it: a peer that refused is to have it from there then, since an operand is
    /// gone.
    ///
    /// # Errors
    ///
    /// Those of [`PeerSlice::copy_out`] and of [`PeerSlice::copy_in`].
    pub(crate) fn reduce_both(
        self,
        near: (&Region, usize),
        (peer, at): (&mut PeerSlice<'_>, usize),
        len: usize,
    ) -> (bool, Result<(), ReachError>) {
        match Alike::new(near, len, self.how()) {
            Ok(mut both) => {
                let done = peer.run(at, len, &mut both);
                (both.is_made(), done)
            }
            Err(range) => (false, Err(range.into())),
        }
    }

    fn how(self) -> How {
        let Self { vectors, data_type, op, .. } = self;
        How { vectors, data_type, op }
    }

    #[inline]
    fn check(self, bytes: usize, inputs: &[&[u8]]) -> Result<(), ReduceError> {
        let Self { data_type, .. } = self;
        if let Some(input) = inputs.iter().find(|input| input.len() != bytes) {
            return Err(ReduceError::LengthsDiffer { left: bytes, right: input.len() });
        }
        if !bytes.is_multiple_of(data_type.size()) {
            return Err(ReduceError::PartialElement { bytes, data_type });
        }
        Ok(())
    }

    /// By what the last sum is divided.
    #[inline]
    fn divisor(self) -> Option<u32> {
        self.ranks.filter(|_| self.op == ReduceOp::Avg)
    }

    #[inline]
    fn carry_out(self, job: &mut Job<'_>) {
        match self.divisor() {
            Some(ranks) => kernels::average(self.vectors, job, self.data_type, ranks),
            None => kernels::reduce(self.vectors, job, self.data_type, self.op),
        }
    }
}

#[cfg(test)]
mod tests;
