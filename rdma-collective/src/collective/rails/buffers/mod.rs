//! The caller's buffers of an operation over rails, and the copies between them and the memory of a piece.
//!
//! A piece has the same range of bytes of each part.

use std::ops::Range;

use crate::collective::call::{Holds, Lengths, Request};
use crate::collective::rank_of::RankOf;

/// Slices of the caller: one in place, or an input and an output.
pub(super) enum Buffers<'a> {
    InPlace(&'a mut [u8]),
    OutOfPlace { input: &'a [u8], output: &'a mut [u8] },
}

/// The layout of an operation: its collective, its ranks and the length of a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    request: Request,
    rank: usize,
    ranks: usize,
    /// Bytes of each part of the caller's buffers.
    part: usize,
}

impl Buffers<'_> {
    pub(super) fn lengths(&self) -> Lengths {
        match self {
            Self::InPlace(buffer) => Lengths::InPlace(buffer.len()),
            Self::OutOfPlace { input, output } => {
                Lengths::OutOfPlace { input: input.len(), output: output.len() }
            }
        }
    }

    fn input(&self) -> &[u8] {
        match self {
            Self::InPlace(buffer) => buffer,
            Self::OutOfPlace { input, .. } => input,
        }
    }
}

impl Shape {
    pub(super) fn new(request: Request, RankOf { rank, size: ranks }: RankOf, part: usize) -> Self {
        Self { request, rank: rank as usize, ranks: ranks as usize, part }
    }

    /// The number of parts in the memory of a piece.
    pub(super) fn parts(self) -> usize {
        if self.request.collective.properties().has_parts { self.ranks } else { 1 }
    }

    /// All parts of a piece, or only the part of this rank.
    fn own(self, all: bool) -> Range<usize> {
        if all { 0..self.parts() } else { self.rank..self.rank + 1 }
    }

    fn inputs(self) -> Range<usize> {
        let Request { collective, root, .. } = self.request;
        match collective.properties().buffers {
            _ if collective.properties().from_root && root as usize != self.rank => 0..0,
            (Holds::One, Holds::Parts) => self.own(false),
            _ => self.own(true),
        }
    }

    fn outputs(self) -> Range<usize> {
        let Request { collective, root, .. } = self.request;
        match collective.properties().buffers {
            _ if collective.properties().to_root && root as usize != self.rank => 0..0,
            (Holds::Parts, Holds::One) => self.own(false),
            _ => self.own(true),
        }
    }

    /// Writes bytes `piece` of each part of the input into the memory of a piece.
    pub(super) fn fill(self, memory: &mut [u8], buffers: &Buffers<'_>, piece: Range<usize>) {
        let inputs = self.inputs();
        let first = if matches!(buffers, Buffers::OutOfPlace { .. }) { inputs.start } else { 0 };
        for part in inputs {
            let at = (part - first) * self.part;
            let (to, from) = (part * piece.len(), at + piece.start..at + piece.end);
            memory[to..to + piece.len()].copy_from_slice(&buffers.input()[from]);
        }
    }

    /// Writes the result in the memory of a piece to bytes `piece` of each part of the output.
    pub(super) fn give_back(self, memory: &[u8], buffers: &mut Buffers<'_>, piece: Range<usize>) {
        let outputs = self.outputs();
        let (output, first) = match buffers {
            Buffers::InPlace(buffer) => (&mut **buffer, 0),
            Buffers::OutOfPlace { output, .. } => (&mut **output, outputs.start),
        };
        for part in outputs {
            let at = (part - first) * self.part;
            let (to, from) = (at + piece.start..at + piece.end, part * piece.len());
            output[to].copy_from_slice(&memory[from..from + piece.len()]);
        }
    }
}

#[cfg(test)]
mod tests;
