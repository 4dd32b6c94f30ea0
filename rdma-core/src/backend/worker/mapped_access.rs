//! Memory of a peer reached at once: what is ours is borrowed, what is the peer's is checked, chunk by chunk.

#![expect(unsafe_code, reason = "hands what it borrows to the device")]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::time::Instant;

use super::{WorkerCore, QpHandle};
use crate::backend::interface::{MappedAccess, MappedOp, RawWorker, MappedOutcome, InPlaceFn};
use crate::error::{RangeError, ReachError};
use crate::memory::{CacheHint, InPlace, Backoff, PeerWindow, check_needs};
use crate::{Access, Deadline, Region, RemoteMemory};

/// Bytes that are moved at once: as long as a deregistration of the peer's may have to wait.
const CHUNK: usize = 256 << 10;

/// What is done to all of some memory of a peer's, which is as long.
#[derive(Debug)]
pub(crate) enum PeerOp<'a> {
    Write(&'a [u8]),
    Read(&'a mut [u8]),
    /// From that offset of a region of this process.
    WriteFrom(&'a Region, usize),
    ReadTo(&'a Region, usize),
    /// A flag.
    Store(u64),
    Load,
    InPlace(InPlaceWork<'a>),
}

/// What works on memory of a peer's where it lies.
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
        /// As for [`InPlace::run`], and `work` is one of that type, of which there is no other reference.
        unsafe fn run<W: InPlace>(work: *mut (), at: *mut u8, range: Range<usize>) {
            // SAFETY: the caller's promise.
            unsafe { (*work.cast::<W>()).run(at, range) };
        }
        const { check_needs(W::NEEDS) };
        Self { run: run::<W>, work: ptr::from_mut(work).cast(), needs: W::NEEDS, borrowed: PhantomData }
    }
}

impl PeerOp<'_> {
    /// Where its bytes of this process are, of which there are `len`; 0 when it has none.
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

    /// The part of it from `begin` on, of what has its bytes at `local`.
    fn chunk(&self, local: u64, begin: usize, hint: CacheHint) -> MappedOp {
        let from = local.wrapping_add(begin as u64);
        match *self {
            Self::Write(_) | Self::WriteFrom(..) => MappedOp::Write { from, hint },
            Self::Read(_) | Self::ReadTo(..) => MappedOp::Read { to: from, hint },
            Self::Store(bits) => MappedOp::Store { bits },
            Self::Load => MappedOp::Load,
            Self::InPlace(InPlaceWork { run, work, needs, .. }) => MappedOp::InPlace { run, work, begin, needs },
        }
    }
}

impl<R: RawWorker> WorkerCore<R> {
    /// Whether `memory` could be reached by now; `false` when it is not mapped yet, or the peer does not answer.
    pub(crate) fn is_reachable(&mut self, qp: QpHandle, memory: RemoteMemory) -> Result<bool, ReachError> {
        let slot = self.known(qp).map_err(|_| ReachError::ForeignWorker { qp_num: qp.qp_num })?;
        let (remote_addr, len, rkey) = (memory.addr, memory.len, memory.rkey.0);
        // SAFETY: it has nothing here.
        let reached =
            unsafe { self.raw.access_mapped(slot, &MappedAccess { remote_addr, len, rkey, op: MappedOp::Probe }) }?;
        Ok(reached != MappedOutcome::NotYet)
    }

    /// A window of the peer, waiting until it is mapped.
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

    /// Reaches `len` bytes from `offset` of `memory`, waiting until it is mapped; of a load, what was there. The first chunk
    /// of it is done whatever the time is, if nothing is to be waited for.
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
                // SAFETY: `local` says of each kind that its bytes are there: borrowed for this call, or of a region that
                // is alive; so is what works in place. Of those that others may be writing no reference exists. A flag was
                // looked at above.
                match unsafe { self.raw.access_mapped(slot, &raw) }? {
                    MappedOutcome::Done(bits) => break bits,
                    MappedOutcome::NotYet => {
                        let paused =
                            backoff.get_or_insert_with(|| Backoff::without_spins(deadline)).pause();
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
