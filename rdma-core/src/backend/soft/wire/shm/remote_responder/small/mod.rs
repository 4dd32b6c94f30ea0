//! The fast path of nearly all small messages: [`execute`](super::execute) and [`copy`](super::copy) for a write or
//! send with nothing unusual.
//!
//! The decision is that of every request. Whatever is unusual returns `None` before anything is visible to the peer,
//! and takes the general path, which decides again.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use super::super::key_table::FoundKey;
use super::RemoteResponder;
use super::copy::{CHUNK, prefetch_ends};
use crate::backend::soft::engine::decision::{Decision, decide};
use crate::backend::soft::engine::message::{Request, RequestOp};
use crate::memory::{CacheHint, copy_shared_hinted};

impl RemoteResponder {
    /// Carries out a small write or send, with its payload at `local`, and returns whether to ring the doorbell.
    /// `None` if anything about it is unusual: then nothing was reported to the peer, and [`execute`](Self::execute)
    /// decides.
    ///
    /// Inlined into its caller, because nearly all of a small message's cost is here.
    ///
    /// # Safety
    ///
    /// `request.len` bytes at `local` are readable for the whole call.
    #[inline(always)]
    pub(crate) unsafe fn try_execute_small(&self, request: &Request, local: u64) -> Option<bool> {
        if request.len > CHUNK || request.op == RequestOp::Read {
            return None;
        }
        let Decision::Write { to, addr } = decide(self, request) else { return None };
        // SAFETY: the caller promises that `request.len` bytes at `local` stay readable, so `write_small` may read
        // them.
        unsafe { self.write_small(&to, request, local, addr) }
    }

    /// Copies a payload of at most one chunk from `local` to `remote`, completes the request, and returns whether to
    /// ring the doorbell. `None` when the registration is not current any more: some bytes may be there, and nothing
    /// was reported.
    ///
    /// # Safety
    ///
    /// The `request.len` bytes at `local` are readable for the whole call.
    #[inline(always)]
    unsafe fn write_small(
        &self,
        found: &FoundKey<'_>,
        request: &Request,
        local: u64,
        remote: u64,
    ) -> Option<bool> {
        let target = self.locate(found, remote, request.len, true)?;
        prefetch_ends(target, request.len);
        let writer = &self.header.writer;
        let range = remote..remote.wrapping_add(request.len.into());
        let is_current = || self.is_open() && found.is_current();
        if !writer.slot.enter(found.export.registered.serial, range, is_current) {
            return None;
        }
        let source = std::ptr::with_exposed_provenance::<u8>(local as usize);
        // SAFETY: the source is readable by the caller's promise. The target was found by `locate` in a mapping that
        // `self` keeps, for `request.len` bytes, so both ranges are valid for the copy.
        unsafe { copy_shared_hinted(source, target.as_ptr(), request.len as usize, CacheHint::Cached) };
        // A stopped writer may find here that its pages were replaced: the peer does not see its bytes then, so
        // nothing may be completed.
        let ring = found.is_current().then(|| self.complete(request));
        writer.slot.leave();
        ring
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
