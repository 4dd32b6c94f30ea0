//! One operation of one rank on memory of all ranks where it lies: they tell each other where that is, each makes its share,
//! and says that it is done.

mod peer_buffers;

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::CacheHint;

use self::peer_buffers::PeerBuffers;
use super::buffers::{ADVERT_BYTES, Arithmetic, BufferAdvert, Buffers, Rights};
use super::header_exchange::{HeaderExchange, RankSet};
use super::ring_exec::ExecContext;
use super::stop::{Progress, Stop};
use crate::collective::call::{Call, Collective};
use crate::collective::communicator::{
    HostGroup, PIECE_BYTES, RANKS_MAX, ReduceScratch, RingLinks, WaitingFor,
};
use crate::collective::operation::Header;
use crate::collective::zero_copy_plan::{From, Move, To, ZeroCopyPlan};
use crate::engine::EngineState;

/// Bytes that are made between two looks at what becomes of the others, and at the time.
const LOOK_EVERY: usize = 256 * 1024;
/// How long others are let run before this rank naps.
const YIELD_FOR: Duration = Duration::from_micros(300);

/// How long it may take that no other rank is at the memory any more: nothing else on the engine goes on meanwhile.
pub(super) const REVOKE_WITHIN: Duration = Duration::from_secs(1);

/// Bytes that are made at a time where memory lies, `most` at most: of more than two ranks what is reduced stays near until all
/// have it, unless inputs come from no cache at all, which are read in longer runs then.
pub(super) fn piece_bytes(call: Call, ranks: u32, most: usize) -> usize {
    let all = match call.collective {
        Collective::AllReduce | Collective::Reduce if ranks > 2 => call.bytes(),
        Collective::ReduceScatter if ranks > 2 => call.bytes() * ranks as usize,
        _ => return most,
    };
    if CacheHint::of_total(all) == CacheHint::Cached { PIECE_BYTES.min(most) } else { most }
}

/// What an operation has come to.
pub(super) enum Outcome {
    Done,
    /// Not all ranks own their memory, and all know it: nothing is done, and it goes another way. The round of messages is not ended.
    Fallback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Telling,
    HeaderExchange,
    Moving,
    Leaving,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    moves: ZeroCopyPlan,
    /// Where what is copied is expected.
    expect: CacheHint,
    arithmetic: Arithmetic,
    meeting: HeaderExchange,
    stage: Phase,
    /// By rank.
    told: [BufferAdvert; RANKS_MAX as usize],
    /// What is being moved, and whether it is made.
    current: Option<Move>,
    made: bool,
    /// How many outputs have it.
    stored: u32,
    /// The rank whose memory cannot be reached for now.
    blocked: Option<u32>,
    started: Instant,
    /// Since when it waits.
    waits: Instant,
}

/// Why a move does not go on.
enum Halt {
    /// The rank does not answer for now, or will not any more, of which word will come.
    Blocked(u32),
    Stop(Stop),
}

impl ZeroCopy {
    pub(super) fn new(moves: ZeroCopyPlan, sequence: u64, started: Instant) -> Self {
        let ZeroCopyPlan { call, rank, ranks, .. } = moves;
        Self {
            moves,
            expect: call.expect(ranks),
            arithmetic: call.arithmetic(ranks),
            meeting: HeaderExchange::new(
                call.header(rank, sequence),
                [RankSet::all_but(rank, ranks); 2],
                started,
            ),
            stage: Phase::Telling,
            told: [BufferAdvert::default(); RANKS_MAX as usize],
            current: None,
            made: false,
            stored: 0,
            blocked: None,
            started,
            waits: started,
        }
    }

    /// This rank, and the number of the operation.
    pub(super) fn named(&self) -> (u32, u64) {
        let Header { rank, sequence, .. } = self.meeting.header;
        (rank, sequence)
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// The first messages of all.
    pub(super) fn meeting(&self) -> HeaderExchange {
        self.meeting
    }

    /// Goes on as far as it can, and not for long. Ranks that come elsewhere may go `around` the ring.
    pub(super) fn advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
        around: bool,
    ) -> Poll<Result<Outcome, Stop>> {
        match self.try_advance(with, host, around) {
            Ok(Some(came)) => Poll::Ready(Ok(came)),
            Ok(None) => {
                let (awaited, HeaderExchange { header, progressed, .. }) =
                    (self.waits_for(with.ring), self.meeting);
                with.ring.wait(with.core, header.sequence, awaited, progressed);
                Poll::Pending
            }
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
        around: bool,
    ) -> Result<Option<Outcome>, Stop> {
        self.meeting.listen(with.ring, with.core, around.then_some(host))?;
        if self.stage == Phase::Telling {
            if !self.meeting.attend(with.ring, with.core, host)? {
                return Ok(None);
            }
            self.meeting.begin(host);
            let told = self.export(with.core, with.buffers);
            self.tell(host, &told.encode())?;
            self.stage = Phase::HeaderExchange;
        }
        if self.stage == Phase::HeaderExchange {
            if !self.meeting.attend_patiently(with.ring, with.core, host)? {
                return Ok(None);
            }
            if !self.hear(host) {
                with.buffers.revoke(Deadline::after(REVOKE_WITHIN));
                return Ok(Some(Outcome::Fallback));
            }
            host.end_round();
            self.meeting.again(host, with.core.now());
            self.stage = Phase::Moving;
        }
        if self.stage == Phase::Moving {
            if !self.go_on(with, host)? {
                self.meeting.attend(with.ring, with.core, host)?;
                // A rank says that its share is made, and may die before this rank has made its own share in that
                // rank's memory. No message is missing then, so the end of the rank that blocks must be asked for.
                if let Some(rank) = self.blocked {
                    let ended = with.ring.ended(with.core);
                    RankSet::from_iter([rank]).can_come(&self.meeting.header, with.ring, ended)?;
                }
                return Ok(None);
            }
            self.tell(host, &[])?;
            self.stage = Phase::Leaving;
            self.waits = Instant::now();
        }
        if !self.meeting.attend_patiently(with.ring, with.core, host)? {
            return Ok(None);
        }
        host.end_round();
        with.buffers.revoke(Deadline::after(REVOKE_WITHIN));
        Ok(Some(Outcome::Done))
    }

    fn export<B: Buffers>(&mut self, core: &EngineState, buffers: &mut B) -> BufferAdvert {
        let ZeroCopyPlan { call, rank, .. } = self.moves;
        self.moves.in_place = u32::from(buffers.is_in_place()) << rank;
        let rights = Rights { read: self.moves.reads(rank), write: self.moves.writes(rank) };
        let told = buffers.export(core.pd(), rights, call.origins(rank)).unwrap_or_default();
        self.told[rank as usize] = told;
        told
    }

    fn tell(&self, host: &HostGroup, message: &[u8]) -> Result<(), Stop> {
        let mut told = host.others().map(|to| host.put(to, &self.meeting.header, message));
        told.try_for_each(|told| told.map_err(Stop::Refused))
    }

    /// Whether all ranks own their memory: where it is.
    fn hear(&mut self, host: &HostGroup) -> bool {
        for from in host.others() {
            let mut bytes = [0; ADVERT_BYTES];
            host.read(from, (0, ADVERT_BYTES), &mut bytes);
            let told = BufferAdvert::decode(&bytes);
            self.told[from as usize] = told;
            // Of an all-to-all, others store to those alone that are in place.
            self.moves.in_place |= u32::from(told.is_stored_to()) << from;
        }
        self.told.iter().take(self.moves.ranks as usize).all(|told| !told.is_borrowed())
    }

    /// Makes what this rank has to make, or some of it; whether that is all.
    fn go_on<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>, host: &HostGroup) -> Result<bool, Stop> {
        let mut near = host.reduce_scratch();
        let mut moved = 0;
        self.blocked = None;
        loop {
            if self.current.is_none() {
                (self.current, self.made, self.stored) = (self.moves.next(), false, 0);
            }
            let Some(current) = self.current else { return Ok(true) };
            if moved >= LOOK_EVERY {
                return Ok(false);
            }
            match self.take(with, host, &mut near, current) {
                Ok(()) => {
                    moved += current.span.len;
                    self.current = None;
                    self.meeting.progressed = with.core.now();
                }
                Err(Halt::Blocked(rank)) => {
                    self.blocked = Some(rank);
                    return Ok(false);
                }
                Err(Halt::Stop(stop)) => return Err(stop),
            }
        }
    }

    /// Makes one move, or the rest of it.
    fn take<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
        near: &mut ReduceScratch,
        current: Move,
    ) -> Result<(), Halt> {
        let (Move { span, from, to, .. }, source) = (current, current.source());
        let own = self.moves.rank;
        let Some([input, output]) = with.buffers.places() else { return Ok(()) };
        let mut reach =
            PeerBuffers { core: with.core, host, moves: &self.moves, expect: self.expect, told: &self.told };
        match (from, to) {
            (From::One(rank), To::One(other)) if rank == own && other == own => {
                with.buffers.copy(span, self.expect)
            }
            (From::One(rank), To::One(_)) if rank != own => {
                reach.read_to(rank, source, (output, span))?;
            }
            (From::One(_), To::One(rank)) => {
                reach.store_from(rank, span, (input, source))?;
            }
            (From::One(rank), To::Exchanged) => {
                // Whatever was done of it already, from the first step on that was not.
                if !self.made {
                    reach.read(own, output, span, &mut near.made[..span.len])?;
                    self.made = true;
                }
                if self.stored == 0 {
                    reach.read_to(rank, source, (output, span))?;
                    self.stored = 1;
                }
                reach.store(rank, output, source, &near.made[..span.len])?;
            }
            // Nothing is copied to all, or reduced in exchange.
            (From::One(_), To::All) | (From::All { .. }, To::Exchanged) => {}
            (From::All { .. }, To::All)
                if !self.made && reach.are_two_in_place() && !self.arithmetic.has_an_end() =>
            {
                let (made, done) = reach.reduce_both(input, span, self.arithmetic);
                if made && done.is_err() {
                    // An operand is gone: from here on it is as if it had been made apart.
                    reach.read(own, output, span, &mut near.made[..span.len])?;
                    self.made = true;
                }
                return done;
            }
            (From::All { first }, to) => {
                if !self.made {
                    reach.reduce(near, input, span, first, self.arithmetic)?;
                    self.made = true;
                }
                let ranks = match to {
                    To::One(rank) => rank..rank + 1,
                    _ => 0..self.moves.ranks,
                };
                for rank in ranks.skip(self.stored as usize) {
                    reach.store(rank, output, span, &near.made[..span.len])?;
                    self.stored += 1;
                }
            }
        }
        Ok(())
    }

    /// Who cannot be reached, or has not said that it is done, or where its memory is.
    pub(super) fn waits_for(&self, ring: &RingLinks) -> WaitingFor {
        match self.blocked {
            Some(rank) => WaitingFor::Ranks(1 << rank),
            None => self.meeting.missing.waits_for(ring),
        }
    }

    /// When to look again after `now`, since messages wake nobody: at once while there is something to be made.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        let works = self.stage == Phase::Moving && self.blocked.is_none();
        if works || now.saturating_duration_since(self.waits) < YIELD_FOR {
            now
        } else {
            self.meeting.look_at(now)
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let current = self.current.map_or(0, |current| current.span.len);
        let bytes_outstanding = (self.moves.left() + current) as u64;
        let HeaderExchange { header, progressed, .. } = self.meeting;
        Progress { header, sequence: header.sequence, bytes_outstanding, started: self.started, progressed }
    }
}

#[cfg(test)]
mod tests;
