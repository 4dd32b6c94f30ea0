//! The state's side of the rendezvous: invites writers, and handles what their owners announce.

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
            crate::log::warn!(%error, "a peer of this host cannot be invited; that peer takes another wire");
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
            // A requester that comes again gets fresh segments; its old mappings are dropped after the lock is
            // released.
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
            // Entries whose mapping no queue pair has any more are removed before the map grows.
            if self.peer_memories.len() == self.peer_memories.capacity() {
                self.peer_memories.retain(|_, segment| segment.strong_count() > 0);
            }
            self.peer_memories.insert((peer.gid, memory), Arc::downgrade(&segment));
        }
        self.discarded.memories.extend(outgoing.responder.memories.add(memory, segment));
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
        let Some(segment) = outgoing.and_then(|outgoing| outgoing.responder.memories.get(memory)) else {
            return Ok(());
        };
        // The mapping is shared by all queue pairs to this peer, each of which is told of each patch: the first one
        // maps it.
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
            self.discarded.memories.extend(outgoing.responder.memories.remove(memory));
        }
        if let Some(peer) = qp.peer {
            self.peer_memories.remove(&(peer.gid, memory));
        }
        // Waiting requests are tried again: they fail by their key, which is not valid any more.
        self.memory_arrived(now, id, memory);
    }

    fn nudged(&mut self, now: Instant, id: QpRef) {
        self.drain_mailbox(now, id);
    }

    fn requester_closed(&mut self, now: Instant, id: QpRef, reason: UnmappedReason) {
        let Some(qp) = self.qps.get_mut(id) else { return };
        let outgoing = qp.mapped.outgoing.take();
        // A peer that was never mapped may only be late, and is not reported as gone.
        qp.mapped.peer_gone |=
            reason.is_departure() && outgoing.is_some() || matches!(reason, UnmappedReason::Dead);
        self.discarded.outgoing(outgoing);
        self.peer_not_met(now, id, &reason);
    }

    fn responder_closed(&mut self, now: Instant, id: QpRef, reason: &UnmappedReason) {
        self.drain_mailbox(now, id);
        // The mailbox stays: the peer may come again, or go on over TCP with the receives in it.
        if let Some(qp) = self.qps.get(id) {
            crate::log::debug!(qp = %qp.num, %reason, "the rendezvous connection of a peer of this host has ended");
        }
    }
}

impl State {
    /// Handles a peer that was looked for and could not be met, or has left.
    pub(in super::super::super) fn peer_not_met(&mut self, now: Instant, id: QpRef, reason: &UnmappedReason) {
        let Some(qp) = self.qps.get_mut(id).filter(|qp| qp.carrier == Carrier::Mapped) else { return };
        if !reason.is_departure() && !matches!(reason, UnmappedReason::Busy) {
            qp.mapped.unmet_reason = Some(reason.to_string());
        }
        if reason.is_departure() || matches!(reason, UnmappedReason::NoNeighbour) {
            // The peer was there once, so this is silence, as on every wire: the next request looks for the peer again.
            crate::log::debug!(qp = %qp.num, %reason, "a peer of this host is gone");
        } else {
            self.leave_mapped(id, reason);
            self.pump(now, id);
        }
    }

    /// Reports a memory that has arrived, or replacement pages of it: the requests that waited for it are sent again.
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

    /// Finds the responder that a hello names, if it is connected to that source and not about to be destroyed.
    pub(in super::super) fn responder_for(&self, hello: &Hello) -> Option<QpRef> {
        let device = self.devices.get(*self.by_gid.get(&hello.destination_gid)?)?;
        let found = *device.qp_nums.get(&hello.destination_qp.0)?;
        let peer = self.qps.get(found).filter(|qp| qp.state.responds() && !qp.mapped.destroying)?.peer?;
        (peer.gid == hello.source_gid && peer.qp_num == hello.source_qp).then_some(found)
    }

    /// Creates the mailbox of `id`, and collects the descriptors that its writer needs.
    fn invitation(&mut self, id: QpRef, writer: Arc<OwnedFd>) -> io::Result<Invitation> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        self.create_mailbox(id, writer)?;
        let qp = self.qps.get(id).ok_or_else(gone)?;
        let mailbox = &qp.mapped.incoming.as_ref().ok_or_else(gone)?.mailbox;
        let exports = self.devices.get(qp.device).and_then(|device| device.exports.as_ref());
        let exports = exports.ok_or_else(gone)?;
        Ok(Invitation {
            mailbox: mailbox.segment().share()?,
            keys: exports.table.segment().share()?,
            doorbell: self.cqs.get(qp.cq).ok_or_else(gone)?.doorbell()?,
            memories: exports.announced(),
        })
    }
}
