//! Who sends what, when: schedules as pure data, made lazily and in constant memory.
//!
//! A schedule is a function of the operation, the count, the rank and the number of ranks; it knows no device,
//! no clock and no address. What carries it out owns the links, the slots and the buffers, and takes one
//! [`Step`] after the other. A rank that lies about the operation is told apart before, by the link's handshake.
//!
//! [`Schedule`] has those between neighbours of a ring, and [`Rounds`] those between any ranks, in a vocabulary of which [`Step`] is
//! a part.

mod any;
mod chain;
mod chunk;
mod line;
mod operation;
mod order;
mod place;
mod primitive;
mod ring;
mod rounds;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod simulate;
mod step;
#[cfg(test)]
mod tests;

pub use any::Schedule;
pub use chain::Chain;
pub use chunk::Staging;
pub(in crate::collective) use chunk::{Chunking, Place as ChunkPlace};
pub use line::Line;
pub use operation::Operation;
pub(crate) use order::Order;
pub use place::{Buffer, Place};
pub use primitive::Primitive;
pub use ring::Ring;
pub use rounds::Rounds;
pub(super) use rounds::{Cut, Share};
pub use step::{Source, Span, Step, Target};
