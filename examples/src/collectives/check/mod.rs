//! Inputs whose exact result every order of ranks gives, what each rank then has, and the count of elements that differ
//! from it; no I/O.
//!
//! A correct collective gives that result bit for bit, whatever way it took: the tolerance is 0. What inputs are such
//! for which type is `check::element`'s.

pub mod element;

use super::call::{Call, Place};
use super::kind::Collective;
pub use element::Element;
use rdma_collective::collective::ReduceOp;

/// The facts from which the inputs of one checked operation follow; all ranks have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// Ranks that take part.
    pub ranks: usize,
    /// How they are combined.
    pub op: ReduceOp,
    /// Number of the operation, so that no two that follow each other have the same inputs.
    pub round: u64,
    /// Whether every result on the way is exact, so that it can be checked.
    pub exact: bool,
}

/// An input, as far as it does not depend on its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Ranks that take part.
    pub ranks: usize,
    /// How they are combined.
    pub op: ReduceOp,
    /// A mix of where it is, so that a byte from another place or time is another number.
    pub mixed: u64,
    /// Whether every result on the way is exact.
    pub exact: bool,
    /// Whether this is the one rank that has all digits, where more would not be exact.
    pub chosen: bool,
}

impl Inputs {
    /// Fills `buffer` with the inputs of `rank`, from the element `first` of the whole on.
    pub fn fill<T: Element>(&self, rank: usize, first: usize, buffer: &mut [T]) {
        for (element, index) in buffer.iter_mut().zip(first..) {
            *element = self.given(rank, index);
        }
    }

    fn given<T: Element>(&self, rank: usize, index: usize) -> T {
        T::narrow(T::input(self.sample(rank, index)))
    }

    fn reduced<T: Element>(&self, index: usize) -> T {
        let input = |rank| T::input(self.sample(rank, index));
        let combined = (1..self.ranks).fold(input(0), |all, rank| T::combine(self.op, all, input(rank)));
        if self.op == ReduceOp::Avg { T::average(combined, self.ranks) } else { T::narrow(combined) }
    }

    fn sample(&self, rank: usize, index: usize) -> Sample {
        let place = (index as u64) ^ self.round.rotate_left(52);
        let chosen = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.ranks.max(1) == rank;
        let mixed = mix(mix(place ^ (rank as u64).rotate_left(40)));
        Sample { ranks: self.ranks, op: self.op, mixed, exact: self.exact, chosen }
    }
}

/// The expected output of one rank after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Inputs of the ranks.
    pub inputs: Inputs,
    /// The operation on these inputs.
    pub call: Call,
    /// In place the input was where the output is; out of place it was all zeros.
    pub place: Place,
    /// The rank that has this output.
    pub rank: usize,
    /// Elements of a part, where there are parts.
    pub count: usize,
}

impl Expected {
    /// How many elements are not the exact result, or were not left as they were.
    pub fn wrong<T: Element>(&self, output: &[T]) -> u64 {
        let differs = |(index, element): (usize, &T)| element.bits() != self.at::<T>(index).bits();
        output.iter().enumerate().filter(|&place| differs(place)).count() as u64
    }

    fn at<T: Element>(&self, index: usize) -> T {
        let Self { inputs, call, place, rank, count } = *self;
        let root = call.root as usize;
        match call.collective {
            Collective::AllReduce => inputs.reduced(index),
            Collective::AllGather => inputs.given(index / count, index),
            Collective::AllToAll => inputs.given(index / count, rank * count + index % count),
            Collective::Broadcast => inputs.given(root, index),
            Collective::SendRecv => inputs.given((rank + inputs.ranks - 1) % inputs.ranks, index),
            Collective::Reduce if rank == root => inputs.reduced(index),
            Collective::Gather if rank == root => inputs.given(index / count, index),
            Collective::ReduceScatter if place == Place::Out => inputs.reduced(rank * count + index),
            Collective::ReduceScatter if index / count == rank => inputs.reduced(index),
            Collective::Scatter if place == Place::Out => inputs.given(root, rank * count + index),
            Collective::Scatter if index / count == rank => inputs.given(root, index),
            // The operation leaves these outputs alone.
            Collective::Reduce | Collective::Gather if place == Place::Out => T::default(),
            Collective::Reduce | Collective::ReduceScatter | Collective::Gather | Collective::Scatter => {
                inputs.given(rank, index)
            }
        }
    }
}

fn mix(value: u64) -> u64 {
    (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests;
