//! What is done to the elements of an operation.

use crate::collective::ReduceError;
use crate::collective::{DataType, ReduceOp, Reduction};

/// How two operands become one.
#[derive(Debug, Clone, Copy)]
pub(in crate::collective) struct Arithmetic {
    pub(in crate::collective) data_type: DataType,
    pub(in crate::collective) op: ReduceOp,
    pub(in crate::collective) ranks: u32,
}

impl Arithmetic {
    /// `out = out op source`, and `last` what is done once at the end.
    #[inline]
    pub(in crate::collective::execute) fn reduce_into(
        self,
        out: &mut [u8],
        source: &[u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        self.reduction().reduce_into(out, &[source])?;
        self.finish(out, last)
    }

    /// `out = left op right`, and `last` what is done once at the end.
    pub(in crate::collective::execute) fn reduce(
        self,
        out: &mut [u8],
        left: &[u8],
        right: &[u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        self.reduction().reduce(out, &[left, right])?;
        self.finish(out, last)
    }

    /// What is done once at the end, by itself: the sum has been rounded once a hop.
    #[inline]
    pub(in crate::collective::execute) fn finish(
        self,
        out: &mut [u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        if last && self.has_an_end() {
            self.reduction().over(self.ranks).reduce_into(out, &[])
        } else {
            Ok(())
        }
    }

    /// Whether something is done once at the end.
    #[inline]
    pub(in crate::collective::execute) fn has_an_end(self) -> bool {
        self.op == ReduceOp::Avg
    }

    /// Whether tile by tile is as fast: half precision is converted faster in longer runs.
    #[inline]
    pub(in crate::collective::execute) fn goes_by_tiles(self) -> bool {
        !matches!(self.data_type, DataType::F16 | DataType::Bf16)
    }

    #[inline]
    pub(in crate::collective::execute) fn reduction(self) -> Reduction {
        Reduction::new(self.data_type, self.op)
    }
}
