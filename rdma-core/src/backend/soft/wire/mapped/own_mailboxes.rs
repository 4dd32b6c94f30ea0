//! The mailboxes of this process: created, filled with receives, emptied of completions, closed.
//!
//! Writers that still touch what was revoked are handled in [`revoke`](super::revoke).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::super::clock;
use super::super::super::cq::CqRef;
use super::super::super::fabric::{Command, State};
use super::super::rendezvous::{Change, has_ended};
use super::super::shm::Mailbox;
use super::super::{DeviceRef, QpRef};
use super::{Incoming, RevokeStatus};
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::{Deadline, QpState};

/// Time that a writer may take for the chunk it announces: 250 ms. A chunk takes some ten microseconds, and the
/// scheduler leaves a runnable process waiting for much less than this; so a writer that takes longer is stopped. A
/// wrong guess costs a copy of the pages and nothing else.
pub(super) const GRACE: Duration = Duration::from_millis(250);
/// Time between two looks at a writer whose queue pair is in ERR.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Most mailboxes without a queue pair whose writers are stopped in a chunk. Beyond it no mailbox is created, because
/// each keeps memory and a descriptor.
const ORPHANS_MAX: usize = if cfg!(test) { 3 } else { 4096 };

/// A mailbox whose queue pair is gone, kept while its writer still touches memory of that device.
#[derive(Debug)]
pub(in super::super::super) struct OrphanMailbox {
    pub(super) device: DeviceRef,
    pub(super) incoming: Box<Incoming>,
}

impl State {
    /// Creates the mailbox of `id`, if there is none: from now on the peer runs the responder.
    pub(super) fn create_mailbox(&mut self, id: QpRef, writer: Arc<OwnedFd>) -> std::io::Result<()> {
        let (silent, crowded) = (!self.is_up(id), self.orphans.len() >= ORPHANS_MAX);
        let Some(qp) = self.qps.get_mut(id) else { return Err(std::io::ErrorKind::NotFound.into()) };
        if let Some(incoming) = &mut qp.mapped.incoming {
            incoming.writer = writer;
            return Ok(());
        }
        // Refused before anything of the queue pair is changed, so that its responder stays usable over TCP.
        if crowded {
            return Err(std::io::Error::other(format!(
                "{ORPHANS_MAX} peers are stopped in the middle of an access, the most that are kept"
            )));
        }
        let lent = qp.responder.lend();
        let mailbox = match Mailbox::create(&lent, qp.domain) {
            Ok(mailbox) => mailbox,
            Err(error) => {
                qp.responder.take_back(lent.receives, lent.expected);
                return Err(error);
            }
        };
        mailbox.set_silent(silent);
        if let Some(queue) = self.cqs.get_mut(qp.cq) {
            queue.watch(id, mailbox.watch());
            if queue.armed {
                mailbox.arm();
            }
        }
        if let Some(exports) = self.devices.get_mut(qp.device).and_then(|device| device.exports.as_mut()) {
            // The new writer hears of these with its invitation; writers that were invited before must be told now.
            for memory in lent.receives.iter().filter_map(|receive| exports.announce(receive.lkey)) {
                self.commands
                    .push_back(Command::Tell { device: qp.device, change: Change::Announce(memory) });
            }
        }
        self.commands.push_back(Command::CloseTcpInbound { qp: id });
        qp.mapped.incoming = Some(Box::new(Incoming { mailbox, writer, closed: None, detached: None }));
        Ok(())
    }

    /// Posts a receive in the mailbox, or in the responder of this process; gives it back when the queue is full.
    pub(in super::super::super) fn post_receive(&mut self, id: QpRef, recv: RawRecv) -> Result<(), RawRecv> {
        let Some(qp) = self.qps.get_mut(id) else { return Err(recv) };
        let Some(incoming) = &mut qp.mapped.incoming else { return qp.responder.post(recv) };
        incoming.mailbox.post_recv(recv)?;
        let device = qp.device;
        let exports = self.devices.get_mut(device).and_then(|device| device.exports.as_mut());
        if let Some(memory) = exports.and_then(|exports| exports.announce(recv.lkey)) {
            self.commands.push_back(Command::Tell { device, change: Change::Announce(memory) });
        }
        Ok(())
    }

    /// Takes the completions that writers left in the mailboxes of a completion queue. A thread that is `awake` does
    /// not need the wake-up that a writer rang for, so its bell is disarmed.
    pub(in super::super::super) fn collect_mailboxes(&mut self, cq: CqRef, awake: bool) {
        let mut at = 0;
        while let Some(queue) = self.cqs.get_mut(cq) {
            let Some((id, watch)) = queue.watches().get(at) else { break };
            at += 1;
            if !watch.pending() {
                continue;
            }
            let id = *id;
            let Some(qp) = self.qps.get_mut(id) else { continue };
            let Some(incoming) = &mut qp.mapped.incoming else { continue };
            if awake && !incoming.mailbox.is_armed() {
                // The peer has raised the channel already.
                queue.armed = false;
            }
            while let Some(done) = incoming.mailbox.take() {
                if !queue.push(RawCompletion { qp_num: qp.num.0, ..done }) {
                    self.overrun.push(cq);
                }
            }
            if incoming.mailbox.is_refused() {
                self.drain_mailbox(clock::now(), id);
            }
        }
    }

    /// Arms the doorbell of each mailbox of the queue, then takes what is there already: a completion that came
    /// before does not ring.
    pub(in super::super::super) fn arm_mailboxes(&mut self, cq: CqRef) {
        let Some(queue) = self.cqs.get(cq) else { return };
        for (id, _) in queue.watches() {
            if let Some(incoming) = self.qps.get(*id).and_then(|qp| qp.mapped.incoming.as_ref()) {
                incoming.mailbox.arm();
            }
        }
        self.collect_mailboxes(cq, false);
    }

    /// Lets the mailboxes of a device answer, or not, as the device does now.
    pub(in super::super::super) fn silence_mailboxes(&self, device: DeviceRef) {
        for (id, qp) in self.qps.iter().filter(|(_, qp)| qp.device == device) {
            if let Some(incoming) = &qp.mapped.incoming {
                incoming.mailbox.set_silent(!self.is_up(id));
            }
        }
    }

    /// Takes the completions and the refusal that the peer left in the mailbox of `id`.
    pub(in super::super::super) fn drain_mailbox(&mut self, now: Instant, id: QpRef) {
        while let Some(qp) = self.qps.get_mut(id)
            && let Some(done) = qp.mapped.incoming.as_mut().and_then(|incoming| incoming.mailbox.take())
        {
            let (cq, num) = (qp.cq, qp.num);
            self.complete(cq, num, done);
        }
        // After the completions: those that came before the refusal must reach the completion queue before the
        // flushed ones.
        let Some(qp) = self.qps.get_mut(id).filter(|qp| qp.state != QpState::ERR) else { return };
        if let Some(event) = qp.mapped.incoming.as_mut().and_then(|incoming| incoming.mailbox.refusal()) {
            self.refuse(now, id, event);
        }
    }

    /// Closes the mailbox of `id`, and takes what is in it.
    pub(in super::super::super) fn close_mailbox(&mut self, now: Instant, id: QpRef) {
        if let Some(incoming) = self.qps.get_mut(id).and_then(|qp| qp.mapped.incoming.as_mut()) {
            incoming.close(now);
            self.drain_mailbox(now, id);
        }
    }

    /// Returns the oldest receive of a queue pair in ERR, flushed. `None` while a writer is still in the mailbox; the
    /// driver looks again then.
    pub(in super::super::super) fn next_flushed(&mut self, now: Instant, id: QpRef) -> Option<RawCompletion> {
        let qp = self.qps.get_mut(id)?;
        if qp.mapped.incoming.is_none() || qp.state != QpState::ERR {
            return qp.responder.next_flushed();
        }
        // Settled first, drained second: whatever a writer left before it was seen to be gone is then taken, and not
        // flushed.
        let revoked = self.advance_qp_revoke(now, id, Deadline::at(now + GRACE));
        self.drain_mailbox(now, id);
        if !matches!(revoked, RevokeStatus::Done) {
            if !self.settling.contains(&id) {
                self.settling.push(id);
            }
            self.note_due(now + LOOK_EVERY);
            return None;
        }
        self.qps.get_mut(id)?.mapped.incoming.as_mut()?.mailbox.next_flushed()
    }

    /// Looks again at the queue pairs in ERR, and at the mailboxes without one, whose writers were still there.
    pub(in super::super::super) fn settle_mailboxes(&mut self, now: Instant) {
        self.retry_replacing(now);
        for id in std::mem::take(&mut self.settling) {
            self.flush_receives(id);
        }
        let devices = &self.devices;
        self.orphans.retain_mut(|it| devices.contains_key(it.device) && !it.incoming.is_settled());
        if !self.orphans.is_empty() {
            self.note_due(now + GRACE);
        }
    }

    /// Keeps the mailbox of a queue pair that is gone until its writer is gone too: deregistrations must still see
    /// the writer.
    pub(in super::super::super) fn orphan(
        &mut self,
        now: Instant,
        device: DeviceRef,
        mut incoming: Box<Incoming>,
    ) {
        incoming.close(now);
        if !incoming.is_settled() {
            self.orphans.push(OrphanMailbox { device, incoming });
            self.note_due(now + GRACE);
        }
    }

    /// Moves the responder of `id` to TCP; `false` while the peer is still in the mailbox.
    pub(in super::super) fn move_responder_to_tcp(&mut self, now: Instant, id: QpRef) -> bool {
        self.close_mailbox(now, id);
        let incoming = self.qps.get_mut(id).and_then(|qp| qp.mapped.incoming.as_mut());
        if incoming.is_some_and(|incoming| !incoming.is_settled()) {
            return false;
        }
        // Whatever a writer left before it was seen to be gone.
        self.drain_mailbox(now, id);
        let Some(qp) = self.qps.get_mut(id).filter(|qp| qp.state.responds()) else { return false };
        let Some(incoming) = &mut qp.mapped.incoming else { return true };
        let (receives, expected) = incoming.mailbox.hand_back();
        qp.responder.take_back(receives, expected);
        qp.mapped.incoming = None;
        if let Some(queue) = self.cqs.get_mut(qp.cq) {
            queue.unwatch(id);
        }
        self.commands.push_back(Command::DropWriter { qp: id });
        true
    }
}

impl Incoming {
    /// Closes the mailbox, and notes when. Only the first time counts, because the writer's 250 ms begin with it.
    fn close(&mut self, now: Instant) {
        self.mailbox.close();
        self.closed.get_or_insert(now);
    }

    /// Whether nothing happens in the closed mailbox any more: its writer left, is dead, or writes to pages that
    /// nobody sees.
    pub(super) fn is_settled(&mut self) -> bool {
        if !self.mailbox.is_settled() && (self.is_detached() || has_ended(self.writer.as_fd())) {
            self.mailbox.mark_writer_gone();
        }
        self.mailbox.is_settled()
    }
}
