//! The zero-copy executor: the ranks of one host read and write each other's registered buffers.
//!
//! The ranks exchange the addresses of their buffers, each one carries out its moves, and then announces that it is
//! done. A rank keeps its buffers exported until all others are done. `zero_copy_plan` owns the moves, `peer_buffers`
//! the access to the memory of a peer, `header_exchange` the two rounds of messages.

mod peer_buffers;

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::CacheHint;

use self::peer_buffers::PeerBuffers;
use super::buffers::{ADVERT_BYTES, Arithmetic, BufferAdvert, Buffers, Rights};
use super::header_exchange::{HeaderExchange, RankSet};
use super::link_exec::ExecContext;
use super::stop::{Progress, Stop};
use crate::collective::call::{Call, Collective};
use crate::collective::communicator::{HostGroup, Links, PIECE_BYTES, RANKS_MAX, ReduceScratch, WaitingFor};
use crate::collective::operation::Header;
use crate::collective::zero_copy_plan::{From, Move, To, ZeroCopyPlan};
use crate::engine::EngineState;

/// Bytes that are moved in one step of the engine, before it checks the time and the other ranks again.
const LOOK_EVERY: usize = 256 * 1024;
/// How long the engine polls again at once before it naps between polls.
const YIELD_FOR: Duration = Duration::from_micros(300);

/// How long a revocation may wait for peers that still use the memory. Bounded, because the engine does nothing else
/// meanwhile.
pub(super) const REVOKE_WITHIN: Duration = Duration::from_secs(1);

/// The length of one move, at most `most` bytes.
///
/// With more than two ranks a reduction takes several passes, so a short piece stays in the cache until all ranks have
/// it. If the inputs exceed the caches anyway, longer runs read them faster.
pub(super) fn piece_bytes(call: Call, ranks: u32, most: usize) -> usize {
    let all = match call.collective {
        Collective::AllReduce | Collective::Reduce if ranks > 2 => call.bytes(),
        Collective::ReduceScatter if ranks > 2 => call.bytes() * ranks as usize,
        _ => return most,
    };
    if CacheHint::of_total(all) == CacheHint::Cached { PIECE_BYTES.min(most) } else { most }
}

/// The end of a zero-copy operation.
pub(super) enum Outcome {
    Done,
    /// Some rank has borrowed buffers, and all ranks know it. Nothing was moved, and the fallback takes over. The round
    /// of messages has not ended, because the fallback continues it.
    Fallback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Exporting,
    HeaderExchange,
    Moving,
    Leaving,
}

/// The state of one zero-copy operation.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    moves: ZeroCopyPlan,
    /// The cache hint for bytes that are stored for good.
    expect: CacheHint,
    arithmetic: Arithmetic,
    headers: HeaderExchange,
    phase: Phase,
    /// The advertised buffers, by rank.
    adverts: [BufferAdvert; RANKS_MAX as usize],
    /// The move under way. It survives a halt, so that a retry does not repeat what was done.
    current: Option<Move>,
    /// Whether the result of the move is in the scratch memory.
    made: bool,
    /// The number of outputs that have the result.
    stored: u32,
    /// The rank whose memory cannot be reached at this moment.
    blocked: Option<u32>,
    started: Instant,
    /// The time from which this rank waits for the others.
    waits: Instant,
}

/// The reason for which a move cannot go on.
enum Halt {
    /// The memory of this rank cannot be reached at this moment, or never again. In that case the ring reports the
    /// rank's end, and that report ends the operation.
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
            headers: HeaderExchange::new(
                call.header(rank, sequence),
                [RankSet::all_but(rank, ranks); 2],
                started,
            ),
            phase: Phase::Exporting,
            adverts: [BufferAdvert::default(); RANKS_MAX as usize],
            current: None,
            made: false,
            stored: 0,
            blocked: None,
            started,
            waits: started,
        }
    }

    /// The number of this rank, and that of the operation.
    pub(super) fn named(&self) -> (u32, u64) {
        let Header { rank, sequence, .. } = self.headers.header;
        (rank, sequence)
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// The state of the header exchange, for the fallback.
    pub(super) fn headers(&self) -> HeaderExchange {
        self.headers
    }

    /// Runs one bounded step on the engine. With `around`, the fallback is the ring, so a rank that knows of it may
    /// already send around the ring.
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
                    (self.waits_for(with.links), self.headers);
                with.links.wait(with.core, (header.sequence, header), awaited, progressed);
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
        self.headers.listen(with.links, with.core, around.then_some(host))?;
        if self.phase == Phase::Exporting {
            if !self.headers.attend(with.links, with.core, host)? {
                return Ok(None);
            }
            // Export before the message: a peer may use the buffers as soon as it has read their addresses.
            self.headers.begin(host);
            let advert = self.export(with.core, with.buffers);
            self.send(host, &advert.encode())?;
            self.phase = Phase::HeaderExchange;
        }
        if self.phase == Phase::HeaderExchange {
            if !self.headers.attend_patiently(with.links, with.core, host)? {
                return Ok(None);
            }
            // Every rank reads the same adverts, so all ranks come to the same decision here.
            if !self.receive_adverts(host) {
                with.buffers.revoke(Deadline::after(REVOKE_WITHIN));
                return Ok(Some(Outcome::Fallback));
            }
            host.end_round();
            self.headers.again(host, with.core.now());
            self.phase = Phase::Moving;
        }
        if self.phase == Phase::Moving {
            if !self.go_on(with, host)? {
                // A peer may fail while this rank moves, so look at the others between the steps.
                self.headers.attend(with.links, with.core, host)?;
                // A rank says that its share is made, and may die before this rank has made its own share in that
                // rank's memory. No message is missing then, so the end of the rank that blocks must be asked for.
                if let Some(rank) = self.blocked {
                    let ended = with.links.ended(with.core);
                    RankSet::from_iter([rank]).can_come(&self.headers.header, with.links, ended)?;
                }
                return Ok(None);
            }
            // An empty message of the second round says "done". The header is enough.
            self.send(host, &[])?;
            self.phase = Phase::Leaving;
            self.waits = Instant::now();
        }
        if !self.headers.attend_patiently(with.links, with.core, host)? {
            return Ok(None);
        }
        host.end_round();
        // Revoke only when all ranks are done: until then they may read this rank's input and store to its output.
        with.buffers.revoke(Deadline::after(REVOKE_WITHIN));
        Ok(Some(Outcome::Done))
    }

    fn export<B: Buffers>(&mut self, core: &EngineState, buffers: &mut B) -> BufferAdvert {
        let ZeroCopyPlan { call, rank, .. } = self.moves;
        self.moves.in_place = u32::from(buffers.is_in_place()) << rank;
        let rights = Rights { read: self.moves.reads(rank), write: self.moves.writes(rank) };
        let advert = buffers.export(core.pd(), rights, call.origins(rank)).unwrap_or_default();
        self.adverts[rank as usize] = advert;
        advert
    }

    fn send(&self, host: &HostGroup, message: &[u8]) -> Result<(), Stop> {
        host.others().try_for_each(|to| host.put(to, &self.headers.header, message)).map_err(Stop::Refused)
    }

    /// Reads the adverts of all ranks; returns whether all buffers are registered.
    fn receive_adverts(&mut self, host: &HostGroup) -> bool {
        for from in host.others() {
            let mut bytes = [0; ADVERT_BYTES];
            host.read(from, (0, ADVERT_BYTES), &mut bytes);
            let advert = BufferAdvert::decode(&bytes);
            self.adverts[from as usize] = advert;
            // In an all-to-all, peers store only to ranks that work in place, so a writable output shows that.
            self.moves.in_place |= u32::from(advert.is_stored_to()) << from;
        }
        self.adverts.iter().take(self.moves.ranks as usize).all(|advert| !advert.is_borrowed())
    }

    /// Carries out moves, about `LOOK_EVERY` bytes of them; returns whether all are done.
    fn go_on<B: Buffers>(&mut self, with: &mut ExecContext<'_, B>, host: &HostGroup) -> Result<bool, Stop> {
        // The content stays from step to step: a move that halted finds its result there again.
        let mut scratch = host.reduce_scratch();
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
            match self.take(with, host, &mut scratch, current) {
                Ok(()) => {
                    moved += current.span.len;
                    self.current = None;
                    self.headers.progressed = with.core.now();
                }
                Err(Halt::Blocked(rank)) => {
                    self.blocked = Some(rank);
                    return Ok(false);
                }
                Err(Halt::Stop(stop)) => return Err(stop),
            }
        }
    }

    /// Carries out one move, or the rest of one that halted.
    fn take<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
        scratch: &mut ReduceScratch,
        current: Move,
    ) -> Result<(), Halt> {
        let (Move { span, from, to, .. }, source) = (current, current.source());
        let (own, expect) = (self.moves.rank, self.expect);
        let Some([input, output]) = with.buffers.places() else { return Ok(()) };
        let (moves, adverts) = (&self.moves, &self.adverts[..]);
        let mut reach = PeerBuffers { core: with.core, host, links: with.links, moves, expect, adverts };
        match (from, to) {
            (From::One(rank), To::One(other)) if rank == own && other == own => {
                with.buffers.copy(span, expect)
            }
            (From::One(rank), To::One(_)) if rank != own => reach.read_to(rank, source, (output, span))?,
            (From::One(_), To::One(rank)) => reach.store_from(rank, span, (input, source))?,
            (From::One(rank), To::Exchanged) => {
                // Three steps: save this rank's bytes, read the peer's over them, store the saved ones at the peer. A
                // retry begins at the first step that was not done. To save again after the read would lose bytes.
                if !self.made {
                    reach.read(own, output, span, &mut scratch.made[..span.len])?;
                    self.made = true;
                }
                if self.stored == 0 {
                    reach.read_to(rank, source, (output, span))?;
                    self.stored = 1;
                }
                reach.store(rank, output, source, &scratch.made[..span.len])?;
            }
            // No plan copies to all ranks, or reduces in an exchange.
            (From::One(_), To::All) | (From::All { .. }, To::Exchanged) => {}
            (From::All { .. }, To::All)
                if !self.made && reach.are_two_in_place() && !self.arithmetic.averages =>
            {
                let (made, done) = reach.reduce_both(input, span, self.arithmetic);
                if made && done.is_err() {
                    // The result has overwritten this rank's operand, so it cannot be made again. Keep it in the
                    // scratch memory; the retry only stores it at the peer.
                    reach.read(own, output, span, &mut scratch.made[..span.len])?;
                    self.made = true;
                }
                return done;
            }
            (From::All { first }, to) => {
                if !self.made {
                    reach.reduce(scratch, input, span, first, self.arithmetic)?;
                    self.made = true;
                }
                let ranks = match to {
                    To::One(rank) => rank..rank + 1,
                    _ => 0..self.moves.ranks,
                };
                for rank in ranks.skip(self.stored as usize) {
                    reach.store(rank, output, span, &scratch.made[..span.len])?;
                    self.stored += 1;
                }
            }
        }
        Ok(())
    }

    /// The wait to report: for a rank whose memory cannot be reached, or else for missing messages.
    pub(super) fn waits_for(&self, links: &Links) -> WaitingFor {
        match self.blocked {
            Some(rank) => WaitingFor::Ranks(1 << rank),
            None => self.headers.missing.waits_for(links),
        }
    }

    /// The time of the next poll after `now`: at once while there is something to move. Messages in windows raise no
    /// completion, so only polling finds them.
    pub(super) fn look_at(&self, now: Instant) -> Instant {
        let works = self.phase == Phase::Moving && self.blocked.is_none();
        if works || now.saturating_duration_since(self.waits) < YIELD_FOR {
            now
        } else {
            self.headers.look_at(now)
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let current = self.current.map_or(0, |current| current.span.len);
        let bytes_outstanding = (self.moves.left() + current) as u64;
        let HeaderExchange { header, progressed, .. } = self.headers;
        Progress { header, sequence: header.sequence, bytes_outstanding, started: self.started, progressed }
    }
}

#[cfg(test)]
mod tests;
