//! The pieces of memory that a pool consists of: one for all of its tensors, or one for each.

use rdma_core::RemoteMemory;
use rdma_core::error::RangeError;

use crate::kv::layout::Layout;

/// Pieces by the offset in the pool at which they begin. No tensor lies in two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kv) struct Pieces<T> {
    of: Box<[(u64, T)]>,
    /// Whether one piece has the whole pool, with all of its tensors.
    whole: bool,
}

impl<T> Pieces<T> {
    /// A single piece with the whole pool.
    pub(in crate::kv) fn one(piece: T) -> Self {
        Self { of: [(0, piece)].into(), whole: true }
    }

    /// A piece for each tensor of the layout.
    pub(in crate::kv) fn each(layout: &Layout, pieces: impl IntoIterator<Item = T>) -> Self {
        let of = layout.tensors().map(|tensor| tensor.offset).zip(pieces).collect();
        Self { of, whole: false }
    }

    pub(in crate::kv) fn is_one(&self) -> bool {
        self.whole
    }

    /// The piece that has the byte at an offset of the pool, and the offset in the piece.
    #[inline]
    pub(in crate::kv) fn at(&self, offset: u64) -> Option<(&T, u64)> {
        let (start, piece) = match &*self.of {
            [only] => only,
            pieces => pieces.get(pieces.partition_point(|(start, _)| *start <= offset).checked_sub(1)?)?,
        };
        Some((piece, offset - start))
    }

    pub(in crate::kv) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.of.iter().map(|(_, piece)| piece)
    }

    /// Other values for the same pieces, in their order.
    pub(in crate::kv) fn with<U>(&self, pieces: impl IntoIterator<Item = U>) -> Pieces<U> {
        let of = self.of.iter().map(|(start, _)| *start).zip(pieces).collect();
        Pieces { of, whole: self.whole }
    }

    pub(in crate::kv) fn map<U>(&self, mut of: impl FnMut(&T) -> U) -> Pieces<U> {
        let of = self.of.iter().map(|(start, piece)| (*start, of(piece))).collect();
        Pieces { of, whole: self.whole }
    }
}

impl Pieces<RemoteMemory> {
    /// The pieces, as long as the layout has them: nothing behind a tensor is the peer's to use.
    pub(in crate::kv) fn with_lengths(self, layout: &Layout) -> Self {
        if self.is_one() {
            return self.map(|piece| RemoteMemory { len: layout.bytes(), ..*piece });
        }
        let lengths = layout.tensors().map(|tensor| tensor.len);
        self.with(self.iter().zip(lengths).map(|(piece, len)| RemoteMemory { len, ..*piece }))
    }

    /// The bytes of a peer's pool from `offset` on, which lie in one tensor.
    #[inline]
    pub(in crate::kv) fn slice(&self, offset: u64, len: u64) -> Result<RemoteMemory, RangeError> {
        let out = RangeError { start: offset, end: offset.saturating_add(len), len: 0 };
        let (piece, start) = self.at(offset).ok_or(out)?;
        piece.slice(start..start.checked_add(len).ok_or(out)?)
    }
}
