//! What can go wrong, one small enum per area; each message ends with the mend.

mod bootstrap;
mod collective;
mod kv;

pub use bootstrap::{BootstrapError, FrameError, RankList};
pub use collective::{ParseNameError, ReduceError, ScheduleError};
pub use kv::{LayoutError, PlanError, Side};
