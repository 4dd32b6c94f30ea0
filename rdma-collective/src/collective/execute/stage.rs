//! An operation that is longer than a message, under way in the windows of a host: takes its steps as far as the others have come.

use rdma_core::memory::CacheHint;

use super::buffers::{Arithmetic, Buffers};
use super::missing::Missing;
use crate::collective::ReduceError;
use crate::collective::communicator::{HostGroup, PIECE_BYTES, Scratch};
use crate::collective::pieces::{Made, Pieces, Step};
use crate::collective::schedule::Span;

/// Steps that it takes at a time, those of a few rounds: who is slower than the others finds all that it waits for.
const STEPS: u64 = 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Stage {
    pieces: Pieces,
    arithmetic: Arithmetic,
    /// Where what is copied is expected.
    expect: CacheHint,
    rank: u32,
    /// The number of the step that is next.
    at: u64,
    /// Ranks that have not come as far as it wants.
    missing: Missing,
}

/// What a step works with.
pub(super) struct At<'a, B> {
    pub(super) host: &'a HostGroup,
    pub(super) buffers: &'a mut B,
    pub(super) scratch: &'a mut Scratch,
}

impl Stage {
    pub(super) fn new(pieces: Pieces, arithmetic: Arithmetic) -> Self {
        // Until it has looked: at its deadline somebody has to be named.
        let missing = Missing::all_but(pieces.rank, pieces.ranks);
        let expect = pieces.call.expect(pieces.ranks);
        Self { pieces, arithmetic, expect, rank: pieces.rank, at: 0, missing }
    }

    /// Leaves the first pieces. Whatever the others do, it is read by those alone that go on in pieces.
    pub(super) fn begin<B: Buffers>(&mut self, host: &HostGroup, buffers: &B, scratch: &mut Scratch) {
        self.put(0, host, buffers, scratch);
        host.tell(Pieces::mark(Step::Put(0)));
        self.at = 1;
    }

    /// Takes the steps that can be taken now, but no more than are taken at a time, once all messages have come; whether it is done.
    pub(super) fn go<B: Buffers>(&mut self, with: &mut At<'_, B>) -> Result<bool, ReduceError> {
        let until = self.at + STEPS;
        while let Some(step) = self.pieces.step(self.at) {
            if self.at == until {
                return Ok(false);
            }
            match step {
                Step::Put(round) => {
                    self.put(round, with.host, with.buffers, with.scratch);
                    if round < self.pieces.rounds() {
                        with.host.tell(Pieces::mark(step));
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
                    with.host.tell(Pieces::mark(step));
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
    pub(super) fn step(&self) -> u64 {
        self.at
    }

    /// Who it knows that it waits for.
    pub(super) fn missing(&self) -> Missing {
        self.missing
    }

    /// Who is to be named: anyone when it is late itself.
    pub(super) fn awaited(&self) -> Missing {
        let all = Missing::all_but(self.rank, self.pieces.ranks);
        if self.missing.is_empty() { all } else { self.missing }
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.pieces.outstanding(self.at.saturating_sub(1) / 5)
    }

    fn have_told(&mut self, host: &HostGroup, step: Step) -> bool {
        let awaited = host.others().filter(|of| self.pieces.awaits(step, *of));
        self.missing = awaited.filter(|of| !host.has_told(*of, Pieces::mark(step))).collect();
        self.missing.is_empty()
    }

    fn put<B: Buffers>(&self, round: u64, host: &HostGroup, buffers: &B, scratch: &mut Scratch) {
        for (unit, span) in self.pieces.put(round) {
            buffers.read_in_pieces(span, scratch, |at, bytes| host.fill((round, unit), at, bytes));
        }
    }

    fn make<B: Buffers>(&self, round: u64, made: Made, with: &mut At<'_, B>) -> Result<(), ReduceError> {
        let host = with.host;
        match made {
            Made::Own { span } => with.buffers.copy(span, self.expect),
            Made::Copied { span, from, unit } => {
                let At { buffers, scratch, .. } = with;
                buffers.write_in_pieces(span, self.expect, scratch, |at, out, expect| {
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
        with: &mut At<'_, B>,
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
        with: &mut At<'_, B>,
    ) -> Result<(), ReduceError> {
        let At { host, buffers, scratch } = with;
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
