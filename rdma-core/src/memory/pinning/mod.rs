//! Why memory may not be pinned: every limit that can refuse a registration, read before and explained after.
//!
//! `ibv_reg_mr` and its relatives fail with a bare errno. This module reads what the kernel compares, names
//! the limit that refused, by how much, and how to mend it. It only reads and computes: no limit is changed
//! here, and when to look is left to the backend that registers.
//!
//! ```
//! use rdma_core::memory::pinning::{PinningNeed, PinningProbe};
//!
//! let snapshot = PinningProbe::new().read();
//! println!("{snapshot}");
//! if let Err(diagnosis) = snapshot.check_before(PinningNeed::length(1 << 30), "mlx5_0") {
//!     eprintln!("warning: {diagnosis}");
//! }
//! ```
//!
//! # What counts
//!
//! Every registration pins its pages anew: a buffer registered on four rails counts four times. That holds
//! for NICs and for the kernel's soft-RoCE; the software device of this crate pins nothing. Completion queues
//! and queue pairs pin their rings too on most NICs (mlx5), though not on soft-RoCE.

mod capability;
mod cgroup;
mod explain;
mod memlock;
mod mend;
mod need;
mod reading;
mod snapshot;

pub use capability::IpcLock;
pub use cgroup::{Hierarchy, MemoryCgroup, RdmaCgroup, RdmaCounts, RdmaResource};
pub use explain::{PinningCause, PinningDiagnosis};
pub use memlock::Memlock;
pub use need::PinningNeed;
pub use reading::{Limit, NotKnown, Reading};
pub use snapshot::{PinningProbe, PinningSnapshot};
