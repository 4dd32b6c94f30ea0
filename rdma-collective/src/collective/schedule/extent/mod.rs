//! Extents: the bytes of a message as they lie in a buffer, in one piece or in pieces at equal distances.
//!
//! Owns the arithmetic of offsets. Which memory a [`Buffer`] stands for is the executor's.

use super::Span;

/// A memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Buffer {
    /// The contribution of this rank. In place, it is the output.
    Input,
    /// The result of this rank.
    Output,
    /// Memory of the library, of bounded length. It belongs to the operation until the messages sent from it have
    /// arrived.
    Scratch,
    /// The send buffer of the next message to that rank. A step leaves the message there, whole, and the next
    /// [`Put`](super::Step::Put) to that rank sends it. A rank has at most one such message.
    Outgoing(u32),
}

/// A memory of the caller. In place, both are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// The contribution of this rank.
    Input,
    /// The result of this rank.
    Output,
}

/// Bytes of a buffer, in the order in which they are in a message.
///
/// The bytes are pieces of one length at equal distances, and wrap from the end of the buffer to its beginning. One
/// extent can therefore describe the parts of many ranks from any rank on, in either direction, or every other block
/// of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    buffer: Buffer,
    /// The first byte of the first piece.
    offset: usize,
    /// Bytes of a piece, at least 1.
    run: usize,
    /// Bytes from the beginning of a piece to the beginning of the next.
    stride: usize,
    /// The offset at which pieces go on at 0; no piece lies across it.
    wrap: usize,
    /// Bytes of the pieces that are left out before the first byte of this extent.
    skip: usize,
    /// Bytes of this extent.
    len: usize,
}

/// The shape of a strided [`Extent`], in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stride {
    /// Bytes of a piece.
    pub(super) run: usize,
    /// From the beginning of a piece to the beginning of the next.
    pub(super) stride: usize,
    /// The length of the buffer, at which pieces go on at 0.
    pub(super) wrap: usize,
}

impl Extent {
    /// A span of the input.
    pub(crate) const fn input(span: Span) -> Self {
        Self::of(Buffer::Input, span)
    }

    /// A span of the output.
    pub(crate) const fn output(span: Span) -> Self {
        Self::of(Buffer::Output, span)
    }

    /// The next message to rank `to`, of `len` bytes.
    pub(crate) const fn outgoing(to: u32, len: usize) -> Self {
        Self::of(Buffer::Outgoing(to), Span { offset: 0, len })
    }

    /// An extent of one piece.
    pub(crate) const fn of(buffer: Buffer, Span { offset, len }: Span) -> Self {
        Self { buffer, offset, run: if len > 0 { len } else { 1 }, stride: 0, wrap: usize::MAX, skip: 0, len }
    }

    /// `len` bytes in pieces, the first one at `offset`, which must be below `wrap`.
    pub(super) fn strided(buffer: Buffer, offset: usize, len: usize, shape: Stride) -> Self {
        let Stride { run, stride, wrap } = shape;
        Self { buffer, offset, run: run.max(1), stride, wrap, skip: 0, len }
    }

    /// `len` bytes of a buffer of `total` bytes, from `offset` on; behind the end they go on at 0.
    pub(super) fn around(buffer: Buffer, offset: usize, len: usize, total: usize) -> Self {
        let run = total - offset;
        match run {
            0 => Self::of(buffer, Span { offset: 0, len }),
            _ if len <= run => Self::of(buffer, Span { offset, len }),
            // Pieces as long as the first one, so that each begins where the one before ends.
            _ => Self::strided(buffer, offset, len, Stride { run, stride: run, wrap: total }),
        }
    }

    /// The bytes of this extent in `offset..offset + len`, counted in the order of the message.
    pub(crate) fn part(self, Span { offset, len }: Span) -> Self {
        debug_assert!(offset + len <= self.len);
        Self { skip: self.skip + offset, len, ..self }
    }

    /// The buffer that the bytes are in.
    pub(crate) const fn buffer(&self) -> Buffer {
        self.buffer
    }

    /// How many bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges of the buffer, in order; none of them is empty.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + use<> {
        let Self { offset, run, stride, wrap, mut skip, mut len, .. } = *self;
        std::iter::from_fn(move || {
            if len == 0 {
                return None;
            }
            let (piece, within) = (skip / run, skip % run);
            // In 128 bits, because a stride of a whole buffer times many pieces is beyond 64 (the test `huge`).
            let at = (offset as u128 + piece as u128 * stride as u128) % wrap as u128;
            let taken = len.min(run - within);
            (skip, len) = (skip + taken, len - taken);
            // The remainder is below `wrap`, which is a `usize`.
            Some(Span { offset: at as usize + within, len: taken })
        })
    }
}

#[cfg(test)]
mod tests;
