//! The ranks of one host as a group: each has a window of every other mapped, in which it leaves short messages.
//!
//! A message is written by the thread of the caller, at once and without a request, and is seen a fraction of a microsecond
//! later. In a round every rank leaves one for every other, and goes on when it has those of theirs that it needs, some
//! [rounds](rounds) ahead of the others at most.

mod rounds;
mod setup;
mod units;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_core::error::ReachError;
use rdma_core::memory::InPlace;
use rdma_core::{PeerWindow, Window};

use crate::collective::operation::{Header, LineHeader};
use crate::engine::LaneId;

pub(crate) use rounds::Unlike;
use rounds::{GENERATIONS, Rounds};
pub(crate) use units::UNIT_BYTES;
use units::Units;

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
pub(crate) const NEAR_BYTES: usize = 64 * 1024;

/// Room for what is made, and for what it is made of.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Near {
    pub(crate) made: [u8; NEAR_BYTES],
    pub(crate) read: [u8; NEAR_BYTES],
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
    near: Mutex<Box<Near>>,
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
            near: Mutex::new(Box::new(Near { made: [0; NEAR_BYTES], read: [0; NEAR_BYTES] })),
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
    pub(crate) fn near(&self) -> MutexGuard<'_, Box<Near>> {
        self.near.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests;
