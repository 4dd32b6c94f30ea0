//! Who sends what, when: schedules as pure data, made lazily and in constant memory.
//!
//! A schedule is a function of the operation, the count, the rank and the number of ranks; it knows no device,
//! no clock and no address. What carries it out owns the links, the slots and the buffers, and takes one
//! [`Step`] after the other. A rank that lies about the operation is told apart before, by the link's handshake.

mod any;
mod chain;
mod chunk;
mod operation;
mod ring;
#[cfg(test)]
mod simulate;
mod step;

pub use any::Schedule;
pub use chain::Chain;
pub use chunk::Staging;
pub use operation::Operation;
pub use ring::Ring;
pub use step::{Source, Span, Step};
