//! The worker core: takes owned requests, returns completions, over either backend.
//!
//! [`post`] resolves the memory that a request names into addresses and keys, [`poll`] turns the reports of the device
//! into completions in posting order, [`fence`] ends queue pairs, [`mapped_access`] touches peer memory without a
//! request. A backend asks for one unsafe promise: memory stays valid until the completion or the destruction. Only the
//! [`Ring`]s and [`Regions`] keep it.

mod fence;
#[cfg(any(test, fuzzing))]
#[path = "tests/fuzz.rs"]
pub(crate) mod fuzz;
mod mapped_access;
mod poll;
mod post;
mod regions;
#[cfg(any(test, fuzzing))]
#[path = "tests/scripted.rs"]
mod scripted;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use mapped_access::{InPlaceWork, PeerOp};
pub(crate) use post::Batch;

use super::in_flight::{Queue, Ring, Tag};
use super::interface::{RawCompletion, RawRecv, RawSend, RawWorker, SENTINELS, Slot};
use super::work::Completion;
use crate::error::{ConnectError, CreateError, PollError};
use crate::log::Hold;
use crate::memory::PdId;
use crate::metrics;
use crate::{
    Deadline, Endpoint, InitOptions, PathOptions, PeerAccess, Psn, QpNum, QpState, QueuePairOptions,
    RetryOptions, WorkerOptions,
};
use regions::Regions;

/// Completions taken from the device in one call, at most.
const POLL_BATCH: usize = 64;

/// The name of a queue pair: its worker, slot and generation, so that a stale handle never names a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QpHandle {
    pub(crate) worker: u32,
    pub(crate) slot: Slot,
    pub(crate) generation: u8,
    pub(crate) qp_num: QpNum,
}

/// A queue pair with its requests in flight.
struct Qp {
    num: QpNum,
    slot: Slot,
    generation: u8,
    pd: PdId,
    send: Ring,
    /// Deeper than asked for by [`SENTINELS`], so that the sentinel of the fence always fits.
    recv: Ring,
    max_inline_data: u32,
    /// Completion queue entries that this queue pair may fill.
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

/// The entry of one slot, with the counters that outlive its queue pairs.
#[derive(Default)]
struct QpEntry {
    generation: u8,
    /// Sequences of the next requests. They go on from one queue pair to the next: generations repeat after 128 queue
    /// pairs, and a late completion of a destroyed queue pair must not match a request of the current one.
    next_send: u64,
    next_recv: u64,
    qp: Option<Qp>,
}

impl QpEntry {
    /// Returns the queue pair, if it has this generation.
    #[inline]
    fn named(&mut self, generation: u8) -> Option<&mut Qp> {
        self.qp.as_mut().filter(|qp| qp.generation == generation)
    }
}

/// A completion queue with its queue pairs, the requests in flight and the attached regions.
pub(crate) struct WorkerCore<R: RawWorker> {
    raw: R,
    id: u32,
    options: WorkerOptions,
    /// Queue pairs by slot.
    qps: Vec<QpEntry>,
    regions: Regions,
    /// Completions decoded and not yet returned. The capacity covers all requests that can be in flight, so polling
    /// never allocates.
    ready: VecDeque<Completion>,
    polled: Box<[RawCompletion]>,
    /// The `wr_id` of the first completion that cannot be right. Once set, polling only fails: the device can no longer
    /// be trusted about which memory it is done with.
    broken: Option<u64>,
    /// Requests of the current batch, gathered for one doorbell.
    sends: Vec<RawSend>,
    recvs: Vec<RawRecv>,
    /// Completion queue entries that all queue pairs may fill together.
    reserved: u64,
}

static NEXT_WORKER: AtomicU32 = AtomicU32::new(1);

impl<R: RawWorker> WorkerCore<R> {
    pub(crate) fn new(raw: R, options: WorkerOptions) -> Self {
        Self {
            raw,
            id: NEXT_WORKER.fetch_add(1, Ordering::Relaxed),
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

    /// Creates a queue pair in a free slot.
    ///
    /// Unless overruns are allowed, its requests must fit into the completion queue beside those of all others,
    /// because an overrun loses completions, and with them every queue pair of the worker.
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
        let _lines = Hold::new();
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
        metrics::queue_pairs(1);
        Ok(QpHandle { worker: self.id, slot, generation, qp_num: num })
    }

    /// Completions that the queue can hold at present.
    pub(crate) fn cqe_reserved(&self) -> u32 {
        // The cast is exact: the minimum is at most a `u32`.
        self.reserved.min(self.options.max_cqe.into()) as u32
    }

    /// Finds a free slot, or adds one.
    fn free_slot(&mut self) -> Result<Slot, CreateError> {
        let index = self.qps.iter().position(|entry| entry.qp.is_none()).unwrap_or(self.qps.len());
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

    /// The number of requests that can be in flight on all queue pairs together.
    fn in_flight_max(&self) -> usize {
        self.qps
            .iter()
            .filter_map(|entry| entry.qp.as_ref())
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

    /// Returns the slot of a queue pair, or the error of a handle that is stale or of another worker.
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

    /// Frees the slot of a destroyed queue pair for a successor of the next generation.
    fn forget_qp(&mut self, slot: Slot) {
        if let Some(entry) = self.qps.get_mut(usize::from(slot))
            && let Some(qp) = entry.qp.take()
        {
            self.reserved -= qp.reserved;
            metrics::queue_pairs(-1);
            entry.generation = Tag::next_generation(entry.generation);
            (entry.next_send, entry.next_recv) = (qp.send.next_sequence(), qp.recv.next_sequence());
        }
    }
}

impl<R: RawWorker> Drop for WorkerCore<R> {
    fn drop(&mut self) {
        let _lines = Hold::new();
        // All queue pairs share one deadline, because a drop must not block for long.
        let deadline = Deadline::in_drop();
        for slot in 0..self.qps.len() {
            let Some(qp) = self.qps[slot].qp.take() else { continue };
            metrics::queue_pairs(-1);
            if let Err(error) = self.raw.destroy_qp(slot as Slot, deadline) {
                let num = qp.num;
                std::mem::forget(qp);
                // The device may still access attached regions, too: they must stay mapped.
                self.regions.leak();
                crate::log::error!(%error, qp = %num, "a queue pair could not be destroyed; its memory in flight is leaked");
            }
        }
    }
}
