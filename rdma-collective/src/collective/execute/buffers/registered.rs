//! Registered buffers: the device reads messages out of them, and peers on the same host may read and write them.
//!
//! The bytes are only copied in and out, never borrowed, because a device or a peer may use them at the same time.
//! [`Borrowed`](super::Borrowed) in `mod.rs` is the counterpart for slices of the caller.

use std::time::Duration;

use rdma_core::error::RangeError;
use rdma_core::memory::CacheHint;
use rdma_core::{Access, Deadline, Exported, ProtectionDomain, Region, RemoteMemory, Sharing};

use super::{Arithmetic, BufferAddress, BufferAdvert, Buffers, Message, Rights, pieces};
use crate::collective::ReduceError;
use crate::collective::call::Origins;
use crate::collective::communicator::Scratch;
use crate::collective::reduce::Operand;
use crate::collective::schedule::{Source, Span};
use crate::link::{AttachedOnRails, RangeOnRails};

/// A region that the engine's device may use. Its byte `offset` is byte `origin` of the operation.
#[derive(Debug)]
pub(in crate::collective) struct RegisteredBuffer {
    pub(in crate::collective) region: Region,
    pub(in crate::collective) attached: AttachedOnRails,
    pub(in crate::collective) offset: usize,
    pub(in crate::collective) origin: usize,
    /// Whether others have handles to the region. It cannot become a local buffer again then.
    pub(in crate::collective) shared: bool,
    /// The peers' rights to the region, while they have some.
    pub(in crate::collective) exported: Option<Exported>,
}

impl RegisteredBuffer {
    /// Gives the peers `access`, and returns the address of byte `origin` of the operation; `None` if peers cannot
    /// reach the region.
    fn export(&mut self, pd: &ProtectionDomain, access: Access, origin: usize) -> Option<BufferAddress> {
        // An input that peers do not read needs no registration for them, and its memory need not be sharable.
        if access.is_empty() {
            return Some(BufferAddress::default());
        }
        if matches!(self.region.sharing(), Sharing::Unshared(_)) {
            return None;
        }
        let exported = pd.export(&self.region, access).ok()?;
        let RemoteMemory { addr, rkey, .. } = exported.remote();
        // Kept before anything else, so that `revoke` finds the right whatever happens next.
        self.exported = Some(exported);
        let at = self.at(Span { offset: origin, len: 0 });
        Some(BufferAddress { addr: addr + at as u64, rkey: rkey.0 })
    }

    /// Takes the peers' rights away, and returns whether that is certain.
    fn revoke(&mut self, deadline: Deadline) -> bool {
        let Some(exported) = self.exported.take() else { return true };
        let revoked = exported.revoke(deadline);
        // A refused export is dropped here. Its drop tries once more, and otherwise keeps the memory for good: a peer
        // may still write to it, so the memory must never come back to the caller.
        revoked
            .inspect_err(
                |refused| crate::log::warn!(error = %refused.error, "memory of an operation is kept"),
            )
            .is_ok()
    }

    /// The offset in the region at which `span` begins.
    pub(in crate::collective::execute) fn at(&self, span: Span) -> usize {
        self.offset + (span.offset - self.origin)
    }
}

/// The registered buffers of one operation.
#[derive(Debug)]
pub(in crate::collective) struct RegisteredBuffers {
    /// The input; absent in place.
    input: Option<RegisteredBuffer>,
    output: RegisteredBuffer,
}

impl RegisteredBuffers {
    /// Makes the buffers of an operation. They must hold every span that the schedule names.
    pub(in crate::collective) fn new(input: Option<RegisteredBuffer>, output: RegisteredBuffer) -> Self {
        Self { input, output }
    }

    pub(in crate::collective) fn into_places(self) -> (Option<RegisteredBuffer>, RegisteredBuffer) {
        (self.input, self.output)
    }

    fn place(&self, source: Source) -> &RegisteredBuffer {
        match (source, &self.input) {
            // In place, the output is the input, too.
            (Source::Output, _) | (_, None) => &self.output,
            (_, Some(input)) => input,
        }
    }
}

/// Ignores the outcome of a copy in release builds: the lengths were checked when the operation began.
fn checked(copied: Result<(), RangeError>) {
    debug_assert!(copied.is_ok(), "a span beyond the buffers");
}

impl Buffers for RegisteredBuffers {
    fn reduce_from(
        &mut self,
        message: Message<'_>,
        span: Span,
        arithmetic: Arithmetic,
        last: bool,
        scratch: &mut Scratch,
    ) -> Result<(), ReduceError> {
        let [made, room] = scratch;
        let (input, output) = (self.place(Source::Input), &self.output);
        for (at, span) in pieces(span) {
            let (made, left) = (&mut made[..span.len], Operand::Region(&input.region, input.at(span)));
            arithmetic.reduce_message((made, Some(left)), (message, at), room, last)?;
            checked(output.region.copy_in(output.at(span), made));
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

    fn range(&self, source: Source, span: Span) -> Option<RangeOnRails> {
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
        // The piece is copied on at once, so it must stay in the cache, wherever the output is expected.
        for (at, span) in pieces(span) {
            let piece = &mut scratch[0][..span.len];
            with(at, piece, CacheHint::Cached);
            self.write(span, piece);
        }
    }

    fn export(&mut self, pd: &ProtectionDomain, rights: Rights, origins: Origins) -> Option<BufferAdvert> {
        let read = if rights.read { Access::REMOTE_READ } else { Access::empty() };
        let write = if rights.write { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::empty() };
        let advert = match &mut self.input {
            Some(input) => input.export(pd, read, origins.input).and_then(|input| {
                Some(BufferAdvert { input, output: self.output.export(pd, write, origins.output)? })
            }),
            // In place there is one region, which is exported once with both rights. Its address is that of byte 0.
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
        if advert.is_none() {
            // The input may have been exported before the output failed. No peer has its address yet, so no time is
            // needed for peers to let go.
            self.revoke(Deadline::after(Duration::ZERO));
        }
        advert
    }

    fn revoke(&mut self, deadline: Deadline) -> bool {
        // Both are revoked, even if the first one fails: each right that stays is one that a peer can use.
        let input = self.input.as_mut().is_none_or(|input| input.revoke(deadline));
        self.output.revoke(deadline) && input
    }

    fn places(&self) -> Option<[&RegisteredBuffer; 2]> {
        Some([self.place(Source::Input), &self.output])
    }
}
