//! Explanation of limits on pinned memory: every limit that can refuse a registration, read before and
//! explained after.
//!
//! `ibv_reg_mr` and similar calls fail with a bare errno. This module reads the values that the kernel
//! compares. It names the limit that refused, by how much, and how to raise it. It only reads and computes:
//! it changes no limit, and the caller decides when to look.
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
//! # Counting
//!
//! Every registration pins its pages again: a buffer registered on four devices counts four times. NICs and
//! the kernel's soft-RoCE pin memory; the software device of this crate does not. Completion queues and queue
//! pairs pin their rings, too, on most NICs (mlx5), but not on soft-RoCE.

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
pub(crate) use memlock::parse_kib;
pub use need::PinningNeed;
pub(crate) use reading::{Bytes, Quoted, parse_number, read_as, read_bytes};
pub use reading::{Limit, NotKnown, Reading};
pub use snapshot::{PinningProbe, PinningSnapshot};
