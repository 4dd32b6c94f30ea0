//! One round of messages between all ranks of a host: who has left its own, and why one that has not never will.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::run::{DAMAGED, Stop, is_ended_by, is_found_here, wrong};
use crate::comm::operation::{Abort, Header};
use crate::comm::{Awaited, Core, Direction, HostGroup, RingLinks, at_fault};
use crate::error::AbortReason;

/// Looks in a row before others may run: about as long as a message is under way from a rank that is there.
const LOOKS: u32 = 500;
/// More of them, with the processor told that it waits; neither, and a quarter of those before, when that was in vain last.
const PATIENT_LOOKS: u32 = 500;
/// How long the caller's thread lets others run, before the engine takes over.
const YIELD_FOR: Duration = Duration::from_micros(300);
/// Between two looks of the engine.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);

const EARLY: &str = "a message around the ring before it could know that it goes there";

/// See the module.
#[derive(Debug)]
pub(super) struct Meeting {
    pub(super) header: Header,
    ranks: u32,
    /// Ranks whose messages have not come, a bit each.
    missing: u32,
    started: Instant,
    pub(super) progressed: Instant,
}

impl Meeting {
    pub(super) fn new(header: Header, ranks: u32, started: Instant) -> Self {
        let missing = (u32::MAX >> (u32::BITS - ranks)) & !(1 << header.rank);
        Self { header, ranks, missing, started, progressed: started }
    }

    /// The next one of the same operation.
    pub(super) fn again(&mut self, now: Instant) {
        *self = Self { progressed: self.progressed, ..Self::new(self.header, self.ranks, now) };
    }

    pub(super) fn is_missing(&self, rank: u32) -> bool {
        rank < self.ranks && self.missing & (1 << rank) != 0
    }

    pub(super) fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ranks).filter(|rank| self.is_missing(*rank))
    }

    /// Whether all messages have come.
    ///
    /// # Errors
    ///
    /// A rank that is in another operation, or leaves what is none.
    pub(super) fn look(&mut self, host: &HostGroup) -> Result<bool, Stop> {
        let mut left = self.missing;
        while left != 0 {
            let from = left.trailing_zeros();
            left &= left - 1;
            if host.has_come(from) {
                let line = host.line(from);
                if line != self.header.in_line() {
                    return Err(Header::of_line(line, from).map_or(Stop::Damaged(from), Stop::Mismatch));
                }
                self.missing &= !(1 << from);
            }
        }
        Ok(self.missing == 0)
    }

    /// Looks for as long as messages take when their ranks are there; whether all have come, and `None` while that is open.
    fn look_patiently(&mut self, host: &HostGroup) -> Option<bool> {
        let prompt = host.is_prompt();
        let (looks, patient) = if prompt { (LOOKS, PATIENT_LOOKS) } else { (LOOKS / 4, 0) };
        for number in 0..looks + patient {
            match self.look(host) {
                Ok(false) => {}
                come => {
                    if !prompt {
                        host.set_prompt(true);
                    }
                    // Who tells the others is told of an error, too.
                    return Some(come.is_ok());
                }
            }
            if number >= looks {
                std::hint::spin_loop();
            }
        }
        // Ranks that share a core, or are more than there are cores, come when they are let.
        host.set_prompt(false);
        None
    }

    /// The same, and then lets others run for a while; whether all have come.
    pub(super) fn hurry(&mut self, host: &HostGroup, deadline: Deadline) -> bool {
        if let Some(all) = self.look_patiently(host) {
            return all;
        }
        let until = deadline.min(Deadline::after(YIELD_FOR));
        while !until.expired() {
            // It may take as long as others like.
            std::thread::yield_now();
            match self.look(host) {
                Ok(false) => {}
                come => return come.is_ok(),
            }
        }
        false
    }

    /// Hears what has become of the operation elsewhere. A rank that has left its message may go on `around` the ring.
    ///
    /// # Errors
    ///
    /// Why it ends.
    pub(super) fn listen(
        &mut self,
        ring: &mut RingLinks,
        core: &mut Core,
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
        core: &mut Core,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        // Who has gone has left its messages before.
        let ended = ring.ended(core);
        let missing = self.missing;
        if self.look(host)? {
            return Ok(true);
        }
        if self.missing != missing {
            self.progressed = core.driven();
        }
        // Ranks that are further have left theirs: if they have lost one that has not, it will not come.
        let beyond = |abort: &Abort| {
            let lost = abort.reason == AbortReason::PeerFailed && self.is_missing(abort.culprit);
            lost && !is_found_here(&self.header, abort)
        };
        if let Some(abort) = ring.abort.filter(beyond) {
            return Err(Stop::Abort(abort));
        }
        let waits = [ring.next.rank, ring.previous.rank].map(|rank| self.is_missing(rank));
        at_fault(ended, waits).map_or(Ok(false), |lost| Err(Stop::Lost(lost)))
    }

    /// The same, and does not let go of the engine while messages are under way.
    pub(super) fn attend_patiently(
        &mut self,
        ring: &RingLinks,
        core: &mut Core,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        if host.is_prompt() && self.look_patiently(host) == Some(true) {
            return Ok(true);
        }
        self.attend(ring, core, host)
    }

    /// Looks for an operation of the rank before this one that goes around the ring instead.
    fn check_ring(
        &mut self,
        ring: &RingLinks,
        core: &mut Core,
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
                if self.is_missing(ring.previous.rank) { Err(wrong(ring, core, EARLY)) } else { Ok(()) }
            }
            _ => Err(Stop::Mismatch(theirs)),
        }
    }

    /// A neighbour if one is missing, since that may wait for another itself.
    pub(super) fn waits_for(&self, ring: &RingLinks) -> Awaited {
        if self.is_missing(ring.previous.rank) {
            Awaited::Neighbour(Direction::Previous)
        } else if self.is_missing(ring.next.rank) {
            Awaited::Neighbour(Direction::Next)
        } else {
            Awaited::Ranks(self.missing)
        }
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        let waited = now.saturating_duration_since(self.started);
        now + (waited / 16).clamp(NAP_MIN, NAP_MAX)
    }
}
