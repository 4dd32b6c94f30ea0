//! The count of a communicator's collectives, for the recorder of metrics.
//!
//! An operation that its caller's thread ends on the fast path takes a thousand instructions, so 128 of them are told
//! together, and the last is timed for all. Fewer than 128 are told when the communicator goes, without a time.

#[cfg_attr(feature = "metrics", path = "on.rs")]
#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod tally;

pub(crate) use self::tally::{Operation, Tallies};
