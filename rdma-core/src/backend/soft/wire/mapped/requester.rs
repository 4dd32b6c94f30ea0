//! The requester of the mapped wire: requests from the send queue, carried out in a peer's memory.

#![expect(unsafe_code, reason = "hands the memory of a request to the responder")]

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::super::clock;
use super::super::super::engine::effect::Buffer;
use super::super::super::engine::message::{ReplyKind, Request, RequestOp};
use super::super::super::fabric::{Command, State};
use super::super::super::fault::{Injected, Message};
use super::super::super::gid;
use super::super::super::qp::{Carrier, Peer};
use super::super::shm::rendezvous::{Host, UnmappedReason};
use super::super::shm::{Executed, LocalBuffer, Outcome};
use super::super::{DeviceRef, QpRef};
use crate::Gid;

/// Peers that a device remembers having logged. Beyond it the set is cleared, so that it stays small, and a peer may be
/// logged again.
const LOGGED_MAX: usize = 1024;

impl State {
    /// Carries a request of `from` out, and handles its reply. A request that comes before its peer or its memory is
    /// mapped is dropped here, and sent again once it is.
    pub(in super::super::super) fn carry_mapped(
        &mut self,
        now: Instant,
        from: QpRef,
        request: &Request,
        payload: Option<Buffer>,
    ) {
        let Some(mapped) = self.qps.get(from).map(|qp| &qp.mapped) else { return };
        if mapped.awaited_memory.is_some() || !self.is_up(from) {
            return;
        }
        let Some(outgoing) = &mapped.outgoing else {
            return self.commands.push_back(Command::FindPeer { qp: from });
        };
        let message = Message::Request(*request);
        let Some(to) = self.peer_in_process(from) else {
            return self.execute(now, from, request, payload, Injected::Deliver);
        };
        // Faults apply to messages on the wire, so the missing memory must be found first: a request that waits is
        // not on the wire yet.
        if let Some(memory) = outgoing.responder.missing_memory(request) {
            return self.await_memory(from, memory);
        }
        let data = payload.map(|payload| payload.addr);
        if self.is_up(to)
            && let Ok(injected) = self.admit(now, Some(from), to, &message, data)
        {
            self.execute(now, from, request, payload, injected);
            self.overtaken(now, to, &message);
        }
    }

    /// Returns the queue pair that `from` is connected to, if it is in this process.
    pub(super) fn peer_in_process(&self, from: QpRef) -> Option<QpRef> {
        let peer = self.qps.get(from).filter(|qp| qp.mapped.peer_in_process)?.peer?;
        let device = self.devices.get(*self.by_gid.get(&peer.gid)?)?;
        device.qp_nums.get(&peer.qp_num.0).copied()
    }

    /// Carries out a request in the peer's memory.
    pub(in super::super::super) fn execute(
        &mut self,
        now: Instant,
        from: QpRef,
        request: &Request,
        payload: Option<Buffer>,
        injected: Injected,
    ) {
        let Some(qp) = self.qps.get_mut(from) else { return };
        let local = match request.op {
            _ if request.len == 0 => Some(0),
            RequestOp::Read => qp.requester.landing(request.psn),
            RequestOp::Send | RequestOp::Write => {
                payload.filter(|source| source.len == request.len).map(|source| source.addr)
            }
        };
        let (Some(local), Some(outgoing)) = (local, &mut qp.mapped.outgoing) else { return };
        // SAFETY: the poster keeps the payload until the completion, which comes later. A read's target belongs to a
        // request that has not completed and was checked against a registration when it was posted, so it is
        // writable.
        let executed = unsafe { outgoing.responder.execute(request, LocalBuffer::at(local), injected) };
        self.conclude_executed(now, from, local, executed);
    }

    /// Handles the outcome of a request whose memory is at `local`.
    pub(super) fn conclude_executed(&mut self, now: Instant, from: QpRef, local: u64, executed: Executed) {
        let Some(outgoing) = self.qps.get(from).and_then(|qp| qp.mapped.outgoing.as_ref()) else { return };
        if executed.ring {
            ring(&outgoing.doorbell);
        }
        if executed.nudge {
            self.commands.push_back(Command::Nudge { qp: from });
        }
        match executed.outcome {
            // Only a bypassed request may end in a part. It was queued after that, and begins anew.
            Outcome::Silence | Outcome::Partial(_) => {}
            Outcome::Reply(reply) => {
                let data = (reply.kind == ReplyKind::ReadData).then_some(local);
                // RNR delays are as short as 10 us, so they need the exact time and not that of the last poll.
                let now = if matches!(reply.kind, ReplyKind::Rnr { .. }) { clock::now() } else { now };
                self.carry_back(now, from, &reply, data);
            }
            Outcome::Unmapped(memory) => self.await_memory(from, memory),
        }
    }

    /// Lets `from` wait for a memory that is not mapped; 0 never will be.
    fn await_memory(&mut self, from: QpRef, memory: u64) {
        if memory == 0 {
            return self.leave_mapped(from, &UnmappedReason::ForeignMemory);
        }
        if let Some(qp) = self.qps.get_mut(from) {
            qp.mapped.awaited_memory = Some(memory);
            if !qp.mapped.reading_socket {
                self.commands.push_back(Command::ReadAnnouncements { qp: from });
            }
        }
    }

    /// Moves the requester of `id` to TCP, with all its outstanding requests, if its device takes any wire or it came
    /// upon memory that cannot be mapped; otherwise the requester stays silent. The caller must pump it afterwards.
    pub(in super::super::super) fn leave_mapped(&mut self, id: QpRef, reason: &UnmappedReason) {
        let Some(qp) = self.qps.get(id) else { return };
        let (device, Some(Peer { gid: peer, .. })) = (qp.device, qp.peer) else { return };
        // Memory that cannot be mapped, or exceeds this process's mappings, is no fault of the peer. So those
        // requests go over TCP whatever wire the device prefers.
        let sent = self.has_other_wire(device)
            || matches!(reason, UnmappedReason::ForeignMemory | UnmappedReason::TooMuchMemory);
        if !sent || gid::listens_at(peer).is_none() {
            return self.log_unmapped(device, peer, reason, false);
        }
        let Some(qp) = self.qps.get_mut(id) else { return };
        qp.carrier = Carrier::Tcp;
        self.discarded.outgoing(qp.mapped.outgoing.take());
        qp.mapped.awaited_memory = None;
        qp.requester.resend();
        self.commands.push_back(Command::LeaveMapped { qp: id });
        self.log_unmapped(device, peer, reason, true);
    }

    /// Logs why a peer is not mapped, once for each peer.
    pub(in super::super::super) fn log_unmapped(
        &mut self,
        device: DeviceRef,
        peer: Gid,
        reason: &UnmappedReason,
        over_tcp: bool,
    ) {
        let Some(device) = self.devices.get_mut(device) else { return };
        if device.unmapped_logged.len() >= LOGGED_MAX {
            device.unmapped_logged.clear();
        }
        if !device.unmapped_logged.insert(peer) {
            return;
        }
        if over_tcp {
            crate::log::info!(%peer, %reason, "the peer is not mapped; requests go over TCP");
        } else {
            crate::log::warn!(%peer, %reason, "the peer is not mapped, and the device takes no other wire");
        }
    }
}

/// Rings a peer's doorbell. A full eventfd has been rung already, and the peer may have made it one that blocks: so
/// it is polled first.
#[cold]
pub(super) fn ring(doorbell: &OwnedFd) {
    let mut fds = [PollFd::new(doorbell, PollFlags::OUT)];
    if matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1)) && fds[0].revents() == PollFlags::OUT {
        let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
    }
}
