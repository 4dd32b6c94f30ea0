//! Memory that is registered, and sent from where it lies.

use std::time::Duration;

use rdma_core::error::RangeError;
use rdma_core::memory::CacheHint;
use rdma_core::{
    Access, Attached, AttachedRange, Deadline, Exported, ProtectionDomain, Region, RemoteMemory, Sharing,
};

use super::{Arithmetic, BufferAddress, BufferAdvert, Buffers, Message, Piece, Rights, pieces};
use crate::collective::ReduceError;
use crate::collective::call::Origins;
use crate::collective::communicator::Scratch;
use crate::collective::schedule::{Source, Span};
use crate::link::Lane;
use crate::link::mailbox::{HEADER_BYTES, Outbox};

/// Bytes from which a message is sent from where it lies instead of being copied.
const ZERO_COPY_BYTES_MIN: usize = 8 * 1024;

/// RegisteredBuffers memory that the engine's worker knows: from `offset` on it has the elements from `origin` on.
#[derive(Debug)]
pub(in crate::collective) struct RegisteredBuffer {
    pub(in crate::collective) region: Region,
    pub(in crate::collective) attached: Attached,
    pub(in crate::collective) offset: usize,
    pub(in crate::collective) origin: usize,
    /// Others have handles to it.
    pub(in crate::collective) shared: bool,
    /// For as long as other ranks come to it.
    pub(in crate::collective) exported: Option<Exported>,
}

impl RegisteredBuffer {
    /// Lets other ranks come to it; where they find the elements from `origin` on. `None` when they cannot.
    fn export(&mut self, pd: &ProtectionDomain, access: Access, origin: usize) -> Option<BufferAddress> {
        if access.is_empty() {
            return Some(BufferAddress::default());
        }
        if matches!(self.region.sharing(), Sharing::Unshared(_)) {
            return None;
        }
        let exported = pd.export(&self.region, access).ok()?;
        let RemoteMemory { addr, rkey, .. } = exported.remote();
        self.exported = Some(exported);
        let at = self.at(Span { offset: origin, len: 0 });
        Some(BufferAddress { addr: addr + at as u64, rkey: rkey.0 })
    }

    fn revoke(&mut self, deadline: Deadline) -> bool {
        let Some(exported) = self.exported.take() else { return true };
        let revoked = exported.revoke(deadline);
        // What comes back goes where nobody has it.
        revoked
            .inspect_err(|refused| tracing::warn!(error = %refused.error, "memory of an operation is kept"))
            .is_ok()
    }

    /// Where `span` begins.
    pub(in crate::collective::execute) fn at(&self, span: Span) -> usize {
        self.offset + (span.offset - self.origin)
    }
}

/// Memory that is sent from where it lies.
#[derive(Debug)]
pub(in crate::collective) struct RegisteredBuffers {
    /// Absent in place.
    input: Option<RegisteredBuffer>,
    output: RegisteredBuffer,
    /// Writes posted from it, and those that were done on the lane before the first.
    put: u64,
    done_before: Option<u64>,
    /// One of them, or one behind them, tells of the completion of all.
    asked: bool,
}

impl RegisteredBuffers {
    /// Of places that have all that the schedule names.
    pub(in crate::collective) fn new(input: Option<RegisteredBuffer>, output: RegisteredBuffer) -> Self {
        Self { input, output, put: 0, done_before: None, asked: false }
    }

    pub(in crate::collective) fn into_places(self) -> (Option<RegisteredBuffer>, RegisteredBuffer) {
        (self.input, self.output)
    }

    fn place(&self, source: Source) -> &RegisteredBuffer {
        match (source, &self.input) {
            (Source::Output, _) | (_, None) => &self.output,
            (_, Some(input)) => input,
        }
    }
}

/// Ranges were checked when the operation began.
fn checked(copied: Result<(), RangeError>) {
    debug_assert!(copied.is_ok(), "a span beyond the buffers");
}

impl Buffers for RegisteredBuffers {
    fn put(
        &mut self,
        outbox: &mut Outbox,
        lane: &mut Lane,
        header: Option<&[u8; HEADER_BYTES]>,
        Piece { source, span, last }: Piece,
    ) -> bool {
        let place = self.place(source);
        let start = place.at(span);
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
            checked(input.region.copy_out(input.at(span), own));
            message.inbox.read(message.number, at, theirs);
            arithmetic.reduce_into(own, theirs, last)?;
            checked(output.region.copy_in(output.at(span), own));
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
        let input = self.place(Source::Input);
        for (at, span) in pieces(span) {
            let (own, theirs) = (&mut out[at..at + span.len], &mut scratch[0][..span.len]);
            checked(input.region.copy_out(input.at(span), own));
            message.inbox.read(message.number, at, theirs);
            arithmetic.reduce_into(own, theirs, last)?;
        }
        Ok(())
    }

    fn copy_from(&mut self, message: Message<'_>, span: Span) {
        for (at, span) in pieces(span) {
            let target = (&self.output.region, self.output.at(span));
            checked(message.inbox.read_into(message.number, at, span.len, target));
        }
    }

    fn copy(&mut self, span: Span, expect: CacheHint) {
        let Some(input) = &self.input else { return };
        for (_, span) in pieces(span) {
            let (from, to) = (input.at(span), self.output.at(span));
            checked(input.region.copy_to_hinted(from, span.len, (&self.output.region, to), expect));
        }
    }

    fn read(&self, span: Span, out: &mut [u8]) {
        let input = self.place(Source::Input);
        checked(input.region.copy_out(input.at(span), out));
    }

    fn view<'b>(&'b self, span: Span, room: &'b mut [u8]) -> &'b [u8] {
        let room = &mut room[..span.len];
        self.read(span, room);
        room
    }

    fn read_output(&self, span: Span, out: &mut [u8]) {
        checked(self.output.region.copy_out(self.output.at(span), out));
    }

    fn is_in_place(&self) -> bool {
        self.input.is_none()
    }

    fn range(&self, source: Source, span: Span) -> Option<AttachedRange> {
        let place = self.place(source);
        Some(place.attached.range(place.at(span), span.len))
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        checked(self.output.region.copy_in(self.output.at(span), bytes));
    }

    fn combine<'b>(
        &'b mut self,
        span: Span,
        theirs: &[u8],
        own: &'b mut [u8],
        arithmetic: Arithmetic,
        last: bool,
    ) -> Result<&'b [u8], ReduceError> {
        let own = &mut own[..span.len];
        self.read(span, own);
        arithmetic.reduce_into(own, theirs, last)?;
        self.write(span, own);
        Ok(own)
    }

    fn read_in_pieces(&self, span: Span, scratch: &mut Scratch, mut with: impl FnMut(usize, &[u8])) {
        for (at, span) in pieces(span) {
            let piece = &mut scratch[0][..span.len];
            self.read(span, piece);
            with(at, piece);
        }
    }

    fn write_in_pieces(
        &mut self,
        span: Span,
        _: CacheHint,
        scratch: &mut Scratch,
        mut with: impl FnMut(usize, &mut [u8], CacheHint),
    ) {
        for (at, span) in pieces(span) {
            let piece = &mut scratch[0][..span.len];
            with(at, piece, CacheHint::Cached);
            self.write(span, piece);
        }
    }

    fn export(&mut self, pd: &ProtectionDomain, rights: Rights, origins: Origins) -> Option<BufferAdvert> {
        let read = if rights.read { Access::REMOTE_READ } else { Access::empty() };
        let write = if rights.write { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::empty() };
        let told = match &mut self.input {
            Some(input) => input.export(pd, read, origins.input).and_then(|input| {
                Some(BufferAdvert { input, output: self.output.export(pd, write, origins.output)? })
            }),
            None => self.output.export(pd, read | write, 0).map(|at| {
                let from = |right, origin: usize| {
                    if right {
                        BufferAddress { addr: at.addr + origin as u64, ..at }
                    } else {
                        BufferAddress::default()
                    }
                };
                BufferAdvert {
                    input: from(rights.read, origins.input),
                    output: from(rights.write, origins.output),
                }
            }),
        };
        if told.is_none() {
            // Of one of both that could be.
            self.revoke(Deadline::after(Duration::ZERO));
        }
        told
    }

    fn revoke(&mut self, deadline: Deadline) -> bool {
        let input = self.input.as_mut().is_none_or(|input| input.revoke(deadline));
        self.output.revoke(deadline) && input
    }

    fn places(&self) -> Option<[&RegisteredBuffer; 2]> {
        Some([self.place(Source::Input), &self.output])
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
