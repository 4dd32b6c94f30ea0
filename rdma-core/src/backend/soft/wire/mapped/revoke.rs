//! Takes rights back from writers: waits for those that touch what was revoked, and replaces the pages under those
//! that are stopped.
//!
//! 1. The right is revoked in shared memory; from then on no writer is admitted ([`writer_slot`](super::super::shm)).
//! 2. A writer in a chunk gets 250 ms ([`GRACE`]) to leave it.
//! 3. A writer that does not leave is stopped. Its chunk gets new pages with the same bytes at the same addresses.
//!    When the writer resumes, it finishes into the old pages, which nobody reads, and then finds that its
//!    registration is not current.
//! 4. Pages that cannot be replaced put the memory in quarantine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use super::super::super::clock;
use super::super::super::fabric::{Command, State};
use super::super::super::shared_exports::SharedExports;
use super::super::rendezvous::{Change, has_ended};
use super::super::shm::{AccessScope, Chunk, Writer};
use super::super::{DeviceRef, QpRef};
use super::Incoming;
use super::own_mailboxes::{GRACE, LOOK_EVERY};
use crate::memory::Irreplaceable;
use crate::{Access, Deadline};

/// The progress of a revocation.
#[derive(Debug)]
pub(in super::super::super) enum RevokeStatus {
    /// No writer touches the memory any more, or none that anybody would see.
    Done,
    /// A writer may still leave: look again.
    Pending,
    /// A writer is stopped, and its pages cannot be replaced.
    Quarantined(Irreplaceable),
}

/// The writers that touch what was revoked, each with the pidfd of its process.
#[derive(Debug, Default)]
pub(in super::super::super) struct ActiveWriters {
    writers: Vec<(Writer, Arc<OwnedFd>, AccessScope)>,
}

impl ActiveWriters {
    /// Waits until no writer touches it any more; `false` when one is stopped or the deadline has passed. The writers
    /// share one deadline, so many stopped ones take no longer than one. Never call it with the lock held.
    pub(in super::super::super) fn wait(&self, deadline: Deadline) -> bool {
        let until = deadline.instant().min(clock::now() + GRACE);
        self.writers
            .iter()
            .all(|(writer, process, what)| writer.wait(*what, until, || has_ended(process.as_fd())))
    }

    /// Whether each writer has left, or is dead, now.
    pub(in super::super::super) fn are_gone(&self) -> bool {
        self.writers
            .iter()
            .all(|(writer, process, what)| !writer.touches(*what) || has_ended(process.as_fd()))
    }

    /// Whether there are no such writers.
    pub(in super::super::super) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }
}

/// A mailbox, of a queue pair or without one.
#[derive(Debug, Clone, Copy)]
enum MailboxRef {
    Live(QpRef),
    Orphan(usize),
}

impl State {
    /// Returns the writers that touch the registration of `key`. Only after it was revoked.
    pub(in super::super::super) fn active_writers(&self, device: DeviceRef, key: u32) -> ActiveWriters {
        let serials = || self.exports(device).into_iter().flat_map(|exports| exports.serials(key));
        let theirs = self.qps.values().filter(|qp| qp.device == device);
        let theirs = theirs.filter_map(|qp| qp.mapped.incoming.as_deref());
        let orphans = self.orphans.iter().filter(|it| it.device == device).map(|it| &*it.incoming);
        let touched = |incoming: &Incoming| {
            serials().map(AccessScope::Registration).filter_map(|what| incoming.touched(what)).next()
        };
        ActiveWriters { writers: theirs.chain(orphans).filter_map(touched).collect() }
    }

    /// Revokes everything that the peer of `id` may do, before the queue pair is destroyed, and returns the writer
    /// that is still in a chunk. Nobody is admitted any more.
    pub(in super::super::super) fn revoke_qp(&mut self, now: Instant, id: QpRef) -> ActiveWriters {
        if let Some(qp) = self.qps.get_mut(id) {
            qp.mapped.destroying = true;
        }
        self.close_mailbox(now, id);
        let incoming = self.qps.get(id).and_then(|qp| qp.mapped.incoming.as_ref());
        ActiveWriters {
            writers: incoming.and_then(|it| it.touched(AccessScope::Anything)).into_iter().collect(),
        }
    }

    /// Looks again who touches the registration of `key`, which was revoked a while ago, and replaces pages if need
    /// be. After the deadline no writer gets more time.
    pub(in super::super::super) fn advance_key_revoke(
        &mut self,
        now: Instant,
        device: DeviceRef,
        key: u32,
        deadline: Deadline,
    ) -> RevokeStatus {
        let look = match self.exports(device).and_then(|exports| exports.memory_of(key)) {
            Some(memory) => self.replace_stopped_pages(now, device, memory, deadline),
            None => RevokeStatus::Done,
        };
        if let RevokeStatus::Done = look {
            self.forget_key(device, key);
        }
        look
    }

    /// Forgets the registration of `key`, which was revoked and which nobody touches any more.
    pub(in super::super::super) fn forget_key(&mut self, device: DeviceRef, key: u32) {
        if let Some(exports) = self.exports_mut(device) {
            exports.forget(key);
        }
    }

    /// Looks again who is in the closed mailbox of `id`, and replaces pages if need be. After the deadline no writer
    /// gets more time. `Done` only if the mailbox is settled, or there is none.
    pub(in super::super::super) fn advance_qp_revoke(
        &mut self,
        now: Instant,
        id: QpRef,
        deadline: Deadline,
    ) -> RevokeStatus {
        let Some(qp) = self.qps.get_mut(id) else { return RevokeStatus::Done };
        let device = qp.device;
        let Some(incoming) = qp.mapped.incoming.as_mut() else { return RevokeStatus::Done };
        if incoming.is_settled() {
            return RevokeStatus::Done;
        }
        if !deadline.expired_at(now) && incoming.closed.is_none_or(|closed| now < closed + GRACE) {
            return RevokeStatus::Pending;
        }
        let Some(at) = incoming.mailbox.writer().active_chunk() else {
            // The writer left a chunk since the look before, and the closed mailbox admits it to no other.
            incoming.mailbox.mark_writer_gone();
            return RevokeStatus::Done;
        };
        let exports = self.devices.get(device).and_then(|device| device.exports.as_ref());
        let owner = exports.and_then(|exports| exports.owner_of(at.serial));
        let Some(memory) = owner.map(|owner| owner.export.memory) else {
            incoming.detached = Some(at.serial);
            return if incoming.is_settled() { RevokeStatus::Done } else { RevokeStatus::Pending };
        };
        let look = self.replace_stopped_pages(now, device, memory, deadline);
        let incoming = self.incoming(MailboxRef::Live(id));
        match look {
            RevokeStatus::Done if incoming.is_none_or(Incoming::is_settled) => RevokeStatus::Done,
            RevokeStatus::Done => RevokeStatus::Pending,
            look => look,
        }
    }

    /// Replaces the pages under the stopped writers of a memory. Each of them announced its chunk, or lost its right,
    /// at least [`GRACE`] ago, or the deadline has passed. A writer that is running after all tries its request
    /// again.
    pub(super) fn replace_stopped_pages(
        &mut self,
        now: Instant,
        device: DeviceRef,
        memory: u64,
        deadline: Deadline,
    ) -> RevokeStatus {
        let Some(exports) = self.exports_mut(device) else { return RevokeStatus::Done };
        // Pause first, then look: after the pause no writer is admitted under the former serials, so nobody can come
        // after the look.
        let since = match exports.pause(now, memory) {
            Ok(since) => since,
            Err(_) if self.writers_at(now, device, memory).is_empty() => return RevokeStatus::Done,
            Err(why) => return RevokeStatus::Quarantined(why),
        };
        let at = self.writers_at(now, device, memory);
        // The first writer has had its time before it got here. Further ones may be running, so they get theirs.
        let has_time = since.is_some_and(|since| now < since + GRACE) && !deadline.expired_at(now);
        if at.len() > 1 && has_time {
            if !self.replacing.contains(&(device, memory)) {
                self.replacing.push((device, memory));
            }
            self.note_due(now + LOOK_EVERY);
            return RevokeStatus::Pending;
        }
        let Some(exports) = self.exports_mut(device) else { return RevokeStatus::Done };
        let chunks: Vec<_> = at.iter().map(|(_, chunk)| *chunk).collect();
        let (patches, replaced) = exports.replace(memory, &chunks);
        // Writers that came meanwhile wait for one of these two notices.
        if !patches.is_empty() {
            self.commands.push_back(Command::Tell { device, change: Change::Patch { id: memory, patches } });
        } else if since.is_some() {
            self.commands.push_back(Command::Tell { device, change: Change::Resume(memory) });
        }
        if let Err(why) = replaced {
            return RevokeStatus::Quarantined(why);
        }
        for (mailbox, chunk) in at {
            if let Some(incoming) = self.incoming(mailbox) {
                incoming.detached = Some(chunk.serial);
            }
        }
        RevokeStatus::Done
    }

    /// Looks again at the memories that are paused, whichever revocation paused them.
    pub(super) fn retry_replacing(&mut self, now: Instant) {
        for (device, memory) in std::mem::take(&mut self.replacing) {
            if self.exports(device).is_some_and(|exports| exports.is_paused(memory)) {
                self.replace_stopped_pages(now, device, memory, Deadline::at(now + GRACE));
            }
        }
    }

    /// Returns the writers that touch a memory, with their chunks. A writer that only has to announce its end,
    /// because its receive is completed, does not count.
    fn writers_at(&mut self, now: Instant, device: DeviceRef, memory: u64) -> Vec<(MailboxRef, Chunk)> {
        let qps = self.qps.iter().filter(|(_, qp)| qp.device == device && qp.mapped.incoming.is_some());
        let mut mailboxes: Vec<_> = qps.map(|(id, _)| MailboxRef::Live(id)).collect();
        let orphans = self.orphans.iter().enumerate().filter(|(_, orphan)| orphan.device == device);
        mailboxes.extend(orphans.map(|(index, _)| MailboxRef::Orphan(index)));
        mailboxes
            .into_iter()
            .filter_map(|mailbox| Some((mailbox, self.writer_at(now, mailbox, device, memory)?)))
            .collect()
    }

    /// Returns the chunk that the writer of `mailbox` touches in that memory, if that could do harm.
    fn writer_at(
        &mut self,
        now: Instant,
        mailbox: MailboxRef,
        device: DeviceRef,
        memory: u64,
    ) -> Option<Chunk> {
        let incoming = self.incoming(mailbox)?;
        let at = incoming.mailbox.writer().active_chunk()?;
        if incoming.is_detached() || has_ended(incoming.writer.as_fd()) {
            return None;
        }
        let owner =
            self.exports(device)?.owner_of(at.serial).filter(|owner| owner.export.memory == memory)?;
        let access = owner.export.registered.access;
        // A window's pages are never replaced. Windows are written without a slot, so an announcement of one is a
        // lie.
        let is_window = access.contains(Access::WINDOW);
        if !is_window && (owner.revoked || access.is_remote()) {
            return Some(at);
        }
        // A registration without remote rights is written through a posted receive alone. Once the receive is
        // completed, its memory is the caller's again: the writer only has to leave the slot.
        if let MailboxRef::Live(id) = mailbox {
            self.drain_mailbox(now, id);
        }
        let incoming = self.incoming(mailbox)?;
        if !is_window && incoming.mailbox.has_receive_over(&at) {
            return Some(at);
        }
        incoming.detached = Some(at.serial);
        None
    }

    /// Returns the shared exports of a device.
    fn exports(&self, device: DeviceRef) -> Option<&SharedExports> {
        self.devices.get(device)?.exports.as_ref()
    }

    /// Returns the shared exports of a device, to be changed.
    fn exports_mut(&mut self, device: DeviceRef) -> Option<&mut SharedExports> {
        self.devices.get_mut(device)?.exports.as_mut()
    }

    /// Returns the mailbox and its writer.
    fn incoming(&mut self, mailbox: MailboxRef) -> Option<&mut Incoming> {
        match mailbox {
            MailboxRef::Live(id) => self.qps.get_mut(id)?.mapped.incoming.as_deref_mut(),
            MailboxRef::Orphan(index) => self.orphans.get_mut(index).map(|orphan| &mut *orphan.incoming),
        }
    }
}

impl Incoming {
    /// Returns the writer with its pidfd if it touches `what`, unless its pages were replaced.
    fn touched(&self, what: AccessScope) -> Option<(Writer, Arc<OwnedFd>, AccessScope)> {
        let writer = self.mailbox.writer();
        (writer.touches(what) && !self.is_detached()).then(|| (writer, Arc::clone(&self.writer), what))
    }

    /// Whether the writer's announcement does not count any more.
    pub(super) fn is_detached(&self) -> bool {
        let at = self.mailbox.writer().active_chunk();
        at.is_some_and(|at| self.detached == Some(at.serial))
    }
}
