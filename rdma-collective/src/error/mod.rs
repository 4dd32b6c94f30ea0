//! What can go wrong, one small enum per area; each message ends with the mend.

mod bootstrap;
mod collective;
mod comm;
mod env;
mod kv;
mod link;
mod reduce;
mod select;
mod spawn;
mod transfer;
mod tuning;

pub use bootstrap::{BootstrapError, Elsewhere, FrameError, RankList};
pub use collective::{AbortReason, CollectiveError, Interrupted, OperationName};
pub use comm::{EngineError, SetupError};
pub use env::{EnvError, JoinError, Setting};
pub use kv::{LayoutError, PlanError, Side};
pub use link::{BlobError, HandshakeError, LaneFailure, LaneName, PeerName};
pub use reduce::{AllocError, ParseNameError, ReduceError, ScheduleError};
pub use select::SelectError;
pub use spawn::SpawnError;
pub use transfer::{KvError, PoolError, TransferError};
pub use tuning::TuningError;
