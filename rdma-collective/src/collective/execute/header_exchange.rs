//! The header exchange: one round of messages between the ranks of a host. It knows whose message has arrived, whose is
//! missing, and why a missing one will never arrive.
//!
//! `eager` and `zero_copy` decide about the payload of the messages. `HostGroup` owns the mailboxes and the rule about
//! their room.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::spin::{Polled, spin_wait, yield_wait};
use super::stop::{Stop, is_ended_by, is_found_here};
use crate::collective::AbortReason;
use crate::collective::call::is_of_two;
use crate::collective::communicator::{AHEAD, HostGroup, Link, Links, Lost, WaitingFor, at_fault};
use crate::collective::operation::{Abort, DAMAGED, Header};
use crate::engine::EngineState;

/// The shortest time between two polls of the engine.
const NAP_MIN: Duration = Duration::from_micros(50);
/// The longest time between two polls of the engine. It bounds what a late message costs on top of its own delay.
const NAP_MAX: Duration = Duration::from_millis(1);

/// How long a poll holds the engine while it yields the core to peers. Only with one waiting caller, because others
/// would wait for the engine meanwhile. One `yield_now` may exceed the limit by the turn of another thread.
const HELD_FOR: Duration = Duration::from_micros(50);

const EARLY: &str = "a message around the ring before it could know that it goes there";

/// The state of one round. `Copy`, so that the operation that follows a [`Fallback`](super::plan::Fallback) takes it
/// over.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderExchange {
    pub(super) header: Header,
    /// The ranks whose messages this rank needs to end the round.
    needed: RankSet,
    /// The ranks whose messages have not arrived. Before the begin, these are the messages of earlier rounds, which
    /// make room for this rank's own.
    pub(super) missing: RankSet,
    /// Whether this rank is sending its messages, or has sent them.
    pub(super) begun: bool,
    /// The time of the last progress, as far as a poll has noticed it.
    pub(super) progressed: Instant,
}

impl HeaderExchange {
    /// A round among `all` other ranks, of which this one needs the messages of `needed`.
    #[inline]
    pub(super) fn new(header: Header, [all, needed]: [RankSet; 2], started: Instant) -> Self {
        Self { header, needed, missing: all, begun: false, progressed: started }
    }

    /// Begins the round. Call it once all mailboxes have room, right before the messages are written.
    #[inline]
    pub(super) fn begin(&mut self, host: &HostGroup) {
        // Record the header before any message of this round is taken: they are compared with it.
        host.begin_round(&self.header);
        self.begun = true;
        self.missing = self.needed;
    }

    /// Begins the next round of the same operation. There is room without a wait, because this rank has just taken the
    /// message of the round before from every other rank.
    pub(super) fn again(&mut self, host: &HostGroup, now: Instant) {
        self.progressed = now;
        self.begin(host);
    }

    /// Polls the mailboxes once; returns whether nothing is missing: before the begin every mailbox has room, after it
    /// every needed message has arrived.
    ///
    /// # Errors
    ///
    /// A rank is or was in another operation, or has sent a damaged header.
    #[inline]
    pub(super) fn look(&mut self, host: &HostGroup) -> Result<bool, Stop> {
        // Before the begin this rank needs room in the mailboxes: the `AHEAD` rule says which messages prove it.
        let last = if self.begun { host.round() } else { host.round().wrapping_sub(AHEAD) };
        for from in self.missing.iter() {
            if host.take(from, last)? {
                self.missing.remove(from);
            }
        }
        Ok(self.missing.is_empty())
    }

    /// Takes what arrived over the ring's links: aborts, and operations of the rank before. With `around`, a rank that
    /// has sent its message may go on around the ring, since the fallback of a zero-copy operation does that.
    ///
    /// # Errors
    ///
    /// The reason for which the operation must stop.
    pub(super) fn listen(
        &mut self,
        links: &mut Links,
        core: &mut EngineState,
        around: Option<&HostGroup>,
    ) -> Result<(), Stop> {
        let taken = links.take_arrivals(core);
        // An abort before a lost lane: it names the culprit, while the lane may have ended only because of the abort.
        if let Some(abort) = links.abort.filter(|abort| is_ended_by(&self.header, abort)) {
            return Err(Stop::Abort(abort));
        }
        taken.map_err(Stop::Lost)?;
        self.check_rounds(links)?;
        self.check_ring(links, core, around)
    }

    /// Polls once; returns whether nothing is missing.
    ///
    /// # Errors
    ///
    /// All errors of [`look`](Self::look), or the reason for which a missing message will never arrive.
    pub(super) fn attend(
        &mut self,
        links: &Links,
        core: &mut EngineState,
        host: &HostGroup,
    ) -> Result<bool, Stop> {
        // Sample `ended` **before** polling: a rank writes its messages before it exits, so this order cannot miss one.
        let ended = links.ended(core);
        let missing = self.missing;
        let come = self.look(host)?;
        if self.missing != missing {
            self.progressed = core.now();
        }
        if come {
            return Ok(true);
        }
        self.missing.can_come(&self.header, links, ended).map(|()| false)
    }

    /// Like [`attend`](Self::attend), but keeps the engine while a caller waits and messages are under way: the other
    /// ranks answer sooner than the engine comes round to this operation again.
    pub(super) fn attend_patiently(
        &mut self,
        links: &Links,
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
        // A wrong message ends the spin as well. This second poll finds it again and returns the error.
        self.attend(links, core, host)
    }

    /// Checks whether another rank is in an operation in rounds while this rank uses the windows, or waits in another
    /// operation.
    ///
    /// # Errors
    ///
    /// A mismatch.
    fn check_rounds(&self, links: &Links) -> Result<(), Stop> {
        let header = &self.header;
        // `check_ring` looks at the rank before this one.
        let others = links.table.links().filter(|link| link.rank != links.previous);
        let unread = others.filter_map(|link| link.first_unread()?.ok());
        let mut wrong = unread.filter(|theirs| theirs.sequence <= header.sequence && !is_of_two(theirs));
        let wrong = wrong.next().map(|theirs| [*header, theirs]);
        let wrong = wrong.or_else(|| links.waits_elsewhere(Some(header)));
        wrong.map_or(Ok(()), |[ours, theirs]| Err(Stop::Mismatch { ours, theirs }))
    }

    /// Checks whether the rank before this one runs an operation around the ring while this rank uses the windows.
    ///
    /// # Errors
    ///
    /// A mismatch, unless that is the fallback of this operation and the rank has sent its message before.
    fn check_ring(
        &mut self,
        links: &Links,
        core: &mut EngineState,
        around: Option<&HostGroup>,
    ) -> Result<(), Stop> {
        let wrong = |core: &mut EngineState, what| Stop::Lost(links.violation_of(core, links.previous, what));
        let sent = links.table.link(links.previous).and_then(Link::first_unread);
        let Ok(sent) = sent.transpose() else { return Err(wrong(core, DAMAGED)) };
        // The message of a send waits for its receive, which comes after this operation.
        let sent = sent.filter(|theirs| !is_of_two(theirs));
        let ahead = links.ahead.front().copied();
        let mut theirs =
            ahead.into_iter().chain(sent).filter(|theirs| theirs.sequence <= self.header.sequence);
        let Some(theirs) = links.beyond.or_else(|| theirs.next()) else { return Ok(()) };
        match around {
            Some(host) if self.header.agrees(&theirs) => {
                // Poll once more: the rank wrote its message before it sent anything around the ring, so the message
                // is here by now, though an earlier poll may have missed it.
                self.look(host)?;
                if !self.begun || self.missing.contains(links.previous) {
                    Err(wrong(core, EARLY))
                } else {
                    Ok(())
                }
            }
            _ => Err(Stop::Mismatch { ours: self.header, theirs }),
        }
    }

    /// The time of the next poll after `now`. Messages in windows raise no completion, so only polling finds them.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        // A sixteenth of the wait so far: polling adds about 6 % to a long wait, and costs little CPU time.
        let waited = now.saturating_duration_since(self.progressed);
        now + (waited / 16).clamp(NAP_MIN, NAP_MAX)
    }
}

/// A set of ranks of one host, a bit each. `RANKS_MAX` is 16, so 32 bits are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective) struct RankSet(u32);

impl RankSet {
    pub(super) const EMPTY: Self = Self(0);

    /// All of `ranks` except `rank`.
    #[inline]
    pub(super) fn all_but(rank: u32, ranks: u32) -> Self {
        Self(((1 << ranks) - 1) & !(1 << rank))
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, rank: u32) -> bool {
        // Checked, because an abort of a peer may name any number as its culprit.
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

    /// The wait to report. A missing neighbour comes first: it may wait for another rank itself, and its wait report
    /// leads on to that one.
    pub(super) fn waits_for(self, links: &Links) -> WaitingFor {
        if self.contains(links.previous) {
            WaitingFor::Rank(links.previous)
        } else if self.contains(links.next) {
            WaitingFor::Rank(links.next)
        } else {
            WaitingFor::Ranks(self.0)
        }
    }

    /// Fails if a rank in this set can no longer send its message for the operation of `header`.
    ///
    /// Sample `ended` **before** polling the windows: a rank writes its messages before it exits, so this order cannot
    /// miss one.
    pub(super) fn can_come(self, header: &Header, links: &Links, ended: Vec<Lost>) -> Result<(), Stop> {
        // An abort of a *later* operation comes from a rank that is past this one. If it names a missing rank as
        // failed, that rank's message will never arrive. A failure that this rank reported itself is judged by its
        // lanes below.
        let beyond = |abort: &Abort| {
            let lost = abort.reason == AbortReason::PeerFailed && self.contains(abort.culprit);
            lost && !is_found_here(header, abort)
        };
        if let Some(abort) = links.abort.filter(beyond) {
            return Err(Stop::Abort(abort));
        }
        at_fault(ended, |rank| self.contains(rank)).map_or(Ok(()), |lost| Err(Stop::Lost(lost)))
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        Self(ranks.into_iter().fold(0, |missing, rank| missing | 1 << rank))
    }
}
