//! Access rights of a registration or of a queue pair.

bitflags::bitflags! {
    /// Rights that a registration or a queue pair grants to the device and to its peers.
    ///
    /// The trap: a remote right must be granted twice, by the registration *and* by the queue pair
    /// ([`InitOptions::access`](crate::InitOptions)). A request that lacks one of them fails and moves both
    /// queue pairs to ERR. `REMOTE_WRITE` and `REMOTE_ATOMIC` need `LOCAL_WRITE`, otherwise the registration
    /// is refused.
    ///
    /// See `ibv_reg_mr(3)`. [`Region`](crate::Region) has an example.
    #[doc(alias = "ibv_access_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The local device may write the memory: receives and the results of reads land there.
        const LOCAL_WRITE = 1;
        /// A peer may write the memory.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read the memory.
        const REMOTE_READ = 1 << 2;
        /// A peer may run atomic operations on the memory.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the registration.
        const MW_BIND = 1 << 4;
        /// The bus may reorder the device's accesses; a device without support ignores this flag.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// A peer of the same host may map the memory and then access it without asking again. Only a
    /// [`Window`](crate::Window) has this right: no device ever sees the bit, and registrations of callers
    /// cannot set it.
    pub(crate) const WINDOW: Self = Self::from_bits_retain(1 << 31);
    /// Rights that the owner's queue pair must grant before its peer may map a window of the owner's.
    pub(crate) const WINDOW_BY: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ);

    /// Returns the bits that have no name: a driver may know them, and this library does not.
    pub(crate) fn undeclared(self) -> Option<u32> {
        Some(self.difference(Self::all()).bits()).filter(|bits| *bits != 0)
    }

    /// Returns whether any of the rights lets a peer touch the memory.
    ///
    /// ```
    /// use rdma_core::Access;
    /// assert!(!Access::LOCAL_WRITE.is_remote());
    /// assert!((Access::LOCAL_WRITE | Access::REMOTE_READ).is_remote());
    /// ```
    #[must_use]
    pub fn is_remote(self) -> bool {
        self.intersects(Self::REMOTE_WRITE | Self::REMOTE_READ | Self::REMOTE_ATOMIC | Self::MW_BIND)
    }
}
