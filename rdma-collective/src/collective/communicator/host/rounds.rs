//! How far this rank is in rounds of messages, and how far it has taken what the others have left.
//!
//! A rank may end a round before it has taken what that has for it, when it needs nothing of it, and takes it later. It begins a
//! round once it has taken all up to the `AHEAD`-th before. So whoever has taken the message of a rank of round `i` knows that this has
//! taken all of its own up to round `i - AHEAD`; and who begins round `i` knows that of its own up to round
//! `i - 2 * AHEAD`, whose room it uses.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{HostGroup, WORD_BYTES};
use crate::collective::operation::{Header, LineHeader};

/// Rounds that a rank may be ahead of what it has taken.
pub(super) const AHEAD: u64 = 4;
/// Rounds whose messages are kept at a time; see the module.
pub(super) const GENERATIONS: u64 = 2 * AHEAD;

/// See the module. One operation uses it at a time, so that no order is needed among these.
#[derive(Debug)]
pub(super) struct Rounds {
    /// Those that have ended.
    pub(super) ended: AtomicU64,
    /// By rank, those whose messages were taken.
    pub(super) taken: Vec<AtomicU64>,
    /// What this rank has called in those of which it may not have taken all.
    called: [Called; AHEAD as usize],
}

type Called = [AtomicU64; size_of::<LineHeader>() / WORD_BYTES];

fn read(called: &Called) -> LineHeader {
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
    pub(super) fn new(ranks: usize) -> Self {
        let taken = (0..ranks).map(|_| AtomicU64::new(0)).collect();
        Self { ended: AtomicU64::new(0), taken, called: Default::default() }
    }

    fn called(&self, round: u64) -> &Called {
        &self.called[(round % AHEAD) as usize]
    }
}

impl HostGroup {
    #[inline]
    pub(super) fn round(&self) -> u64 {
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
        let mut called = self.rounds.called.iter().filter_map(|line| Header::of_line(read(line), self.rank));
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
        let (theirs, ours) = (self.line(from, round), read(self.rounds.called(round)));
        if theirs == ours {
            return Ok(());
        }
        Err(match (Header::of_line(ours, self.rank), Header::of_line(theirs, from)) {
            (Some(ours), Some(theirs)) => Unlike::Mismatch { ours, theirs },
            _ => Unlike::Damaged(from),
        })
    }
}
