//! Who sends what, when: schedules as pure data, made lazily and in constant memory.
//!
//! A schedule is a function of the operation, the count, the rank and the number of ranks; it knows no device,
//! no clock and no address. What carries it out owns the links, the slots and the buffers, and takes one
//! [`Step`] after the other. A rank that lies about the operation is told apart before, by the link's handshake.
//!
//! [`Schedule`] has those between neighbours of a ring, and [`P2pSchedule`] those between any ranks, in a vocabulary of which [`Step`] is
//! a part.

mod any;
mod chain;
mod chunk;
mod line;
mod operation;
mod order;
mod p2p;
mod place;
mod primitive;
mod ring;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use any::Schedule;
pub(crate) use chain::Chain;
pub(crate) use chunk::{Chunking, Place as ChunkPlace, Staging};
pub(crate) use line::Line;
pub(crate) use operation::Operation;
pub(crate) use order::Order;
pub(crate) use p2p::P2pSchedule;
pub(super) use p2p::{Cut, Share};
pub(crate) use place::{Buffer, Place};
pub(crate) use primitive::Primitive;
pub(crate) use ring::Ring;
pub(crate) use step::{Source, Span, Step, Target};
