//! Memory of the peer touched at once, without a request: nothing is told to its queue pair, nor decided for it.
//!
//! The rights are those of a request, and the slot is held as for one: what [`place`](super::place) says of the end of a
//! registration goes for this as well.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use std::cell::Cell;

use super::super::atomic::Ordering;
use super::super::layout::SILENT;
use super::Port;
use super::place::Moved;
use crate::Access;
use crate::backend::interface::{RawReach, RawTouch};
use crate::backend::soft::engine::keys::KeyRefusal;
use crate::memory::{copy_expecting, flag};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
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

impl Port {
    /// Touches at most one chunk.
    ///
    /// # Safety
    ///
    /// What `reach` has of this process is mapped for the whole call, writable for a read, and no reference to what others
    /// may be writing is used. A flag is of 4 or 8 bytes.
    pub(crate) unsafe fn touch(&self, reach: &RawReach) -> Touched {
        if !self.is_open() {
            let silent = self.header.owner.state.load(Ordering::Relaxed) == SILENT;
            return if silent { Touched::Silent } else { Touched::Closed };
        }
        if self.is_refused() {
            return Touched::Closed;
        }
        let (needs, RawReach { remote_addr, len, rkey, touch }) = (reach.touch.needs(), *reach);
        if !self.peer.access.contains(needs) {
            return Touched::Refused(KeyRefusal::AccessDenied);
        }
        let Some(found) = self.keys.find(rkey) else { return Touched::Refused(KeyRefusal::Unknown) };
        let (registered, domain) = (&found.exposed.registered, self.peer.domain);
        let allowed = match touch {
            RawTouch::Look => registered.check_any(domain, remote_addr, len),
            _ => registered.check(domain, remote_addr, len, needs),
        };
        if let Err(refusal) = allowed {
            return Touched::Refused(refusal);
        }
        // More than that is only looked at.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let Some(at) = self.locate(&found, remote_addr, len, needs.contains(Access::REMOTE_WRITE)) else {
            return Touched::Unmapped(found.exposed.memory);
        };
        if let RawTouch::Look = touch {
            return Touched::Done(0);
        }
        let (at, loaded) = (at.as_ptr(), Cell::new(0));
        if touch.is_flag() && !at.addr().is_multiple_of(len as usize) {
            // Only a peer that lies about where its memory begins has it aligned otherwise.
            return Touched::Refused(KeyRefusal::OutOfRange);
        }
        let once = |_, len: u32| {
            // SAFETY: what is ours by the caller's promise; what is the peer's was found in a mapping that is kept.
            unsafe {
                match touch {
                    RawTouch::Look => {}
                    RawTouch::Write { from, expect } => {
                        let from = std::ptr::with_exposed_provenance(from as usize);
                        copy_expecting(from, at, len as usize, expect);
                    }
                    RawTouch::Read { to, expect } => {
                        let to = std::ptr::with_exposed_provenance_mut(to as usize);
                        copy_expecting(at, to, len as usize, expect);
                    }
                    RawTouch::Store { bits } => flag::store(at, len, bits),
                    RawTouch::Load => loaded.set(flag::load(at, len)),
                }
            }
        };
        match self.move_chunks(&found, (remote_addr, len), once, || false) {
            Moved::All { .. } => Touched::Done(loaded.get()),
            Moved::Revoked if self.has_moved(&found) => Touched::Unmapped(found.exposed.memory),
            Moved::Revoked => Touched::Refused(KeyRefusal::Unknown),
            Moved::Closed => Touched::Closed,
            Moved::Unmapped => Touched::Unmapped(found.exposed.memory),
        }
    }
}
