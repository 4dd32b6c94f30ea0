//! From owned requests to addresses and keys, one doorbell a batch.

#![expect(unsafe_code, reason = "vouches to the backend for the memory in flight")]

use std::slice::from_ref;

use super::super::in_flight::{Entry, Queue, Tag};
use super::super::interface::{RawOpcode, RawPostError, RawRecv, RawSend, RawWorker};
use super::super::work::{Attached, MESSAGE_BYTES_MAX, Operation, Segment, Work};
use super::{WorkerCore, Qp, QpHandle};
use crate::error::{DetachError, PartialPost, PostError, PostRefused};
use crate::memory::PdId;
use crate::{Access, Region, WorkId};

/// A segment as the device sees it.
#[derive(Clone, Copy, Default)]
struct Local {
    addr: u64,
    len: u64,
    lkey: u32,
    /// Where it was registered and with which rights; `None` for the empty segment.
    memory: Option<(PdId, Access)>,
    region: Option<u32>,
}

/// A request as the device gets it.
enum Raw {
    Send(RawSend),
    Recv(RawRecv),
}

/// Requests gathered for one doorbell. Dropping it unsubmitted posts none of them.
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

    pub(crate) fn batch(&mut self, qp: QpHandle) -> Batch<'_, R> {
        self.forget_gathered();
        Batch { core: self, qp }
    }

    pub(crate) fn post(&mut self, qp: QpHandle, mut work: Work) -> Result<WorkId, PostRefused<Work>> {
        self.forget_gathered();
        let raw = match self.enter(qp, &mut work) {
            Ok(raw) => raw,
            Err(error) => return Err(PostRefused { work, error }),
        };
        let (verb, wr_id, posted) = match &raw {
            Raw::Send(send) => {
                // SAFETY: the range was resolved from memory that its ring entry (or the attached region's count) now keeps
                // until the completion or the destruction; the ring had room.
                let posted = unsafe { self.raw.post_send(qp.slot, from_ref(send)) };
                ("ibv_post_send", send.wr_id, posted)
            }
            Raw::Recv(recv) => {
                // SAFETY: as above.
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

    /// Takes the newest request of a queue back, which the device has not taken.
    #[cold]
    fn refuse(&mut self, wr_id: u64, error: PostError) -> Result<WorkId, PostRefused<Work>> {
        match self.take_newest(Tag::decode(wr_id)) {
            Some(work) => Err(PostRefused { work, error }),
            // Nobody but this thread takes it out: it was posted, as far as anybody can tell.
            None => Ok(WorkId(wr_id)),
        }
    }

    /// Checks a request, and takes it into its ring. What the device is told of it.
    ///
    /// It is looked at where it is: to move it first would hold up all that depends on its fields.
    #[inline(always)]
    fn enter(&mut self, handle: QpHandle, work: &mut Work) -> Result<Raw, PostError> {
        let (mut local, mut held) = (Local::default(), None);
        match &work.segment {
            Segment::Empty => {}
            Segment::Owned(buffer) => {
                (local.addr, local.len, local.lkey) =
                    (buffer.address(), buffer.len() as u64, buffer.lkey().0);
                local.memory = Some((buffer.memory().pd(), buffer.memory().access()));
            }
            Segment::Attached(range) => {
                let found =
                    if range.region.worker == self.id { self.regions.held(range.region) } else { None };
                let Some(found) = found else { return Err(PostError::NotAttached) };
                let it = found.resolve(range)?;
                (local.addr, local.lkey, local.memory) = (it.addr, it.lkey, Some((it.pd, it.access)));
                (local.len, local.region) = (range.len as u64, Some(range.region.index));
                held = Some(found);
            }
        }
        let place = self.qps.get_mut(usize::from(handle.slot)).filter(|_| handle.worker == self.id);
        let Some(qp) = place.and_then(|place| place.named(handle.generation)) else {
            return Err(PostError::ForeignWorker { qp_num: handle.qp_num });
        };
        qp.check(work, &local)?;
        let queue = if work.operation == Operation::Recv { Queue::Recv } else { Queue::Send };
        let ring = qp.ring(queue);
        let capacity = ring.capacity() as u32;
        let Some((sequence, place)) = ring.newest() else {
            return Err(PostError::QueueFull { capacity });
        };
        if let Some(held) = held {
            held.begin();
        }
        let tag = Tag { slot: handle.slot, generation: handle.generation, queue, sequence };
        let raw = raw(tag.encode(), work, &local);
        // What was checked has at most 2^31 bytes.
        let (region, bytes) = (local.region, local.len as u32);
        debug_assert!(place.is_none(), "a place that is free has a request in it");
        // There is nothing in it, and so nothing to be dropped.
        std::mem::forget(place.replace(Entry { work: work.take(), region, bytes, sentinel: false }));
        Ok(raw)
    }

    /// Takes what is gathered and not posted out of its rings again.
    ///
    /// Asked before anything else is gathered, too: a batch that was forgotten
    /// ([`std::mem::forget`]) left its requests behind, which must not go out on another queue pair.
    #[inline]
    pub(super) fn forget_gathered(&mut self) {
        if !(self.sends.is_empty() && self.recvs.is_empty()) {
            drop(self.take_back());
        }
    }

    /// The same, and gives them back, receives first.
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

    /// Takes the newest request out of the queue that `tag` names.
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
    /// Adds a request. A full queue gives it back.
    pub(crate) fn push(&mut self, mut work: Work) -> Result<WorkId, PostRefused<Work>> {
        match self.core.enter(self.qp, &mut work) {
            Ok(Raw::Send(send)) => {
                self.core.sends.push(send);
                Ok(WorkId(send.wr_id))
            }
            Ok(Raw::Recv(recv)) => {
                self.core.recvs.push(recv);
                Ok(WorkId(recv.wr_id))
            }
            Err(error) => Err(PostRefused { work, error }),
        }
    }

    /// Posts what was gathered: the receives, then the rest, one doorbell each.
    pub(crate) fn submit(self) -> Result<(), PartialPost<Work>> {
        let slot = self.qp.slot;
        let core = &mut *self.core;
        let receives = core.recvs.len();
        if receives > 0 {
            // SAFETY: each range was resolved from memory that its ring entry (or the attached
            // region's count) now keeps until the completion or the destruction; the ring had room.
            let posted = unsafe { core.raw.post_recv(slot, &core.recvs) };
            if let Err(RawPostError { posted, source }) = posted {
                core.recvs.drain(..posted.min(receives));
                return Err(self.reject(posted, PostError::Refused { verb: "ibv_post_recv", source }));
            }
            core.recvs.clear();
        }
        if !core.sends.is_empty() {
            // SAFETY: as above.
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

    /// Posts nothing and gives the requests back, receives first.
    pub(crate) fn cancel(self) -> Vec<Work> {
        self.core.take_back()
    }

    fn reject(self, posted: usize, error: PostError) -> PartialPost<Work> {
        PartialPost { posted, rejected: self.core.take_back(), error }
    }
}

impl Qp {
    /// Checks everything that can be checked here.
    #[inline]
    fn check(&self, work: &Work, local: &Local) -> Result<(), PostError> {
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
}

impl<R: RawWorker> Drop for Batch<'_, R> {
    fn drop(&mut self) {
        self.core.forget_gathered();
    }
}

#[inline(always)]
fn raw(id: WorkId, work: &Work, local: &Local) -> Raw {
    let (wr_id, addr, len, lkey) = (id.0, local.addr, local.len as u32, local.lkey);
    let opcode = match work.operation {
        Operation::Recv => return Raw::Recv(RawRecv { wr_id, addr, len, lkey }),
        Operation::Send(opcode) => opcode,
    };
    Raw::Send(RawSend {
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
