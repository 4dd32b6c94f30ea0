//! [`FindingId`]: the kinds of findings, with the text of the failure table.

use std::fmt;

/// Declares the kinds, with the text by which a program names each.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of a finding.
        ///
        /// A part of [`Finding`](super::Finding). The texts of [`as_str`](Self::as_str) stay the same over releases.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FindingId {
            $($(#[$doc])* $name,)*
        }

        impl FindingId {
            /// All kinds, in the order of the checks.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name that reports use, such as `port-down`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

ids! {
    /// sysfs does not show the classes of devices, so nothing is known about RDMA here.
    NoSysfs = "sysfs-missing",
    /// The kernel has no RDMA device, or a container sees none.
    NoDevice = "device-missing",
    /// No device has the name that was asked for.
    UnknownDevice = "device-unknown",
    /// A bond was asked for, and no bond has that name: `mlx5_bond_N` exists only where both slaves are bonded.
    UnknownBond = "bond-unknown",
    /// A device was asked for that a bond has replaced: its ports are those of `mlx5_bond_N` now.
    BondedDevice = "device-in-bond",
    /// The device speaks neither InfiniBand nor RoCE: EFA, iWARP or usNIC.
    Transport = "transport-unsupported",
    /// The kernel's module ib_uverbs is not loaded, so no program can open a device.
    NoUverbs = "uverbs-not-loaded",
    /// sysfs shows the device, but its node is not in `/dev/infiniband`: the pod did not ask for the RDMA resource.
    NodeMissing = "uverbs-node-missing",
    /// The node of the device is there, but this process may not open it.
    NodeDenied = "uverbs-node-denied",
    /// libibverbs is in none of the usual folders.
    NoLibibverbs = "libibverbs-missing",
    /// libibverbs is installed without the provider of the device, so it lists no such device.
    NoProvider = "provider-missing",
    /// The provider is installed, but no file of `/etc/libibverbs.d` names it, so libibverbs does not load it.
    ProviderNotConfigured = "provider-not-configured",
    /// The device has no port.
    NoPorts = "device-without-ports",
    /// The device has no port with the number that was asked for.
    UnknownPort = "port-unknown",
    /// The port is not active: no cable, a peer that is off, or an interface that is set down.
    PortDown = "port-down",
    /// The InfiniBand port has a link but no subnet manager configures it.
    NoSubnetManager = "subnet-manager-missing",
    /// The port runs at a lower rate than another one of the same type of adapter.
    SlowPort = "port-slow",
    /// The GID at the index that was asked for is empty, or the table is shorter.
    EmptyGid = "gid-empty",
    /// The GID at the index that was asked for is RoCE v1, which no router forwards.
    GidV1 = "gid-roce-v1",
    /// The GID at the index that was asked for is link-local, which no router forwards.
    GidLinkLocal = "gid-link-local",
    /// The interface of the GID that was asked for is in another network namespace.
    GidElsewhere = "gid-other-namespace",
    /// No GID of the port can be used from here.
    NoUsableGid = "gid-none-usable",
    /// The interface of the port is down.
    NetdevDown = "netdev-down",
    /// The MTU of the interface is too small for the packets that the port could send.
    NetdevMtu = "netdev-mtu-small",
    /// The interface of the port is the slave of a bond, but the device is not the device of the bond.
    NetdevInBond = "netdev-in-bond",
    /// `NCCL_IB_HCA` takes no device or port.
    NcclHca = "nccl-hca-matches-nothing",
    /// `NCCL_SOCKET_IFNAME` takes no interface.
    NcclSocketIfname = "nccl-socket-ifname-matches-nothing",
    /// A variable of NCCL has a value that cannot be read.
    NcclInvalid = "nccl-value-invalid",
    /// A variable of NCCL is set and empty.
    NcclEmpty = "nccl-variable-empty",
    /// `NCCL_IB_DISABLE` keeps the process off the RDMA devices.
    NcclIbDisabled = "nccl-ib-disabled",
    /// RLIMIT_MEMLOCK is too small for the memory to register.
    MemlockTooSmall = "memlock-too-small",
    /// RLIMIT_MEMLOCK is in force, because the process lacks CAP_IPC_LOCK, and is not known to suffice.
    NoIpcLock = "ipc-lock-missing",
    /// CAP_IPC_LOCK is held in a user namespace of the container's own, where the kernel does not count it.
    IpcLockNamespace = "ipc-lock-in-user-namespace",
    /// A memory cgroup is too small for the memory to register.
    MemoryCgroup = "memory-cgroup-too-small",
    /// The system has too little memory for the memory to register.
    SystemMemory = "memory-short",
    /// The rdma cgroup allows too few objects, or no further open device.
    RdmaCgroup = "rdma-cgroup-full",
    /// The process may have too few descriptors.
    Descriptors = "descriptors-too-few",
    /// `/dev/shm` is too small for the memory that processes of a host share by name.
    ShmTooSmall = "shm-too-small",
    /// The device is on a NUMA node on which the process may not run, and no other one in question is nearer.
    NumaRemote = "numa-node-remote",
    /// A switch above the device sends traffic between GPU and NIC up to the root (ACS redirect).
    AcsRedirect = "acs-redirect",
    /// No driver of a GPU is loaded.
    NoGpuDriver = "gpu-driver-missing",
    /// The kernel has no way from a NIC to the memory of a GPU: neither nvidia_peermem nor dma-buf.
    NoPeerMemory = "gpu-peer-memory-missing",
    /// Packets came out of order or were lost on the way to this port.
    SequenceErrors = "counter-sequence-errors",
    /// Requests were sent again, because no acknowledgement came in time.
    AckTimeouts = "counter-ack-timeouts",
    /// Requests were sent again, because the peer had no receive ready.
    RnrRetries = "counter-rnr-retries",
    /// Switches mark packets as congested.
    Congestion = "counter-congestion",
    /// The link itself has errors: a bad cable or transceiver.
    LinkErrors = "counter-link-errors",
}

/// Prints the name that reports use.
impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
