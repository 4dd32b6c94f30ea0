//! The ranks of one host as a group: each has a window of every other mapped, in which it leaves short messages.
//!
//! A message is written by the thread of the caller, at once and without a request, and is seen a fraction of a microsecond
//! later. In a round every rank leaves one for every other, and goes on when it has those of theirs that it needs, some
//! rounds ahead of the others at most.
//!
//! A rank may end a round before it has taken what that has for it, when it needs nothing of it, and takes it later. It begins a
//! round once it has taken all up to the `AHEAD`-th before. So whoever has taken the message of a rank of round `i` knows that this has
//! taken all of its own up to round `i - AHEAD`; and who begins round `i` knows that of its own up to round
//! `i - 2 * AHEAD`, whose room it uses.
//!
//! The rest of a window has room for pieces of longer operations, which the others read where they lie, and a line that says how far its
//! rank has come. Which unit is filled when, so that nothing is overwritten before it was read, is the pipeline's business.

mod setup;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_core::error::ReachError;
use rdma_core::memory::{CacheHint, InPlace};
use rdma_core::{PeerWindow, Window};

use crate::collective::operation::{Header, LineHeader};
use crate::engine::LaneId;

/// Ranks of a group, at most: what each of them holds for the others is less than 1.1 MiB of messages, and 64 KiB a rank of pieces.
pub(crate) const RANKS_MAX: u32 = 16;
/// Bytes of the longest message in any group.
pub(crate) const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Bytes of the longest message between so many ranks, of which each leaves one for every other.
pub(crate) const fn message_bytes_max(ranks: u32) -> usize {
    if ranks <= 4 { MESSAGE_BYTES_MAX } else { 8 * 1024 }
}

/// The first line of a message: its header, its bytes when they are so few, and its flag, which is stored last.
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = size_of::<u64>();
const FLAG_AT: usize = LINE_BYTES - WORD_BYTES;
/// Bytes that fit the line; more are behind it.
const SHORT_BYTES_MAX: usize = FLAG_AT - size_of::<LineHeader>();

/// Bytes of the place of a message between so many ranks.
const fn slot_bytes(ranks: u32) -> usize {
    LINE_BYTES + message_bytes_max(ranks)
}

/// Bytes of the messages of so many ranks.
const fn mailboxes_bytes(ranks: u32) -> usize {
    ranks as usize * GENERATIONS as usize * slot_bytes(ranks)
}

/// Where so many bytes of a message are in its place.
const fn message_at(len: usize) -> usize {
    if len <= SHORT_BYTES_MAX { size_of::<LineHeader>() } else { LINE_BYTES }
}

/// Bytes that are read from other ranks and reduced at a time: so few that what is made of them is in the processor's second
/// cache still when it is stored.
pub(crate) const ZERO_COPY_PIECE_BYTES: usize = 64 * 1024;

/// Room for what is made, and for what it is made of.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ReduceScratch {
    pub(crate) made: [u8; ZERO_COPY_PIECE_BYTES],
    pub(crate) read: [u8; ZERO_COPY_PIECE_BYTES],
}

/// See the module. One operation of a communicator uses it at a time.
#[derive(Debug)]
pub(crate) struct HostGroup {
    rank: u32,
    /// Where the others leave their messages.
    own: Window,
    /// By rank; this one's place is empty.
    peers: Vec<Option<PeerWindow>>,
    /// The same of the lanes over which their memory is reached, those of the ring among them.
    lanes: Vec<Option<LaneId>>,
    /// Of the place of a message.
    slot_bytes: usize,
    /// What is made of memory that is reached so.
    reduce_scratch: Mutex<Box<ReduceScratch>>,
    rounds: Rounds,
    units: Units,
    /// Whether every rank can have a core.
    roomy: bool,
    /// Whether the last messages came while this rank looked for them, and kept no core from those that leave them.
    prompt: AtomicBool,
}

impl HostGroup {
    /// Of windows that are [so long](Self::window_bytes).
    fn new(own: Window, peers: Vec<Option<PeerWindow>>, lanes: Vec<Option<LaneId>>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let roomy = cores >= peers.len();
        let (rounds, prompt) = (Rounds::new(peers.len()), AtomicBool::new(roomy));
        let ranks = u32::try_from(peers.len()).unwrap_or(u32::MAX);
        let units = Units::new(mailboxes_bytes(ranks), peers.len());
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

    /// What is in it stays from one look at an operation to the next.
    pub(crate) fn reduce_scratch(&self) -> MutexGuard<'_, Box<ReduceScratch>> {
        self.reduce_scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window_bytes(ranks: u32) -> usize {
        mailboxes_bytes(ranks) + Units::bytes(ranks as usize)
    }

    /// The other ranks.
    #[inline]
    pub(crate) fn others(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.peers).filter_map(|(rank, peer)| peer.as_ref().map(|_| rank))
    }

    /// Whether messages come soon when nobody else is let run.
    #[inline]
    pub(crate) fn is_prompt(&self) -> bool {
        self.prompt.load(Ordering::Relaxed)
    }

    /// Whether every rank can have a core.
    #[inline]
    pub(crate) fn is_roomy(&self) -> bool {
        self.roomy
    }

    pub(crate) fn set_prompt(&self, prompt: bool) {
        self.prompt.store(prompt && self.roomy, Ordering::Relaxed);
    }

    /// Whether this is the process that the others know, which may write to all of their windows.
    ///
    /// # Errors
    ///
    /// [`ReachError::Refused`] in a forked child of it.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), ReachError> {
        let end = self.place(u32::try_from(self.peers.len()).unwrap_or(u32::MAX), 0);
        self.peers.iter().flatten().next().map_or(Ok(()), |peer| peer.copy_in(end, &[]))
    }

    /// Where rank `from` leaves its message of a round in a window.
    #[inline]
    fn place(&self, from: u32, round: u64) -> usize {
        (from as usize * GENERATIONS as usize + (round % GENERATIONS) as usize) * self.slot_bytes
    }

    /// What the flag of a message of a round is; memory that nobody has written is 0.
    #[inline]
    fn flag(round: u64) -> u64 {
        round.wrapping_add(1)
    }

    /// Leaves a message of this round for rank `to`, of [as many bytes](message_bytes_max) as there is room for at most.
    ///
    /// # Errors
    ///
    /// [`ReachError::Refused`] in a forked child, which sees all the same what its parent is left.
    #[inline]
    pub(crate) fn put(&self, to: u32, header: &Header, message: &[u8]) -> Result<(), ReachError> {
        let Some(peer) = self.peers.get(to as usize).and_then(Option::as_ref) else { return Ok(()) };
        let at = self.place(header.rank, self.round());
        peer.copy_in(at + message_at(message.len()), message)?;
        for (word, at) in header.in_line().into_iter().zip((at..).step_by(WORD_BYTES)) {
            peer.store(at, word)?;
        }
        peer.store(at + FLAG_AT, Self::flag(self.round()))
    }

    /// Whether the message of rank `from` is there, of a round that it has not taken.
    #[inline]
    fn has_come(&self, from: u32, round: u64) -> bool {
        let flag = self.own.load(self.place(from, round) + FLAG_AT);
        flag.is_ok_and(|flag: u64| flag == Self::flag(round))
    }

    /// The header of a message that has come.
    #[inline]
    fn line(&self, from: u32, round: u64) -> LineHeader {
        let at = self.place(from, round);
        std::array::from_fn(|word| {
            let read = self.own.load(at + word * WORD_BYTES);
            debug_assert!(read.is_ok(), "every rank has a place");
            read.unwrap_or_default()
        })
    }

    /// What rank `from` has left in this round, of which it has [taken](Self::take) the message, from byte `at` on of `len`.
    #[inline]
    pub(crate) fn read(&self, from: u32, (at, len): (usize, usize), out: &mut [u8]) {
        let read = self.own.copy_out(self.place(from, self.round()) + message_at(len) + at, out);
        debug_assert!(read.is_ok(), "messages end where their places do");
    }

    /// Has the same worked on where it lies, `bytes` of it.
    #[inline]
    pub(crate) fn work_on<W: InPlace>(
        &self,
        from: u32,
        (at, len): (usize, usize),
        bytes: usize,
        work: &mut W,
    ) {
        let done = self.own.run(self.place(from, self.round()) + message_at(len) + at, bytes, work);
        debug_assert!(done.is_ok(), "messages end where their places do");
    }
}

/// Rounds that a rank may be ahead of what it has taken.
const AHEAD: u64 = 4;
/// Rounds whose messages are kept at a time; see the module.
const GENERATIONS: u64 = 2 * AHEAD;

/// See the module. One operation uses it at a time, so that no order is needed among these.
#[derive(Debug)]
struct Rounds {
    /// Those that have ended.
    ended: AtomicU64,
    /// By rank, those whose messages were taken.
    taken: Vec<AtomicU64>,
    /// What this rank has called in those of which it may not have taken all.
    called: [Called; AHEAD as usize],
}

type Called = [AtomicU64; size_of::<LineHeader>() / WORD_BYTES];

fn words(called: &Called) -> LineHeader {
    called.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// What a rank has left that is no message of the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlike {
    /// It is none at all.
    Damaged(u32),
    Mismatch {
        ours: Header,
        theirs: Header,
    },
}

impl Rounds {
    fn new(ranks: usize) -> Self {
        let taken = (0..ranks).map(|_| AtomicU64::new(0)).collect();
        Self { ended: AtomicU64::new(0), taken, called: Default::default() }
    }

    fn called(&self, round: u64) -> &Called {
        &self.called[(round % AHEAD) as usize]
    }
}

impl HostGroup {
    #[inline]
    fn round(&self) -> u64 {
        self.rounds.ended.load(Ordering::Relaxed)
    }

    /// This rank begins the round with messages of that header, once it [has room](Self::has_room) with all others.
    #[inline]
    pub(crate) fn begin_round(&self, header: &Header) {
        for (called, word) in self.rounds.called(self.round()).iter().zip(header.in_line()) {
            called.store(word, Ordering::Relaxed);
        }
    }

    /// What this rank has called as operation `sequence`, if that went by messages and may not have been taken by all.
    pub(crate) fn called(&self, sequence: u64) -> Option<Header> {
        // No collective is number 0, and so nothing that was never called is one.
        let mut called = self.rounds.called.iter().filter_map(|line| Header::of_line(words(line), self.rank));
        called.find(|header| header.sequence == sequence && header.collective != 0)
    }

    /// What was left here in this round has been taken, as far as it is needed.
    #[inline]
    pub(crate) fn end_round(&self) {
        self.rounds.ended.store(self.round().wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the message of rank `from` is there; takes it, and all that it has left before.
    ///
    /// # Errors
    ///
    /// One of them is of another operation than this rank was in then.
    #[inline]
    pub(crate) fn take(&self, from: u32) -> Result<bool, Unlike> {
        self.take_until(from, self.round())
    }

    /// Whether there is room for the message of this round to `rank`.
    ///
    /// # Errors
    ///
    /// As of [`take`](Self::take).
    #[inline]
    pub(crate) fn has_room(&self, rank: u32) -> Result<bool, Unlike> {
        self.take_until(rank, self.round().wrapping_sub(AHEAD))
    }

    /// For who is in an operation that goes another way, and has left nothing in this round: that nobody is known to be in another.
    ///
    /// # Errors
    ///
    /// A rank that is, or was.
    pub(crate) fn check_strays(&self, ours: &Header) -> Result<(), Unlike> {
        for from in self.others() {
            if self.take_until(from, self.round().wrapping_sub(1))? && self.has_come(from, self.round()) {
                let theirs = Header::of_line(self.line(from, self.round()), from);
                let theirs = theirs.ok_or(Unlike::Damaged(from))?;
                // It may be ahead.
                if theirs.sequence <= ours.sequence {
                    return Err(Unlike::Mismatch { ours: *ours, theirs });
                }
            }
        }
        Ok(())
    }

    /// The same for who is in none any more: of what was left in rounds that have ended.
    pub(crate) fn check_ended(&self) -> Result<(), Unlike> {
        let last = self.round().wrapping_sub(1);
        self.others().try_for_each(|from| self.take_until(from, last).map(|_| ()))
    }

    #[inline]
    fn take_until(&self, from: u32, last: u64) -> Result<bool, Unlike> {
        let Some(taken) = self.rounds.taken.get(from as usize) else { return Ok(true) };
        let mut round = taken.load(Ordering::Relaxed);
        while last.wrapping_sub(round).cast_signed() >= 0 {
            if !self.has_come(from, round) {
                return Ok(false);
            }
            self.compare(from, round)?;
            round = round.wrapping_add(1);
            taken.store(round, Ordering::Relaxed);
        }
        Ok(true)
    }

    #[inline]
    fn compare(&self, from: u32, round: u64) -> Result<(), Unlike> {
        let (theirs, ours) = (self.line(from, round), words(self.rounds.called(round)));
        if theirs == ours {
            return Ok(());
        }
        Err(match (Header::of_line(ours, self.rank), Header::of_line(theirs, from)) {
            (Some(ours), Some(theirs)) => Unlike::Mismatch { ours, theirs },
            _ => Unlike::Damaged(from),
        })
    }
}

/// Bytes of the longest piece: so few that all that a rank works on at a time stays in the second cache.
pub(crate) const UNIT_BYTES: usize = 32 * 1024;
/// Rounds whose pieces are kept at a time.
const UNIT_GENERATIONS: usize = 2;

/// Where they are in each window.
#[derive(Debug)]
struct Units {
    /// Of the line that tells how far the owner has come.
    at: usize,
    ranks: usize,
    /// What all ranks have told in operations that have ended.
    told: AtomicU64,
}

impl Units {
    fn new(at: usize, ranks: usize) -> Self {
        Self { at, ranks, told: AtomicU64::new(0) }
    }

    const fn bytes(ranks: usize) -> usize {
        LINE_BYTES + UNIT_GENERATIONS * ranks * UNIT_BYTES
    }

    fn unit(&self, round: u64, unit: u32) -> usize {
        let generation = (round % UNIT_GENERATIONS as u64) as usize;
        self.at + LINE_BYTES + (generation * self.ranks + unit as usize) * UNIT_BYTES
    }

    fn mark(&self, mark: u64) -> u64 {
        self.told.load(Ordering::Relaxed).wrapping_add(mark)
    }
}

impl HostGroup {
    /// Writes a unit of this rank's for round `round` of an operation, from byte `at` on.
    pub(crate) fn fill(&self, (round, unit): (u64, u32), at: usize, bytes: &[u8]) {
        let written = self.own.copy_in(self.units.unit(round, unit) + at, bytes);
        debug_assert!(written.is_ok(), "pieces are no longer than units");
    }

    /// Reads what rank `from` has in a unit, a part of what is expected so.
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

    /// Has `bytes` of it worked on where they lie.
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

    /// Tells the others that this rank has come as far as `mark` in an operation.
    pub(crate) fn tell(&self, mark: u64) {
        let told = self.own.store(self.units.at, self.units.mark(mark));
        debug_assert!(told.is_ok(), "there is a line for it");
    }

    /// Whether rank `of` has told that it has come as far.
    pub(crate) fn has_told(&self, of: u32, mark: u64) -> bool {
        let Some(Some(peer)) = self.peers.get(of as usize) else { return true };
        let behind = |told: u64| told.wrapping_sub(self.units.mark(mark)).cast_signed() < 0;
        !peer.load(self.units.at).is_ok_and(behind)
    }

    /// The operation has ended, in which no mark is beyond `marks`.
    pub(crate) fn end_pieces(&self, marks: u64) {
        self.units.told.store(self.units.mark(marks), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
