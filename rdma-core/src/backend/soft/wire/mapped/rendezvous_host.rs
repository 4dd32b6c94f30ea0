//! What the rendezvous asks and tells: who is invited where.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::super::super::fabric::State;
use super::super::super::options::Wire;
use super::super::super::qp::Carrier;
use super::super::shm::rendezvous::{AcceptedInvitation, Host, Invitation, Refusal, UnmappedReason};
use super::super::shm::{MapRefused, RemoteResponder, Segment};
use super::super::{DeviceRef, Hello, QpRef};
use super::Outgoing;
use crate::memory::Patch;

impl Host for State {
    fn has_other_wire(&self, device: DeviceRef) -> bool {
        self.devices.get(device).is_some_and(|device| device.wire == Wire::Auto)
    }

    fn accept(&mut self, hello: &Hello) -> Option<QpRef> {
        self.responder_for(hello)
    }

    fn invite(&mut self, qp: QpRef, writer: Arc<OwnedFd>) -> Result<Invitation, Refusal> {
        self.invitation(qp, writer).map_err(|error| {
            tracing::warn!(%error, "a peer of this host cannot be invited; it takes another wire");
            Refusal::limit(&error)
        })
    }

    fn invited(
        &mut self,
        now: Instant,
        id: QpRef,
        invited: AcceptedInvitation,
    ) -> Result<(), UnmappedReason> {
        let AcceptedInvitation { mailbox, keys, doorbell } = invited;
        let responder = RemoteResponder::new(&Arc::new(mailbox), &Arc::new(keys))?;
        if let Some(qp) = self.qps.get_mut(id) {
            self.discarded.outgoing(qp.mapped.outgoing.replace(Box::new(Outgoing { responder, doorbell })));
            (qp.mapped.awaited_memory, qp.mapped.peer_gone, qp.mapped.unmet_reason) = (None, false, None);
            qp.requester.resend();
            self.pump(now, id);
        }
        Ok(())
    }

    fn existing_mapping(&mut self, id: QpRef, memory: u64) -> Option<Arc<Segment>> {
        let peer = self.qps.get(id)?.peer?;
        self.peer_memories.get(&(peer.gid, memory))?.upgrade()
    }

    fn add_memory(&mut self, now: Instant, id: QpRef, memory: u64, segment: Arc<Segment>) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        let Some(outgoing) = &mut qp.mapped.outgoing else { return };
        if let Some(peer) = qp.peer {
            // Before it grows, those go that no queue pair uses any more.
            if self.peer_memories.len() == self.peer_memories.capacity() {
                self.peer_memories.retain(|_, segment| segment.strong_count() > 0);
            }
            self.peer_memories.insert((peer.gid, memory), Arc::downgrade(&segment));
        }
        self.discarded.memory(outgoing.responder.add_memory(memory, segment));
        self.memory_arrived(now, id, memory);
    }

    fn patch_memory(
        &mut self,
        now: Instant,
        id: QpRef,
        memory: u64,
        patch: &Patch,
    ) -> Result<(), MapRefused> {
        let outgoing = self.qps.get(id).and_then(|qp| qp.mapped.outgoing.as_ref());
        let Some(segment) = outgoing.and_then(|outgoing| outgoing.responder.memory(memory)) else {
            return Ok(());
        };
        segment.patch(patch.memfd.as_fd(), patch.version, (patch.offset, patch.bytes))?;
        self.memory_arrived(now, id, memory);
        Ok(())
    }

    fn resume_memory(&mut self, now: Instant, id: QpRef, memory: u64) {
        self.memory_arrived(now, id, memory);
    }

    fn forget_memory(&mut self, now: Instant, id: QpRef, memory: u64) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        if let Some(outgoing) = &mut qp.mapped.outgoing {
            self.discarded.memory(outgoing.responder.remove_memory(memory));
        }
        if let Some(peer) = qp.peer {
            self.peer_memories.remove(&(peer.gid, memory));
        }
        // Whose key does not stand any more either.
        self.memory_arrived(now, id, memory);
    }

    fn nudged(&mut self, now: Instant, id: QpRef) {
        self.drain_mailbox(now, id);
    }

    fn requester_closed(&mut self, now: Instant, id: QpRef, reason: UnmappedReason) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        let outgoing = qp.mapped.outgoing.take();
        qp.mapped.note_unmet(&reason);
        // One that was never there may have waited too long for its own end, and comes yet.
        qp.mapped.peer_gone |=
            reason.is_departure() && outgoing.is_some() || matches!(reason, UnmappedReason::Dead);
        self.discarded.outgoing(outgoing);
        if qp.carrier != Carrier::Mapped {
            return;
        }
        if reason.is_departure() {
            // As on every wire: silence. What is sent next asks for it again.
            tracing::debug!(qp = %qp.num, %reason, "a peer of this host has left");
        } else {
            self.leave_mapped(id, &reason);
            self.pump(now, id);
        }
    }

    fn responder_closed(&mut self, now: Instant, id: QpRef, reason: &UnmappedReason) {
        self.drain_mailbox(now, id);
        // Its mailbox stays as it is: the peer may come again, or go on over TCP.
        if let Some(qp) = self.qps.get(id) {
            tracing::debug!(qp = %qp.num, %reason, "the connection that a peer of this host was invited on is over");
        }
    }
}

impl State {
    /// The peer of `id` was looked for, and could not be met.
    pub(in super::super::super) fn peer_not_met(&mut self, now: Instant, id: QpRef, reason: &UnmappedReason) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        qp.mapped.note_unmet(reason);
        if reason.is_departure() || matches!(reason, UnmappedReason::NoNeighbour) {
            // It was there once: now it is silent.
            tracing::debug!(qp = %qp.num, %reason, "a peer of this host is not there any more");
        } else {
            self.leave_mapped(id, reason);
            self.pump(now, id);
        }
    }

    /// A memory of the peer has come, or pages of it have: what waited for it is sent again.
    fn memory_arrived(&mut self, now: Instant, id: QpRef, memory: u64) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        if qp.mapped.awaited_memory.take_if(|awaited| *awaited == memory).is_some() {
            qp.requester.resend();
            qp.mapped.reading_socket = true;
            self.pump(now, id);
            if let Some(qp) = self.qps.get_mut(id) {
                qp.mapped.reading_socket = false;
            }
        }
    }

    /// The queue pair that a hello names, if it answers that peer.
    pub(in super::super) fn responder_for(&self, hello: &Hello) -> Option<QpRef> {
        let device = self.devices.get(*self.by_gid.get(&hello.destination_gid)?)?;
        let found = *device.qp_nums.get(&hello.destination_qp.0)?;
        let peer = self.qps.get(found).filter(|qp| qp.state.responds() && !qp.mapped.destroying)?.peer?;
        (peer.gid == hello.source_gid && peer.qp_num == hello.source_qp).then_some(found)
    }

    fn invitation(&mut self, id: QpRef, writer: Arc<OwnedFd>) -> io::Result<Invitation> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        self.create_mailbox(id, writer)?;
        let qp = self.qps.get(id).ok_or_else(gone)?;
        let segment = qp.mapped.incoming.as_ref().ok_or_else(gone)?.mailbox.segment();
        let memfd = segment.memfd().ok_or_else(gone)?.try_clone_to_owned()?;
        let exports = self.devices.get(qp.device).and_then(|device| device.exports.as_ref());
        let exports = exports.ok_or_else(gone)?;
        Ok(Invitation {
            mailbox: (memfd, segment.len() as u64),
            keys: exports.table()?,
            doorbell: self.cqs.get(qp.cq).ok_or_else(gone)?.doorbell()?,
            memories: exports.announced(),
        })
    }
}
