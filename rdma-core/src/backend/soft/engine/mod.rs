//! The protocol of the software device: reliable connections, without clock and without I/O.
//!
//! A queue pair is a [`Requester`](requester::Requester) and a [`Responder`](responder::Responder)
//! that know nothing of each other; the time is handed in, and what is to be done comes out as
//! effects. It never runs back. Which memory may be touched is asked of the
//! [`KeyTable`](keys::KeyTable); touching it is left to the wires.

pub(crate) mod effect;
pub(crate) mod keys;
pub(crate) mod message;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod sequence;
pub(crate) mod state;
pub(crate) mod timer;

#[cfg(test)]
mod tests;
