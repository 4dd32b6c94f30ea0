//! From owned requests to addresses and keys, one doorbell a batch.

#![expect(unsafe_code, reason = "vouches to the backend for the memory in flight")]

use std::mem::ManuallyDrop;
use std::slice::from_ref;

use super::super::in_flight::{Entry, Queue, Tag};
use super::super::interface::{RawOpcode, RawPostError, RawRecv, RawSend, RawWorker};
use super::super::work::{Attached, AttachedRange, MESSAGE_BYTES_MAX, Operation, Segment, Work};
use super::{Core, Qp, QpHandle};
use crate::error::{DetachError, PartialPost, PostError, PostRefused};
use crate::memory::PdId;
use crate::{Access, Region, RemoteKey, RemoteMemory, WorkId};

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
    core: &'w mut Core<R>,
    qp: QpHandle,
}

impl<R: RawWorker> Core<R> {
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
        drop(self.take_back());
        Batch { core: self, qp }
    }

    pub(crate) fn post(&mut self, qp: QpHandle, work: Work) -> Result<WorkId, PostRefused<Work>> {
        drop(self.take_back());
        let (id, local) = match self.admit(qp, &work) {
            Ok(admitted) => admitted,
            Err(error) => return Err(PostRefused { work, error }),
        };
        let raw = raw(id, &work, &local);
        // Should anything panic in between, the device has the memory for ever.
        let work = ManuallyDrop::new(work);
        self.begin(&local);
        let (verb, posted) = match &raw {
            // SAFETY: the range was resolved from memory that `work` owns (or the attached region's count now keeps), and the
            // ring, which has room, gets it next, to be kept until the completion or the destruction.
            Raw::Send(send) => ("ibv_post_send", unsafe { self.raw.post_send(qp.slot, from_ref(send)) }),
            // SAFETY: as above.
            Raw::Recv(recv) => ("ibv_post_recv", unsafe { self.raw.post_recv(qp.slot, from_ref(recv)) }),
        };
        match posted {
            Ok(()) | Err(RawPostError { posted: 1.., .. }) => {
                self.keep(qp, work, &local);
                Ok(id)
            }
            Err(RawPostError { posted: 0, source }) => {
                if let Some(index) = local.region {
                    self.regions.end(index);
                }
                let (work, error) = (ManuallyDrop::into_inner(work), PostError::Refused { verb, source });
                Err(PostRefused { work, error })
            }
        }
    }

    /// Checks a request. What it will be called, and what the device is told of its memory.
    #[inline]
    fn admit(&mut self, handle: QpHandle, work: &Work) -> Result<(WorkId, Local), PostError> {
        let local = self.resolve(&work.segment)?;
        let Some(qp) = self.qp(handle) else {
            return Err(PostError::ForeignWorker { qp_num: handle.qp_num });
        };
        qp.check(work, &local)?;
        let queue = queue_of(work);
        let sequence = qp.ring(queue).next_sequence();
        let id = Tag { slot: handle.slot, generation: handle.generation, queue, sequence }.encode();
        Ok((id, local))
    }

    /// Enters a request that was admitted into its ring, which has room for it.
    #[inline]
    fn keep(&mut self, handle: QpHandle, work: ManuallyDrop<Work>, local: &Local) {
        let Some((_, place)) = self.qp(handle).and_then(|qp| qp.ring(queue_of(&work)).newest()) else {
            return debug_assert!(false, "an admitted request without a place");
        };
        // What was admitted has at most 2^31 bytes.
        let (work, bytes) = (ManuallyDrop::into_inner(work), local.len as u32);
        *place = Some(Entry { work, region: local.region, bytes, sentinel: false });
    }

    /// A request is about to use its region.
    #[inline]
    fn begin(&mut self, local: &Local) {
        if let Some(index) = local.region {
            self.regions.begin(index);
        }
    }

    #[inline]
    fn resolve(&self, segment: &Segment) -> Result<Local, PostError> {
        match segment {
            Segment::Empty => Ok(Local::default()),
            Segment::Owned(buffer) => Ok(Local {
                addr: buffer.address(),
                len: buffer.len() as u64,
                lkey: buffer.lkey().0,
                memory: Some((buffer.memory().pd(), buffer.memory().access())),
                region: None,
            }),
            Segment::Attached(range) => self.resolve_attached(range),
        }
    }

    #[inline]
    fn resolve_attached(&self, range: &AttachedRange) -> Result<Local, PostError> {
        if range.region.worker != self.id {
            return Err(PostError::NotAttached);
        }
        let found = self.regions.resolve(range)?;
        Ok(Local {
            addr: found.addr,
            len: range.len as u64,
            lkey: found.lkey,
            memory: Some((found.pd, found.access)),
            region: Some(found.index),
        })
    }

    /// Takes what is gathered and not posted out of its rings again, receives first.
    ///
    /// Asked before anything else is gathered, too: a batch that was forgotten
    /// ([`std::mem::forget`]) left its requests behind, which must not go out on another queue pair.
    #[inline]
    pub(super) fn take_back(&mut self) -> Vec<Work> {
        if self.sends.is_empty() && self.recvs.is_empty() { Vec::new() } else { self.take_back_gathered() }
    }

    #[cold]
    fn take_back_gathered(&mut self) -> Vec<Work> {
        let (receives, sends) = (self.recvs.len(), self.sends.len());
        let Some(wr_id) =
            self.sends.first().map(|it| it.wr_id).or_else(|| self.recvs.first().map(|it| it.wr_id))
        else {
            return Vec::new();
        };
        self.recvs.clear();
        self.sends.clear();
        let Tag { slot, generation, .. } = Tag::decode(wr_id);
        let Some(qp) = self.qps.get_mut(usize::from(slot)).and_then(|place| place.named(generation)) else {
            return Vec::new();
        };
        let mut works = Vec::with_capacity(receives + sends);
        for (queue, count) in [(Queue::Send, sends), (Queue::Recv, receives)] {
            for _ in 0..count {
                let Some(entry) = qp.ring(queue).pop_newest() else { break };
                if let Some(index) = entry.region {
                    self.regions.end(index);
                }
                works.push(entry.work);
            }
        }
        works.reverse();
        works
    }
}

impl<R: RawWorker> Batch<'_, R> {
    /// Adds a request. A full queue gives it back.
    pub(crate) fn push(&mut self, work: Work) -> Result<WorkId, PostRefused<Work>> {
        let (id, local) = match self.core.admit(self.qp, &work) {
            Ok(admitted) => admitted,
            Err(error) => return Err(PostRefused { work, error }),
        };
        let raw = raw(id, &work, &local);
        self.core.begin(&local);
        self.core.keep(self.qp, ManuallyDrop::new(work), &local);
        match raw {
            Raw::Send(send) => self.core.sends.push(send),
            Raw::Recv(recv) => self.core.recvs.push(recv),
        }
        Ok(id)
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
            let written = is_recv || matches!(work.operation, Operation::Read { .. });
            if written && !access.contains(Access::LOCAL_WRITE) {
                return Err(PostError::AccessDenied);
            }
        }
        if let Operation::Write { to: remote, .. } | Operation::Read { from: remote } = work.operation
            && remote.len != local.len
        {
            return Err(PostError::LengthMismatch { local: local.len, remote: remote.len });
        }
        let can_inline = !is_recv && !matches!(work.operation, Operation::Read { .. });
        if work.inline && can_inline && local.len > u64::from(self.max_inline_data) {
            return Err(PostError::InlineTooLong { len: local.len as usize, limit: self.max_inline_data });
        }
        Ok(())
    }
}

impl<R: RawWorker> Drop for Batch<'_, R> {
    fn drop(&mut self) {
        drop(self.core.take_back());
    }
}

#[inline]
fn queue_of(work: &Work) -> Queue {
    if work.operation == Operation::Recv { Queue::Recv } else { Queue::Send }
}

#[inline]
fn raw(id: WorkId, work: &Work, local: &Local) -> Raw {
    let nothing = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };
    let (wr_id, addr, len, lkey) = (id.0, local.addr, local.len as u32, local.lkey);
    let (opcode, remote, imm) = match work.operation {
        Operation::Recv => return Raw::Recv(RawRecv { wr_id, addr, len, lkey }),
        Operation::Send { imm: None } => (RawOpcode::Send, nothing, None),
        Operation::Send { imm } => (RawOpcode::SendImm, nothing, imm),
        Operation::Write { to, imm: None } => (RawOpcode::Write, to, None),
        Operation::Write { to, imm } => (RawOpcode::WriteImm, to, imm),
        Operation::Read { from } => (RawOpcode::Read, from, None),
    };
    Raw::Send(RawSend {
        wr_id,
        opcode,
        signalled: work.signalled,
        inline: work.inline && opcode != RawOpcode::Read,
        addr,
        len,
        lkey,
        remote_addr: remote.addr,
        rkey: remote.rkey.0,
        imm: imm.unwrap_or(0),
        expect: work.expect,
    })
}
