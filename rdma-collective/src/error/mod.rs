//! What can go wrong, one small enum per area; each message ends with the mend.

mod collective;

pub use collective::{ParseNameError, ReduceError, ScheduleError};
