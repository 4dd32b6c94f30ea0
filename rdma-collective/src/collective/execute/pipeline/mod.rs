//! What ranks that reach each other's windows leave there when an operation is longer than a message: its pieces, in rounds. Pure
//! data, as the schedules are.
//!
//! In a round every rank puts what the others need of its input, makes its part of what all have put, and takes what the
//! others have made. The elements are cut as the ring cuts them, and reduced in the order of the ring, so that the bits do not
//! depend on which way an operation takes.
//!
//! A window has two generations of units, one a rank. Of round `i`, in generation `i` modulo 2, a rank has made what lies in the
//! unit of its own number, and has put what lies in the others: for rank `r` in unit `r`, for all in the one after its own. A rank
//! tells of what it has put and of what it has made, in the order of its [steps](PipelinePlan::step), which is why two generations are
//! enough:
//!
//! - It puts round `i + 1` once all have made round `i - 1`, so that they have read what it put for that; in a broadcast, where
//!   only the root puts, only the root waits for that.
//! - It makes round `i` once all have put it that have something to put; before that they have taken what was made in round `i - 2`.
//! - An operation ends when all have made its last round, in a broadcast for who takes when the root has. What was made in that is read until the next operation has begun, and
//!   not overwritten before all have put that one's first round.

use rdma_core::memory::CacheHint;

use super::buffers::{Arithmetic, Buffers};
use super::header_exchange::RankSet;
use crate::collective::ReduceError;
use crate::collective::call::{Call, Collective, staging};
use crate::collective::communicator::{CommunicatorOptions, HostGroup, PIECE_BYTES, Scratch, UNIT_BYTES};
use crate::collective::rank_of::RankOf;
use crate::collective::schedule::{ChunkIndex, Chunking, ReduceOrder, Span};

/// The part of one rank.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) struct PipelinePlan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) rank: u32,
    pub(in crate::collective) ranks: u32,
    cut: Chunking,
    order: ReduceOrder,
    /// Where what is copied is expected.
    expect: CacheHint,
}

/// What a rank does next. Each step is of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Step {
    /// Leaves what the others need, and tells them.
    Put(u64),
    /// Goes on when all have put that it [awaits](PipelinePlan::awaits).
    AwaitPut(u64),
    /// Makes its part of what they have put, and tells them.
    Make(u64),
    /// Goes on when all have made that it awaits.
    AwaitMade(u64),
    /// Takes what they have made.
    Take(u64),
}

/// A part of the output, and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Made {
    /// Of the input.
    Own { span: Span },
    /// Of a unit of rank `from`.
    Copied { span: Span, from: u32, unit: u32 },
    /// Of all units of this rank, reduced from rank `first` on around the ring.
    Reduced { span: Span, first: u32, kept: bool, left: bool },
}

impl PipelinePlan {
    /// `None` for what goes another way. All ranks that call the same come to the same.
    pub(in crate::collective) fn new(
        call: Call,
        RankOf { rank, size: ranks }: RankOf,
        options: &CommunicatorOptions,
    ) -> Option<Self> {
        let staging = staging(options);
        // Who gives the mailboxes little memory has an operation in little memory.
        if options.slot_bytes < UNIT_BYTES || call.root >= ranks {
            return None;
        }
        let Call { collective, count, data_type, .. } = call;
        let (element, parts) = (data_type.size(), ranks as usize);
        data_type.bytes(count.checked_mul(parts)?).ok()?;
        let cut = match collective {
            Collective::AllReduce | Collective::Reduce => Chunking::new(count, element, parts, &staging),
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => {
                Chunking::of_parts(count, element, parts, &staging)
            }
            Collective::Broadcast => Chunking::new(count, element, 1, &staging),
            _ => return None,
        };
        let order = call.order(RankOf { rank, size: ranks }, staging, options.reproducible).ok()?;
        let cut = cut.ok()?.finer(UNIT_BYTES);
        Some(Self { call, rank, ranks, cut, order, expect: call.expect(ranks) })
    }

    pub(in crate::collective) fn rounds(&self) -> u64 {
        (self.cut.rounds() * self.cut.chunks()) as u64
    }

    /// Step number `at`; `None` at the end.
    pub(in crate::collective) fn step(&self, at: u64) -> Option<Step> {
        let Some(at) = at.checked_sub(1) else { return Some(Step::Put(0)) };
        let round = at / 5;
        (round < self.rounds()).then_some(match at % 5 {
            0 => Step::Put(round + 1),
            1 => Step::AwaitPut(round),
            2 => Step::Make(round),
            3 => Step::AwaitMade(round),
            _ => Step::Take(round),
        })
    }

    /// Whether it goes beyond a step only when rank `of` has come as far: what a root alone has to give waits for that one, and the
    /// root, whose units it is read from, for all.
    pub(in crate::collective) fn awaits(&self, step: Step, of: u32) -> bool {
        match (self.call.collective, step) {
            (Collective::Broadcast, Step::AwaitPut(_)) => self.call.root == of,
            (Collective::Broadcast, Step::AwaitMade(_)) => self.call.root == self.rank,
            _ => matches!(step, Step::AwaitPut(_) | Step::AwaitMade(_)),
        }
    }

    /// Whether it cannot begin to wait for pieces without the message of rank `from`.
    pub(in crate::collective) fn needs(&self, from: u32) -> bool {
        [Step::AwaitPut(0), Step::AwaitMade(0)].into_iter().any(|step| self.awaits(step, from))
    }

    /// What a rank says when it has put a round, or has made it: more than it said before.
    pub(in crate::collective) fn mark(step: Step) -> u64 {
        match step {
            Step::Put(round) | Step::AwaitPut(round) => (2 * round).max(1),
            Step::Make(round) | Step::AwaitMade(round) | Step::Take(round) => 2 * round + 3,
        }
    }

    /// More than any mark.
    pub(in crate::collective) fn marks(&self) -> u64 {
        2 * self.rounds() + 2
    }

    /// The units that this rank fills in a round, and with what of its input.
    pub(in crate::collective) fn put(&self, round: u64) -> impl Iterator<Item = (u32, Span)> {
        let own = self.rank;
        let units = match self.call.collective {
            _ if round >= self.rounds() => 0..0,
            _ if !self.call.gives(own) => 0..0,
            Collective::AllGather | Collective::Broadcast => own..own + 1,
            _ => 0..self.ranks,
        };
        let for_one = self.is_for_one();
        let parts = units.filter(move |part| !for_one || *part != own);
        parts.map(move |part| (if for_one { part } else { self.after(part) }, self.span(round, part)))
    }

    /// Whether what a rank puts is each for one other.
    fn is_for_one(&self) -> bool {
        self.call.collective.reduces() || self.call.collective == Collective::AllToAll
    }

    fn after(&self, rank: u32) -> u32 {
        (rank + 1) % self.ranks
    }

    /// What this rank makes of what all have put in a round.
    pub(in crate::collective) fn make(&self, round: u64) -> impl Iterator<Item = Made> {
        let own = self.rank;
        let (copied, reduced) = match self.call.collective {
            Collective::AllGather | Collective::AllToAll => (0..self.ranks, None),
            Collective::Broadcast => (self.call.root..self.call.root + 1, None),
            Collective::AllReduce => (0..0, Some((true, true))),
            Collective::ReduceScatter => (0..0, Some((true, false))),
            Collective::Reduce => (0..0, Some((self.call.gets(own), !self.call.gets(own)))),
            _ => (0..0, None),
        };
        let copied = copied.map(move |from| {
            let span = self.span(round, from);
            let unit = if self.is_for_one() { own } else { self.after(from) };
            if from == own { Made::Own { span } } else { Made::Copied { span, from, unit } }
        });
        let span = self.span(round, own);
        let (first, _) = self.order.at(span.offset);
        copied.chain(reduced.map(move |(kept, left)| Made::Reduced { span, first, kept, left }))
    }

    /// What this rank takes of what the others have made of a round.
    pub(in crate::collective) fn take(&self, round: u64) -> impl Iterator<Item = Made> {
        let from = match self.call.collective {
            Collective::AllReduce | Collective::Reduce if self.call.gets(self.rank) => 0..self.ranks,
            _ => 0..0,
        };
        let others = from.filter(|from| *from != self.rank);
        others.map(move |from| Made::Copied { span: self.span(round, from), from, unit: from })
    }

    /// Bytes that come from others from a round on, about.
    pub(in crate::collective) fn outstanding(&self, round: u64) -> u64 {
        let all = self.call.bytes() as u64;
        let others = u64::from(self.ranks - 1);
        let bytes = match self.call.collective {
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => all * others,
            Collective::AllReduce => 2 * all * others / u64::from(self.ranks),
            Collective::Reduce => all * others / u64::from(self.ranks),
            Collective::Broadcast if self.call.root == self.rank => 0,
            _ => all,
        };
        bytes - bytes * round.min(self.rounds()) / self.rounds().max(1)
    }

    /// The piece of a rank's part in a round; where there are no parts, of the whole.
    fn span(&self, round: u64, part: u32) -> Span {
        let (round, chunks) = (round as usize, self.cut.chunks());
        let segment = if self.cut.has_one_segment() { 0 } else { part as usize };
        self.cut.span(ChunkIndex { round: round / chunks, segment, chunk: round % chunks })
    }
}

/// Steps that it takes at a time, those of a few rounds: who is slower than the others finds all that it waits for.
const STEPS: u64 = 20;

/// See the module.
#[derive(Debug)]
pub(in crate::collective) struct Pipeline {
    pieces: PipelinePlan,
    arithmetic: Arithmetic,
    rank: u32,
    /// The number of the step that is next.
    at: u64,
    /// Ranks that have not come as far as it wants.
    missing: RankSet,
}

/// What a step works with.
pub(in crate::collective) struct ShmContext<'a, B> {
    pub(in crate::collective) host: &'a HostGroup,
    pub(in crate::collective) buffers: &'a mut B,
    pub(in crate::collective) scratch: &'a mut Scratch,
}

impl Pipeline {
    pub(in crate::collective) fn new(pieces: PipelinePlan, arithmetic: Arithmetic, others: RankSet) -> Self {
        // Until it has looked: at its deadline somebody has to be named.
        let missing = others;
        Self { pieces, arithmetic, rank: pieces.rank, at: 0, missing }
    }

    /// Leaves the first pieces. Whatever the others do, it is read by those alone that go on in pieces.
    pub(in crate::collective) fn begin<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) {
        self.put(0, host, buffers, scratch);
        host.tell(PipelinePlan::mark(Step::Put(0)));
        self.at = 1;
    }

    /// Takes the steps that can be taken now, but no more than are taken at a time, once all messages have come; whether it is done.
    pub(in crate::collective) fn go<B: Buffers>(
        &mut self,
        with: &mut ShmContext<'_, B>,
    ) -> Result<bool, ReduceError> {
        let until = self.at + STEPS;
        while let Some(step) = self.pieces.step(self.at) {
            if self.at == until {
                return Ok(false);
            }
            match step {
                Step::Put(round) => {
                    self.put(round, with.host, with.buffers, with.scratch);
                    if round < self.pieces.rounds() {
                        with.host.tell(PipelinePlan::mark(step));
                    }
                }
                Step::AwaitPut(_) | Step::AwaitMade(_) => {
                    if !self.have_told(with.host, step) {
                        return Ok(false);
                    }
                }
                Step::Make(round) => {
                    for made in self.pieces.make(round) {
                        self.make(round, made, with)?;
                    }
                    with.host.tell(PipelinePlan::mark(step));
                }
                Step::Take(round) => {
                    for made in self.pieces.take(round) {
                        self.make(round, made, with)?;
                    }
                }
            }
            self.at += 1;
        }
        with.host.end_pieces(self.pieces.marks());
        Ok(true)
    }

    /// The number of the step that is next: more than before when it has come further.
    pub(in crate::collective) fn step(&self) -> u64 {
        self.at
    }

    /// Who it knows that it waits for.
    pub(in crate::collective) fn missing(&self) -> RankSet {
        self.missing
    }

    /// Who is to be named: anyone when it is late itself.
    pub(in crate::collective) fn awaited(&self) -> RankSet {
        let all = RankSet::all_but(self.rank, self.pieces.ranks);
        if self.missing.is_empty() { all } else { self.missing }
    }

    pub(in crate::collective) fn outstanding(&self) -> u64 {
        self.pieces.outstanding(self.at.saturating_sub(1) / 5)
    }

    fn have_told(&mut self, host: &HostGroup, step: Step) -> bool {
        let awaited = host.others().filter(|of| self.pieces.awaits(step, *of));
        self.missing = awaited.filter(|of| !host.has_told(*of, PipelinePlan::mark(step))).collect();
        self.missing.is_empty()
    }

    fn put<B: Buffers>(&self, round: u64, host: &HostGroup, buffers: &B, scratch: &mut Scratch) {
        for (unit, span) in self.pieces.put(round) {
            buffers.read_in_pieces(span, scratch, |at, bytes| host.fill((round, unit), at, bytes));
        }
    }

    fn make<B: Buffers>(
        &self,
        round: u64,
        made: Made,
        with: &mut ShmContext<'_, B>,
    ) -> Result<(), ReduceError> {
        let host = with.host;
        match made {
            Made::Own { span } => with.buffers.copy(span, self.pieces.expect),
            Made::Copied { span, from, unit } => {
                let ShmContext { buffers, scratch, .. } = with;
                buffers.write_in_pieces(span, self.pieces.expect, scratch, |at, out, expect| {
                    host.fetch(from, (round, unit), at, (out, expect));
                });
            }
            Made::Reduced { span, first, kept, left } => {
                for at in (0..span.len).step_by(PIECE_BYTES) {
                    let len = PIECE_BYTES.min(span.len - at);
                    let piece = Span { offset: span.offset + at, len };
                    if kept && self.combine((round, at), piece, with)? {
                        if let Some((made, _)) = with.buffers.slices(piece).filter(|_| left) {
                            host.fill((round, self.rank), at, made);
                        }
                        continue;
                    }
                    self.reduce((round, at), piece, first, with)?;
                    let made = &with.scratch[0][..len];
                    if kept {
                        with.buffers.write(piece, made);
                    }
                    if left {
                        host.fill((round, self.rank), at, made);
                    }
                }
            }
        }
        Ok(())
    }

    /// Of two ranks a piece that lies `at` there in the other one's unit, into the output, if that is a slice. It is all the same which
    /// of two operands is first.
    fn combine<B: Buffers>(
        &self,
        (round, at): (u64, usize),
        piece: Span,
        with: &mut ShmContext<'_, B>,
    ) -> Result<bool, ReduceError> {
        if self.arithmetic.ranks != 2 || !self.arithmetic.goes_by_tiles() {
            return Ok(false);
        }
        let Some((out, input)) = with.buffers.slices(piece) else { return Ok(false) };
        let mut work = self.arithmetic.reduction().onto(&mut *out, input)?;
        with.host.work_on_unit(1 - self.rank, (round, self.rank), (at, piece.len), &mut work);
        self.arithmetic.finish(out, true)?;
        Ok(true)
    }

    /// Of a piece that lies `at` there in its units, all ranks' from `first` on, into the first half of the scratch.
    fn reduce<B: Buffers>(
        &self,
        (round, at): (u64, usize),
        piece: Span,
        first: u32,
        with: &mut ShmContext<'_, B>,
    ) -> Result<(), ReduceError> {
        let ShmContext { host, buffers, scratch } = with;
        let ranks = self.arithmetic.ranks;
        let [all, one] = &mut **scratch;
        let (all, one) = (&mut all[..piece.len], &mut one[..piece.len]);
        if first == self.rank {
            buffers.read(piece, all);
        } else {
            host.fetch(first, (round, self.rank), at, (all, CacheHint::Cached));
        }
        for from in (1..ranks).map(|step| (first + step) % ranks) {
            if from == self.rank {
                self.arithmetic.reduce_into(all, buffers.view(piece, one), false)?;
            } else if !self.arithmetic.goes_by_tiles() {
                host.fetch(from, (round, self.rank), at, (one, CacheHint::Cached));
                self.arithmetic.reduce_into(all, one, false)?;
            } else {
                let mut work = self.arithmetic.reduction().onto(all, None)?;
                host.work_on_unit(from, (round, self.rank), (at, piece.len), &mut work);
            }
        }
        self.arithmetic.finish(all, true)
    }
}

#[cfg(test)]
mod tests;
