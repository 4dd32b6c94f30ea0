//! Posting: checks owned requests, resolves them to addresses and keys, and rings one doorbell a batch.

#![expect(unsafe_code, reason = "vouches to the backend for the memory in flight")]

use std::slice::from_ref;

use super::super::in_flight::{Entry, Queue, Tag};
use super::super::interface::{RawOpcode, RawPostError, RawRecv, RawSend, RawWorker};
use super::super::work::{Attached, MESSAGE_BYTES_MAX, Operation, Segment, Work};
use super::regions::AttachedRegion;
use super::{Qp, QpHandle, WorkerCore};
use crate::error::{DetachError, PartialPost, PostError, PostRefused};
use crate::log::Hold;
use crate::memory::PdId;
use crate::{Access, Region, WorkId};

/// The local memory of a request, as the device gets it.
#[derive(Clone, Copy, Default)]
struct LocalRange {
    addr: u64,
    len: u64,
    lkey: u32,
    /// The protection domain and the rights of the registration; `None` for the empty segment.
    memory: Option<(PdId, Access)>,
    /// The index of the attached region, if the range is of one.
    region: Option<u32>,
}

impl LocalRange {
    /// Returns the range with the key of the memory's registration in `pd`, if it has one beside its first.
    fn in_domain(mut self, pd: PdId, work: &Work, attached: Option<&AttachedRegion>) -> LocalRange {
        let keys = match &work.segment {
            Segment::Owned(buffer) => buffer.memory().keys_in(pd),
            _ => attached.and_then(|attached| attached.keys_in(pd)),
        };
        if let (Some(keys), Some((domain, _))) = (keys, &mut self.memory) {
            (self.lkey, *domain) = (keys.lkey.0, pd);
        }
        self
    }
}

/// A request as the device gets it.
enum RawRequest {
    Send(RawSend),
    Recv(RawRecv),
}

/// Requests gathered for one doorbell. Dropping an unsubmitted batch posts none of them.
pub(crate) struct Batch<'w, R: RawWorker> {
    core: &'w mut WorkerCore<R>,
    qp: QpHandle,
}

impl<R: RawWorker> WorkerCore<R> {
    pub(crate) fn attach(&mut self, region: Region) -> Attached {
        self.regions.attach(self.id, region)
    }

    pub(crate) fn detach(&mut self, attached: Attached) -> Result<Region, DetachError> {
        if attached.worker != self.id {
            return Err(DetachError::NotAttached);
        }
        self.regions.detach(attached)
    }

    /// Begins a batch for a queue pair.
    pub(crate) fn batch(&mut self, qp: QpHandle) -> Batch<'_, R> {
        self.forget_gathered();
        Batch { core: self, qp }
    }

    /// Posts a request with a doorbell of its own. The device either takes it, or the request comes back with the
    /// error.
    pub(crate) fn post(&mut self, qp: QpHandle, mut work: Work) -> Result<WorkId, PostRefused<Work>> {
        self.forget_gathered();
        let raw = match self.enter(qp, &mut work) {
            Ok(raw) => raw,
            Err(error) => return Err(PostRefused { work, error }),
        };
        let (verb, wr_id, posted) = match &raw {
            RawRequest::Send(send) => {
                // SAFETY: `enter` resolved the range from memory that the ring entry, or the count of the attached
                // region, now keeps until the completion or the destruction. The ring had room, so the queue has.
                let posted = unsafe { self.raw.post_send(qp.slot, from_ref(send)) };
                ("ibv_post_send", send.wr_id, posted)
            }
            RawRequest::Recv(recv) => {
                // SAFETY: the ring entry or the region's count keeps the resolved memory, since `enter` succeeded; the
                // receive ring had room, so the queue has.
                let posted = unsafe { self.raw.post_recv(qp.slot, from_ref(recv)) };
                ("ibv_post_recv", recv.wr_id, posted)
            }
        };
        match posted {
            Err(RawPostError { posted: 0, source }) => {
                self.refuse(wr_id, PostError::Refused { verb, source })
            }
            Ok(()) | Err(_) => Ok(WorkId(wr_id)),
        }
    }

    /// Gives the newest request of a queue back, because the device refused it.
    #[cold]
    fn refuse(&mut self, wr_id: u64, error: PostError) -> Result<WorkId, PostRefused<Work>> {
        match self.take_newest(Tag::decode(wr_id)) {
            Some(work) => Err(PostRefused { work, error }),
            // Unreachable: only this thread removes entries. Reporting the request as posted loses no memory.
            None => Ok(WorkId(wr_id)),
        }
    }

    /// Checks a request, moves it into its ring, and returns what the device gets.
    ///
    /// The request is read through the reference and moved last: moving it first would delay every load of its fields
    /// until the copy is stored.
    #[inline(always)]
    fn enter(&mut self, handle: QpHandle, work: &mut Work) -> Result<RawRequest, PostError> {
        let (mut local, mut attached) = (LocalRange::default(), None);
        match &work.segment {
            Segment::Empty => {}
            Segment::Owned(buffer) => {
                (local.addr, local.len, local.lkey) =
                    (buffer.address(), buffer.len() as u64, buffer.lkey().0);
                local.memory = Some((buffer.memory().pd(), buffer.memory().access()));
            }
            Segment::Attached(range) => {
                let found =
                    if range.region.worker == self.id { self.regions.get(range.region) } else { None };
                let Some(found) = found else { return Err(PostError::NotAttached) };
                (local.addr, local.lkey) = (found.address_of(range)?, found.lkey);
                local.memory = Some((found.pd, found.access));
                (local.len, local.region) = (range.len as u64, Some(range.region.index));
                attached = Some(found);
            }
        }
        let entry = self.qps.get_mut(usize::from(handle.slot)).filter(|_| handle.worker == self.id);
        let Some(qp) = entry.and_then(|entry| entry.named(handle.generation)) else {
            return Err(PostError::ForeignWorker { qp_num: handle.qp_num });
        };
        if let Err(error) = qp.check(work, &local) {
            local = qp.check_other_domains(error, work, local, attached.as_deref())?;
        }
        let queue = if work.operation == Operation::Recv { Queue::Recv } else { Queue::Send };
        let ring = qp.ring(queue);
        let capacity = ring.capacity() as u32;
        let Some((sequence, cell)) = ring.reserve_newest() else {
            return Err(PostError::QueueFull { capacity });
        };
        if let Some(region) = attached {
            region.begin();
        }
        let tag = Tag { slot: handle.slot, generation: handle.generation, queue, sequence };
        let raw = raw(tag.encode(), work, &local);
        // The cast is exact: `check` allows at most 2^31 bytes.
        let (region, bytes) = (local.region, local.len as u32);
        debug_assert!(cell.is_none(), "a free ring entry has a request in it");
        // The old value is `None`. Forgetting it spares the compiler's drop code on this path.
        std::mem::forget(cell.replace(Entry { work: work.take(), region, bytes, sentinel: false }));
        Ok(raw)
    }

    /// Removes the gathered, unposted requests from their rings.
    ///
    /// Each post and each new batch must call this first. A batch that was leaked ([`std::mem::forget`]) left its
    /// requests behind, and the next doorbell would send them on another queue pair, whose ring does not keep their
    /// memory.
    #[inline]
    pub(super) fn forget_gathered(&mut self) {
        if !(self.sends.is_empty() && self.recvs.is_empty()) {
            drop(self.take_back());
        }
    }

    /// Removes the gathered requests from their rings and gives them back, receives first.
    #[cold]
    fn take_back(&mut self) -> Vec<Work> {
        let (receives, sends) = (self.recvs.len(), self.sends.len());
        let Some(wr_id) =
            self.sends.first().map(|it| it.wr_id).or_else(|| self.recvs.first().map(|it| it.wr_id))
        else {
            return Vec::new();
        };
        self.recvs.clear();
        self.sends.clear();
        let tag = Tag::decode(wr_id);
        let mut works = Vec::with_capacity(receives + sends);
        for (queue, count) in [(Queue::Send, sends), (Queue::Recv, receives)] {
            works.extend((0..count).map_while(|_| self.take_newest(Tag { queue, ..tag })));
        }
        works.reverse();
        works
    }

    /// Takes the newest request out of the ring that `tag` names.
    fn take_newest(&mut self, tag: Tag) -> Option<Work> {
        let qp = self.qps.get_mut(usize::from(tag.slot))?.named(tag.generation)?;
        let entry = qp.ring(tag.queue).pop_newest()?;
        if let Some(index) = entry.region {
            self.regions.end(index);
        }
        Some(entry.work)
    }
}

impl<R: RawWorker> Batch<'_, R> {
    /// Adds a request to the batch, or gives it back when its queue is full or it cannot be posted.
    pub(crate) fn push(&mut self, mut work: Work) -> Result<WorkId, PostRefused<Work>> {
        match self.core.enter(self.qp, &mut work) {
            Ok(RawRequest::Send(send)) => {
                self.core.sends.push(send);
                Ok(WorkId(send.wr_id))
            }
            Ok(RawRequest::Recv(recv)) => {
                self.core.recvs.push(recv);
                Ok(WorkId(recv.wr_id))
            }
            Err(error) => Err(PostRefused { work, error }),
        }
    }

    /// Posts the batch: the receives first, then the sends, with one doorbell each.
    pub(crate) fn submit(self) -> Result<(), PartialPost<Work>> {
        let _lines = Hold::new();
        let slot = self.qp.slot;
        let core = &mut *self.core;
        let receives = core.recvs.len();
        if receives > 0 {
            // SAFETY: `enter` resolved each range from memory that the ring entry, or the count of the attached region,
            // keeps until the completion or the destruction. The ring had room for all, so the queue has.
            let posted = unsafe { core.raw.post_recv(slot, &core.recvs) };
            if let Err(RawPostError { posted, source }) = posted {
                core.recvs.drain(..posted.min(receives));
                return Err(self.reject(posted, PostError::Refused { verb: "ibv_post_recv", source }));
            }
            core.recvs.clear();
        }
        if !core.sends.is_empty() {
            // SAFETY: ring entries and region counts keep the resolved memory, since `enter` succeeded for each
            // request; the send ring had room for all, so the queue has.
            let posted = unsafe { core.raw.post_send(slot, &core.sends) };
            if let Err(RawPostError { posted, source }) = posted {
                core.sends.drain(..posted.min(core.sends.len()));
                return Err(
                    self.reject(receives + posted, PostError::Refused { verb: "ibv_post_send", source })
                );
            }
            core.sends.clear();
        }
        Ok(())
    }

    /// Posts nothing, and gives the requests back, receives first.
    pub(crate) fn cancel(self) -> Vec<Work> {
        self.core.take_back()
    }

    /// Makes the error of a partial post; the requests that were not posted leave their rings.
    fn reject(self, posted: usize, error: PostError) -> PartialPost<Work> {
        PartialPost { posted, rejected: self.core.take_back(), error }
    }
}

impl Qp {
    /// Checks everything about a request that this side can know, so that a refused one comes back unposted.
    #[inline]
    fn check(&self, work: &Work, local: &LocalRange) -> Result<(), PostError> {
        let is_recv = work.operation == Operation::Recv;
        let is_read = work.operation == Operation::Send(RawOpcode::Read);
        let (ring, capacity) =
            if is_recv { (&self.recv, self.recv.capacity() - 1) } else { (&self.send, self.send.capacity()) };
        if ring.len() >= capacity {
            return Err(PostError::QueueFull { capacity: capacity as u32 });
        }
        if local.len > MESSAGE_BYTES_MAX {
            return Err(PostError::TooLong { len: local.len, limit: MESSAGE_BYTES_MAX });
        }
        if let Some((pd, access)) = local.memory {
            if pd != self.pd {
                return Err(PostError::ForeignProtectionDomain);
            }
            let written = is_recv || is_read;
            if written && !access.contains(Access::LOCAL_WRITE) {
                return Err(PostError::AccessDenied);
            }
        }
        let is_send = matches!(work.operation, Operation::Send(RawOpcode::Send | RawOpcode::SendImm));
        if !is_recv && !is_send && work.remote.len != local.len {
            return Err(PostError::LengthMismatch { local: local.len, remote: work.remote.len });
        }
        if work.inline && !is_recv && !is_read && local.len > u64::from(self.max_inline_data) {
            return Err(PostError::InlineTooLong { len: local.len as usize, limit: self.max_inline_data });
        }
        Ok(())
    }

    /// Checks a request again if the memory's first registration was in another domain than the queue pair. Returns
    /// the local range with the key of its registration here. Behind the refusal, so that other requests do not pay.
    #[cold]
    fn check_other_domains(
        &self,
        error: PostError,
        work: &Work,
        local: LocalRange,
        attached: Option<&AttachedRegion>,
    ) -> Result<LocalRange, PostError> {
        if !matches!(error, PostError::ForeignProtectionDomain) {
            return Err(error);
        }
        let local = local.in_domain(self.pd, work, attached);
        self.check(work, &local)?;
        Ok(local)
    }
}

impl<R: RawWorker> Drop for Batch<'_, R> {
    fn drop(&mut self) {
        self.core.forget_gathered();
    }
}

/// Translates a checked request for the device.
#[inline(always)]
fn raw(id: WorkId, work: &Work, local: &LocalRange) -> RawRequest {
    let (wr_id, addr, len, lkey) = (id.0, local.addr, local.len as u32, local.lkey);
    let opcode = match work.operation {
        Operation::Recv => return RawRequest::Recv(RawRecv { wr_id, addr, len, lkey }),
        Operation::Send(opcode) => opcode,
    };
    RawRequest::Send(RawSend {
        wr_id,
        opcode,
        signalled: work.signalled,
        inline: work.inline && opcode != RawOpcode::Read,
        addr,
        len,
        lkey,
        remote_addr: work.remote.addr,
        rkey: work.remote.rkey.0,
        imm: work.imm,
        hint: work.hint,
    })
}
