//! Explanation of a machine on which RDMA does not work: everything that decides about it, read in one pass.
//!
//! [`Machine::read`] reads sysfs, procfs, `/dev` and the folders of libraries. It opens no device, needs no privilege
//! and never fails: a file that cannot be read is a value that says so. So it serves where libibverbs is absent too,
//! and in a container that sees a part of its host. [`Machine::findings`] then says what stands in the way of a process
//! with certain [`Wants`]; [`FindingId`] lists all that it looks for.
//!
//! ```
//! use rdma_core::doctor::{Machine, Wants};
//!
//! let machine = Machine::read("/");
//! match &machine.devices {
//!     Ok(devices) => devices.iter().for_each(|device| println!("{}", device.name)),
//!     Err(unknown) => println!("{unknown}"),
//! }
//! for finding in machine.findings(&Wants::default()) {
//!     println!("{finding}");
//! }
//! ```

mod addresses;
mod check;
mod device;
mod finding;
mod finding_id;
mod gid_table;
mod machine;
mod netdev;
mod pci;
mod port;
mod process;
mod refusal;
mod system;
mod tree;
mod userspace;
mod wants;

pub use addresses::Addresses;
pub use device::RdmaDevice;
pub use finding::{Finding, Mend, Severity};
pub use finding_id::FindingId;
pub use gid_table::{GidRow, GidTable};
pub use machine::Machine;
pub use netdev::{Bond, Netdev};
pub use pci::{PciBridge, PciFunction};
pub use port::{Counter, Numbered, Port};
pub use process::{Cpus, Process};
pub use refusal::Refusal;
pub use system::{GpuMemory, NumaNode, Shm};
pub use userspace::{DeviceNode, Libraries};
pub use wants::Wants;
