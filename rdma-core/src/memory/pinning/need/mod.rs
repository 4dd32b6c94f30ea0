//! Memory that a registration is about to need, in pages.
//!
//! The limits that the need is compared with are left to `memlock`, `cgroup` and `explain`.

/// The need of a registration: pages to pin, and perhaps memory to bring in.
///
/// The kernel pins whole pages, so 2 bytes across a page boundary need 2 pages. It counts each registration
/// by itself, so memory that is registered on four devices counts four times against RLIMIT_MEMLOCK.
///
/// ```
/// use rdma_core::memory::pinning::PinningNeed;
///
/// let need = PinningNeed::range(0x1fff, 2);
/// assert_eq!(need.pinned_bytes(4096), 8192);
/// assert_eq!(need.registrations(4).pinned_bytes(4096), 4 * 8192);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinningNeed {
    address: u64,
    length: u64,
    registrations: u64,
    resident: bool,
    estimated: bool,
}

impl PinningNeed {
    /// Returns the need of `length` bytes that begin at a page boundary.
    #[must_use]
    pub fn length(length: u64) -> Self {
        Self::range(0, length)
    }

    /// Returns the need of `length` bytes at `address`.
    #[must_use]
    pub fn range(address: u64, length: u64) -> Self {
        Self { address, length, registrations: 1, resident: false, estimated: false }
    }

    /// Returns the need of an object whose rings the driver sizes, such as a completion queue: roughly
    /// `length` bytes.
    ///
    /// Messages then say "about". Pass a length of 0 on a device that pins no rings, such as soft-RoCE.
    #[must_use]
    pub fn about(length: u64) -> Self {
        Self { estimated: true, ..Self::length(length) }
    }

    /// Multiplies the need for memory that is registered several times, once for each device.
    #[must_use]
    pub fn registrations(self, registrations: u64) -> Self {
        Self { registrations, ..self }
    }

    /// Declares every page as touched already, so that no memory cgroup is charged again.
    ///
    /// Without this call the whole length counts as new memory. That is right for a fresh mapping, and too
    /// strict for one in use.
    #[must_use]
    pub fn resident(self) -> Self {
        Self { resident: true, ..self }
    }

    /// Returns the bytes that count against RLIMIT_MEMLOCK, in whole pages of `page_bytes`.
    #[must_use]
    pub fn pinned_bytes(&self, page_bytes: u64) -> u64 {
        self.span_bytes(page_bytes).saturating_mul(self.registrations)
    }

    /// Returns the bytes that must still be brought into memory, and are then charged to the memory cgroup.
    #[must_use]
    pub fn new_bytes(&self, page_bytes: u64) -> u64 {
        if self.resident { 0 } else { self.span_bytes(page_bytes) }
    }

    /// Returns whether the length is an estimate.
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        self.estimated
    }

    fn span_bytes(&self, page_bytes: u64) -> u64 {
        if self.length == 0 {
            return 0;
        }
        let page = page_bytes.max(1);
        let last = self.address.saturating_add(self.length - 1);
        (last / page - self.address / page).saturating_add(1).saturating_mul(page)
    }
}

#[cfg(test)]
mod tests;
