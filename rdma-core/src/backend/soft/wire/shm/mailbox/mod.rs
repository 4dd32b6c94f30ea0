//! The mailbox: the responder of a queue pair whose peer is another process, seen from its owner.
//!
//! The owner posts receives here and takes completions out. The writer's side is
//! [`RemoteResponder`](super::RemoteResponder).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as PrivateU64, Ordering as PrivateOrdering};
use std::time::{Duration, Instant};

use super::atomic::Ordering;
use super::layout::{
    CLOSED, CompletionEntry, Header, MAGIC, OF_WRITE, OPEN, ReceiveEntry, SILENT, VERSION, WITH_IMM,
    ring_offsets, verdict_event,
};
use super::segment::Segment;
use super::shared_slice::{SharedRef, SharedSlice};
use super::writer_slot::{AccessScope, Chunk, fence_after_revoke};
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::backend::soft::clock;
use crate::backend::soft::engine::effect::failed;
use crate::backend::soft::engine::keys::Domain;
use crate::backend::soft::engine::responder::LentResponder;
use crate::backend::soft::fault::planted::{self, Planted};
use crate::memory::prefetch;
use crate::{CompletionStatus, EventKind};

/// Looks at a slot before the thread sleeps. A chunk takes some ten microseconds, so a running writer leaves within
/// these looks.
const SPINS: u32 = 4096;
/// Time between two looks after that.
const PAUSE: Duration = Duration::from_micros(50);

/// The responder of one queue pair, in memory that its writer uses at any time and cannot be trusted with.
#[derive(Debug)]
pub(crate) struct Mailbox {
    header: SharedRef<Header>,
    ring: SharedSlice<ReceiveEntry>,
    completions: SharedSlice<CompletionEntry>,
    /// The receives that are posted and not completed, oldest first. Private, so that the owner never reads back what
    /// the writer could have changed. The writer's completions are matched by order.
    pub(super) receives: VecDeque<RawRecv>,
    depth: usize,
    /// Receives published in the ring so far.
    published: u64,
    /// Completions taken from the ring so far; shared with [`CompletionWatch`]es.
    taken: Arc<PrivateU64>,
    open: bool,
    /// The mailbox is closed, and the writer can place nothing any more: the slot does not count any more.
    writer_is_gone: bool,
    /// The verdict word that was last reported.
    verdict: u32,
    /// The writer left a completion that breaks the protocol.
    violated: bool,
}

impl Mailbox {
    /// Creates a mailbox in the place of a responder: the peer finds its receives, and it is open for requests.
    ///
    /// # Errors
    ///
    /// The kernel has no memory, descriptors or mappings left.
    pub(crate) fn create(lent: &LentResponder, domain: Domain) -> io::Result<Self> {
        // A power of two, so that a ring index is a mask and stays right when the counts wrap.
        let entries = lent.depth.max(1).next_power_of_two();
        let no_room = || io::Error::other("no room for the rings of a mailbox");
        let offsets = ring_offsets(entries).ok_or_else(no_room)?;
        let segment = Arc::new(Segment::create("rdma-mailbox", offsets.end)?);
        let mut mailbox = Self {
            header: SharedRef::new(&segment, 0).ok_or_else(no_room)?,
            ring: SharedSlice::new(&segment, offsets.receives, entries).ok_or_else(no_room)?,
            completions: SharedSlice::new(&segment, offsets.completions, entries).ok_or_else(no_room)?,
            receives: VecDeque::with_capacity(lent.depth),
            depth: lent.depth,
            published: 0,
            taken: Arc::new(PrivateU64::new(0)),
            open: true,
            writer_is_gone: false,
            verdict: 0,
            violated: false,
        };
        for recv in lent.receives.iter().take(lent.depth) {
            mailbox.publish(*recv);
        }
        let Header { owner, writer, .. } = &*mailbox.header;
        owner.version.store(VERSION, Ordering::Relaxed);
        owner.access.store(lent.rules.access.bits(), Ordering::Relaxed);
        owner.domain.store(domain.0, Ordering::Relaxed);
        owner.rnr_timer.store(lent.rules.rnr_timer.into(), Ordering::Relaxed);
        owner.entries.store(entries as u32, Ordering::Relaxed);
        writer.expected.store(lent.expected, Ordering::Relaxed);
        owner.magic.store(MAGIC, Ordering::Relaxed);
        // Last, and Release: a writer that sees OPEN also sees everything above.
        owner.state.store(OPEN, Ordering::Release);
        Ok(mailbox)
    }

    /// Returns the segment that the peer maps, for reading and writing.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.header.segment()
    }

    /// Posts a receive; gives it back when the queue is full.
    pub(crate) fn post_recv(&mut self, recv: RawRecv) -> Result<(), RawRecv> {
        if self.receives.len() >= self.depth {
            return Err(recv);
        }
        self.publish(recv);
        Ok(())
    }

    /// Publishes a receive in the ring. Its entry is free: at most `depth` receives are posted and the ring has at
    /// least as many entries, so the completion of its former receive has been taken.
    fn publish(&mut self, recv: RawRecv) {
        let entry = self.ring.ring_entry(self.published);
        self.published += 1;
        entry.addr.store(recv.addr, Ordering::Relaxed);
        entry.len.store(recv.len, Ordering::Relaxed);
        entry.lkey.store(recv.lkey, Ordering::Relaxed);
        // Last, and Release: a writer that reads this sequence number also reads the fields above.
        entry.sequence.store(self.published, Ordering::Release);
        self.receives.push_back(recv);
    }

    /// Takes the completion of the next receive that the peer filled or failed.
    pub(crate) fn take(&mut self) -> Option<RawCompletion> {
        let taken = self.taken.load(PrivateOrdering::Relaxed);
        let entry = self.completions.ring_entry(taken);
        if entry.sequence.load(Ordering::Acquire) != taken + 1 {
            return None;
        }
        // A relaxed load and store suffice: only this side counts, under the fabric's lock, and watches only need a
        // hint. Counted before anything is judged, so that a lie is not looked at twice.
        self.taken.store(taken + 1, PrivateOrdering::Relaxed);
        // Matched with the private list, never with the ring's copy, which the writer can change.
        let Some(recv) = self.receives.pop_front() else {
            self.violated = true;
            return None;
        };
        // The poster is about to read the received bytes, which are in the writer's cache.
        prefetch(recv.addr);
        let status = CompletionStatus(entry.status.load(Ordering::Relaxed));
        let byte_len = entry.byte_len.load(Ordering::Relaxed);
        let (imm, flags) = (entry.imm.load(Ordering::Relaxed), entry.flags.load(Ordering::Relaxed));
        let write_imm = flags & OF_WRITE != 0;
        // A length beyond the receive would make the poster read bytes that nobody wrote. A planted fault takes a
        // receive without checking its length, so it is excused.
        let fits = write_imm || byte_len <= recv.len || planted::is(Planted::MissingRnr);
        match status {
            CompletionStatus::SUCCESS if fits => Some(RawCompletion {
                wr_id: recv.wr_id,
                byte_len,
                write_imm,
                imm: (flags & WITH_IMM != 0).then_some(imm),
                ..RawCompletion::default()
            }),
            CompletionStatus::LOC_LEN_ERR | CompletionStatus::LOC_PROT_ERR => {
                Some(failed(recv.wr_id, status))
            }
            _ => {
                self.violated = true;
                Some(failed(recv.wr_id, CompletionStatus::LOC_QP_OP_ERR))
            }
        }
    }

    /// Whether [`refusal`](Self::refusal) has something to report.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.violated || self.header.bell.verdict.load(Ordering::Acquire) != self.verdict
    }

    /// Returns a refusal that was not reported yet. Take all completions first: Acquire here makes those that came
    /// before the refusal visible.
    pub(crate) fn refusal(&mut self) -> Option<Option<EventKind>> {
        if std::mem::take(&mut self.violated) {
            return Some(Some(EventKind::QP_FATAL));
        }
        let word = self.header.bell.verdict.load(Ordering::Acquire);
        if word == self.verdict {
            return None;
        }
        self.verdict = word;
        Some(verdict_event(word))
    }

    /// Arms the doorbell: the next completion rings it. Ask [`pending`](CompletionWatch::pending) afterwards, because
    /// a completion that came before does not ring.
    pub(crate) fn arm(&self) {
        self.header.bell.doorbell.arm();
    }

    /// Stops or resumes answering requests, for a device whose port is down. A chunk in progress may still complete.
    pub(crate) fn set_silent(&self, silent: bool) {
        if self.open {
            let state = if silent { SILENT } else { OPEN };
            self.header.owner.state.store(state, Ordering::Release);
        }
    }

    /// Stops answering requests for good. A chunk in progress may still complete: see [`writer`](Self::writer).
    pub(crate) fn close(&mut self) {
        self.open = false;
        self.header.owner.state.store(CLOSED, Ordering::Relaxed);
        fence_after_revoke();
    }

    /// Records that the writer can place nothing any more, whatever its slot says. Only after [`close`](Self::close),
    /// because a living writer could enter again otherwise.
    pub(crate) fn mark_writer_gone(&mut self) {
        debug_assert!(!self.open, "an open mailbox admits its writer again");
        self.writer_is_gone = true;
    }

    /// Whether the mailbox is closed and no writer is in it any more.
    ///
    /// The first `true` is kept, because a writer that announces its next chunk after that finds the mailbox closed
    /// and leaves. Otherwise two looks at one moment could differ, and a caller that acts on both would wait for ever.
    pub(crate) fn is_settled(&mut self) -> bool {
        if !self.open && !self.writer().touches(AccessScope::Anything) {
            self.writer_is_gone = true;
        }
        self.writer_is_gone
    }

    /// Returns the oldest receive as flushed. `None` until the mailbox is settled and all completions are taken,
    /// because a receive that the writer filled must not be reported as flushed.
    pub(crate) fn next_flushed(&mut self) -> Option<RawCompletion> {
        if !self.is_settled() || self.watch().pending() {
            return None;
        }
        let recv = self.receives.pop_front()?;
        Some(failed(recv.wr_id, CompletionStatus::WR_FLUSH_ERR))
    }

    /// Returns the receives that the peer did not take, oldest first, and the sequence number of its next request,
    /// for another wire to go on with. Only once the mailbox is settled and all completions are taken.
    pub(crate) fn hand_back(&mut self) -> (VecDeque<RawRecv>, u32) {
        (std::mem::take(&mut self.receives), self.header.writer.expected.load(Ordering::Relaxed))
    }

    /// Whether `chunk` lies in a receive that is still posted. Otherwise the receive was completed already, and its
    /// memory is the caller's again.
    pub(crate) fn has_receive_over(&self, chunk: &Chunk) -> bool {
        let within = |recv: &RawRecv| {
            recv.addr <= chunk.begin && chunk.end <= recv.addr.saturating_add(u64::from(recv.len))
        };
        self.receives.iter().any(within)
    }

    /// Whether the next completion rings the doorbell.
    pub(crate) fn is_armed(&self) -> bool {
        self.header.bell.doorbell.is_armed()
    }

    /// Returns a handle that looks for completions without the lock that guards the mailbox.
    pub(crate) fn watch(&self) -> CompletionWatch {
        CompletionWatch { completions: self.completions.clone(), taken: Arc::clone(&self.taken) }
    }

    /// Returns a handle that waits for the writer without the lock that guards the mailbox.
    pub(crate) fn writer(&self) -> Writer {
        Writer { header: self.header.clone() }
    }
}

/// Tells whether a mailbox has a completion to take, without the lock.
#[derive(Debug, Clone)]
pub(crate) struct CompletionWatch {
    completions: SharedSlice<CompletionEntry>,
    taken: Arc<PrivateU64>,
}

impl CompletionWatch {
    /// Whether there is a completion to take.
    pub(crate) fn pending(&self) -> bool {
        let taken = self.taken.load(PrivateOrdering::Relaxed);
        self.completions.ring_entry(taken).sequence.load(Ordering::Acquire) == taken + 1
    }
}

/// Tells what the writer of a mailbox touches, without the lock.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    header: SharedRef<Header>,
}

impl Writer {
    /// Whether the writer touches any of that now. Ask only after the right was revoked, by
    /// [`KeyTable::remove`](super::KeyTable::remove) or [`Mailbox::close`]; before, a writer may enter right after
    /// the answer.
    pub(crate) fn touches(&self, what: AccessScope) -> bool {
        !planted::is(Planted::EarlyReturn) && self.header.writer.slot.touches(what)
    }

    /// Returns the chunk that the writer announces now. Ask only after the right was revoked.
    pub(crate) fn active_chunk(&self) -> Option<Chunk> {
        self.header.writer.slot.active_chunk()
    }

    /// Waits until the writer touches none of that any more, or is dead; `false` if it does not leave in time, because
    /// its process is stopped, or it lies. The first looks are spun through even when `until` has
    /// passed. `is_dead` tells whether the writer's process has ended. Never call it with a lock held, because a
    /// stopped writer takes as long as `until` allows.
    pub(crate) fn wait(&self, what: AccessScope, until: Instant, mut is_dead: impl FnMut() -> bool) -> bool {
        for _ in 0..SPINS {
            if !self.touches(what) {
                return true;
            }
            std::hint::spin_loop();
        }
        while self.touches(what) && !is_dead() {
            if clock::now() >= until {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

#[cfg(test)]
mod tests;
