//! The pipelined protocol: an operation that is longer than an eager message goes through the windows of a host in
//! pieces, in rounds. [`PipelinePlan`] is the order of the steps, as pure data; [`Pipeline`] carries them out.
//! `HostGroup` owns the units and the progress marks, `header_exchange` the messages before the pieces.
//!
//! In a round every rank *puts* the parts of its input that others need, *makes* its part of the result from all that
//! was put, and *takes* the parts that the others have made. The elements are cut as the ring cuts them, and reduced in
//! the order of the ring, so that the bits do not depend on the algorithm.
//!
//! A window has two generations of units, and in each generation one unit for each rank. Round `i` uses generation `i`
//! modulo 2. The unit with the rank's own number holds what the rank has made. The other units hold what it has put:
//! the bytes for rank `r` in unit `r`, and bytes for all ranks in the unit after its own.
//!
//! A rank publishes a mark when it has put a round, and when it has made one, in the order of its
//! [steps](PipelinePlan::step). That order makes two generations enough:
//!
//! - A rank puts round `i + 1` once all ranks have made round `i - 1`: by then they have read what it put for that
//!   round, in the same generation. In a broadcast only the root puts, so only the root waits for that.
//! - A rank makes round `i` once all ranks that give have put it. Before they put it, they took what was made in round
//!   `i - 2`, so the unit is free.
//! - An operation ends when all ranks have made its last round; for the receivers of a broadcast, when the root has.
//!   Peers may still read that round's results. Nobody overwrites them before all ranks have put the first round of the
//!   next operation, and a rank puts that only after it has read them.

use rdma_core::memory::CacheHint;

use super::buffers::{Arithmetic, Buffers};
use super::header_exchange::RankSet;
use crate::collective::ReduceError;
use crate::collective::call::{Call, Collective, staging};
use crate::collective::communicator::{CommunicatorOptions, HostGroup, PIECE_BYTES, Scratch, UNIT_BYTES};
use crate::collective::rank_of::RankOf;
use crate::collective::schedule::{ChunkIndex, Chunking, ReduceOrder, Span};

/// The steps of one rank in a pipelined operation.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) struct PipelinePlan {
    pub(in crate::collective) call: Call,
    pub(in crate::collective) rank: u32,
    pub(in crate::collective) ranks: u32,
    cut: Chunking,
    pub(in crate::collective) rounds: u64,
    order: ReduceOrder,
    /// Whether each unit that a rank puts is for one other rank; otherwise one unit is for all.
    for_one: bool,
    /// The cache hint for bytes that are copied to the output.
    expect: CacheHint,
}

/// A step of a rank, with the number of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Step {
    /// Fills units with the input that others need, and publishes a mark.
    Put(u64),
    /// Waits until every [awaited](PipelinePlan::awaits) rank has put the round.
    AwaitPut(u64),
    /// Makes this rank's part of the result, and publishes a mark.
    Make(u64),
    /// Waits until every awaited rank has made the round.
    AwaitMade(u64),
    /// Copies the parts that the others have made.
    Take(u64),
}

/// A range of the output, and its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective) enum Made {
    /// A copy of this rank's input.
    Own { span: Span },
    /// A copy of a unit of rank `from`.
    Copied { span: Span, from: u32, unit: u32 },
    /// The reduction of all ranks' units for this rank, from rank `first` on around the ring. `kept`: this rank's
    /// output gets it. `left`: this rank's own unit gets it, for the others to take.
    Reduced { span: Span, first: u32, kept: bool, left: bool },
}

impl PipelinePlan {
    /// The plan of a call, or `None` if the call cannot be pipelined. All ranks that call the same get the same answer,
    /// because it depends on the call and on common options alone.
    pub(in crate::collective) fn new(
        call: Call,
        RankOf { rank, size: ranks }: RankOf,
        options: &CommunicatorOptions,
    ) -> Option<Self> {
        let staging = staging(options);
        // A user who sets small slots wants to use little memory, so units are not used either.
        if options.slot_bytes < UNIT_BYTES || call.root >= ranks {
            return None;
        }
        let Call { collective, count, data_type, .. } = call;
        let (element, parts) = (data_type.size(), ranks as usize);
        // Refuse a call whose whole buffer has no length in `usize`.
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
        let rounds = (cut.rounds * cut.chunks) as u64;
        let for_one = collective.properties().reduces || collective == Collective::AllToAll;
        Some(Self { call, rank, ranks, cut, rounds, order, for_one, expect: call.expect(ranks) })
    }

    /// Step number `at`; `None` after the last one.
    pub(in crate::collective) fn step(&self, at: u64) -> Option<Step> {
        // Round `i + 1` is put before round `i` is awaited, so that the peers find it when they are done with round
        // `i`. Another order breaks the argument for two generations in the header of this file.
        let Some(at) = at.checked_sub(1) else { return Some(Step::Put(0)) };
        let round = at / 5;
        (round < self.rounds).then_some(match at % 5 {
            0 => Step::Put(round + 1),
            1 => Step::AwaitPut(round),
            2 => Step::Make(round),
            3 => Step::AwaitMade(round),
            _ => Step::Take(round),
        })
    }

    /// Whether this rank may go beyond a step only when rank `of` has come as far.
    ///
    /// In a broadcast the others wait for the root alone, since only the root gives. The root waits for all, because
    /// they read its units.
    pub(in crate::collective) fn awaits(&self, step: Step, of: u32) -> bool {
        match (self.call.collective, step) {
            (Collective::Broadcast, Step::AwaitPut(_)) => self.call.root == of,
            (Collective::Broadcast, Step::AwaitMade(_)) => self.call.root == self.rank,
            _ => matches!(step, Step::AwaitPut(_) | Step::AwaitMade(_)),
        }
    }

    /// Whether this rank waits for marks of rank `from`, and so needs that rank's message before.
    pub(in crate::collective) fn needs(&self, from: u32) -> bool {
        [Step::AwaitPut(0), Step::AwaitMade(0)].into_iter().any(|step| self.awaits(step, from))
    }

    /// The mark that a rank publishes when it has put a round, or has made it. Marks grow from step to step, so one
    /// counter announces both.
    pub(in crate::collective) fn mark(step: Step) -> u64 {
        match step {
            // At least 1, because a window that nobody has written to reads as mark 0.
            Step::Put(round) | Step::AwaitPut(round) => (2 * round).max(1),
            Step::Make(round) | Step::AwaitMade(round) | Step::Take(round) => 2 * round + 3,
        }
    }

    /// Yields `(unit, span)`: in `round`, copy `span` of the input into slot `unit` of this rank's window.
    pub(in crate::collective) fn put(&self, round: u64) -> impl Iterator<Item = (u32, Span)> {
        let own = self.rank;
        let units = match self.call.collective {
            // The steps put one round more than there are, because they run one round ahead.
            _ if round >= self.rounds => 0..0,
            _ if !self.call.gives(own) => 0..0,
            Collective::AllGather | Collective::Broadcast => own..own + 1,
            _ => 0..self.ranks,
        };
        let parts = units.filter(move |part| !self.for_one || *part != own);
        parts.map(move |part| (if self.for_one { part } else { self.after(part) }, self.span(round, part)))
    }

    fn after(&self, rank: u32) -> u32 {
        (rank + 1) % self.ranks
    }

    /// The parts of the result that this rank makes in a round, from the units that all ranks have put.
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
            let unit = if self.for_one { own } else { self.after(from) };
            if from == own { Made::Own { span } } else { Made::Copied { span, from, unit } }
        });
        let span = self.span(round, own);
        let (first, _) = self.order.at(span.offset);
        copied.chain(reduced.map(move |(kept, left)| Made::Reduced { span, first, kept, left }))
    }

    /// The parts of a round that this rank copies from the ranks that made them.
    pub(in crate::collective) fn take(&self, round: u64) -> impl Iterator<Item = Made> {
        let from = match self.call.collective {
            Collective::AllReduce | Collective::Reduce if self.call.gets(self.rank) => 0..self.ranks,
            _ => 0..0,
        };
        let others = from.filter(|from| *from != self.rank);
        others.map(move |from| Made::Copied { span: self.span(round, from), from, unit: from })
    }

    /// The approximate number of bytes that this rank still gets from the others, from a round on.
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
        bytes - bytes * round.min(self.rounds) / self.rounds.max(1)
    }

    /// The piece of a rank's part in a round. An operation without parts cuts the whole buffer.
    fn span(&self, round: u64, part: u32) -> Span {
        let (round, chunks) = (round as usize, self.cut.chunks);
        let segment = if self.cut.ranks == 1 { 0 } else { part as usize };
        self.cut.span(ChunkIndex { round: round / chunks, segment, chunk: round % chunks })
    }
}

/// Steps in a row, about four rounds. The limit is for a rank that is slower than its peers: it finds everything that
/// it waits for, and would otherwise not check its deadline before the operation ends.
const STEPS: u64 = 20;

/// The executor of a pipelined operation: carries out the steps of a [`PipelinePlan`].
#[derive(Debug)]
pub(in crate::collective) struct Pipeline {
    plan: PipelinePlan,
    arithmetic: Arithmetic,
    rank: u32,
    /// The number of the next step. It grows with every progress.
    pub(super) next_step: u64,
    /// The awaited ranks whose marks are too low for the next step.
    missing: RankSet,
}

/// The windows, buffers and scratch memory with which a step works.
pub(in crate::collective) struct ShmContext<'a, B> {
    pub(in crate::collective) host: &'a HostGroup,
    pub(in crate::collective) buffers: &'a mut B,
    pub(in crate::collective) scratch: &'a mut Scratch,
}

impl Pipeline {
    pub(in crate::collective) fn new(plan: PipelinePlan, arithmetic: Arithmetic, others: RankSet) -> Self {
        // All others, until a wait step has polled: an error at the deadline must name some rank.
        let missing = others;
        Self { plan, arithmetic, rank: plan.rank, next_step: 0, missing }
    }

    /// Puts the first round. Call it before the headers are compared: only ranks that run the same pipelined operation
    /// read the units.
    pub(in crate::collective) fn begin<B: Buffers>(
        &mut self,
        host: &HostGroup,
        buffers: &B,
        scratch: &mut Scratch,
    ) {
        self.put(0, host, buffers, scratch);
        host.publish_mark(PipelinePlan::mark(Step::Put(0)));
        self.next_step = 1;
    }

    /// Takes the steps that are possible now, at most `STEPS`; returns whether the operation is complete. Call it only
    /// once all messages have arrived.
    pub(in crate::collective) fn go<B: Buffers>(
        &mut self,
        with: &mut ShmContext<'_, B>,
    ) -> Result<bool, ReduceError> {
        let until = self.next_step + STEPS;
        while let Some(step) = self.plan.step(self.next_step) {
            if self.next_step == until {
                return Ok(false);
            }
            match step {
                Step::Put(round) => {
                    self.put(round, with.host, with.buffers, with.scratch);
                    // The round behind the last one is empty, so nobody waits for its mark.
                    if round < self.plan.rounds {
                        with.host.publish_mark(PipelinePlan::mark(step));
                    }
                }
                Step::AwaitPut(_) | Step::AwaitMade(_) => {
                    let awaited = with.host.others().filter(|of| self.plan.awaits(step, *of));
                    let mark = PipelinePlan::mark(step);
                    self.missing = awaited.filter(|of| !with.host.has_published(*of, mark)).collect();
                    if !self.missing.is_empty() {
                        return Ok(false);
                    }
                }
                Step::Make(round) => {
                    for made in self.plan.make(round) {
                        self.make(round, made, with)?;
                    }
                    // Mark last: a peer that sees it reads the result, and fills the units that were read here again.
                    with.host.publish_mark(PipelinePlan::mark(step));
                }
                Step::Take(round) => {
                    for made in self.plan.take(round) {
                        self.make(round, made, with)?;
                    }
                }
            }
            self.next_step += 1;
        }
        // A round beyond the last one has a mark above all marks of the operation.
        with.host.end_marks(PipelinePlan::mark(Step::Put(self.plan.rounds + 1)));
        Ok(true)
    }

    /// The ranks that it waits for; empty if no wait step has failed.
    pub(in crate::collective) fn missing(&self) -> RankSet {
        self.missing
    }

    /// The ranks to report as awaited. All others if this rank itself is late, since an error must name some rank.
    pub(in crate::collective) fn awaited(&self) -> RankSet {
        let all = RankSet::all_but(self.rank, self.plan.ranks);
        if self.missing.is_empty() { all } else { self.missing }
    }

    pub(in crate::collective) fn outstanding(&self) -> u64 {
        self.plan.outstanding(self.next_step.saturating_sub(1) / 5)
    }

    fn put<B: Buffers>(&self, round: u64, host: &HostGroup, buffers: &B, scratch: &mut Scratch) {
        for (unit, span) in self.plan.put(round) {
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
            Made::Own { span } => with.buffers.copy(span, self.plan.expect),
            Made::Copied { span, from, unit } => {
                let ShmContext { buffers, scratch, .. } = with;
                buffers.write_in_pieces(span, self.plan.expect, scratch, |at, out, expect| {
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

    /// Reduces a piece of two ranks straight into the output; returns `false` if it cannot, because there are more
    /// ranks or the output is no slice. The peer's operand lies at offset `at` of its unit. With two operands, their
    /// order does not change the result.
    fn combine<B: Buffers>(
        &self,
        (round, at): (u64, usize),
        piece: Span,
        with: &mut ShmContext<'_, B>,
    ) -> Result<bool, ReduceError> {
        if self.arithmetic.ranks != 2 || !self.arithmetic.by_tiles {
            return Ok(false);
        }
        let Some((out, input)) = with.buffers.slices(piece) else { return Ok(false) };
        let mut work = self.arithmetic.reduction.onto(&mut *out, input)?;
        with.host.work_on_unit(1 - self.rank, (round, self.rank), (at, piece.len), &mut work);
        self.arithmetic.finish(out, true)?;
        Ok(true)
    }

    /// Reduces a piece of all ranks, from `first` on, into the first half of the scratch memory. The operands lie at
    /// offset `at` of their units.
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
        // Around the ring from `first`, so that the bits are those of the ring algorithm.
        for from in (1..ranks).map(|step| (first + step) % ranks) {
            if from == self.rank {
                self.arithmetic.reduce_into(all, buffers.view(piece, one), false)?;
            // Half precision converts faster in long runs, so the piece is copied first.
            } else if !self.arithmetic.by_tiles {
                host.fetch(from, (round, self.rank), at, (one, CacheHint::Cached));
                self.arithmetic.reduce_into(all, one, false)?;
            } else {
                let mut work = self.arithmetic.reduction.onto(all, None)?;
                host.work_on_unit(from, (round, self.rank), (at, piece.len), &mut work);
            }
        }
        self.arithmetic.finish(all, true)
    }
}

#[cfg(test)]
mod tests;
