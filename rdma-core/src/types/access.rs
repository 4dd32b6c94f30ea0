//! The rights of a registration or of a queue pair.

bitflags::bitflags! {
    /// What a registration or a queue pair lets the device and its peers do.
    ///
    /// The trap: a right must be granted twice, by the registration *and* by the queue pair
    /// ([`InitOptions::access`](crate::InitOptions)); a peer that lacks one of them moves
    /// both queue pairs to ERR. `REMOTE_WRITE` and `REMOTE_ATOMIC` need `LOCAL_WRITE`.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_access_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The local device may write: receives, and the landing of reads.
        const LOCAL_WRITE = 1;
        /// A peer may write.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may read.
        const REMOTE_READ = 1 << 2;
        /// A peer may run atomic operations.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// The bus may reorder the device's accesses; dropped where it is not supported.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// A peer of the host may map it, and then touch it without asking: of a [`Window`](crate::Window) alone. No device hears
    /// of it, and no caller's registration has it.
    pub(crate) const WINDOW: Self = Self::from_bits_retain(1 << 31);
    /// What the queue pair of the owner lets a peer do that maps one.
    pub(crate) const WINDOW_BY: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ);

    /// Whether any right lets a peer touch the memory.
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
