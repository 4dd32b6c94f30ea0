//! The memory of an operation over links: reads and writes the extents of a step in input, output or scratch.
//!
//! An extent may consist of several spans. Bytes that have to pass through a slice go through pieces that fit the
//! processor's cache. The `buffers` know whether a span is borrowed or registered.

use rdma_core::memory::CacheHint;

use super::super::buffers::{Arithmetic, Buffers, Message};
use crate::collective::ReduceError;
use crate::collective::communicator::{PIECE_BYTES, Scratch};
use crate::collective::schedule::{Buffer, Extent, Source, Span};
use crate::link::RangeOnRails;
use crate::link::mailbox::Inbox;

/// The buffers that the steps of one operation use.
pub(super) struct StepMemory<'a, B> {
    pub(super) buffers: &'a mut B,
    /// The messages of peers that the schedule keeps, to pass them on or reduce them later.
    pub(super) scratch: &'a mut [u8],
    /// Room for two pieces: one for each operand of a reduction.
    pub(super) pieces: &'a mut Scratch,
}

/// Cuts `len` bytes into pieces.
fn pieces(len: usize) -> impl Iterator<Item = Span> {
    (0..len).step_by(PIECE_BYTES).map(move |offset| Span { offset, len: PIECE_BYTES.min(len - offset) })
}

impl<B: Buffers> StepMemory<'_, B> {
    /// The registered range of an extent; `None` if the extent has several spans or is not registered.
    pub(super) fn range(&self, place: Extent) -> Option<RangeOnRails> {
        let span = only_span(place)?;
        match place.buffer() {
            Buffer::Input => self.buffers.range(Source::Input, span),
            Buffer::Output => self.buffers.range(Source::Output, span),
            // The scratch belongs to the link table and is not registered.
            Buffer::Scratch | Buffer::Outgoing(_) => None,
        }
    }

    /// `out = place`.
    pub(super) fn read(&self, place: Extent, out: &mut [u8]) {
        read(self.buffers, self.scratch, place, out);
    }

    /// `target = source`.
    pub(super) fn copy(&mut self, source: Extent, target: Extent) {
        let Self { buffers, scratch, pieces } = self;
        copy_between(*buffers, scratch, [source, target], pieces);
    }

    /// `target = message`.
    pub(super) fn copy_from(&mut self, inbox: &Inbox, number: u64, target: Extent) {
        // The spans lie apart in the target, and behind each other in the message.
        let mut at = 0;
        for span in target.spans() {
            match target.buffer() {
                Buffer::Scratch => inbox.read(number, at, &mut self.scratch[span.range()]),
                // The only span is the whole message, which the buffers copy without a piece between.
                _ if at == 0 && span.len == target.len() => {
                    self.buffers.copy_from(Message { inbox, number }, span);
                }
                _ => {
                    for Span { offset, len } in pieces(span.len) {
                        let piece = &mut self.pieces[0][..len];
                        inbox.read(number, at + offset, piece);
                        self.buffers.write(Span { offset: span.offset + offset, len }, piece);
                    }
                }
            }
            at += span.len;
        }
    }

    /// `target = operand op message`; `last` finishes the reduction, such as the division of an average.
    pub(super) fn reduce(
        &mut self,
        inbox: &Inbox,
        number: u64,
        [operand, target]: [Extent; 2],
        arithmetic: Arithmetic,
        last: bool,
    ) -> Result<(), ReduceError> {
        // A span that input and output share is reduced in the caller's slice, where there is a slice.
        let is_input = match operand.buffer() {
            Buffer::Input => true,
            Buffer::Output => self.buffers.is_in_place(),
            _ => false,
        };
        if is_input
            && target.buffer() == Buffer::Output
            && let Some(span) = only_span(target).filter(|span| only_span(operand) == Some(*span))
        {
            return self.buffers.reduce_from(Message { inbox, number }, span, arithmetic, last, self.pieces);
        }
        let Self { buffers, scratch, pieces: [own, room] } = self;
        // Each piece is read before it is written, so operand and target may be the same extent.
        for piece in pieces(target.len()) {
            let own = &mut own[..piece.len];
            read(*buffers, scratch, operand.part(piece), own);
            arithmetic.reduce_message((own, None), (Message { inbox, number }, piece.offset), room, last)?;
            write(*buffers, scratch, target.part(piece), own);
        }
        Ok(())
    }

    /// `out = operand op message`; `last` finishes the reduction.
    pub(super) fn reduce_to(
        &mut self,
        inbox: &Inbox,
        number: u64,
        operand: Extent,
        arithmetic: Arithmetic,
        last: bool,
        out: &mut [u8],
    ) -> Result<(), ReduceError> {
        for piece in pieces(out.len()) {
            let (own, room) = (&mut out[piece.range()], &mut self.pieces[1]);
            read(self.buffers, self.scratch, operand.part(piece), own);
            arithmetic.reduce_message((own, None), (Message { inbox, number }, piece.offset), room, last)?;
        }
        Ok(())
    }
}

/// The span of an extent that has only one.
fn only_span(extent: Extent) -> Option<Span> {
    let mut spans = extent.spans();
    spans.next().filter(|_| spans.next().is_none())
}

/// `target = source`, for a rank that is alone and has no scratch.
pub(in crate::collective) fn copy<B: Buffers>(
    buffers: &mut B,
    [source, target]: [Extent; 2],
    pieces: &mut Scratch,
) {
    copy_between(buffers, &mut [], [source, target], pieces);
}

fn copy_between<B: Buffers>(
    buffers: &mut B,
    scratch: &mut [u8],
    [source, target]: [Extent; 2],
    [piece, _]: &mut Scratch,
) {
    // If input and output have the same spans: in place there is nothing to copy, and out of place the buffers copy
    // directly.
    let outward = [source.buffer(), target.buffer()] == [Buffer::Input, Buffer::Output];
    if outward && source.spans().eq(target.spans()) {
        source.spans().for_each(|span| buffers.copy(span, CacheHint::Cached));
        return;
    }
    for span in pieces(source.len()) {
        let piece = &mut piece[..span.len];
        read(buffers, scratch, source.part(span), piece);
        write(buffers, scratch, target.part(span), piece);
    }
}

fn read<B: Buffers>(buffers: &B, scratch: &[u8], place: Extent, mut out: &mut [u8]) {
    for span in place.spans() {
        let Some((now, rest)) = out.split_at_mut_checked(span.len) else { return };
        match place.buffer() {
            Buffer::Input => buffers.read(span, now),
            Buffer::Output => buffers.read_output(span, now),
            Buffer::Scratch => now.copy_from_slice(&scratch[span.range()]),
            // Only a `Put` reads an outgoing message, and sends it whole.
            Buffer::Outgoing(_) => {}
        }
        out = rest;
    }
}

fn write<B: Buffers>(buffers: &mut B, scratch: &mut [u8], place: Extent, mut bytes: &[u8]) {
    for span in place.spans() {
        let Some((now, rest)) = bytes.split_at_checked(span.len) else { return };
        match place.buffer() {
            Buffer::Scratch => scratch[span.range()].copy_from_slice(now),
            _ => buffers.write(span, now),
        }
        bytes = rest;
    }
}
