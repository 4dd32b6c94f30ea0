//! An operation that is longer than a message, under way in the windows of a host: takes its steps as far as the others have come.

use rdma_core::memory::Expect;

use super::buffers::{Arithmetic, Buffers};
use super::missing::Missing;
use crate::collective::pieces::{Made, Pieces, Step};
use crate::collective::schedule::Span;
use crate::comm::{HostGroup, PIECE_BYTES, Scratch};
use crate::error::ReduceError;

/// Steps that it takes at a time, those of a few rounds: who is slower than the others finds all that it waits for.
const STEPS: u64 = 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Stage {
    pieces: Pieces,
    arithmetic: Arithmetic,
    /// Where what is copied is expected.
    expect: Expect,
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
                    let made = if kept && self.arithmetic.ranks == 2 && first == self.rank {
                        self.combine((round, at), piece, with)?
                    } else {
                        self.reduce((round, at), piece, first, with)?;
                        if kept {
                            with.buffers.write(piece, &with.scratch[0][..len]);
                        }
                        &with.scratch[0][..len]
                    };
                    if left {
                        host.fill((round, self.rank), at, made);
                    }
                }
            }
        }
        Ok(())
    }

    /// Of two ranks, and of this one first, a piece that lies `at` there in the other one's unit, into the output.
    fn combine<'b, B: Buffers>(
        &self,
        (round, at): (u64, usize),
        piece: Span,
        with: &'b mut At<'_, B>,
    ) -> Result<&'b [u8], ReduceError> {
        let [own, theirs] = &mut *with.scratch;
        let theirs = &mut theirs[..piece.len];
        with.host.fetch(1 - self.rank, (round, self.rank), at, (theirs, Expect::Cached));
        with.buffers.combine(piece, theirs, own, self.arithmetic, true)
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
        let input = |rank, out: &mut [u8]| {
            if rank == self.rank {
                buffers.read(piece, out);
            } else {
                host.fetch(rank, (round, self.rank), at, (out, Expect::Cached));
            }
        };
        input(first, all);
        for step in 1..ranks {
            input((first + step) % ranks, one);
            self.arithmetic.reduce_into(all, one, step + 1 == ranks)?;
        }
        Ok(())
    }
}
