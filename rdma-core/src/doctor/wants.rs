//! [`Wants`]: the devices and amounts that a process is about to use.

use std::collections::BTreeMap;

use crate::{Mtu, NameFilter, PortNum};

/// The things that a process is about to use, for [`Machine::findings`](super::Machine::findings).
///
/// The default wants any device, and no amounts: then the findings are those that every process would meet.
///
/// ```
/// use rdma_core::doctor::{Machine, Wants};
///
/// let mut wants = Wants::default();
/// wants.device = Some("mlx5_0".to_owned());
/// wants.pin_bytes = 16 << 30;
/// wants.variables = std::env::vars().collect();
/// for finding in Machine::read("/").findings(&wants) {
///     println!("{finding}");
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wants {
    /// The name of the device; `None` for each device that `NCCL_IB_HCA` takes, or for all.
    pub device: Option<String>,
    /// The port of the device; `None` for all ports.
    pub port: Option<PortNum>,
    /// The index of the GID to send from; `None` for `NCCL_IB_GID_INDEX`, or for the one that
    /// [`gid::choose`](crate::gid::choose) takes.
    pub gid_index: Option<u32>,
    /// The MTU of the path; `None` for 4096.
    pub path_mtu: Option<Mtu>,
    /// Bytes of memory to register, on each device.
    pub pin_bytes: u64,
    /// Bytes to share in `/dev/shm`.
    pub shm_bytes: u64,
    /// Descriptors to open.
    pub descriptors: u64,
    /// Whether NICs are to reach the memory of GPUs.
    pub gpu_memory: bool,
    /// The environment variables of the process; those of NCCL are looked at.
    pub variables: BTreeMap<String, String>,
}

impl Wants {
    /// Returns the value of a variable that is set to more than blanks.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the filter of `NCCL_IB_HCA`; the empty one where the variable is not set, or is no list.
    pub(super) fn hca(&self) -> NameFilter {
        self.variable("NCCL_IB_HCA").and_then(NameFilter::devices).unwrap_or_default()
    }

    /// Returns the index of the GID that was asked for, and the argument or variable that asks.
    pub(super) fn gid(&self) -> Option<(u32, &'static str)> {
        let by_variable = || self.variable("NCCL_IB_GID_INDEX")?.parse().ok();
        let asked = self.gid_index.map(|index| (index, "the argument"));
        asked.or_else(|| by_variable().map(|index| (index, "NCCL_IB_GID_INDEX")))
    }
}
