//! The environment variables of launchers and of NCCL: the rank of this process, the meeting place, and options.
//!
//! [`join`] is the entry for programs that a launcher starts: it reads the variables, meets the other ranks, and
//! returns the store. [`Environment::read`] only reads.
//!
//! Each launcher has a file of its own, which says what its variables mean; `launch` compares the claims of several
//! launchers. All variables are in one table, [`variables_table`], which is also `docs/environment.md`. Only
//! [`Variables::of_process`] reads the environment of the process, so everything else can be tested; `rdma-core` reads
//! none.

mod claim;
mod debug_level;
mod environment;
mod error;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod indexed_job;
mod join;
mod launch;
mod launcher;
mod local_ranks;
mod lws;
mod meeting;
mod names;
mod nccl;
mod openmpi;
mod pmi;
mod reader;
mod resolve;
mod select;
mod select_each;
mod select_error;
mod slurm;
mod table;
#[cfg(test)]
mod tests;
mod torchrun;
mod trainer;
mod variables;
mod volcano;

pub use debug_level::DebugLevel;
pub use environment::Environment;
pub use error::{EnvError, JoinError, Setting};
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub use join::{Joined, join};
pub use launch::Launch;
pub use launcher::Launcher;
pub use meeting::{Endpoint, Meeting, Namespace};
pub use nccl::NcclOptions;
pub use rdma_core::NameFilter;
pub use select::{RefusedDevice, SelectedDevice};
pub use select_error::SelectError;
pub use table::variables_table;
pub use variables::Variables;
