//! Shared-memory windows between the ranks of one host: the transport of the eager and the pipelined protocols.
//!
//! Each rank owns one window and maps the window of every other rank. A window has two parts: mailboxes, into which
//! the *other* ranks write their eager messages, and units, which the *owner* fills and the others read.
//!
//! # Mailboxes: rounds, and the `AHEAD` rule
//!
//! Ranks exchange eager messages in rounds. In a round each rank writes one message for every other rank, and ends the
//! round when it has the messages that it needs. The thread of the caller writes a message with plain stores: no
//! request, no completion, and no acknowledgement. The receiver sees it a fraction of a microsecond later.
//!
//! Because nothing acknowledges a message, a sender must know by other means when a slot is free. The rule is:
//! a rank begins round `i` only once it has taken the messages of rounds up to `i - AHEAD` from **every** rank.
//!
//! - A message of round `i` from rank `b` therefore proves that `b` has taken all messages up to round `i - AHEAD`.
//! - A rank that begins round `i` has taken the messages of round `i - AHEAD`. Each proves that its sender has taken
//!   everything up to round `i - 2 * AHEAD`.
//! - So `2 * AHEAD` slots for each pair of ranks are enough: the slot of round `i` held the message of round
//!   `i - 2 * AHEAD`, which its receiver has taken.
//!
//! A rank may end a round before it has taken every message of it: the root of a broadcast needs none. It takes them
//! later, when the rule asks for them, and compares their headers then. So such a root runs up to `AHEAD` rounds
//! ahead of the slowest rank without waiting.
//!
//! # Units
//!
//! The rest of a window holds the pieces of longer operations, and a line with the owner's progress mark. This module
//! knows where a unit lies. The pipelined executor decides who fills which unit when, and why nobody
//! overwrites a unit before it was read.

mod setup;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_core::error::ReachError;
use rdma_core::memory::{CacheHint, InPlace};
use rdma_core::{PeerWindow, Window};

use crate::collective::operation::{Header, LineHeader};
use crate::engine::LaneId;

/// The most ranks of a group. The limit bounds the memory of a window: below 1.1 MiB of mailboxes, and 64 KiB of units
/// for each rank.
pub(crate) const RANKS_MAX: u32 = 16;
/// The longest eager message in any group, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// The longest eager message in a group of `ranks`, in bytes: shorter in large groups, because each rank has a mailbox
/// for every other one.
pub(crate) const fn message_bytes_max(ranks: u32) -> usize {
    if ranks <= 4 { MESSAGE_BYTES_MAX } else { 8 * 1024 }
}

/// The first cache line of a message, in bytes: the header, a short payload, and last the flag.
///
/// A short message is in this line alone, so that its receiver waits for one cache line.
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = size_of::<u64>();
const FLAG_AT: usize = LINE_BYTES - WORD_BYTES;
/// The longest payload that fits the first line, in bytes. A longer one lies behind the line.
const SHORT_BYTES_MAX: usize = FLAG_AT - size_of::<LineHeader>();

/// Bytes of one slot in a group of `ranks`.
const fn slot_bytes(ranks: u32) -> usize {
    LINE_BYTES + message_bytes_max(ranks)
}

/// Bytes of all mailboxes of a window in a group of `ranks`.
const fn mailboxes_bytes(ranks: u32) -> usize {
    ranks as usize * GENERATIONS as usize * slot_bytes(ranks)
}

/// The offset of a payload of `len` bytes in its slot.
const fn message_at(len: usize) -> usize {
    if len <= SHORT_BYTES_MAX { size_of::<LineHeader>() } else { LINE_BYTES }
}

/// Bytes that a zero-copy operation reads from its peers and reduces at a time. The limit keeps the result in the
/// second-level cache until it is stored.
pub(crate) const ZERO_COPY_PIECE_BYTES: usize = 64 * 1024;

/// Buffers of a zero-copy reduction: the result, and the input that is read from a peer.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ReduceScratch {
    pub(crate) made: [u8; ZERO_COPY_PIECE_BYTES],
    pub(crate) read: [u8; ZERO_COPY_PIECE_BYTES],
}

/// The windows of a communicator whose ranks all run on one host. One operation uses them at a time.
#[derive(Debug)]
pub(crate) struct HostGroup {
    rank: u32,
    /// This rank's window: the others write their messages into its mailboxes.
    own: Window,
    /// The mapped windows of the other ranks, by rank; `None` for this rank.
    peers: Vec<Option<PeerWindow>>,
    /// The lanes through which zero-copy operations reach the memory of each rank, by rank. A rank that was linked
    /// before the windows were made is reached by the lane of its link.
    lanes: Vec<Option<LaneId>>,
    /// Bytes of one slot.
    slot_bytes: usize,
    /// Buffers of zero-copy reductions.
    reduce_scratch: Mutex<Box<ReduceScratch>>,
    rounds: ExchangeRounds,
    units: PipelineUnits,
    /// Whether this host has a core for every rank.
    pub(crate) roomy: bool,
    /// Whether the last messages came while this rank polled for them, so that polling without yielding the core is
    /// likely to find the next ones. Cleared when polling may take the core from the very rank that is to send.
    pub(crate) prompt: AtomicBool,
}

impl HostGroup {
    /// Makes a group of windows that are [`window_bytes`](Self::window_bytes) long.
    fn new(own: Window, peers: Vec<Option<PeerWindow>>, lanes: Vec<Option<LaneId>>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // With fewer cores than ranks, a rank that polls takes the core from the very rank that it waits for.
        let roomy = cores >= peers.len();
        let (rounds, prompt) = (ExchangeRounds::new(peers.len()), AtomicBool::new(roomy));
        let ranks = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        let units = PipelineUnits::new(mailboxes_bytes(ranks), peers.len());
        let rank = (0..).zip(&peers).find_map(|(rank, peer)| peer.is_none().then_some(rank));
        Self {
            rank: rank.unwrap_or_default(),
            own,
            peers,
            lanes,
            slot_bytes: slot_bytes(ranks),
            reduce_scratch: Mutex::new(Box::new(ReduceScratch {
                made: [0; ZERO_COPY_PIECE_BYTES],
                read: [0; ZERO_COPY_PIECE_BYTES],
            })),
            rounds,
            units,
            roomy,
            prompt,
        }
    }

    /// The lane to another rank.
    pub(crate) fn lane(&self, rank: u32) -> Option<LaneId> {
        *self.lanes.get(rank as usize)?
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.lanes.iter().copied().flatten()
    }

    /// Locks the reduction buffers. Their content stays from one step of an operation to the next.
    pub(crate) fn reduce_scratch(&self) -> MutexGuard<'_, Box<ReduceScratch>> {
        self.reduce_scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window_bytes(ranks: u32) -> usize {
        mailboxes_bytes(ranks) + PipelineUnits::bytes(ranks as usize)
    }

    /// The other ranks.
    #[inline]
    pub(crate) fn others(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.peers).filter_map(|(rank, peer)| peer.as_ref().map(|_| rank))
    }

    pub(crate) fn set_prompt(&self, prompt: bool) {
        self.prompt.store(prompt && self.roomy, Ordering::Relaxed);
    }

    /// The offset, in any window, of the slot into which rank `from` writes its message of `round`.
    #[inline]
    fn slot(&self, from: u32, round: u64) -> usize {
        (from as usize * GENERATIONS as usize + (round % GENERATIONS) as usize) * self.slot_bytes
    }

    /// The flag of a message of `round`.
    ///
    /// Each round has a flag of its own, so a receiver never clears one, and a slot of an earlier round does not look
    /// new. The flag of round 0 is 1, because a window that nobody has written to is 0.
    #[inline]
    fn flag(round: u64) -> u64 {
        round.wrapping_add(1)
    }

    /// Writes the message of this round for rank `to`. The payload must not exceed [`message_bytes_max`].
    ///
    /// # Errors
    ///
    /// [`ReachError::Forked`] in a forked child.
    #[inline]
    pub(crate) fn put(&self, to: u32, header: &Header, message: &[u8]) -> Result<(), ReachError> {
        let Some(peer) = self.peers.get(to as usize).and_then(Option::as_ref) else { return Ok(()) };
        // Payload, header, flag: the receiver looks at the flag alone. The store of the flag is a release, and the
        // load that finds it an acquire, so everything stored *before* it is visible then. A flag stored earlier
        // would let the receiver read a message of `2 * AHEAD` rounds ago, or half of this one.
        let at = self.slot(header.rank, self.round());
        peer.copy_in(at + message_at(message.len()), message)?;
        for (word, at) in header.in_line().into_iter().zip((at..).step_by(WORD_BYTES)) {
            peer.store(at, word)?;
        }
        peer.store(at + FLAG_AT, Self::flag(self.round()))
    }

    /// Whether the message of rank `from` in `round` has arrived; for a round whose message is not taken yet.
    #[inline]
    fn has_arrived(&self, from: u32, round: u64) -> bool {
        // Equality is enough: the sender reuses the slot only after this rank has taken the message, so no later flag
        // can be here.
        let flag = self.own.load(self.slot(from, round) + FLAG_AT);
        flag.is_ok_and(|flag: u64| flag == Self::flag(round))
    }

    /// The header of a message that has arrived.
    #[inline]
    fn header_line(&self, from: u32, round: u64) -> LineHeader {
        let at = self.slot(from, round);
        std::array::from_fn(|word| {
            let read = self.own.load(at + word * WORD_BYTES);
            debug_assert!(read.is_ok(), "every rank has a slot");
            read.unwrap_or_default()
        })
    }

    /// Copies bytes of rank `from`'s message of this round into `out`, from byte `at` of `len` on. The message must be
    /// [taken](Self::take).
    #[inline]
    pub(crate) fn read(&self, from: u32, (at, len): (usize, usize), out: &mut [u8]) {
        let read = self.own.copy_out(self.slot(from, self.round()) + message_at(len) + at, out);
        debug_assert!(read.is_ok(), "messages end where their places do");
    }

    /// Runs `work` on `bytes` of rank `from`'s message of this round in place, from byte `at` of `len` on.
    #[inline]
    pub(crate) fn work_on<W: InPlace>(
        &self,
        from: u32,
        (at, len): (usize, usize),
        bytes: usize,
        work: &mut W,
    ) {
        let done = self.own.run(self.slot(from, self.round()) + message_at(len) + at, bytes, work);
        debug_assert!(done.is_ok(), "messages end where their places do");
    }
}

/// How many rounds a rank may be ahead of the messages that it has taken; see the module for the rule.
///
/// A rank that only sends, such as the root of a broadcast, runs this far ahead of a slow receiver before it waits.
/// The price is memory: each pair of ranks needs twice as many slots, which makes 1.01 MiB of mailboxes for 16 ranks.
pub(crate) const AHEAD: u64 = 4;
/// Slots of each pair of ranks. Twice [`AHEAD`], because a rank learns that late what its peer has taken.
const GENERATIONS: u64 = 2 * AHEAD;

/// How far this rank is in the rounds of eager messages, and how far it has taken those of the others.
///
/// A single operation uses it at a time, and the communicator's gate or its lock orders one operation before the next.
/// So relaxed loads and stores are enough here.
#[derive(Debug)]
struct ExchangeRounds {
    /// Rounds that this rank has ended; the number of the present round.
    ended: AtomicU64,
    /// By rank: the first round whose message this rank has not taken.
    taken: Vec<AtomicU64>,
    /// The headers of this rank's last `AHEAD` rounds: those of which it may still have to take messages, and to
    /// compare their headers.
    called: [[AtomicU64; size_of::<LineHeader>() / WORD_BYTES]; AHEAD as usize],
}

/// Why a message does not belong to the operation of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrongMessage {
    /// The header of this rank's message is not a header.
    Damaged(u32),
    /// The sender has called something else than this rank.
    Mismatch { ours: Header, theirs: Header },
}

impl ExchangeRounds {
    fn new(ranks: usize) -> Self {
        let taken = (0..ranks).map(|_| AtomicU64::new(0)).collect();
        Self { ended: AtomicU64::new(0), taken, called: Default::default() }
    }

    /// The header of this rank's messages of a round, which is one of its last `AHEAD`.
    fn called(&self, round: u64) -> LineHeader {
        self.called[(round % AHEAD) as usize].each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

impl HostGroup {
    /// The number of the present round.
    #[inline]
    pub(crate) fn round(&self) -> u64 {
        self.rounds.ended.load(Ordering::Relaxed)
    }

    /// Begins the round, whose messages have this header. Every other rank must have room for one: by the `AHEAD` rule,
    /// the messages of round `round() - AHEAD` are [taken](Self::take).
    #[inline]
    pub(crate) fn begin_round(&self, header: &Header) {
        // This replaces the header of round `i - AHEAD`. Its messages were compared with it when they made room.
        let called = &self.rounds.called[(self.round() % AHEAD) as usize];
        for (called, word) in called.iter().zip(header.in_line()) {
            called.store(word, Ordering::Relaxed);
        }
    }

    /// The header that this rank sent in operation `sequence`, if that was one of its last `AHEAD` eager rounds.
    pub(crate) fn called(&self, sequence: u64) -> Option<Header> {
        // An entry that was never used is all 0, and no collective has number 0.
        let mut called = (0..AHEAD).filter_map(|round| Header::of_line(self.rounds.called(round), self.rank));
        called.find(|header| header.sequence == sequence && header.collective != 0)
    }

    /// Ends the round: this rank has all messages of it that it needs.
    #[inline]
    pub(crate) fn end_round(&self) {
        self.rounds.ended.store(self.round().wrapping_add(1), Ordering::Relaxed);
    }

    /// Checks, for a rank in an operation over links, that no other rank has sent an eager message for it.
    ///
    /// Such a message means that the ranks chose different protocols, or called different operations.
    ///
    /// # Errors
    ///
    /// A rank that called something else, in this operation or an earlier one.
    pub(crate) fn check_strays(&self, ours: &Header) -> Result<(), WrongMessage> {
        for from in self.others() {
            // The slot of this round means something only once all earlier messages are taken.
            if self.take(from, self.round().wrapping_sub(1))? && self.has_arrived(from, self.round()) {
                let theirs = Header::of_line(self.header_line(from, self.round()), from);
                let theirs = theirs.ok_or(WrongMessage::Damaged(from))?;
                // A later sequence number is no mismatch: a rank that only sends may be some operations ahead.
                if theirs.sequence <= ours.sequence {
                    return Err(WrongMessage::Mismatch { ours: *ours, theirs });
                }
            }
        }
        Ok(())
    }

    /// Compares all messages that have arrived of operations before number `next`, which have all ended here. A rank
    /// that closes calls this last: no later round will take them.
    ///
    /// # Errors
    ///
    /// A rank that called something else in one of those operations.
    pub(crate) fn check_ended(&self, next: u64) -> Result<(), WrongMessage> {
        let last =
            next.checked_sub(1).map(|sequence| Header { rank: self.rank, sequence, ..Header::default() });
        last.map_or(Ok(()), |last| self.check_strays(&last))
    }

    /// Takes rank `from`'s messages up to round `last`; returns whether all of them have arrived.
    ///
    /// # Errors
    ///
    /// A message belongs to another operation than the one that this rank called in its round.
    #[inline]
    pub(crate) fn take(&self, from: u32, last: u64) -> Result<bool, WrongMessage> {
        let Some(taken) = self.rounds.taken.get(from as usize) else { return Ok(true) };
        let mut round = taken.load(Ordering::Relaxed);
        // The difference is signed, so that the count of rounds may wrap, and the first rounds may look back before 0.
        while last.wrapping_sub(round).cast_signed() >= 0 {
            if !self.has_arrived(from, round) {
                return Ok(false);
            }
            // The whole line is compared at once. It does not contain the rank, so equal calls have equal lines.
            let (theirs, ours) = (self.header_line(from, round), self.rounds.called(round));
            if theirs != ours {
                // The message stays untaken, so that every later look finds the mismatch again.
                return Err(match (Header::of_line(ours, self.rank), Header::of_line(theirs, from)) {
                    (Some(ours), Some(theirs)) => WrongMessage::Mismatch { ours, theirs },
                    _ => WrongMessage::Damaged(from),
                });
            }
            round = round.wrapping_add(1);
            taken.store(round, Ordering::Relaxed);
        }
        Ok(true)
    }
}

/// Bytes of a unit, which holds one piece. The limit keeps all that a rank works on at a time in its second-level
/// cache.
pub(crate) const UNIT_BYTES: usize = 32 * 1024;
/// Pipeline rounds whose pieces a window holds at a time. Two are enough for the order of the pipeline's steps.
const UNIT_GENERATIONS: usize = 2;

/// The layout of the units, which is the same in every window, and the base of the progress marks.
#[derive(Debug)]
struct PipelineUnits {
    /// The offset of the line with the owner's progress mark. The units lie behind it.
    at: usize,
    ranks: usize,
    /// The sum of the marks of all pipelined operations that have ended, which is the same on all ranks.
    ///
    /// Marks only grow from operation to operation, so no rank ever has to reset its line while others still read it.
    base: AtomicU64,
}

impl PipelineUnits {
    fn new(at: usize, ranks: usize) -> Self {
        Self { at, ranks, base: AtomicU64::new(0) }
    }

    const fn bytes(ranks: usize) -> usize {
        LINE_BYTES + UNIT_GENERATIONS * ranks * UNIT_BYTES
    }

    fn unit(&self, round: u64, unit: u32) -> usize {
        let generation = (round % UNIT_GENERATIONS as u64) as usize;
        self.at + LINE_BYTES + (generation * self.ranks + unit as usize) * UNIT_BYTES
    }

    fn mark(&self, mark: u64) -> u64 {
        self.base.load(Ordering::Relaxed).wrapping_add(mark)
    }
}

impl HostGroup {
    /// Writes `bytes` into unit `unit` of this rank's window for pipeline round `round`, from byte `at` on.
    pub(crate) fn fill(&self, (round, unit): (u64, u32), at: usize, bytes: &[u8]) {
        let written = self.own.copy_in(self.units.unit(round, unit) + at, bytes);
        debug_assert!(written.is_ok(), "pieces are no longer than units");
    }

    /// Copies bytes of a unit of rank `from` into `out`, from byte `at` on. The hint says where the whole output is
    /// expected.
    pub(crate) fn fetch(
        &self,
        from: u32,
        (round, unit): (u64, u32),
        at: usize,
        (out, expect): (&mut [u8], CacheHint),
    ) {
        let Some(Some(peer)) = self.peers.get(from as usize) else { return };
        let read = peer.copy_out_hinted(self.units.unit(round, unit) + at, out, expect);
        debug_assert!(read.is_ok(), "pieces are no longer than units");
    }

    /// Runs `work` on `bytes` of a unit of rank `from` in place, from byte `at` on.
    pub(crate) fn work_on_unit<W: InPlace>(
        &self,
        from: u32,
        (round, unit): (u64, u32),
        (at, bytes): (usize, usize),
        work: &mut W,
    ) {
        let Some(Some(peer)) = self.peers.get(from as usize) else { return };
        let done = peer.run(self.units.unit(round, unit) + at, bytes, work);
        debug_assert!(done.is_ok(), "pieces are no longer than units");
    }

    /// Publishes that this rank has reached `mark` in the present operation.
    ///
    /// The store is a release: a rank that sees the mark sees all units that were filled before it. So a mark must be
    /// stored last, after the units that it announces.
    pub(crate) fn publish_mark(&self, mark: u64) {
        let stored = self.own.store(self.units.at, self.units.mark(mark));
        debug_assert!(stored.is_ok(), "there is a line for it");
    }

    /// Whether rank `of` has reached `mark`; always, for this rank itself.
    pub(crate) fn has_published(&self, of: u32, mark: u64) -> bool {
        let Some(Some(peer)) = self.peers.get(of as usize) else { return true };
        // Marks wrap, so the signed difference decides.
        let behind = |theirs: u64| theirs.wrapping_sub(self.units.mark(mark)).cast_signed() < 0;
        !peer.load(self.units.at).is_ok_and(behind)
    }

    /// Ends a pipelined operation whose marks are all below `end`: the next operation counts from there.
    pub(crate) fn end_marks(&self, end: u64) {
        self.units.base.store(self.units.mark(end), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
