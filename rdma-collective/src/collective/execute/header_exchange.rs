//! One round of messages between the ranks of a host: who has left what this one waits for, and why one that has not never will.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::spin::{Polled, spin_wait, yield_wait};
use super::stop::{Stop, is_ended_by, is_found_here, wrong};
use crate::collective::AbortReason;
use crate::collective::communicator::{Direction, HostGroup, Lost, RingLinks, WaitingFor, at_fault};
use crate::collective::operation::{Abort, DAMAGED, Header};
use crate::engine::EngineState;

/// Between two looks of the engine.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);

/// How long the engine is held while others run that share the core, and for one of their turns more, if no other caller waits.
const HELD_FOR: Duration = Duration::from_micros(50);

const EARLY: &str = "a message around the ring before it could know that it goes there";

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderExchange {
    pub(super) header: Header,
    /// Ranks whose messages it cannot do without.
    needed: RankSet,
    /// Ranks whose messages have not come: before it has begun those of earlier rounds that make room for its own.
    pub(super) missing: RankSet,
    /// Whether this rank leaves its messages, or has.
    pub(super) begun: bool,
    /// When it came further last, as far as that is looked at.
    pub(super) progressed: Instant,
}

impl HeaderExchange {
    /// Of `all` others, of which it needs some.
    #[inline]
    pub(super) fn new(header: Header, [all, needed]: [RankSet; 2], started: Instant) -> Self {
        Self { header, needed, missing: all, begun: false, progressed: started }
    }

    /// There is room: this rank is about to leave its messages.
    #[inline]
    pub(super) fn begin(&mut self, host: &HostGroup) {
        host.begin_round(&self.header);
        self.begun = true;
        self.missing = self.needed;
    }

    /// The next one of the same operation, of all ranks, which have left room for it.
    pub(super) fn again(&mut self, host: &HostGroup, now: Instant) {
        self.progressed = now;
        self.begin(host);
    }

    /// Whether all messages have come that it waits for, to begin or, when it has, to end.
    ///
    /// # Errors
    ///
    /// A rank that is in another operation, or was, or leaves what is none.
    #[inline]
    pub(super) fn look(&mut self, host: &HostGroup) -> Result<bool, Stop> {
        for from in self.missing.iter() {
            if if self.begun { host.take(from)? } else { host.has_room(from)? } {
                self.missing.remove(from);
            }
        }
        Ok(self.missing.is_empty())
    }

    /// Hears what has become of the operation elsewhere. A rank that has left its message may go on `around` the ring.
    ///
    /// # Errors
    ///
    /// Why it ends.
    pub(super) fn listen(
        &mut self,
        ring: &mut RingLinks,
        core: &mut EngineState,
        around: Option<&HostGroup>,
    ) -> Result<(), Stop> {
        let taken = ring.take_arrivals(core);
        if let Some(abort) = ring.abort.filter(|abort| is_ended_by(&self.header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        self.check_ring(ring, core, around)
    }

    /// Whether all messages have come, as far as can be told soon.
    ///
    /// # Errors
    ///
    /// Why one that has not will not come.
    pub(super) fn attend(
        &mut self,
        ring: &RingLinks,
        core: &mut EngineState,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        // Who has gone has left its messages before.
        let ended = ring.ended(core);
        let missing = self.missing;
        let come = self.look(host)?;
        if self.missing != missing {
            self.progressed = core.now();
        }
        if come {
            return Ok(true);
        }
        self.missing.can_come(&self.header, ring, ended).map(|()| false)
    }

    /// The same, and while a caller waits does not let go of the engine while messages are under way.
    pub(super) fn attend_patiently(
        &mut self,
        ring: &RingLinks,
        core: &mut EngineState,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        let missing = self.missing;
        let mut look = || match self.look(host) {
            Ok(true) => Polled::Done,
            Ok(false) => Polled::Nothing,
            Err(_) => Polled::Wrong,
        };
        if core.is_awaited() {
            let done = match spin_wait(host, || true, &mut look) {
                Some(done) => done,
                None if core.is_awaited_by_one() => {
                    let until = Deadline::at(core.now() + HELD_FOR);
                    yield_wait(HELD_FOR, until, || true, &mut look)
                }
                None => false,
            };
            if self.missing != missing {
                self.progressed = core.now();
            }
            if done {
                return Ok(true);
            }
        }
        self.attend(ring, core, host)
    }

    /// Patience for an operation of the rank before this one that goes around the ring instead.
    fn check_ring(
        &mut self,
        ring: &RingLinks,
        core: &mut EngineState,
        around: Option<&HostGroup>,
    ) -> Result<(), Stop> {
        let mailbox = &ring.previous.mailbox;
        let number = mailbox.given_back();
        let sent = mailbox.arrived(number).map(|_| Header::read(&mailbox.header(number)));
        let Ok(sent) = sent.transpose() else { return Err(wrong(ring, core, DAMAGED)) };
        let ahead = ring.ahead.front().copied();
        let mut theirs =
            ahead.into_iter().chain(sent).filter(|theirs| theirs.sequence <= self.header.sequence);
        let Some(theirs) = ring.beyond.or_else(|| theirs.next()) else { return Ok(()) };
        match around {
            Some(host) if self.header.agrees(&theirs) => {
                // It was left before.
                self.look(host)?;
                if !self.begun || self.missing.contains(ring.previous.rank) {
                    Err(wrong(ring, core, EARLY))
                } else {
                    Ok(())
                }
            }
            _ => Err(Stop::Mismatch { ours: self.header, theirs }),
        }
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        let waited = now.saturating_duration_since(self.progressed);
        now + (waited / 16).clamp(NAP_MIN, NAP_MAX)
    }
}

/// Ranks, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective) struct RankSet(u32);

impl RankSet {
    /// All of so many but that one.
    #[inline]
    pub(super) fn all_but(rank: u32, ranks: u32) -> Self {
        Self(((1 << ranks) - 1) & !(1 << rank))
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, rank: u32) -> bool {
        1_u32.checked_shl(rank).is_some_and(|bit| self.0 & bit != 0)
    }

    #[inline]
    pub(super) fn remove(&mut self, rank: u32) {
        self.0 &= !(1 << rank);
    }

    #[inline]
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let rank = left.trailing_zeros();
            (left != 0).then(|| {
                left &= left - 1;
                rank
            })
        })
    }

    /// A neighbour if one is missing, since that may wait for another itself.
    pub(super) fn waits_for(self, ring: &RingLinks) -> WaitingFor {
        if self.contains(ring.previous.rank) {
            WaitingFor::Neighbour(Direction::Previous)
        } else if self.contains(ring.next.rank) {
            WaitingFor::Neighbour(Direction::Next)
        } else {
            WaitingFor::Ranks(self.0)
        }
    }

    /// Whether they can still come, to the operation of `header`. `ended` are the neighbours' ends, from before what they left was
    /// looked at: who has gone has left its messages before.
    pub(super) fn can_come(
        self,
        header: &Header,
        ring: &RingLinks,
        ended: [Option<Lost>; 2],
    ) -> Result<(), Stop> {
        // Ranks that are further have left theirs: if they have lost one that has not, it will not come.
        let beyond = |abort: &Abort| {
            let lost = abort.reason == AbortReason::PeerFailed && self.contains(abort.culprit);
            lost && !is_found_here(header, abort)
        };
        if let Some(abort) = ring.abort.filter(beyond) {
            return Err(Stop::Abort(abort));
        }
        let waits = [ring.next.rank, ring.previous.rank].map(|rank| self.contains(rank));
        at_fault(ended, waits).map_or(Ok(()), |lost| Err(Stop::Lost(lost)))
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        Self(ranks.into_iter().fold(0, |missing, rank| missing | 1 << rank))
    }
}
