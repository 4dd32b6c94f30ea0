//! Keys of registrations, and the description of a registration that a peer is given.

use std::fmt;
use std::ops::Range;

use crate::error::RangeError;

/// The key that names a registration in requests of this process.
///
/// Requests carry it by themselves: a [`Segment`](crate::Segment) knows its registration.
#[doc(alias = "lkey")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

/// The key that names a registration in requests of a peer.
///
/// A remote key is a capability: any peer that knows it and has a connected queue pair may use the memory as
/// far as the registration allows. See `ibv_reg_mr(3)`.
///
/// Returned by [`Region::rkey`](crate::Region::rkey), and a part of [`RemoteMemory`](crate::RemoteMemory).
#[doc(alias = "rkey")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

impl fmt::Display for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A range of a peer's registered memory: address, bytes and key.
///
/// The address is meaningful to the peer only. A post checks the length alone. The peer's device checks address and
/// key, and when it refuses, both queue pairs move to ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteMemory {
    /// Address of the first byte, in the address space of the peer.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Remote key of the registration.
    pub rkey: RemoteKey,
}

impl RemoteMemory {
    /// Returns the part from byte `range.start` to byte `range.end` of this range.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when `range` is reversed or leaves this range.
    ///
    /// ```
    /// use rdma_core::{RemoteKey, RemoteMemory};
    /// let whole = RemoteMemory { addr: 0x1000, len: 64, rkey: RemoteKey(7) };
    /// assert_eq!(whole.slice(16..32)?.addr, 0x1010);
    /// assert!(whole.slice(60..70).is_err());
    /// # Ok::<(), rdma_core::error::RangeError>(())
    /// ```
    #[inline]
    pub fn slice(self, range: Range<u64>) -> Result<Self, RangeError> {
        RangeError::check_range(range.clone(), self.len)?;
        let error = RangeError { start: range.start, end: range.end, len: self.len };
        let addr = self.addr.checked_add(range.start).ok_or(error)?;
        Ok(Self { addr, len: range.end - range.start, rkey: self.rkey })
    }
}
