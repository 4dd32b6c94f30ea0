//! NCCL's variables, which many pod specs set already: devices, addresses, paths, retries, and the level of the log.
//!
//! Two variables that NCCL does not have are read beside them: `RDMA_PEER_TIMEOUT`, and `RDMA_TUNING_FILE`, in whose
//! place NCCL has a tuner plugin.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use rdma_core::gid::{AddressFamily, Preference};
use rdma_core::{AckTimeout, Context, GidType, LinkLayer, RetryOptions};

use super::error::EnvErrorKind;
use super::names::{
    NCCL_ALGO, NCCL_HOSTID, NCCL_IB_ADDR_FAMILY, NCCL_IB_DISABLE, NCCL_IB_GID_INDEX, NCCL_IB_HCA,
    NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_RETRY_CNT, NCCL_IB_ROCE_VERSION_NUM, NCCL_IB_SL, NCCL_IB_TC,
    NCCL_IB_TIMEOUT, NCCL_SOCKET_IFNAME, RDMA_PEER_TIMEOUT, RDMA_TUNING_FILE,
};
use super::reader::{Reader, invalid, parse};
use super::table::VARIABLES;
use super::{DebugLevel, NameFilter, Variables};
use super::{EnvError, Setting};
use crate::engine::{EngineOptions, gid_preference};

/// The options that NCCL's variables (and `RDMA_PEER_TIMEOUT` and `RDMA_TUNING_FILE`) ask for.
///
/// An option that is not asked for is `None`, and the library's own default applies. [`apply`](Self::apply) transfers
/// the options of an engine, [`select`](Self::select) chooses the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NcclOptions {
    /// `NCCL_IB_HCA`: the RDMA devices and ports to use.
    pub hca: NameFilter,
    /// `NCCL_IB_GID_INDEX`: the GID to send from.
    pub gid_index: Option<u32>,
    /// `NCCL_IB_ROCE_VERSION_NUM`: the type of GID on Ethernet.
    pub roce_version: Option<GidType>,
    /// `NCCL_IB_ADDR_FAMILY`: the address family of the GID.
    pub address_family: Option<AddressFamily>,
    /// `NCCL_IB_DISABLE`: use the software device, even if there are RDMA devices.
    pub ib_disable: bool,
    /// `NCCL_IB_TIMEOUT`: the time after which an unacknowledged request is sent again.
    pub ack_timeout: Option<AckTimeout>,
    /// `NCCL_IB_RETRY_CNT`: the number of times that a request is sent again.
    pub retry_cnt: Option<u8>,
    /// `NCCL_IB_TC`: the IP traffic class.
    pub traffic_class: Option<u8>,
    /// `NCCL_IB_SL`: the InfiniBand service level.
    pub service_level: Option<u8>,
    /// `NCCL_IB_QPS_PER_CONNECTION`: the number of queue pairs to a peer on each device, 1 to 128. They are the lanes
    /// of a communicator, of which a link has 8 at most.
    pub qps_per_connection: Option<u8>,
    /// `NCCL_SOCKET_IFNAME`: the network interfaces to use.
    pub socket_ifname: NameFilter,
    /// `NCCL_HOSTID`: a name for this host, in place of the kernel's boot id.
    pub host_id: Option<String>,
    /// `NCCL_ALGO`: the list of algorithms that collectives may take, as text. The collectives parse it when
    /// [`apply_to_communicator`](Self::apply_to_communicator) is called.
    pub algo: Option<String>,
    /// `RDMA_PEER_TIMEOUT`: the longest silence of a peer that an operation waits for. Longer than the default where a
    /// host leaves a process without a core for seconds.
    pub peer_timeout: Option<Duration>,
    /// `RDMA_TUNING_FILE`: the file with the table of algorithms for each collective.
    pub tuning_file: Option<PathBuf>,
    /// `NCCL_DEBUG`: the level of the log.
    pub debug: DebugLevel,
    /// The variables of this type that are set, for the report.
    set: Vec<Setting>,
    /// Names of other variables of NCCL that are set and not read here, for the report.
    unread: Vec<String>,
}

impl NcclOptions {
    /// Reads NCCL's variables, and no launcher's.
    ///
    /// # Errors
    ///
    /// [`EnvError`] quotes the variable that cannot be read.
    pub fn read(variables: &Variables) -> Result<Self, EnvError> {
        Ok(Self::by(&Reader::new(variables), variables)?)
    }

    pub(super) fn by(reader: &Reader<'_>, variables: &Variables) -> Result<Self, EnvErrorKind> {
        let is_read = |name: &String| VARIABLES.iter().any(|variable| variable.name == name);
        let unread = variables.named("NCCL_", "").into_iter().filter(|name| !is_read(name));
        let names = VARIABLES.iter().map(|variable| variable.name).filter(|name| is_steering(name));
        let set = names.filter_map(|name| {
            let value = variables.get(name)?.to_string_lossy().into_owned();
            Some(Setting { name: name.to_owned(), value })
        });
        Ok(Self {
            hca: filter(reader, NCCL_IB_HCA, NameFilter::devices)?,
            gid_index: number(reader, NCCL_IB_GID_INDEX, 0..=255)?,
            roce_version: roce_version(reader)?,
            address_family: address_family(reader)?,
            ib_disable: number(reader, NCCL_IB_DISABLE, 0..=1)?.is_some_and(|value| value != 0),
            ack_timeout: number(reader, NCCL_IB_TIMEOUT, 1..=31)?.map(|code| AckTimeout::new(code as u8)),
            retry_cnt: number(reader, NCCL_IB_RETRY_CNT, 0..=7)?.map(|value| value as u8),
            traffic_class: number(reader, NCCL_IB_TC, 0..=255)?.map(|value| value as u8),
            service_level: number(reader, NCCL_IB_SL, 0..=15)?.map(|value| value as u8),
            qps_per_connection: number(reader, NCCL_IB_QPS_PER_CONNECTION, 1..=128)?.map(|value| value as u8),
            socket_ifname: filter(reader, NCCL_SOCKET_IFNAME, NameFilter::interfaces)?,
            host_id: reader.text(NCCL_HOSTID)?,
            algo: reader.text(NCCL_ALGO)?,
            peer_timeout: number(reader, RDMA_PEER_TIMEOUT, 1..=3600)?
                .map(|seconds| Duration::from_secs(seconds.into())),
            tuning_file: reader.text(RDMA_TUNING_FILE)?.map(PathBuf::from),
            debug: DebugLevel::read(reader)?,
            set: set.collect(),
            unread: unread.collect(),
        })
    }

    /// Lines for the log, once and at INFO: the variables that are set, and those of NCCL that are set and not read
    /// here.
    #[must_use]
    pub fn report(&self) -> Vec<String> {
        let set = self.set.iter();
        let mut lines: Vec<String> =
            set.map(|Setting { name, value }| format!("{name} set by environment to {value}")).collect();
        if !self.unread.is_empty() {
            lines.push(format!("not read here, though set: {}", self.unread.join(", ")));
        }
        lines
    }

    /// The preference for the choice of a GID, on a port with that link layer.
    #[must_use]
    pub(super) fn gid_preference(&self, link_layer: LinkLayer) -> Preference {
        gid_preference(self.roce_version, self.address_family, link_layer)
    }

    /// Transfers the options that were asked for to those of an engine on `device`. All other options stay as they are.
    ///
    /// The variables about GIDs apply to RDMA devices only, because the software device has a single GID.
    pub fn apply(&self, options: &mut EngineOptions, device: &Context) {
        options.peer_timeout = self.peer_timeout.unwrap_or(options.peer_timeout);
        let suiting = device.attributes().map_or_else(
            |_| RetryOptions::default(),
            |device| {
                let suiting = RetryOptions::suiting(&device);
                let retry_cnt = self.retry_cnt.unwrap_or(suiting.retry_cnt);
                RetryOptions { retry_cnt, ..suiting }.lasting(options.peer_timeout, &device)
            },
        );
        self.apply_to(options, device.is_soft(), suiting);
    }

    pub(super) fn apply_to(&self, options: &mut EngineOptions, is_soft: bool, suiting: RetryOptions) {
        if !is_soft {
            options.gid_index = self.gid_index.or(options.gid_index);
            options.roce_version = self.roce_version.or(options.roce_version);
            options.address_family = self.address_family.or(options.address_family);
        }
        options.path.traffic_class = self.traffic_class.unwrap_or(options.path.traffic_class);
        options.path.service_level = self.service_level.unwrap_or(options.path.service_level);
        if self.ack_timeout.is_some() || self.retry_cnt.is_some() {
            let retry = options.retry.get_or_insert(suiting);
            retry.ack_timeout = self.ack_timeout.unwrap_or(retry.ack_timeout);
            retry.retry_cnt = self.retry_cnt.unwrap_or(retry.retry_cnt);
        }
    }
}

/// Whether a variable of the table belongs to these options, not to a launcher.
fn is_steering(name: &str) -> bool {
    name.starts_with("NCCL_") || [RDMA_PEER_TIMEOUT, RDMA_TUNING_FILE].contains(&name)
}

/// A number within `range`. As in NCCL, -1 means that the variable is not set.
fn number(reader: &Reader<'_>, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, EnvErrorKind> {
    let Some(setting) = reader.setting(name)? else { return Ok(None) };
    if setting.value == "-1" {
        return Ok(None);
    }
    match parse(&setting.value) {
        Some(value) if range.contains(&value) => Ok(Some(value)),
        _ => Err(invalid(setting)),
    }
}

/// A list of names; the empty filter where the variable is not set.
fn filter(
    reader: &Reader<'_>,
    name: &str,
    parse: fn(&str) -> Option<NameFilter>,
) -> Result<NameFilter, EnvErrorKind> {
    let Some(setting) = reader.setting(name)? else { return Ok(NameFilter::default()) };
    parse(&setting.value).ok_or_else(|| invalid(setting))
}

fn roce_version(reader: &Reader<'_>) -> Result<Option<GidType>, EnvErrorKind> {
    let version = number(reader, NCCL_IB_ROCE_VERSION_NUM, 1..=2)?;
    Ok(version.map(|version| if version == 1 { GidType::ROCE_V1 } else { GidType::ROCE_V2 }))
}

fn address_family(reader: &Reader<'_>) -> Result<Option<AddressFamily>, EnvErrorKind> {
    let Some(setting) = reader.setting(NCCL_IB_ADDR_FAMILY)? else { return Ok(None) };
    match setting.value.as_str() {
        "AF_INET" => Ok(Some(AddressFamily::V4)),
        "AF_INET6" => Ok(Some(AddressFamily::V6)),
        _ => Err(invalid(setting)),
    }
}
