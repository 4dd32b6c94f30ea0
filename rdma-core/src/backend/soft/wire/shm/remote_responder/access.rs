//! Memory of the peer touched at once, without a request: nothing is told to its queue pair, nor decided for it.
//!
//! The rights are those of a request, and the slot is held as for one: what [`place`](super::place) says of the end of a
//! registration goes for this as well.

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

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessOutcome {
    /// It is done; of a load, what was there.
    Done(u64),
    Refused(KeyRefusal),
    /// The queue pair answers no more; some may be done.
    Closed,
    /// The queue pair does not answer for now.
    Silent,
    /// It is in that memory, which is not mapped; 0 never will be.
    Unmapped(u64),
}

impl RemoteResponder {
    /// That range of a window of the peer's.
    ///
    /// # Errors
    ///
    /// What a touch of it would come to.
    pub(crate) fn window(&self, memory: RemoteMemory) -> Result<PeerWindow, AccessOutcome> {
        self.answers()?;
        if !self.peer.access.contains(Access::WINDOW_BY) {
            return Err(AccessOutcome::Refused(KeyRefusal::AccessDenied));
        }
        let RemoteMemory { addr, len, rkey } = memory;
        let found = self.keys.find(rkey.0).ok_or(AccessOutcome::Refused(KeyRefusal::Unknown))?;
        let Export { registered, memory: id, offset, .. } = &found.export;
        registered.check(self.peer.domain, addr, len, Access::WINDOW).map_err(AccessOutcome::Refused)?;
        let segment = self.memories.get(*id).ok_or(AccessOutcome::Unmapped(*id))?;
        let begin = (addr - registered.addr).checked_add(*offset);
        let end = begin.and_then(|begin| begin.checked_add(len));
        let (Some(begin), Some(_)) = (begin, end.filter(|end| *end <= segment.len() as u64)) else {
            // Only a peer that lies about where its memory is.
            return Err(AccessOutcome::Refused(KeyRefusal::OutOfRange));
        };
        if !segment.is_writable() {
            return Err(AccessOutcome::Refused(KeyRefusal::AccessDenied));
        }
        // SAFETY: no further than the end.
        let base = unsafe { segment.as_ptr().add(begin as usize) };
        // SAFETY: mapped, for as long as the segment is kept. Its owner gives them to nobody, and replaces none: no request and
        // no touch holds a slot for a window, and of who says that it does nothing is believed (`evict`).
        Ok(unsafe { PeerWindow::new(base, len as usize, Arc::clone(segment) as _) })
    }

    /// Whether the peer's queue pair answers; else what to say instead.
    fn answers(&self) -> Result<(), AccessOutcome> {
        if !self.is_open() {
            let silent = self.header.owner.state.load(Ordering::Relaxed) == SILENT;
            return Err(if silent { AccessOutcome::Silent } else { AccessOutcome::Closed });
        }
        if self.is_refused() { Err(AccessOutcome::Closed) } else { Ok(()) }
    }

    /// Touches at most one chunk.
    ///
    /// # Safety
    ///
    /// What `reach` has of this process is mapped for the whole call, writable for a read, and no reference to what others
    /// may be writing is used. A flag is of 4 or 8 bytes.
    pub(crate) unsafe fn access(&self, reach: &MappedAccess) -> AccessOutcome {
        if let Err(instead) = self.answers() {
            return instead;
        }
        let (needs, MappedAccess { remote_addr, len, rkey, op }) = (reach.op.needs(), *reach);
        if !self.peer.access.contains(needs) {
            return AccessOutcome::Refused(KeyRefusal::AccessDenied);
        }
        let Some(found) = self.keys.find(rkey) else { return AccessOutcome::Refused(KeyRefusal::Unknown) };
        let (registered, domain) = (&found.export.registered, self.peer.domain);
        let allowed = match op {
            MappedOp::Probe => registered.check_any(domain, remote_addr, len),
            _ => registered.check(domain, remote_addr, len, needs),
        };
        if let Err(refusal) = allowed {
            return AccessOutcome::Refused(refusal);
        }
        // More than that is only looked at.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(at) = self.locate(&found, remote_addr, len, needs.contains(Access::REMOTE_WRITE)) else {
            return AccessOutcome::Unmapped(found.export.memory);
        };
        if let MappedOp::Probe = op {
            return AccessOutcome::Done(0);
        }
        let (at, loaded) = (at.as_ptr(), Cell::new(0));
        if op.is_flag() && !at.addr().is_multiple_of(len as usize) {
            // Only a peer that lies about where its memory begins has it aligned otherwise.
            return AccessOutcome::Refused(KeyRefusal::OutOfRange);
        }
        let once = |_, len: u32| {
            // SAFETY: what is ours by the caller's promise; what is the peer's was found in a mapping that is kept, and is
            // aligned for a flag.
            loaded.set(unsafe { perform_at(at, len, op) });
        };
        match self.copy_chunks(&found, (remote_addr, len), CopyBudget::WHOLE, once, || false) {
            CopyResult::All { .. } => AccessOutcome::Done(loaded.get()),
            CopyResult::Revoked if self.pages_were_replaced(&found) => {
                AccessOutcome::Unmapped(found.export.memory)
            }
            CopyResult::Revoked => AccessOutcome::Refused(KeyRefusal::Unknown),
            // None is moved in parts.
            CopyResult::Closed | CopyResult::Partial(_) => AccessOutcome::Closed,
            CopyResult::Unmapped => AccessOutcome::Unmapped(found.export.memory),
        }
    }
}
