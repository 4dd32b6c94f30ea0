//! The responder of a queue pair whose peer is another process: the owner's side.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as PrivateU64, Ordering as PrivateOrdering};
use std::time::{Duration, Instant};

use super::atomic::Ordering;
use super::layout::{
    CLOSED, CompletionEntry, Header, MAGIC, OF_WRITE, OPEN, ReceiveEntry, SILENT, VERSION, Verdict, WITH_IMM,
    planted_code, ring_offsets,
};
use super::segment::Segment;
use super::shared_slice::{SharedRef, SharedSlice};
use super::writer_slot::{AccessScope, Chunk, fence_after_revoke};
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::backend::soft::driver;
use crate::backend::soft::engine::keys::Domain;
use crate::backend::soft::engine::responder::Rules;
use crate::backend::soft::fault::Planted;
use crate::memory::prefetch;
use crate::{CompletionStatus, EventKind};

/// How often a slot is looked at before the thread sleeps: a chunk takes some ten microseconds.
const SPINS: u32 = 4096;
/// Between two looks, then.
const PAUSE: Duration = Duration::from_micros(50);

/// What a responder is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MailboxInit {
    /// Receives posted at once, sentinels included.
    pub(crate) depth: usize,
    pub(crate) rules: Rules,
    pub(crate) domain: Domain,
    /// Sequence number of the peer's first request.
    pub(crate) psn: u32,
    pub(crate) planted: Option<Planted>,
    /// Receives ever posted before; counted for a planted fault alone.
    pub(crate) posted: u64,
}

/// A request that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusedRequest {
    /// What the context is told; `None` when the completion of a receive tells it all.
    pub(crate) event: Option<EventKind>,
}

/// See the module. Its writer is at work in it at any time, and is not believed.
#[derive(Debug)]
pub(crate) struct Mailbox {
    header: SharedRef<Header>,
    ring: SharedSlice<ReceiveEntry>,
    completions: SharedSlice<CompletionEntry>,
    /// What is posted and was not told yet, oldest first; the writer's completions are matched by order.
    receives: VecDeque<RawRecv>,
    depth: usize,
    /// Receives put into the ring.
    published: u64,
    /// Completions taken from the ring; looked at by [`CompletionWatch`]es.
    taken: Arc<PrivateU64>,
    open: bool,
    /// The writer is dead, whatever its slot says.
    writer_is_gone: bool,
    /// The verdict word that was told last.
    verdict: u32,
    /// The writer left a completion that cannot be.
    violated: bool,
    posted: u64,
    planted: Option<Planted>,
}

impl Mailbox {
    /// One in which the peer finds `receives`, and is answered from now on.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, descriptors or mappings left.
    pub(crate) fn create(
        terms: &MailboxInit,
        receives: impl IntoIterator<Item = RawRecv>,
    ) -> io::Result<Self> {
        let entries = terms.depth.max(1).next_power_of_two();
        let no_room = || io::Error::other("no room for the rings of a mailbox");
        let (ring, completions, end) = ring_offsets(entries).ok_or_else(no_room)?;
        let segment = Arc::new(Segment::create("rdma-mailbox", end)?);
        let mut mailbox = Self {
            header: SharedRef::new(&segment, 0).ok_or_else(no_room)?,
            ring: SharedSlice::new(&segment, ring, entries).ok_or_else(no_room)?,
            completions: SharedSlice::new(&segment, completions, entries).ok_or_else(no_room)?,
            receives: VecDeque::with_capacity(terms.depth),
            depth: terms.depth,
            published: 0,
            taken: Arc::new(PrivateU64::new(0)),
            open: true,
            writer_is_gone: false,
            verdict: 0,
            violated: false,
            posted: terms.posted,
            planted: terms.planted,
        };
        for recv in receives.into_iter().take(terms.depth) {
            mailbox.publish(recv);
        }
        let Header { owner, writer, .. } = &*mailbox.header;
        owner.version.store(VERSION, Ordering::Relaxed);
        owner.access.store(terms.rules.access.bits(), Ordering::Relaxed);
        owner.domain.store(terms.domain.0, Ordering::Relaxed);
        owner.rnr_timer.store(terms.rules.rnr_timer.into(), Ordering::Relaxed);
        owner.planted.store(planted_code(terms.planted), Ordering::Relaxed);
        owner.entries.store(entries as u32, Ordering::Relaxed);
        writer.expected.store(terms.psn, Ordering::Relaxed);
        owner.magic.store(MAGIC, Ordering::Relaxed);
        owner.state.store(OPEN, Ordering::Release);
        Ok(mailbox)
    }

    /// What the peer maps, for reading and writing.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.header.segment()
    }

    /// Posts a receive; gives it back when there are as many that were not taken yet as there may be.
    pub(crate) fn post_recv(&mut self, recv: RawRecv) -> Result<(), RawRecv> {
        if self.receives.len() >= self.depth {
            return Err(recv);
        }
        if self.planted == Some(Planted::LostCredit) {
            self.posted += 1;
            if self.posted == 2 {
                return Ok(());
            }
        }
        self.publish(recv);
        Ok(())
    }

    /// Puts a receive into the ring. Its place is free: of the receives there, all but `depth` are taken.
    fn publish(&mut self, recv: RawRecv) {
        let entry = self.ring.ring_entry(self.published);
        self.published += 1;
        entry.addr.store(recv.addr, Ordering::Relaxed);
        entry.len.store(recv.len, Ordering::Relaxed);
        entry.lkey.store(recv.lkey, Ordering::Relaxed);
        entry.sequence.store(self.published, Ordering::Release);
        self.receives.push_back(recv);
    }

    /// The next receive that the peer took.
    pub(crate) fn take(&mut self) -> Option<RawCompletion> {
        let taken = self.taken.load(PrivateOrdering::Relaxed);
        let entry = self.completions.ring_entry(taken);
        if entry.sequence.load(Ordering::Acquire) != taken + 1 {
            return None;
        }
        // Only this side counts, and it takes under one lock.
        self.taken.store(taken + 1, PrivateOrdering::Relaxed);
        let Some(recv) = self.receives.pop_front() else {
            self.violated = true;
            return None;
        };
        // The poster is about to look at what has come, and it is in the writer's cache.
        prefetch(recv.addr);
        let status = CompletionStatus(entry.status.load(Ordering::Relaxed));
        let failed = |status: CompletionStatus| {
            Some(RawCompletion { wr_id: recv.wr_id, status: status.0, ..RawCompletion::default() })
        };
        let byte_len = entry.byte_len.load(Ordering::Relaxed);
        let (imm, flags) = (entry.imm.load(Ordering::Relaxed), entry.flags.load(Ordering::Relaxed));
        let write_imm = flags & OF_WRITE != 0;
        // A planted fault takes a receive without a look at it.
        let fits = write_imm || byte_len <= recv.len || self.planted == Some(Planted::MissingRnr);
        match status {
            CompletionStatus::SUCCESS if fits => Some(RawCompletion {
                wr_id: recv.wr_id,
                byte_len,
                write_imm,
                imm: (flags & WITH_IMM != 0).then_some(imm),
                ..RawCompletion::default()
            }),
            CompletionStatus::LOC_LEN_ERR | CompletionStatus::LOC_PROT_ERR => failed(status),
            _ => {
                self.violated = true;
                failed(CompletionStatus::LOC_QP_OP_ERR)
            }
        }
    }

    /// Whether there is a [`refusal`](Self::refusal).
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.violated || self.header.bell.verdict.load(Ordering::Acquire) != self.verdict
    }

    /// A refusal that was not told yet. The completions that came before it are then there to be taken first.
    pub(crate) fn refusal(&mut self) -> Option<RefusedRequest> {
        if std::mem::take(&mut self.violated) {
            return Some(RefusedRequest { event: Some(EventKind::QP_FATAL) });
        }
        let word = self.header.bell.verdict.load(Ordering::Acquire);
        if word == self.verdict {
            return None;
        }
        self.verdict = word;
        Some(RefusedRequest { event: Verdict::event_of(word) })
    }

    /// The next completion rings the owner's bell, unless [`pending`](CompletionWatch::pending) says now that there is one.
    pub(crate) fn arm(&self) {
        self.header.bell.doorbell.arm();
    }

    /// Whether requests go unheard for now, as those to a device whose port is down do. What is being placed may be the
    /// last chunk.
    pub(crate) fn set_silent(&self, silent: bool) {
        if self.open {
            let state = if silent { SILENT } else { OPEN };
            self.header.owner.state.store(state, Ordering::Release);
        }
    }

    /// Requests are not answered from now on. What is being placed may go on for a moment: see [`writer`](Self::writer).
    pub(crate) fn close(&mut self) {
        self.open = false;
        self.header.owner.state.store(CLOSED, Ordering::Relaxed);
        fence_after_revoke();
    }

    /// Its writer is dead: nothing is placed any more, whatever its slot says. Only after [`close`](Self::close).
    pub(crate) fn mark_writer_gone(&mut self) {
        self.writer_is_gone = true;
    }

    /// Whether nothing happens in it any more.
    pub(crate) fn is_settled(&self) -> bool {
        !self.open && (self.writer_is_gone || !self.writer().touches(AccessScope::Anything))
    }

    /// The oldest receive, flushed; only once it is settled and all that the peer left is taken.
    pub(crate) fn next_flushed(&mut self) -> Option<RawCompletion> {
        if !self.is_settled() || self.watch().pending() {
            return None;
        }
        let recv = self.receives.pop_front()?;
        let status = CompletionStatus::WR_FLUSH_ERR.0;
        Some(RawCompletion { wr_id: recv.wr_id, status, ..RawCompletion::default() })
    }

    /// The receives that the peer did not take, oldest first, and the number of its next request: another wire goes
    /// on with them. Only once it is settled and all that the peer left is taken.
    pub(crate) fn hand_back(&mut self) -> (VecDeque<RawRecv>, u32) {
        (std::mem::take(&mut self.receives), self.header.writer.expected.load(Ordering::Relaxed))
    }

    /// Whether that chunk is of a receive that was not told yet: else it was filled.
    pub(crate) fn has_receive_over(&self, chunk: &Chunk) -> bool {
        let within = |recv: &RawRecv| {
            recv.addr <= chunk.begin && chunk.end <= recv.addr.saturating_add(u64::from(recv.len))
        };
        self.receives.iter().any(within)
    }

    /// Whether the next completion rings the bell.
    pub(crate) fn is_armed(&self) -> bool {
        self.header.bell.doorbell.is_armed()
    }

    /// Whether every receive was told.
    #[cfg(test)]
    pub(crate) fn is_drained(&self) -> bool {
        self.receives.is_empty()
    }

    /// To look for completions without whatever guards the mailbox.
    pub(crate) fn watch(&self) -> CompletionWatch {
        CompletionWatch { completions: self.completions.clone(), taken: Arc::clone(&self.taken) }
    }

    /// To wait for its writer without whatever guards the mailbox.
    pub(crate) fn writer(&self) -> Writer {
        Writer { header: self.header.clone(), unseen: self.planted == Some(Planted::EarlyReturn) }
    }
}

/// Tells whether a mailbox has something to take.
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

/// Tells what the writer of a mailbox touches.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    header: SharedRef<Header>,
    /// By a planted fault it never seems to touch anything.
    unseen: bool,
}

/// What came of waiting for a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// It touches nothing of that any more.
    Idle,
    /// It is dead, and so touches nothing.
    Dead,
    /// It has not gone on for the whole of the time: it is stopped, or lies.
    Stopped,
}

impl Writer {
    /// Whether it touches that now. To be asked after it was revoked: by [`KeyTable::remove`](super::KeyTable::remove)
    /// or [`Mailbox::close`].
    pub(crate) fn touches(&self, what: AccessScope) -> bool {
        !self.unseen && self.header.writer.slot.touches(what)
    }

    /// What it says that it is at now. To be asked after that was revoked.
    pub(crate) fn active_chunk(&self) -> Option<Chunk> {
        self.header.writer.slot.active_chunk()
    }

    /// Whether it would be let in.
    #[cfg(test)]
    pub(crate) fn may_enter(&self) -> bool {
        self.header.owner.state.load(Ordering::Relaxed) == OPEN
    }

    /// As if it touched that, or nothing.
    #[cfg(test)]
    pub(crate) fn pretend(&self, at: Option<Chunk>) {
        match at {
            None => self.header.writer.slot.leave(),
            Some(Chunk { serial, begin, end }) => {
                assert!(self.header.writer.slot.enter(serial, (begin, end), || true));
            }
        }
    }

    /// Waits until it touches that no more, or for some more microseconds if it is late already; `is_dead` says whether its
    /// process is gone. Never to be called with a lock held.
    pub(crate) fn wait(
        &self,
        what: AccessScope,
        until: Instant,
        mut is_dead: impl FnMut() -> bool,
    ) -> WaitOutcome {
        for _ in 0..SPINS {
            if !self.touches(what) {
                return WaitOutcome::Idle;
            }
            std::hint::spin_loop();
        }
        while self.touches(what) {
            if is_dead() {
                return WaitOutcome::Dead;
            }
            if driver::now() >= until {
                return WaitOutcome::Stopped;
            }
            std::thread::sleep(PAUSE);
        }
        WaitOutcome::Idle
    }
}
