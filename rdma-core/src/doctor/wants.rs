//! [`Wants`]: the devices and amounts that a process is about to use.

use std::collections::BTreeMap;

use crate::gid::{AddressFamily, Preference};
use crate::{GidType, LinkLayer, Mtu, NameFilter, PortNum};

/// The variable that asks for a GID.
pub(super) const GID_INDEX: &str = "NCCL_IB_GID_INDEX";

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
        let by_variable = || number(self.variable(GID_INDEX)?);
        let asked = self.gid_index.map(|index| (index, "the argument"));
        asked.or_else(|| by_variable().map(|index| (index, GID_INDEX)))
    }

    /// Returns the requirements on a GID that is chosen, with those of NCCL's variables.
    pub(super) fn gid_preference(&self, link_layer: LinkLayer) -> Preference {
        let mut preference = Preference::new(link_layer);
        preference.family = match self.variable("NCCL_IB_ADDR_FAMILY") {
            Some("AF_INET") => Some(AddressFamily::V4),
            Some("AF_INET6") => Some(AddressFamily::V6),
            _ => None,
        };
        if link_layer == LinkLayer::ETHERNET {
            preference.kind = match self.variable("NCCL_IB_ROCE_VERSION_NUM").and_then(number) {
                Some(1) => Some(GidType::ROCE_V1),
                Some(2) => Some(GidType::ROCE_V2),
                _ => None,
            };
        }
        preference
    }
}

/// Parses a number as the variables have it: digits, or `0x` and hexadecimal ones.
pub(super) fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}
