//! Where the bytes of a message lie: in one piece, or in pieces at equal distances.

use super::Span;

/// One of the memories of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Buffer {
    /// What this rank contributes. In place, it is the output.
    Input,
    /// What this rank is to have.
    Output,
    /// The library's own, of bounded length; the operation's until its messages have arrived.
    Scratch,
}

/// Bytes of a buffer, in the order in which they are in a message.
///
/// They are pieces of one length at equal distances, and beyond the end of the buffer they go on at its beginning: the parts
/// of many ranks from any one on, in either direction, or every other block of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    buffer: Buffer,
    offset: usize,
    /// Bytes of a piece, at least 1.
    run: usize,
    /// From the beginning of a piece to that of the next.
    stride: usize,
    /// Where it goes on at 0; no piece lies across it.
    wrap: usize,
    /// Bytes of the pieces that are left out before the first, and bytes that are taken.
    skip: usize,
    len: usize,
}

impl Place {
    /// Bytes in one piece.
    pub(super) fn of(buffer: Buffer, Span { offset, len }: Span) -> Self {
        Self { buffer, offset, run: len.max(1), stride: 0, wrap: usize::MAX, skip: 0, len }
    }

    /// `len` bytes in pieces of `run`, the first one at `offset`, which is below `wrap`.
    pub(super) fn pieces(
        buffer: Buffer,
        offset: usize,
        [run, stride]: [usize; 2],
        wrap: usize,
        len: usize,
    ) -> Self {
        Self { buffer, offset, run: run.max(1), stride, wrap, skip: 0, len }
    }

    /// Some of these bytes.
    pub(crate) fn part(self, Span { offset, len }: Span) -> Self {
        debug_assert!(offset + len <= self.len);
        Self { skip: self.skip + offset, len, ..self }
    }

    /// The buffer that they are in.
    pub(crate) const fn buffer(&self) -> Buffer {
        self.buffer
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
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
            let at = (offset as u128 + piece as u128 * stride as u128) % wrap as u128;
            let taken = len.min(run - within);
            (skip, len) = (skip + taken, len - taken);
            // Below `wrap`, which is one.
            Some(Span { offset: at as usize + within, len: taken })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(place: Place) -> Vec<(usize, usize)> {
        place.spans().map(|Span { offset, len }| (offset, len)).collect()
    }

    #[test]
    fn pieces_go_around_in_either_direction_and_are_cut_anywhere() {
        let one = Place::of(Buffer::Input, Span { offset: 7, len: 5 });
        assert_eq!(spans(one), [(7, 5)]);
        assert_eq!(spans(one.part(Span { offset: 2, len: 3 })), [(9, 3)]);
        assert_eq!(spans(one.part(Span { offset: 5, len: 0 })), []);

        // Two bytes of each of four parts of ten, from the third part on.
        let around = Place::pieces(Buffer::Output, 21, [2, 10], 40, 8);
        assert_eq!(spans(around), [(21, 2), (31, 2), (1, 2), (11, 2)]);
        assert_eq!(
            spans(around.part(Span { offset: 3, len: 4 }).part(Span { offset: 1, len: 2 })),
            [(1, 2)],
            "a part of a part"
        );
        assert_eq!(spans(around.part(Span { offset: 3, len: 4 })), [(32, 1), (1, 2), (11, 1)]);

        let back = Place::pieces(Buffer::Output, 10, [10, 30], 40, 40);
        assert_eq!(spans(back), [(10, 10), (0, 10), (30, 10), (20, 10)]);

        let huge = Place::pieces(Buffer::Output, usize::MAX - 2, [1, usize::MAX - 2], usize::MAX - 1, 3);
        assert_eq!(huge.spans().count(), 3);
    }
}
