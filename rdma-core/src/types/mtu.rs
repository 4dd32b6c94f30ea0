//! The path MTU in the coded form of verbs.

use std::fmt;

/// A path MTU of 256, 512, 1024, 2048 or 4096 bytes, stored as the verbs code 1 to 5.
///
/// ```
/// use rdma_core::Mtu;
/// assert_eq!(Mtu::from_bytes(1500), Some(Mtu::MTU_1024));
/// assert_eq!(Mtu::MTU_4096.bytes(), Some(4096));
/// ```
#[doc(alias = "ibv_mtu")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mtu(pub u8);

impl Mtu {
    /// 256 bytes.
    pub const MTU_256: Self = Self(1);
    /// 512 bytes.
    pub const MTU_512: Self = Self(2);
    /// 1024 bytes.
    pub const MTU_1024: Self = Self(3);
    /// 2048 bytes.
    pub const MTU_2048: Self = Self(4);
    /// 4096 bytes.
    pub const MTU_4096: Self = Self(5);

    /// Returns the largest MTU of at most `bytes`; `None` below 256 bytes.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        (1..=5).rev().map(Self).find(|mtu| mtu.bytes().is_some_and(|size| size <= bytes))
    }

    /// Returns the MTU in bytes; `None` for a code that verbs does not define.
    #[must_use]
    pub fn bytes(self) -> Option<u32> {
        (1..=5).contains(&self.0).then(|| 128 << self.0)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => bytes.fmt(f),
            None => write!(f, "MTU code {}", self.0),
        }
    }
}
