//! The buffers of an operation: slices that are borrowed, or memory that is registered.
//!
//! Executors name spans of bytes; this folder knows where the bytes are, and copies or reduces them. It also owns the
//! arithmetic of a reduction, and the advert by which a rank tells its peers where its registered memory is.

mod registered;

use std::ops::Range;

use rdma_core::memory::{CacheHint, copy_slice};
use rdma_core::{Deadline, ProtectionDomain, RemoteKey, RemoteMemory};

use crate::collective::call::{Lengths, Origins};
use crate::collective::communicator::{PIECE_BYTES, Scratch};
use crate::collective::reduce::Operand;
use crate::collective::schedule::{Source, Span};
use crate::collective::{DataType, ReduceError, ReduceOp, Reduction};
use crate::link::RangeOnRails;
use crate::link::mailbox::Inbox;

pub(in crate::collective) use registered::{RegisteredBuffer, RegisteredBuffers};

/// Bytes from which a message is reduced where it lies: a copy of fewer costs less.
const IN_PLACE_BYTES_MIN: usize = 1 << 10;

/// A message that has arrived.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) inbox: &'a Inbox,
    pub(super) number: u64,
}

/// The buffers that an executor reads from and writes to. All spans count from the first byte of the operation.
pub(super) trait Buffers {
    /// `output[span] = input[span] op message`; `last` finishes the reduction, such as the division of an average.
    ///
    /// The span is reduced piece by piece, so that the bytes of a message are still in the processor's cache.
    fn reduce_from(
        &mut self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError>;

    /// `output[span] = message`.
    fn copy_from(&mut self, message: Message<'_>, span: Span);

    /// `output[span] = input[span]`. `expect` says where the whole output is expected afterwards, because the span
    /// may be a small part of it.
    fn copy(&mut self, span: Span, expect: CacheHint);

    /// `out = input[span]`.
    fn read(&self, span: Span, out: &mut [u8]);

    /// `input[span]`: the borrowed slice, or a copy in `room`.
    fn view<'b>(&'b self, span: Span, room: &'b mut [u8]) -> &'b [u8];

    /// `out = output[span]`.
    fn read_output(&self, span: Span, out: &mut [u8]);

    /// `output[span] = bytes`.
    fn write(&mut self, span: Span, bytes: &[u8]);

    /// `output[span] = input[span] op theirs`, and returns the result. `last` finishes the reduction. Registered
    /// memory needs `own` as room for the result.
    fn combine<'b>(
        &'b mut self,
        span: Span,
        theirs: &[u8],
        own: &'b mut [u8],
        arithmetic: Arithmetic,
        last: bool,
    ) -> Result<&'b [u8], ReduceError>;

    /// `output[span]`, and `input[span]` if out of place; `None` if the buffers are not slices.
    fn slices(&mut self, _span: Span) -> Option<(&mut [u8], Option<&[u8]>)> {
        None
    }

    /// Passes `input[span]` to `with` in pieces, each with its offset in the span.
    fn read_in_pieces(&self, span: Span, scratch: &mut Scratch, with: impl FnMut(usize, &[u8]));

    /// Has `with` fill `output[span]` in pieces, each with its offset in the span and its cache hint.
    ///
    /// A slice of the output has the hint `expect`. A piece that is copied to the output afterwards is hinted to stay
    /// in a cache until then.
    fn write_in_pieces(
        &mut self,
        span: Span,
        expect: CacheHint,
        scratch: &mut Scratch,
        with: impl FnMut(usize, &mut [u8], CacheHint),
    );

    /// Whether input and output are the same memory.
    fn is_in_place(&self) -> bool;

    /// The registered range of a span, which stays until the operation has ended; `None` for borrowed memory.
    fn range(&self, source: Source, span: Span) -> Option<RangeOnRails>;

    /// Gives the peers `rights` to the memory, and returns its addresses; `None` if peers cannot reach it.
    ///
    /// `origins` are the first bytes of the operation that peers look for in the input and in the output.
    fn export(&mut self, _pd: &ProtectionDomain, _rights: Rights, _origins: Origins) -> Option<BufferAdvert> {
        None
    }

    /// Takes the peers' rights away, and returns whether that is certain.
    fn revoke(&mut self, _deadline: Deadline) -> bool {
        true
    }

    /// The input and the output, if they are registered.
    fn places(&self) -> Option<[&RegisteredBuffer; 2]> {
        None
    }
}

/// Buffers that are slices of the caller. No device uses them.
pub(in crate::collective) enum Borrowed<'a> {
    InPlace(&'a mut [u8]),
    OutOfPlace { input: &'a [u8], output: &'a mut [u8], origins: Origins },
}

// A piece must hold whole elements of any data type, because pieces are reduced one by one.
const _: () = assert!(PIECE_BYTES.is_multiple_of(size_of::<u64>()));

/// Cuts `span` into pieces, each with its offset in the span.
fn pieces(span: Span) -> impl Iterator<Item = (usize, Span)> {
    (0..span.len).step_by(PIECE_BYTES).map(move |at| {
        let len = PIECE_BYTES.min(span.len - at);
        (at, Span { offset: span.offset + at, len })
    })
}

/// The range of `span` in a buffer whose first byte is byte `origin` of the operation.
fn within(span: Span, origin: usize) -> Range<usize> {
    span.offset - origin..span.offset - origin + span.len
}

/// Copies a slice with the library's own copy. The C library's is 16 times as slow on some processors if the target
/// trails the source in its page.
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

    /// The output, and the byte of the operation at which it begins.
    #[inline]
    fn output(&mut self) -> (&mut [u8], usize) {
        match self {
            Self::InPlace(output) => (output, 0),
            Self::OutOfPlace { output, origins, .. } => (output, origins.output),
        }
    }

    /// The slice of a span of the input or output.
    #[inline]
    fn source(&self, source: Source, span: Span) -> &[u8] {
        match (self, source) {
            (Self::OutOfPlace { output, origins, .. }, Source::Output) => {
                &output[within(span, origins.output)]
            }
            (Self::OutOfPlace { input, origins, .. }, _) => &input[within(span, origins.input)],
            // In place, input and output are the same bytes, and the slice holds the operation from byte 0 on.
            (Self::InPlace(buffer), _) => &buffer[within(span, 0)],
        }
    }
}

impl Buffers for Borrowed<'_> {
    fn reduce_from(
        &mut self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        let [room, _] = scratch;
        for (at, span) in pieces(span) {
            let (out, left) = match self {
                Self::InPlace(buffer) => (&mut buffer[within(span, 0)], None),
                Self::OutOfPlace { input, output, origins } => {
                    let left = Operand::Slice(&input[within(span, origins.input)]);
                    (&mut output[within(span, origins.output)], Some(left))
                }
            };
            arithmetic.reduce_message((out, left), (message, at), room, last)?;
        }
        Ok(())
    }

    fn copy_from(&mut self, message: Message<'_>, span: Span) {
        let (output, origin) = self.output();
        // The library copies at most a piece at a time, for the reason given at `PIECE_BYTES`.
        for (at, span) in pieces(span) {
            message.inbox.read(message.number, at, &mut output[within(span, origin)]);
        }
    }

    fn copy(&mut self, span: Span, expect: CacheHint) {
        // In place, the bytes are already where they belong.
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

    fn range(&self, _: Source, _: Span) -> Option<RangeOnRails> {
        // The device must not read borrowed memory: it might still do so after the call has failed and returned.
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
                let out = &mut buffer[within(span, 0)];
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
            Self::InPlace(buffer) => (&mut buffer[within(span, 0)], None),
            Self::OutOfPlace { input, output, origins } => {
                let [from, to] = [origins.input, origins.output].map(|origin| within(span, origin));
                (&mut output[to], Some(&input[from]))
            }
        })
    }

    fn read_in_pieces(&self, span: Span, _: &mut Scratch, mut with: impl FnMut(usize, &[u8])) {
        // A slice needs no copy, so the whole span is one piece.
        with(0, self.source(Source::Input, span));
    }

    fn write_in_pieces(
        &mut self,
        span: Span,
        expect: CacheHint,
        _: &mut Scratch,
        mut with: impl FnMut(usize, &mut [u8], CacheHint),
    ) {
        // The writer fills the output itself, so the caller's hint holds for its stores.
        let (output, origin) = self.output();
        with(0, &mut output[within(span, origin)], expect);
    }
}

/// The arithmetic of a reduction: how two operands become one.
#[derive(Debug, Clone, Copy)]
pub(in crate::collective) struct Arithmetic {
    /// The reduction, without the division of an average.
    pub(in crate::collective::execute) reduction: Reduction,
    pub(in crate::collective::execute) ranks: u32,
    /// Bytes of an element.
    pub(in crate::collective::execute) element: usize,
    /// Whether a reduction has to be [finished](Self::finish).
    pub(in crate::collective::execute) averages: bool,
    /// Whether a reduction tile by tile is as fast as in one run. Half precision is converted faster in longer runs.
    pub(in crate::collective::execute) by_tiles: bool,
}

impl Arithmetic {
    pub(in crate::collective) fn new(data_type: DataType, op: ReduceOp, ranks: u32) -> Self {
        Self {
            reduction: Reduction::new(data_type, op),
            ranks,
            element: data_type.size(),
            averages: op == ReduceOp::Avg,
            by_tiles: !matches!(data_type, DataType::F16 | DataType::Bf16),
        }
    }

    /// `out = out op source`; `last` finishes the reduction.
    #[inline]
    pub(in crate::collective::execute) fn reduce_into(
        self,
        out: &mut [u8],
        source: &[u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        self.reduction.reduce_into(out, &[source])?;
        self.finish(out, last)
    }

    /// `out = left op message`, with the bytes of the message from `at` on; without `left`, `out = out op message`.
    /// `last` finishes the reduction.
    ///
    /// The operands are reduced where they lie. Few bytes are copied first, the message to `room`; and so is half
    /// precision, which is converted faster in longer runs.
    pub(in crate::collective::execute) fn reduce_message(
        self,
        (out, left): (&mut [u8], Option<Operand<'_>>),
        (message, at): (Message<'_>, usize),
        room: &mut [u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        if self.by_tiles && out.len() >= IN_PLACE_BYTES_MIN {
            let (region, offset) = message.inbox.data(message.number, at);
            let reduced = self.reduction.reduce_near(out, left, Operand::Region(region, offset));
            debug_assert!(reduced.is_ok(), "a span beyond the buffers or the slots");
            return self.finish(out, last);
        }
        let theirs = &mut room[..out.len()];
        message.inbox.read(message.number, at, theirs);
        match left {
            Some(Operand::Slice(left)) => return self.reduce(out, left, theirs, last),
            Some(Operand::Region(region, from)) => {
                let copied = region.copy_out(from, out);
                debug_assert!(copied.is_ok(), "a span beyond the buffers");
            }
            None => {}
        }
        self.reduce_into(out, theirs, last)
    }

    /// `out = left op right`; `last` finishes the reduction.
    pub(in crate::collective::execute) fn reduce(
        self,
        out: &mut [u8],
        left: &[u8],
        right: &[u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        self.reduction.reduce(out, &[left, right])?;
        self.finish(out, last)
    }

    /// Finishes a reduction: divides the sum of an average by the number of ranks.
    ///
    /// The division is a step of its own, because each hop has rounded the sum to the data type already.
    #[inline]
    pub(in crate::collective::execute) fn finish(
        self,
        out: &mut [u8],
        last: bool,
    ) -> Result<(), ReduceError> {
        // `last` is set for the final operand of an element only, so that an average is divided once.
        if last && self.averages { self.reduction.over(self.ranks).reduce_into(out, &[]) } else { Ok(()) }
    }
}

/// Bytes of a [`BufferAdvert`] in a message.
pub(in crate::collective::execute) const ADVERT_BYTES: usize = 24;

/// The rights that peers need to the memory of a rank: they read its input, or write to its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective::execute) struct Rights {
    pub(in crate::collective::execute) read: bool,
    pub(in crate::collective::execute) write: bool,
}

/// The address and the remote key of a buffer; both are 0 if peers do not use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::execute) struct BufferAddress {
    pub(in crate::collective::execute) addr: u64,
    pub(in crate::collective::execute) rkey: u32,
}

/// The addresses that a rank tells its peers: the first bytes of its input and of its output. Both are 0 if its
/// memory is borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::execute) struct BufferAdvert {
    pub(in crate::collective::execute) input: BufferAddress,
    pub(in crate::collective::execute) output: BufferAddress,
}

impl BufferAddress {
    /// The whole buffer as remote memory. The length follows from the call, which all ranks have compared.
    pub(in crate::collective::execute) fn memory(self, len: usize) -> RemoteMemory {
        RemoteMemory { addr: self.addr, len: len as u64, rkey: RemoteKey(self.rkey) }
    }
}

impl BufferAdvert {
    pub(in crate::collective::execute) const BORROWED: Self =
        Self { input: BufferAddress { addr: 0, rkey: 0 }, output: BufferAddress { addr: 0, rkey: 0 } };

    /// Whether peers cannot reach the memory.
    pub(in crate::collective::execute) fn is_borrowed(&self) -> bool {
        [self.input.rkey, self.output.rkey] == [0; 2]
    }

    /// Whether peers write to the output.
    pub(in crate::collective::execute) fn is_stored_to(&self) -> bool {
        // Only an output that peers write to has a key.
        self.output.rkey != 0
    }

    pub(in crate::collective::execute) fn encode(&self) -> [u8; ADVERT_BYTES] {
        let mut bytes = [0; ADVERT_BYTES];
        // Both ends must agree on the layout, for the input and then the output: the address, then the key.
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
        let advert = BufferAdvert {
            input: BufferAddress { addr: u64::MAX - 7, rkey: 9 },
            output: BufferAddress { addr: 1 << 40, rkey: u32::MAX },
        };
        assert_eq!(BufferAdvert::decode(&advert.encode()), advert);
        assert!(!advert.is_borrowed() && BufferAdvert::default().is_borrowed());
        assert!(BufferAdvert::decode(&[0; ADVERT_BYTES]).is_borrowed());
    }
}
