//! Mapped access: copies, flags and in-place work on memory of a peer that is mapped here, without a work request.
//!
//! This file borrows the local side and cuts long accesses into chunks. The backend checks the peer's side, chunk by
//! chunk.

#![expect(unsafe_code, reason = "hands what it borrows to the device")]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::time::Instant;

use super::{QpHandle, WorkerCore};
use crate::backend::interface::{InPlaceFn, MappedAccess, MappedOp, MappedOutcome, RawWorker};
use crate::error::{RangeError, ReachError};
use crate::memory::{Backoff, CacheHint, InPlace, PeerWindow, check_needs};
use crate::{Access, Deadline, Region, RemoteMemory};

/// Bytes of one call to the backend. 256 KiB, the chunk of the mapped wire: a deregistration at the peer waits for one
/// chunk at most, and the deadline is looked at between two.
const CHUNK: usize = 256 << 10;

/// An access to memory of a peer, with its local side. A local side is as long as the peer memory.
#[derive(Debug)]
pub(crate) enum PeerOp<'a> {
    Write(&'a [u8]),
    Read(&'a mut [u8]),
    /// Writes from a region of this process, beginning at the offset.
    WriteFrom(&'a Region, usize),
    /// Reads into a region of this process, beginning at the offset.
    ReadTo(&'a Region, usize),
    /// Stores a flag of 4 or 8 bytes.
    Store(u64),
    /// Loads a flag of 4 or 8 bytes.
    Load,
    InPlace(InPlaceWork<'a>),
}

/// An [`InPlace`] implementation with its type erased, borrowed for `'a`.
#[derive(Debug)]
pub(crate) struct InPlaceWork<'a> {
    run: InPlaceFn,
    work: *mut (),
    needs: Access,
    borrowed: PhantomData<&'a mut ()>,
}

impl<'a> InPlaceWork<'a> {
    pub(crate) fn new<W: InPlace>(work: &'a mut W) -> Self {
        /// # Safety
        ///
        /// The range is as [`InPlace::run`] asks. `work` points to a live `W`, and no other reference to it is used.
        unsafe fn run<W: InPlace>(work: *mut (), at: *mut u8, range: Range<usize>) {
            // SAFETY: the caller promises a live, unaliased `W` and a range that is valid for `run`, so both calls
            // hold.
            unsafe { (*work.cast::<W>()).run(at, range) };
        }
        const { check_needs(W::NEEDS) };
        Self { run: run::<W>, work: ptr::from_mut(work).cast(), needs: W::NEEDS, borrowed: PhantomData }
    }
}

impl PeerOp<'_> {
    /// The address of the `len` local bytes; 0 for an operation without any.
    fn local(&mut self, len: usize) -> Result<u64, RangeError> {
        let of_slice = |bytes: usize| RangeError::check(0, len as u64, bytes as u64);
        Ok(match self {
            Self::Store(_) | Self::Load | Self::InPlace(_) => 0,
            Self::Write(bytes) => {
                of_slice(bytes.len())?;
                bytes.as_ptr().expose_provenance() as u64
            }
            Self::Read(bytes) => {
                of_slice(bytes.len())?;
                bytes.as_mut_ptr().expose_provenance() as u64
            }
            Self::WriteFrom(region, offset) | Self::ReadTo(region, offset) => {
                region.address_of(*offset, len)?.as_ptr().expose_provenance() as u64
            }
        })
    }

    /// The operation on the chunk that begins at `begin`; `local` is the address of the local bytes.
    fn chunk(&self, local: u64, begin: usize, hint: CacheHint) -> MappedOp {
        let from = local.wrapping_add(begin as u64);
        match *self {
            Self::Write(_) | Self::WriteFrom(..) => MappedOp::Write { from, hint },
            Self::Read(_) | Self::ReadTo(..) => MappedOp::Read { to: from, hint },
            Self::Store(bits) => MappedOp::Store { bits },
            Self::Load => MappedOp::Load,
            Self::InPlace(InPlaceWork { run, work, needs, .. }) => {
                MappedOp::InPlace { run, work, begin, needs }
            }
        }
    }
}

impl<R: RawWorker> WorkerCore<R> {
    /// Whether `memory` can be accessed now; `false` when it is not mapped yet, or the peer is silent.
    pub(crate) fn is_reachable(&mut self, qp: QpHandle, memory: RemoteMemory) -> Result<bool, ReachError> {
        let slot = self.known(qp).map_err(|_| ReachError::ForeignWorker { qp_num: qp.qp_num })?;
        let (remote_addr, len, rkey) = (memory.addr, memory.len, memory.rkey.0);
        // SAFETY: a probe has no local range, so nothing must be valid.
        let reached = unsafe {
            self.raw.access_mapped(slot, &MappedAccess { remote_addr, len, rkey, op: MappedOp::Probe })
        }?;
        Ok(reached != MappedOutcome::NotYet)
    }

    /// Waits until the memory is mapped, and returns a window of it.
    pub(crate) fn window(
        &mut self,
        qp: QpHandle,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Result<PeerWindow, ReachError> {
        let slot = self.known(qp).map_err(|_| ReachError::ForeignWorker { qp_num: qp.qp_num })?;
        let mut backoff = Backoff::without_spins(deadline);
        loop {
            match self.raw.window(slot, memory)? {
                Some(window) => return Ok(window),
                None => backoff.pause()?,
            };
        }
    }

    /// Accesses `len` bytes at `offset` of `memory`, and waits until it is mapped. Returns the loaded flag, 0 for other
    /// operations.
    ///
    /// The deadline is looked at between chunks and while waiting. The first chunk is accessed even after the deadline
    /// if nothing has to be waited for, so that a short access never fails for the time alone.
    pub(crate) fn access_peer(
        &mut self,
        qp: QpHandle,
        memory: RemoteMemory,
        (offset, len): (usize, usize),
        (mut op, hint): (PeerOp<'_>, CacheHint),
        deadline: Deadline,
    ) -> Result<u64, ReachError> {
        let slot = self.known(qp).map_err(|_| ReachError::ForeignWorker { qp_num: qp.qp_num })?;
        RangeError::check(offset as u64, len as u64, memory.len)?;
        let memory = memory.slice(offset as u64..offset as u64 + len as u64)?;
        if matches!(op, PeerOp::Store(_) | PeerOp::Load)
            && !(matches!(len, 4 | 8) && memory.addr.is_multiple_of(len as u64))
        {
            return Err(ReachError::Unaligned { address: memory.addr, len });
        }
        if len == 0 {
            return Ok(0);
        }
        let (local, hint) = (op.local(len)?, hint.or(CacheHint::of_total(len)));
        let begin = (len > CHUNK).then(Instant::now);
        let mut done = 0;
        loop {
            let count = (len - done).min(CHUNK);
            let raw = MappedAccess {
                remote_addr: memory.addr.wrapping_add(done as u64),
                len: count as u64,
                rkey: memory.rkey.0,
                op: op.chunk(local, done, hint),
            };
            let mut backoff = None;
            let bits = loop {
                // SAFETY: `local` checked that the local bytes lie in a slice borrowed for this call or in a live
                // region; a region hands out no references, so no reference aliases a read. In-place work is borrowed
                // for the call. The alignment of a flag was checked above.
                match unsafe { self.raw.access_mapped(slot, &raw) }? {
                    MappedOutcome::Done(bits) => break bits,
                    MappedOutcome::NotYet => {
                        let paused = backoff.get_or_insert_with(|| Backoff::without_spins(deadline)).pause();
                        paused.map_err(|error| error.after(done))?;
                    }
                }
            };
            done += count;
            if done == len {
                return Ok(bits);
            }
            if let Some(begin) = begin.filter(|_| deadline.expired()) {
                return Err(ReachError::DeadlineExceeded { waited: begin.elapsed(), done: done as u64 });
            }
        }
    }
}
