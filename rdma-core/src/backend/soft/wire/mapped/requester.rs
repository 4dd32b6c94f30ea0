//! Requests of this process, carried out in the memory of its peers.

#![expect(unsafe_code, reason = "hands the memory of a request to the responder")]

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::super::driver;
use super::super::super::engine::effect::Source;
use super::super::super::engine::message::{ReplyKind, Request, RequestOp};
use super::super::super::fabric::{Command, State};
use super::super::super::fault::{Injected, Message};
use super::super::super::gid;
use super::super::super::qp::{Carrier, Peer};
use super::super::shm::rendezvous::{Host, UnmappedReason};
use super::super::shm::{Executed, LocalBuffer, Outcome};
use super::super::{DeviceRef, QpRef};
use crate::Gid;

/// Peers that a device has told about, at most, before it may tell of one again.
const TOLD_MAX: usize = 1024;

impl State {
    /// Carries a request of `from` out, and its reply back. One for which it is too early is lost, and sent again once it
    /// is not.
    pub(in super::super::super) fn carry_mapped(
        &mut self,
        now: Instant,
        from: QpRef,
        request: &Request,
        payload: Option<Source>,
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
        // What is not sent yet meets no fault.
        if let Some(memory) = outgoing.responder.missing_memory(request) {
            return self.await_memory(from, memory);
        }
        let injected = if self.is_up(to) { self.inject(now, to, &message) } else { Injected::Lose };
        match injected {
            Injected::Lose => {}
            Injected::Delay(until) => {
                let place = self.delay_message(until, Some(from), to, message);
                self.copy_delayed_payload(place, payload.map(|source| source.addr));
            }
            injected => {
                self.execute(now, from, request, payload, injected);
                self.overtaken(now, to, &message);
            }
        }
    }

    /// The queue pair that `from` is connected to, if it is of this process.
    pub(super) fn peer_in_process(&self, from: QpRef) -> Option<QpRef> {
        let peer = self.qps.get(from).filter(|qp| qp.mapped.peer_in_process)?.peer?;
        let device = self.devices.get(*self.by_gid.get(&peer.gid)?)?;
        device.qp_nums.get(&peer.qp_num.0).copied()
    }

    /// Has the port carry out a request.
    pub(in super::super::super) fn execute(
        &mut self,
        now: Instant,
        from: QpRef,
        request: &Request,
        payload: Option<Source>,
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
        // SAFETY: the poster of the request keeps its memory until the completion, which comes later; a read's target is
        // that of one that has not completed, checked against a registration when it was sent.
        let executed = unsafe { outgoing.responder.execute(request, LocalBuffer::at(local), injected) };
        self.conclude_executed(now, from, local, executed);
    }

    /// Does what follows from what the port said of a request, whose memory is at `local`.
    pub(super) fn conclude_executed(&mut self, now: Instant, from: QpRef, local: u64, executed: Executed) {
        let Some(outgoing) = self.qps.get(from).and_then(|qp| qp.mapped.outgoing.as_ref()) else { return };
        if executed.ring {
            ring(&outgoing.doorbell);
        }
        if executed.nudge {
            self.commands.push_back(Command::Nudge { qp: from });
        }
        match executed.outcome {
            // It was carried out whole, but for one that was about to go ahead: that is entered, and begins anew.
            Outcome::Silence | Outcome::Partial(_) => {}
            Outcome::Reply(reply) => {
                let data = (reply.kind == ReplyKind::ReadData).then_some(local);
                // How long to wait for a receive is told in microseconds.
                let now = if matches!(reply.kind, ReplyKind::Rnr { .. }) { driver::now() } else { now };
                self.carry_back(now, from, &reply, data);
            }
            Outcome::Unmapped(memory) => self.await_memory(from, memory),
        }
    }

    /// A request needs memory that is not mapped; 0 never will be.
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

    /// The requester of `id` cannot go on as it is. It does over TCP with what it has outstanding, if its device takes any
    /// wire, or if it came upon memory that cannot be mapped; else it is silent. To be pumped then.
    pub(in super::super::super) fn leave_mapped(&mut self, id: QpRef, reason: &UnmappedReason) {
        let Some(qp) = self.qps.get(id) else { return };
        let (device, Some(Peer { gid: peer, .. })) = (qp.device, qp.peer) else { return };
        // What the library cannot map, or does not for its number, is not the peer's fault: it is sent all the same.
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

    /// Says once a peer why it is not mapped.
    pub(in super::super::super) fn log_unmapped(
        &mut self,
        device: DeviceRef,
        peer: Gid,
        reason: &UnmappedReason,
        over_tcp: bool,
    ) {
        let Some(device) = self.devices.get_mut(device) else { return };
        if device.unmapped_logged.len() >= TOLD_MAX {
            device.unmapped_logged.clear();
        }
        if !device.unmapped_logged.insert(peer) {
            return;
        }
        if over_tcp {
            tracing::info!(%peer, %reason, "the peer is not mapped; it is reached over TCP");
        } else {
            tracing::warn!(%peer, %reason, "the peer is not mapped, and no other wire may be taken");
        }
    }
}

/// Wakes the peer. A bell that is full has rung; and the peer may have made it one that blocks.
#[cold]
pub(super) fn ring(doorbell: &OwnedFd) {
    let mut fds = [PollFd::new(doorbell, PollFlags::OUT)];
    if matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1)) && fds[0].revents() == PollFlags::OUT {
        let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
    }
}
