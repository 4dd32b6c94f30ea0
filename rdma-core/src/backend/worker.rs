//! The worker's core: owned buffers in, completions out, over either backend.
//!
//! It resolves what a request names into addresses and keys, keeps the memory in flight, and
//! turns what the device reports into completions in posting order. The unsafe promise that
//! the backend asks for (memory stays valid until the completion or the destruction) is kept
//! by [`Ring`](super::in_flight::Ring) and by nothing else.

mod fence;
mod poll;
mod post;
mod mapped_access;
mod regions;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use post::Batch;
pub(crate) use mapped_access::{InPlaceWork, PeerOp};

use super::in_flight::{Queue, Ring, Tag};
use super::interface::{RawCompletion, RawRecv, RawSend, RawWorker, SENTINELS, Slot};
use super::work::Completion;
use crate::error::{ConnectError, CreateError, PollError};
use crate::memory::{PdId, fork};
use crate::{
    Deadline, Endpoint, InitOptions, PathOptions, PeerAccess, Psn, QpNum, QpState, QueuePairOptions,
    RetryOptions, WorkerOptions,
};
use regions::Regions;

/// Completions taken from the device at a time.
const POLL_BATCH: usize = 64;

/// Names a queue pair of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QpHandle {
    pub(crate) worker: u32,
    pub(crate) slot: Slot,
    pub(crate) generation: u8,
    pub(crate) qp_num: QpNum,
}

/// What the core keeps of a queue pair.
struct Qp {
    num: QpNum,
    slot: Slot,
    generation: u8,
    pd: PdId,
    send: Ring,
    /// One deeper than asked for: the fence's sentinel always fits.
    recv: Ring,
    max_inline_data: u32,
    reserved: u64,
}

impl Qp {
    #[inline]
    fn ring(&mut self, queue: Queue) -> &mut Ring {
        match queue {
            Queue::Send => &mut self.send,
            Queue::Recv => &mut self.recv,
        }
    }
}

/// A slot, and what outlives its queue pairs.
#[derive(Default)]
struct QpEntry {
    generation: u8,
    /// Sequences of the next requests. They go on from one queue pair to the next, so that what
    /// a device still says of one is not taken for its successor's when generations repeat.
    next_send: u64,
    next_recv: u64,
    qp: Option<Qp>,
}

impl QpEntry {
    /// Its queue pair, if that is of `generation`.
    #[inline]
    fn named(&mut self, generation: u8) -> Option<&mut Qp> {
        self.qp.as_mut().filter(|qp| qp.generation == generation)
    }
}

/// See the module.
pub(crate) struct WorkerCore<R: RawWorker> {
    raw: R,
    id: u32,
    /// The process that made it: a forked child inherits the value, not the right to end queue pairs.
    pid: u32,
    options: WorkerOptions,
    /// By slot.
    qps: Vec<QpEntry>,
    regions: Regions,
    /// Completions decoded and not yet taken. Its capacity covers all that can be in flight.
    ready: VecDeque<Completion>,
    polled: Box<[RawCompletion]>,
    /// Set once the device's word cannot be trusted any more.
    broken: Option<u64>,
    sends: Vec<RawSend>,
    recvs: Vec<RawRecv>,
    /// Entries of the completion queue that queue pairs have reserved.
    reserved: u64,
}

static NEXT_WORKER: AtomicU32 = AtomicU32::new(1);

impl<R: RawWorker> WorkerCore<R> {
    pub(crate) fn new(raw: R, options: WorkerOptions) -> Self {
        Self {
            raw,
            id: NEXT_WORKER.fetch_add(1, Ordering::Relaxed),
            pid: fork::pid(),
            options,
            qps: Vec::new(),
            regions: Regions::default(),
            ready: VecDeque::new(),
            polled: vec![RawCompletion::default(); POLL_BATCH].into(),
            broken: None,
            sends: Vec::new(),
            recvs: Vec::new(),
            reserved: 0,
        }
    }

    pub(crate) fn create_qp(
        &mut self,
        pd: &R::Pd,
        pd_id: PdId,
        options: &QueuePairOptions,
    ) -> Result<QpHandle, CreateError> {
        let (max_send, max_recv) =
            (options.max_send_wr.max(1), options.max_recv_wr.saturating_add(SENTINELS));
        let needed = u64::from(max_send) + u64::from(max_recv);
        let free = u64::from(self.options.max_cqe).saturating_sub(self.reserved);
        if !self.options.allow_overrun && needed > free {
            return Err(CreateError::CompletionQueueTooSmall { needed, free, max_cqe: self.options.max_cqe });
        }
        let slot = self.free_slot()?;
        let asked = QueuePairOptions { max_send_wr: max_send, ..options.clone() };
        let num = self.raw.create_qp(slot, pd, &asked)?;
        self.reserved += needed;
        let QpEntry { generation, next_send, next_recv, .. } = self.qps[usize::from(slot)];
        let send = Ring::new(max_send as usize, next_send);
        let recv = Ring::new(max_recv as usize, next_recv);
        self.sends.reserve(max_send as usize);
        self.recvs.reserve(max_recv as usize);
        self.ready.reserve(self.in_flight_max() + send.capacity() + recv.capacity());
        let qp = Qp {
            num,
            slot,
            generation,
            pd: pd_id,
            send,
            recv,
            max_inline_data: options.max_inline_data,
            reserved: needed,
        };
        self.qps[usize::from(slot)].qp = Some(qp);
        Ok(QpHandle { worker: self.id, slot, generation, qp_num: num })
    }

    fn free_slot(&mut self) -> Result<Slot, CreateError> {
        let index = self.qps.iter().position(|place| place.qp.is_none()).unwrap_or(self.qps.len());
        let beyond = CreateError::BeyondLimit {
            option: "queue pairs of one worker",
            asked: index as u64 + 1,
            limit: 1 << 16,
        };
        let slot = Slot::try_from(index).map_err(|_| beyond)?;
        if index == self.qps.len() {
            self.qps.push(QpEntry::default());
        }
        Ok(slot)
    }

    fn in_flight_max(&self) -> usize {
        self.qps
            .iter()
            .filter_map(|place| place.qp.as_ref())
            .map(|qp| qp.send.capacity() + qp.recv.capacity())
            .sum()
    }

    #[inline]
    fn qp(&mut self, handle: QpHandle) -> Option<&mut Qp> {
        if handle.worker != self.id {
            return None;
        }
        self.qps.get_mut(usize::from(handle.slot))?.named(handle.generation)
    }

    fn known(&mut self, handle: QpHandle) -> Result<Slot, ConnectError> {
        match self.qp(handle) {
            Some(_) => Ok(handle.slot),
            None => Err(ConnectError::ForeignWorker { qp_num: handle.qp_num }),
        }
    }

    pub(crate) fn modify_to_init(&mut self, qp: QpHandle, options: &InitOptions) -> Result<(), ConnectError> {
        let slot = self.known(qp)?;
        self.raw.modify_to_init(slot, options)
    }

    pub(crate) fn modify_to_rtr(
        &mut self,
        qp: QpHandle,
        peer: &Endpoint,
        options: &PathOptions,
    ) -> Result<(), ConnectError> {
        let slot = self.known(qp)?;
        self.raw.modify_to_rtr(slot, peer, options)
    }

    pub(crate) fn modify_to_rts(
        &mut self,
        qp: QpHandle,
        psn: Psn,
        options: &RetryOptions,
    ) -> Result<(), ConnectError> {
        let slot = self.known(qp)?;
        self.raw.modify_to_rts(slot, psn, options)
    }

    pub(crate) fn query_state(&mut self, qp: QpHandle) -> Result<QpState, ConnectError> {
        let slot = self.known(qp)?;
        Ok(self.raw.query_state(slot)?)
    }

    pub(crate) fn peer_access(&mut self, qp: QpHandle) -> Result<PeerAccess, ConnectError> {
        let slot = self.known(qp)?;
        Ok(self.raw.peer_access(slot))
    }

    pub(crate) fn request_notify(&mut self) -> Result<(), PollError> {
        self.raw.request_notify()
    }

    pub(crate) fn consume_events(&mut self) -> Result<(), PollError> {
        self.raw.consume_events()
    }

    pub(crate) fn channel_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.raw.channel_fd()
    }

    /// Frees the slot of a destroyed queue pair.
    fn forget_qp(&mut self, slot: Slot) {
        if let Some(place) = self.qps.get_mut(usize::from(slot))
            && let Some(qp) = place.qp.take()
        {
            self.reserved -= qp.reserved;
            place.generation = Tag::next_generation(place.generation);
            (place.next_send, place.next_recv) = (qp.send.next_sequence(), qp.recv.next_sequence());
        }
    }
}

impl<R: RawWorker> Drop for WorkerCore<R> {
    fn drop(&mut self) {
        // All together have that time.
        let deadline = Deadline::in_drop();
        for slot in 0..self.qps.len() {
            let Some(qp) = self.qps[slot].qp.take() else { continue };
            if let Err(error) = self.raw.destroy_qp(slot as Slot, deadline) {
                tracing::error!(%error, qp = %qp.num, "destroying a queue pair failed; its memory in flight is leaked");
                std::mem::forget(qp);
                // Attached regions may be in flight as well.
                self.regions.leak();
            }
        }
    }
}
