//! Copies the bytes of a request, chunk by chunk, and completes the peer's receive.
//!
//! The last chunk and the completion happen in one hold of the slot. So once a closed queue pair's slot is idle,
//! every receive that was filled has its completion, and the owner may flush the others.

#![expect(unsafe_code, reason = "copies between memory of two processes")]

use std::ptr::NonNull;

use super::super::atomic::Ordering;
use super::super::key_table::FoundKey;
use super::super::layout::{OF_WRITE, WITH_IMM};
use super::super::writer_slot::{NO_REGISTRATION, NO_SERIAL};
use super::{LocalBuffer, RemoteResponder};
use crate::CompletionStatus;
use crate::backend::soft::engine::decision::takes_receive;
use crate::backend::soft::engine::message::{Request, RequestOp};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::wire::HOLD_BYTES_MAX;
use crate::memory::{CacheHint, copy_shared_hinted, prefetch, prefetch_for_write};

/// Bytes that are copied in one hold of the slot. A deregistration may have to wait for one chunk: 256 KiB take some
/// ten microseconds.
pub(super) const CHUNK: u32 = HOLD_BYTES_MAX as u32;

/// Progress of a message that is copied in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CopyProgress {
    /// Serial of the registration that the bytes went to. In another registration the message begins anew, because
    /// its pages may be others.
    serial: u64,
    done: u32,
}

impl CopyProgress {
    /// Whether more bytes are copied than `before`.
    pub(crate) fn is_after(self, before: Self) -> bool {
        self.done > before.done
    }
}

/// The part of a message that is copied in one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyBudget {
    /// Progress so far.
    pub(crate) resume: CopyProgress,
    /// Bytes after which the copy stops, at the end of a chunk. The lock is then given to others.
    pub(crate) max_bytes: u32,
}

impl CopyBudget {
    /// A message in one call, from its beginning.
    pub(crate) const WHOLE: Self =
        Self { resume: CopyProgress { serial: NO_SERIAL, done: 0 }, max_bytes: u32::MAX };
}

/// The result of copying the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyResult {
    /// All bytes are copied and the message is completed. With `ring` the peer sleeps until a completion: its
    /// doorbell must be rung.
    All { ring: bool },
    /// As many bytes are copied as the budget allows.
    Partial(CopyProgress),
    /// The registration is not current any more. Some bytes may be there.
    Revoked,
    /// The queue pair answers no more. Some bytes may be there.
    Closed,
    /// The memory is not mapped here in the version that the key names.
    Unmapped,
}

impl RemoteResponder {
    /// Copies the payload into the peer's memory, and completes the request.
    ///
    /// # Safety
    ///
    /// The `request.len` bytes at `local.addr` are readable for the whole call.
    #[inline(always)]
    pub(super) unsafe fn write_payload(
        &self,
        found: &FoundKey<'_>,
        request: &Request,
        local: LocalBuffer,
        remote: u64,
        injected: Injected,
    ) -> CopyResult {
        let Some(target) = self.locate(found, remote, request.len, true) else {
            return CopyResult::Unmapped;
        };
        let source = std::ptr::with_exposed_provenance::<u8>(local.addr as usize);
        let hint = local.hint.or(CacheHint::of_total(request.len as usize));
        if hint == CacheHint::Cached {
            prefetch_ends(target, request.len);
        }
        let copy = |done: u32, count: u32| {
            // SAFETY: the chunk is within the source, readable by the caller's promise, and within the target, which
            // `locate` found in a mapping that `self` keeps. Others may access either meanwhile, so the kernel
            // copies as a device would, without references.
            unsafe {
                let (from, to) = (source.add(done as usize), target.as_ptr().add(done as usize));
                copy_shared_hinted(from, to, count as usize, hint);
            }
        };
        self.copy_chunks(found, (remote, request.len), local.budget, copy, || {
            // SAFETY: the range was written just now, and the slot was held since, so it is still ours to write.
            unsafe { injected.corrupt(target.as_ptr().expose_provenance() as u64, request.len) };
            self.complete(request)
        })
    }

    /// Copies the bytes that a read asks for out of the peer's memory.
    ///
    /// # Safety
    ///
    /// The `request.len` bytes at `local.addr` are writable for the whole call, and no reference to them exists.
    pub(super) unsafe fn read_payload(
        &self,
        found: &FoundKey<'_>,
        request: &Request,
        local: LocalBuffer,
    ) -> CopyResult {
        let remote = request.remote_addr;
        let Some(source) = self.locate(found, remote, request.len, false) else {
            return CopyResult::Unmapped;
        };
        let target = std::ptr::with_exposed_provenance_mut::<u8>(local.addr as usize);
        let hint = local.hint.or(CacheHint::of_total(request.len as usize));
        let copy = |done: u32, count: u32| {
            // SAFETY: the chunk is within the target, writable by the caller's promise, and within the source, which
            // `locate` found in a mapping that `self` keeps, so both ranges are valid for the copy.
            unsafe {
                let (from, to) = (source.as_ptr().add(done as usize), target.add(done as usize));
                copy_shared_hinted(from, to, count as usize, hint);
            }
        };
        self.copy_chunks(found, (remote, request.len), local.budget, copy, || false)
    }

    /// Returns the address at which that range of a registration is mapped here.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        found: &FoundKey<'_>,
        remote: u64,
        len: u32,
        written: bool,
    ) -> Option<NonNull<u8>> {
        let export = &found.export;
        let offset = remote.wrapping_sub(export.registered.addr).checked_add(export.offset)?;
        self.memories.locate((export.memory, export.version), offset, len, written)
    }

    /// Lets `copy(done, count)` move one chunk after another, each in a hold of the slot, and then `finish`, whose
    /// result tells whether to ring the doorbell.
    #[inline(always)]
    pub(super) fn copy_chunks(
        &self,
        found: &FoundKey<'_>,
        (remote, len): (u64, u32),
        budget: CopyBudget,
        copy: impl Fn(u32, u32),
        finish: impl FnOnce() -> bool,
    ) -> CopyResult {
        let (slot, serial) = (&self.header.writer.slot, found.export.registered.serial);
        // A message resumes only in the registration in which it began. After a renewal its first bytes may be in
        // pages that nobody sees, so all are copied again.
        let goes_on = budget.resume.serial == serial && budget.resume.done < len;
        let mut done = if goes_on { budget.resume.done } else { 0 };
        let stop_at = done.saturating_add(budget.max_bytes);
        loop {
            let count = (len - done).min(CHUNK);
            let begin = remote.wrapping_add(done.into());
            let range = begin..begin.wrapping_add(count.into());
            let mut open = true;
            // Both rights are checked after the announcement, never before: a right that ends in between would be
            // missed. `open` comes first, so that the end of the queue pair is reported rather than that of its
            // registrations.
            let may = slot.enter(serial, range, || {
                open = self.is_open();
                open && found.is_current()
            });
            if !may {
                return if open { CopyResult::Revoked } else { CopyResult::Closed };
            }
            copy(done, count);
            done += count;
            if done == len {
                // A stopped writer may find here that its pages were replaced: its bytes are then in pages that the
                // peer does not see. So nothing may be completed, and the request is tried again.
                if !found.is_current() {
                    slot.leave();
                    return CopyResult::Revoked;
                }
                let ring = finish();
                slot.leave();
                return CopyResult::All { ring };
            }
            slot.leave();
            if done >= stop_at {
                return CopyResult::Partial(CopyProgress { serial, done });
            }
        }
    }

    /// Finishes a request without memory. One that `takes_receive` holds the slot meanwhile, so that the owner's end
    /// waits for its completion; `None` when the queue pair answers no more. Returns whether to ring the doorbell.
    pub(super) fn finish_without_memory(
        &self,
        takes_receive: bool,
        finish: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let slot = &self.header.writer.slot;
        if !takes_receive {
            return Some(finish());
        }
        if !slot.enter(NO_REGISTRATION, 0..0, || self.is_open()) {
            return None;
        }
        let ring = finish();
        slot.leave();
        Some(ring)
    }

    /// Counts a request as carried out, and completes the receive that it takes, if any. Returns whether to ring the
    /// doorbell.
    #[inline(always)]
    pub(super) fn complete(&self, request: &Request) -> bool {
        self.expect_next();
        if !takes_receive(request) {
            return false;
        }
        let of_write = if request.op == RequestOp::Write { OF_WRITE } else { 0 };
        let flags = of_write | if request.imm.is_some() { WITH_IMM } else { 0 };
        self.push_completion(CompletionStatus::SUCCESS, request.len, request.imm.unwrap_or(0), flags)
    }

    /// Counts a request as carried out. The next gap may then be complained about again.
    #[inline]
    pub(super) fn expect_next(&self) {
        let writer = &self.header.writer;
        writer.awaiting.store(0, Ordering::Relaxed);
        writer.expected.store(sequence::add(writer.expected.load(Ordering::Relaxed), 1), Ordering::Relaxed);
    }

    /// Leaves the completion of the next receive. Returns whether to ring the doorbell.
    pub(super) fn push_completion(
        &self,
        status: CompletionStatus,
        byte_len: u32,
        imm: u32,
        flags: u32,
    ) -> bool {
        let consumed = &self.header.writer.consumed;
        let taken = consumed.load(Ordering::Relaxed);
        let next = taken.wrapping_add(1);
        let receive = self.ring.ring_entry(taken);
        if receive.sequence.load(Ordering::Relaxed) != next {
            // Only a planted fault lets a request pass without a receive.
            return false;
        }
        // Counted before the completion is visible: a writer that is killed in between loses this completion, which
        // the flush then reports, but never completes one receive twice.
        consumed.store(next, Ordering::Relaxed);
        let entry = self.completions.ring_entry(taken);
        entry.status.store(status.0, Ordering::Relaxed);
        entry.byte_len.store(byte_len, Ordering::Relaxed);
        entry.imm.store(imm, Ordering::Relaxed);
        entry.flags.store(flags, Ordering::Relaxed);
        // Last, and Release: an owner that sees this number also sees the fields and every byte of the message.
        entry.sequence.store(next, Ordering::Release);
        // The next receive is in the owner's cache; the next request should not have to wait for it.
        prefetch(std::ptr::from_ref(self.ring.ring_entry(next)).addr() as u64);
        self.header.bell.doorbell.rings()
    }
}

/// Prefetches the first and the last cache line of a target for writing. A peer that polls there has them in its
/// caches, and fetching one takes as long as all else that a short message costs; without this, the fetch begins only
/// after the fence.
#[inline]
pub(super) fn prefetch_ends(target: NonNull<u8>, len: u32) {
    let begin = target.addr().get() as u64;
    prefetch_for_write(begin);
    prefetch_for_write(begin + u64::from(len) - 1);
}

#[cfg(all(test, not(loom)))]
mod tests;
