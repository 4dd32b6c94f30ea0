//! Keys of registrations, and what a peer is told of one.

use std::fmt;
use std::ops::Range;

use crate::error::RangeError;

/// The key by which this side names a registration.
#[doc(alias = "lkey")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

/// The key by which a peer names a registration. It is a capability: whoever has it and a
/// connected queue pair may use the memory as the registration allows.
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
/// The address means something to the peer's device alone. Nothing here is checked against
/// the peer before a request is posted; its device checks, and a refusal moves both queue
/// pairs to ERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteMemory {
    /// Where it begins, in the peer's address space.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// The peer's key.
    pub rkey: RemoteKey,
}

impl RemoteMemory {
    /// The part of it from `range.start` to `range.end`, in bytes from its begin.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when the range is reversed or leaves it: mend the offset.
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
        let error = RangeError { start: range.start, end: range.end, len: self.len };
        if range.start > range.end || range.end > self.len {
            return Err(error);
        }
        let addr = self.addr.checked_add(range.start).ok_or(error)?;
        Ok(Self { addr, len: range.end - range.start, rkey: self.rkey })
    }
}
