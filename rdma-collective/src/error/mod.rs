//! What can go wrong, one small enum per area; each message ends with the mend.

mod bootstrap;
mod collective;
mod comm;
mod kv;
mod link;
mod spawn;
mod transfer;

pub use bootstrap::{BootstrapError, FrameError, RankList};
pub use collective::{
    AbortReason, CollectiveError, OperationName, ParseNameError, ReduceError, ScheduleError,
};
pub use comm::{EngineError, SetupError};
pub use kv::{LayoutError, PlanError, Side};
pub use link::{BlobError, HandshakeError, LaneFailure, LaneName};
pub use spawn::SpawnError;
pub use transfer::{KvError, PoolError, TransferError};
