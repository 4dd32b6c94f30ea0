//! The protocol of the software device: reliable connections as state machines, without clock and without I/O.
//!
//! A queue pair is a [`Requester`](requester::Requester) and a [`Responder`](responder::Responder), which do not know
//! each other. Time is passed in; effects and verdicts come out, and the caller carries them out. Time must never run
//! backwards. The [`KeyTable`](keys::KeyTable) says which memory may be touched; touching it is left to the wires.

pub(crate) mod decision;
pub(crate) mod effect;
pub(crate) mod keys;
pub(crate) mod message;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod sequence;
pub(crate) mod state;

#[cfg(test)]
mod tests;
