//! Where the elements of an operation lie: slices that are borrowed, or memory that is registered.

mod registered;

use std::ops::Range;

use rdma_core::memory::{CacheHint, copy_slice};
use rdma_core::{AttachedRange, Deadline, ProtectionDomain, RemoteKey, RemoteMemory};

use crate::collective::call::{Lengths, Origins};
use crate::collective::communicator::{PIECE_BYTES, Scratch};
use crate::collective::schedule::{Source, Span};
use crate::collective::{DataType, ReduceError, ReduceOp, Reduction};
use crate::link::Lane;
use crate::link::mailbox::{HEADER_BYTES, Inbox, Outbox};

pub(in crate::collective) use registered::{RegisteredBuffer, RegisteredBuffers};

/// A message that has arrived.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) inbox: &'a Inbox,
    pub(super) number: u64,
}

/// What is put.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) source: Source,
    pub(super) span: Span,
    /// It is known that none follows.
    pub(super) last: bool,
}

/// What a run reads from and writes to.
pub(super) trait Buffers {
    /// Puts a piece into the mailbox, which is ready.
    fn put(
        &mut self,
        outbox: &mut Outbox,
        lane: &mut Lane,
        header: Option<&[u8; HEADER_BYTES]>,
        piece: Piece,
    ) -> bool;

    /// `output[span] = input[span] op message`, and `last` what is done once at the end: piece by piece, so that what is read is still in the processor's cache
    /// when it is reduced.
    fn reduce_from(
        &mut self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError>;

    /// `out = input[span] op message`, otherwise as [`reduce_from`](Self::reduce_from): for what is sent on and has no room in
    /// the output.
    fn reduce_to(
        &self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError>;

    /// `output[span] = message`.
    fn copy_from(&mut self, message: Message<'_>, span: Span);

    /// `output[span] = input[span]`, a part of what is expected so.
    fn copy(&mut self, span: Span, expect: CacheHint);

    /// `out = input[span]`.
    fn read(&self, span: Span, out: &mut [u8]);

    /// `input[span]` where it lies, or in `room`.
    fn view<'b>(&'b self, span: Span, room: &'b mut [u8]) -> &'b [u8];

    /// `out = output[span]`.
    fn read_output(&self, span: Span, out: &mut [u8]);

    /// `output[span] = bytes`.
    fn write(&mut self, span: Span, bytes: &[u8]);

    /// `output[span] = input[span] op theirs`, and `last` what is done once at the end; gives the result. There is room for it in `own`,
    /// if that is needed.
    fn combine<'b>(
        &'b mut self,
        span: Span,
        theirs: &[u8],
        own: &'b mut [u8],
        arithmetic: Arithmetic,
        last: bool,
    ) -> Result<&'b [u8], ReduceError>;

    /// `output[span]`, and `input[span]` if that is another, where they are slices.
    fn slices(&mut self, _span: Span) -> Option<(&mut [u8], Option<&[u8]>)> {
        None
    }

    /// Hands `input[span]` on, each part with its place in the span.
    fn read_in_pieces(&self, span: Span, scratch: &mut Scratch, with: impl FnMut(usize, &[u8]));

    /// Has `output[span]` filled, each part by its place in the span, and by where it is expected: the output as it is told, and
    /// what goes there from elsewhere in a cache.
    fn write_in_pieces(
        &mut self,
        span: Span,
        expect: CacheHint,
        scratch: &mut Scratch,
        with: impl FnMut(usize, &mut [u8], CacheHint),
    );

    /// Whether input and output are one.
    fn is_in_place(&self) -> bool;

    /// Where it lies when that is registered: it stays there until the operation has ended.
    fn range(&self, source: Source, span: Span) -> Option<AttachedRange>;

    /// Whether the device is done with what was put on the lane.
    fn is_sent(&mut self, lane: Option<&mut Lane>) -> bool;

    /// Lets the other ranks come to what is read of it and what is written, and tells where that is; `None` when they cannot.
    /// `origins` are those of buffers out of place.
    fn export(&mut self, _pd: &ProtectionDomain, _rights: Rights, _origins: Origins) -> Option<BufferAdvert> {
        None
    }

    /// No other rank comes to it any more; whether that is sure.
    fn revoke(&mut self, _deadline: Deadline) -> bool {
        true
    }

    /// The input and the output, when they are registered.
    fn places(&self) -> Option<[&RegisteredBuffer; 2]> {
        None
    }
}

/// Slices of the caller's.
pub(in crate::collective) enum Borrowed<'a> {
    InPlace(&'a mut [u8]),
    OutOfPlace { input: &'a [u8], output: &'a mut [u8], origins: Origins },
}

// A piece has whole elements of any type.
const _: () = assert!(PIECE_BYTES.is_multiple_of(size_of::<u64>()));

/// The pieces of `span`, each with its place in it.
fn pieces(span: Span) -> impl Iterator<Item = (usize, Span)> {
    (0..span.len).step_by(PIECE_BYTES).map(move |at| {
        let len = PIECE_BYTES.min(span.len - at);
        (at, Span { offset: span.offset + at, len })
    })
}

/// Where `span` lies in a buffer that begins at `origin`.
fn within(span: Span, origin: usize) -> Range<usize> {
    span.offset - origin..span.offset - origin + span.len
}

/// By the library's copy: the C library's is 16 times as slow on some processors where the target trails the source in its page.
fn copy_whole(from: &[u8], to: &mut [u8]) {
    debug_assert_eq!(from.len(), to.len());
    copy_slice(from, to, CacheHint::Cached);
}

impl<'a> Borrowed<'a> {
    pub(in crate::collective) fn out_of_place(input: &'a [u8], output: &'a mut [u8]) -> Self {
        Self::OutOfPlace { input, output, origins: Origins::default() }
    }

    pub(super) fn lengths(&self) -> Lengths {
        match self {
            Self::InPlace(buffer) => Lengths::InPlace(buffer.len()),
            Self::OutOfPlace { input, output, .. } => {
                Lengths::OutOfPlace { input: input.len(), output: output.len() }
            }
        }
    }

    /// The output, and where it begins.
    #[inline]
    fn output(&mut self) -> (&mut [u8], usize) {
        match self {
            Self::InPlace(output) => (output, 0),
            Self::OutOfPlace { output, origins, .. } => (output, origins.output),
        }
    }

    #[inline]
    fn source(&self, source: Source, span: Span) -> &[u8] {
        match (self, source) {
            (Self::OutOfPlace { output, origins, .. }, Source::Output) => {
                &output[within(span, origins.output)]
            }
            (Self::OutOfPlace { input, origins, .. }, _) => &input[within(span, origins.input)],
            (Self::InPlace(buffer), _) => &buffer[span.range()],
        }
    }
}

impl Buffers for Borrowed<'_> {
    fn put(
        &mut self,
        outbox: &mut Outbox,
        lane: &mut Lane,
        header: Option<&[u8; HEADER_BYTES]>,
        Piece { source, span, .. }: Piece,
    ) -> bool {
        outbox.put(lane, header, self.source(source, span))
    }

    fn reduce_from(
        &mut self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        let [piece, unused] = scratch;
        for (at, span) in pieces(span) {
            let piece = &mut piece[..span.len];
            message.inbox.read(message.number, at, piece);
            self.combine(span, piece, unused, arithmetic, last)?;
        }
        Ok(())
    }

    fn reduce_to(
        &self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        for (at, span) in pieces(span) {
            let piece = &mut scratch[0][..span.len];
            message.inbox.read(message.number, at, piece);
            arithmetic.reduce(&mut out[at..at + span.len], self.source(Source::Input, span), piece, last)?;
        }
        Ok(())
    }

    fn copy_from(&mut self, message: Message<'_>, span: Span) {
        let (output, origin) = self.output();
        for (at, span) in pieces(span) {
            message.inbox.read(message.number, at, &mut output[within(span, origin)]);
        }
    }

    fn copy(&mut self, span: Span, expect: CacheHint) {
        if let Self::OutOfPlace { input, output, origins } = self {
            let (from, to) = (within(span, origins.input), within(span, origins.output));
            copy_slice(&input[from], &mut output[to], expect);
        }
    }

    fn read(&self, span: Span, out: &mut [u8]) {
        copy_whole(self.source(Source::Input, span), out);
    }

    #[inline]
    fn view<'b>(&'b self, span: Span, _: &'b mut [u8]) -> &'b [u8] {
        self.source(Source::Input, span)
    }

    fn read_output(&self, span: Span, out: &mut [u8]) {
        copy_whole(self.source(Source::Output, span), out);
    }

    fn is_in_place(&self) -> bool {
        matches!(self, Self::InPlace(_))
    }

    fn range(&self, _: Source, _: Span) -> Option<AttachedRange> {
        None
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        let (output, origin) = self.output();
        copy_whole(bytes, &mut output[within(span, origin)]);
    }

    #[inline]
    fn combine<'b>(
        &'b mut self,
        span: Span,
        theirs: &[u8],
        _: &'b mut [u8],
        arithmetic: Arithmetic,
        last: bool,
    ) -> Result<&'b [u8], ReduceError> {
        match self {
            Self::InPlace(buffer) => {
                let out = &mut buffer[span.range()];
                arithmetic.reduce_into(out, theirs, last)?;
                Ok(out)
            }
            Self::OutOfPlace { input, output, origins } => {
                let out = &mut output[within(span, origins.output)];
                arithmetic.reduce(out, &input[within(span, origins.input)], theirs, last)?;
                Ok(out)
            }
        }
    }

    #[inline]
    fn slices(&mut self, span: Span) -> Option<(&mut [u8], Option<&[u8]>)> {
        Some(match self {
            Self::InPlace(buffer) => (&mut buffer[span.range()], None),
            Self::OutOfPlace { input, output, origins } => {
                let [from, to] = [origins.input, origins.output].map(|origin| within(span, origin));
                (&mut output[to], Some(&input[from]))
            }
        })
    }

    fn read_in_pieces(&self, span: Span, _: &mut Scratch, mut with: impl FnMut(usize, &[u8])) {
        with(0, self.source(Source::Input, span));
    }

    fn write_in_pieces(
        &mut self,
        span: Span,
        expect: CacheHint,
        _: &mut Scratch,
        mut with: impl FnMut(usize, &mut [u8], CacheHint),
    ) {
        let (output, origin) = self.output();
        with(0, &mut output[within(span, origin)], expect);
    }

    fn is_sent(&mut self, _: Option<&mut Lane>) -> bool {
        true
    }
}

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

/// Bytes of it in a message.
pub(in crate::collective::execute) const ADVERT_BYTES: usize = 24;

/// What the other ranks do with the memory of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective::execute) struct Rights {
    pub(in crate::collective::execute) read: bool,
    pub(in crate::collective::execute) write: bool,
}

/// Where it begins, and its key; 0 when there is nothing to be done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::execute) struct BufferAddress {
    pub(in crate::collective::execute) addr: u64,
    pub(in crate::collective::execute) rkey: u32,
}

/// Where the first elements of its input and of its output are; both 0 when its memory is borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::execute) struct BufferAdvert {
    pub(in crate::collective::execute) input: BufferAddress,
    pub(in crate::collective::execute) output: BufferAddress,
}

impl BufferAddress {
    /// All of it, which is `len` bytes long by what is called.
    pub(in crate::collective::execute) fn memory(self, len: usize) -> RemoteMemory {
        RemoteMemory { addr: self.addr, len: len as u64, rkey: RemoteKey(self.rkey) }
    }
}

impl BufferAdvert {
    pub(in crate::collective::execute) const BORROWED: Self =
        Self { input: BufferAddress { addr: 0, rkey: 0 }, output: BufferAddress { addr: 0, rkey: 0 } };

    /// Whether others cannot come to it.
    pub(in crate::collective::execute) fn is_borrowed(&self) -> bool {
        [self.input.rkey, self.output.rkey] == [0; 2]
    }

    /// Whether others store to it.
    pub(in crate::collective::execute) fn is_stored_to(&self) -> bool {
        self.output.rkey != 0
    }

    pub(in crate::collective::execute) fn encode(&self) -> [u8; ADVERT_BYTES] {
        let mut bytes = [0; ADVERT_BYTES];
        for (half, at) in bytes.chunks_exact_mut(ADVERT_BYTES / 2).zip([self.input, self.output]) {
            half[..8].copy_from_slice(&at.addr.to_le_bytes());
            half[8..].copy_from_slice(&at.rkey.to_le_bytes());
        }
        bytes
    }

    pub(in crate::collective::execute) fn decode(bytes: &[u8; ADVERT_BYTES]) -> Self {
        let at = |at: usize| {
            let (mut addr, mut rkey) = ([0; 8], [0; 4]);
            addr.copy_from_slice(&bytes[at..at + 8]);
            rkey.copy_from_slice(&bytes[at + 8..at + 12]);
            BufferAddress { addr: u64::from_le_bytes(addr), rkey: u32::from_le_bytes(rkey) }
        };
        Self { input: at(0), output: at(ADVERT_BYTES / 2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_none_is_borrowed() {
        let told = BufferAdvert {
            input: BufferAddress { addr: u64::MAX - 7, rkey: 9 },
            output: BufferAddress { addr: 1 << 40, rkey: u32::MAX },
        };
        assert_eq!(BufferAdvert::decode(&told.encode()), told);
        assert!(!told.is_borrowed() && BufferAdvert::default().is_borrowed());
        assert!(BufferAdvert::decode(&[0; ADVERT_BYTES]).is_borrowed());
    }
}
