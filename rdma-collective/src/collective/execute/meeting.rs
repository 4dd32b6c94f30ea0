//! One round of messages between all ranks of a host: who has left its own, and why one that has not never will.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::hurry::{Looked, look_between_others, look_patiently};
use super::missing::Missing;
use super::run::{DAMAGED, Stop, is_ended_by, wrong};
use crate::comm::operation::Header;
use crate::comm::{Core, HostGroup, RingLinks};

/// Between two looks of the engine.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);

/// How long the engine is held while others run that share the core, and for one of their turns more, if no other caller waits.
const HELD_FOR: Duration = Duration::from_micros(50);

const EARLY: &str = "a message around the ring before it could know that it goes there";

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    pub(super) header: Header,
    ranks: u32,
    /// Ranks whose messages have not come.
    pub(super) missing: Missing,
    started: Instant,
    pub(super) progressed: Instant,
}

impl Meeting {
    #[inline]
    pub(super) fn new(header: Header, ranks: u32, started: Instant) -> Self {
        let missing = Missing::all_but(header.rank, ranks);
        Self { header, ranks, missing, started, progressed: started }
    }

    /// The next one of the same operation.
    pub(super) fn again(&mut self, now: Instant) {
        *self = Self { progressed: self.progressed, ..Self::new(self.header, self.ranks, now) };
    }

    /// Whether all messages have come.
    ///
    /// # Errors
    ///
    /// A rank that is in another operation, or leaves what is none.
    #[inline]
    pub(super) fn look(&mut self, host: &HostGroup) -> Result<bool, Stop> {
        for from in self.missing.iter() {
            if host.has_come(from) {
                let line = host.line(from);
                if line != self.header.in_line() {
                    return Err(Header::of_line(line, from).map_or(Stop::Damaged(from), Stop::Mismatch));
                }
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
        self.missing.can_come(&self.header, ring, ended).map(|()| false)
    }

    /// The same, and while a caller waits does not let go of the engine while messages are under way.
    pub(super) fn attend_patiently(
        &mut self,
        ring: &RingLinks,
        core: &mut Core,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        let missing = self.missing;
        let mut look = || match self.look(host) {
            Ok(true) => Looked::Done,
            Ok(false) => Looked::Nothing,
            Err(_) => Looked::Wrong,
        };
        if core.is_awaited() {
            let done = match look_patiently(host, || true, &mut look) {
                Some(done) => done,
                None if core.is_awaited_by_one() => {
                    let until = Deadline::at(core.driven() + HELD_FOR);
                    look_between_others(HELD_FOR, until, || true, &mut look)
                }
                None => false,
            };
            if done {
                return Ok(true);
            }
        }
        if self.missing != missing {
            self.progressed = core.driven();
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
                if self.missing.contains(ring.previous.rank) { Err(wrong(ring, core, EARLY)) } else { Ok(()) }
            }
            _ => Err(Stop::Mismatch(theirs)),
        }
    }

    /// When to look again after `now`, since messages wake nobody.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        let waited = now.saturating_duration_since(self.started.max(self.progressed));
        now + (waited / 16).clamp(NAP_MIN, NAP_MAX)
    }
}
