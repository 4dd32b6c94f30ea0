//! The count of a communicator's collectives, for the recorder of metrics.
//!
//! An operation that its caller's thread ends on the fast path takes a thousand instructions, so such operations are
//! counted by sixteens, and one of sixteen is timed for all. Fewer than sixteen are counted with the next sixteenth
//! one, or when the communicator goes.

#[cfg_attr(feature = "metrics", path = "on.rs")]
#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod tally;

pub(crate) use self::tally::{Operation, Tallies};
