//! Access to the peer's memory without a request: no receive is taken, no sequence number moves, and the peer is told
//! nothing.
//!
//! The rights are those of a request, and the writer slot is held as for one, so the promises of
//! [`copy`](super::copy) at the end of a registration hold here too.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use std::cell::Cell;
use std::sync::Arc;

use super::super::atomic::Ordering;
use super::super::key_table::Export;
use super::super::layout::SILENT;
use super::RemoteResponder;
use super::copy::{CopyBudget, CopyResult};
use crate::backend::interface::{MappedAccess, MappedOp};
use crate::backend::soft::engine::keys::KeyRefusal;
use crate::backend::soft::mapped_access::perform_at;
use crate::memory::PeerWindow;
use crate::{Access, RemoteMemory};

/// The reason why an access is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAccess {
    Refused(KeyRefusal),
    /// The queue pair answers no more. Some bytes may have been accessed.
    Closed,
    /// The queue pair does not answer for now.
    Silent,
    /// The access needs that memory, which is not mapped; memory 0 never will be.
    Unmapped(u64),
}

impl From<KeyRefusal> for NoAccess {
    fn from(refusal: KeyRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl RemoteResponder {
    /// Returns that range of a window of the peer.
    ///
    /// # Errors
    ///
    /// The reason why an access to the range would not be done.
    pub(crate) fn window(&self, memory: RemoteMemory) -> Result<PeerWindow, NoAccess> {
        self.answers()?;
        if !self.rules.access.contains(Access::WINDOW_BY) {
            return Err(KeyRefusal::AccessDenied.into());
        }
        let RemoteMemory { addr, len, rkey } = memory;
        let found = self.keys.find(rkey.0).ok_or(KeyRefusal::Unknown)?;
        let Export { registered, memory: id, offset, .. } = &found.export;
        registered.check(self.domain, addr, len, Access::WINDOW)?;
        let segment = self.memories.get(*id).ok_or(NoAccess::Unmapped(*id))?;
        let begin = (addr - registered.addr).checked_add(*offset);
        let end = begin.and_then(|begin| begin.checked_add(len));
        let (Some(begin), Some(_)) = (begin, end.filter(|end| *end <= segment.len() as u64)) else {
            // Only a peer that lies about the position of its memory gets here.
            return Err(KeyRefusal::OutOfRange.into());
        };
        if !segment.is_writable() {
            return Err(KeyRefusal::AccessDenied.into());
        }
        // SAFETY: `begin` is at most the segment's length, because `end` was checked above, so the address is within
        // the mapping.
        let base = unsafe { segment.as_ptr().add(begin as usize) };
        // SAFETY: the range is mapped and writable for as long as the window keeps the segment. The owner gives a
        // window's pages to nobody else and never replaces them, since no writer slot is held for a window (see
        // `mapped/revoke`), so no slot check is needed for each access.
        Ok(unsafe { PeerWindow::new(base, len as usize, Arc::clone(segment) as _) })
    }

    /// Checks that the peer's queue pair answers.
    fn answers(&self) -> Result<(), NoAccess> {
        if !self.is_open() {
            let silent = self.header.owner.state.load(Ordering::Relaxed) == SILENT;
            return Err(if silent { NoAccess::Silent } else { NoAccess::Closed });
        }
        if self.is_refused() { Err(NoAccess::Closed) } else { Ok(()) }
    }

    /// Accesses at most one chunk. Returns the value that a load has read, 0 for other operations.
    ///
    /// # Safety
    ///
    /// The local memory that `access` names is mapped for the whole call, writable for a read, and no reference to
    /// bytes that others may write is used. A flag has 4 or 8 bytes.
    pub(crate) unsafe fn access(&self, access: &MappedAccess) -> Result<u64, NoAccess> {
        self.answers()?;
        let (needs, MappedAccess { remote_addr, len, rkey, op }) = (access.op.needs(), *access);
        if !self.rules.access.contains(needs) {
            return Err(KeyRefusal::AccessDenied.into());
        }
        let found = self.keys.find(rkey).ok_or(KeyRefusal::Unknown)?;
        let (registered, domain) = (&found.export.registered, self.domain);
        match op {
            MappedOp::Probe => registered.check_any(domain, remote_addr, len)?,
            _ => registered.check(domain, remote_addr, len, needs)?,
        }
        // Only a probe may name more than 4 GiB, and it touches no byte.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let unmapped = NoAccess::Unmapped(found.export.memory);
        let written = needs.contains(Access::REMOTE_WRITE);
        let at = self.locate(&found, remote_addr, len, written).ok_or(unmapped)?;
        if let MappedOp::Probe = op {
            return Ok(0);
        }
        let (at, loaded) = (at.as_ptr(), Cell::new(0));
        if op.is_flag() && !at.addr().is_multiple_of(len as usize) {
            // Only a peer that lies about where its memory begins has it aligned otherwise. Checked, because an
            // unaligned atomic access is undefined behaviour here.
            return Err(KeyRefusal::OutOfRange.into());
        }
        let once = |_, len: u32| {
            // SAFETY: the local memory is valid by the caller's promise. The peer's range was found in a mapping that
            // is kept, and a flag's alignment was checked above, so the access is within bounds.
            loaded.set(unsafe { perform_at(at, len, op) });
        };
        match self.copy_chunks(&found, (remote_addr, len), CopyBudget::WHOLE, once, || false) {
            CopyResult::All { .. } => Ok(loaded.get()),
            CopyResult::Revoked if !self.pages_were_replaced(&found) => Err(KeyRefusal::Unknown.into()),
            CopyResult::Revoked | CopyResult::Unmapped => Err(unmapped),
            // `CopyBudget::WHOLE` never ends in a part.
            CopyResult::Closed | CopyResult::Partial(_) => Err(NoAccess::Closed),
        }
    }
}
