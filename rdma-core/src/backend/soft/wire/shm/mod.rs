//! Memory shared with a process of the same host: the peer's responder is run by the requester's own thread.

mod segment;

pub(in super::super) use segment::{MapRefused, Protection, Segment};
