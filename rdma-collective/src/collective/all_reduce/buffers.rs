//! Where the elements of an all-reduce lie: slices that are borrowed, or memory that is registered.

use rdma_core::error::RangeError;
use rdma_core::{Attached, Region};

use crate::collective::schedule::{Source, Span};
use crate::collective::{DataType, ReduceOp, finish, reduce, reduce_into};
use crate::comm::link::Lane;
use crate::comm::link::mailbox::{HEADER_BYTES, Inbox, Outbox};
use crate::comm::{PIECE_BYTES, Scratch};
use crate::error::ReduceError;

/// Bytes from which a message is sent from where it lies instead of being copied.
const ZERO_COPY_BYTES_MIN: usize = 8 * 1024;

/// How two operands become one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arithmetic {
    pub(super) data_type: DataType,
    pub(super) op: ReduceOp,
    pub(super) ranks: u32,
}

impl Arithmetic {
    /// `out = out op source`, and `last` what is done once at the end.
    fn reduce_into(self, out: &mut [u8], source: &[u8], last: bool) -> Result<(), ReduceError> {
        reduce_into(out, source, self.data_type, self.op)?;
        self.finish(out, last)
    }

    /// `out = left op right`, and `last` what is done once at the end.
    fn reduce(self, out: &mut [u8], left: &[u8], right: &[u8], last: bool) -> Result<(), ReduceError> {
        reduce(out, left, right, self.data_type, self.op)?;
        self.finish(out, last)
    }

    fn finish(self, out: &mut [u8], last: bool) -> Result<(), ReduceError> {
        if last { finish(out, self.data_type, self.op, self.ranks) } else { Ok(()) }
    }
}

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
    /// Bytes of the input, and of the output.
    fn len(&self) -> usize;

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

    /// `output[span] = message`.
    fn copy_from(&mut self, message: Message<'_>, span: Span);

    /// `output[span] = input[span]`.
    fn copy(&mut self, span: Span);

    /// Whether the device is done with what was put on the lane.
    fn is_sent(&mut self, lane: Option<&mut Lane>) -> bool;
}

/// Slices of the caller's.
pub(super) enum Borrowed<'a> {
    InPlace(&'a mut [u8]),
    OutOfPlace { input: &'a [u8], output: &'a mut [u8] },
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

impl Borrowed<'_> {
    fn source(&self, source: Source, span: Span) -> &[u8] {
        match (self, source) {
            (Self::OutOfPlace { input, .. }, Source::Input) => &input[span.range()],
            (Self::OutOfPlace { output, .. }, Source::Output) => &output[span.range()],
            (Self::InPlace(buffer), _) => &buffer[span.range()],
        }
    }
}

impl Buffers for Borrowed<'_> {
    fn len(&self) -> usize {
        match self {
            Self::InPlace(buffer) => buffer.len(),
            Self::OutOfPlace { output, .. } => output.len(),
        }
    }

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
        for (at, span) in pieces(span) {
            let piece = &mut scratch[0][..span.len];
            message.inbox.read(message.number, at, piece);
            match self {
                Self::InPlace(buffer) => arithmetic.reduce_into(&mut buffer[span.range()], piece, last)?,
                Self::OutOfPlace { input, output } => {
                    arithmetic.reduce(&mut output[span.range()], &input[span.range()], piece, last)?;
                }
            }
        }
        Ok(())
    }

    fn copy_from(&mut self, message: Message<'_>, span: Span) {
        let (Self::InPlace(output) | Self::OutOfPlace { output, .. }) = self;
        for (at, span) in pieces(span) {
            message.inbox.read(message.number, at, &mut output[span.range()]);
        }
    }

    fn copy(&mut self, span: Span) {
        if let Self::OutOfPlace { input, output } = self {
            output[span.range()].copy_from_slice(&input[span.range()]);
        }
    }

    fn is_sent(&mut self, _: Option<&mut Lane>) -> bool {
        true
    }
}

/// Registered memory that the engine's worker knows, from `offset` on.
#[derive(Debug)]
pub(in crate::collective) struct Place {
    pub(in crate::collective) region: Region,
    pub(in crate::collective) attached: Attached,
    pub(in crate::collective) offset: usize,
    /// Others have handles to it.
    pub(in crate::collective) shared: bool,
}

/// Memory that is sent from where it lies.
#[derive(Debug)]
pub(in crate::collective) struct Registered {
    /// Absent in place.
    input: Option<Place>,
    output: Place,
    len: usize,
    /// Writes posted from it, and those that were done on the lane before the first.
    put: u64,
    done_before: Option<u64>,
    /// One of them, or one behind them, tells of the completion of all.
    asked: bool,
}

impl Registered {
    /// `len` bytes of each, which the regions have.
    pub(in crate::collective) fn new(input: Option<Place>, output: Place, len: usize) -> Self {
        Self { input, output, len, put: 0, done_before: None, asked: false }
    }

    pub(in crate::collective) fn into_places(self) -> (Option<Place>, Place) {
        (self.input, self.output)
    }

    fn place(&self, source: Source) -> &Place {
        match (source, &self.input) {
            (Source::Input, Some(input)) => input,
            _ => &self.output,
        }
    }
}

/// Ranges were checked when the operation began.
fn checked(copied: Result<(), RangeError>) {
    debug_assert!(copied.is_ok(), "a span beyond the buffers");
}

impl Buffers for Registered {
    fn len(&self) -> usize {
        self.len
    }

    fn put(
        &mut self,
        outbox: &mut Outbox,
        lane: &mut Lane,
        header: Option<&[u8; HEADER_BYTES]>,
        Piece { source, span, last }: Piece,
    ) -> bool {
        let place = self.place(source);
        let start = place.offset + span.offset;
        if header.is_some() || span.len < ZERO_COPY_BYTES_MIN {
            return outbox.put_with(lane, header, span.len, |buffer| {
                checked(place.region.copy_out(start, buffer));
            });
        }
        let range = place.attached.range(start, span.len);
        self.done_before.get_or_insert_with(|| lane.ranges_done());
        self.put += 1;
        self.asked = last;
        outbox.put_range(lane, range, span.len, last)
    }

    fn reduce_from(
        &mut self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        let [own, theirs] = scratch;
        let (input, output) = (self.place(Source::Input), &self.output);
        for (at, span) in pieces(span) {
            let (own, theirs) = (&mut own[..span.len], &mut theirs[..span.len]);
            checked(input.region.copy_out(input.offset + span.offset, own));
            message.inbox.read(message.number, at, theirs);
            arithmetic.reduce_into(own, theirs, last)?;
            checked(output.region.copy_in(output.offset + span.offset, own));
        }
        Ok(())
    }

    fn copy_from(&mut self, message: Message<'_>, span: Span) {
        for (at, span) in pieces(span) {
            let target = (&self.output.region, self.output.offset + span.offset);
            checked(message.inbox.read_into(message.number, at, span.len, target));
        }
    }

    fn copy(&mut self, span: Span) {
        let Some(input) = &self.input else { return };
        for (_, Span { offset, len }) in pieces(span) {
            let (from, to) = (input.offset + offset, self.output.offset + offset);
            checked(input.region.copy_to(from, len, &self.output.region, to));
        }
    }

    fn is_sent(&mut self, lane: Option<&mut Lane>) -> bool {
        let (Some(lane), Some(before)) = (lane, self.done_before) else { return true };
        if lane.ranges_done() - before >= self.put {
            return true;
        }
        // A peer that has left has received everything.
        if lane.is_drained() {
            return true;
        }
        // Should the last write not have been asked to tell of its completion, one behind it is.
        if !self.asked {
            self.asked = lane.confirm();
        }
        false
    }
}
