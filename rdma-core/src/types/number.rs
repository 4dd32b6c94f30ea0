//! Port numbers, queue pair numbers and packet sequence numbers.

use std::fmt;

/// The number of a port of a device, counted from 1.
///
/// The argument of [`Context::port`](crate::Context::port).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNum(pub u8);

impl Default for PortNum {
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for PortNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a queue pair on its device; 24 bits.
///
/// A part of [`Endpoint`](crate::Endpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(pub u32);

impl fmt::Display for QpNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// A packet sequence number: 24 bits, wrapping.
///
/// A part of [`Endpoint`](crate::Endpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    const MASK: u32 = 0x00ff_ffff;

    /// Returns the number whose 24 bits are the low 24 bits of `value`.
    #[must_use]
    pub fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Returns a number from the system's random source, so that a stale packet of an earlier connection is
    /// unlikely to match a new one.
    ///
    /// Returns 0 where the system has no random source. That is valid, but guessable.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; 4];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Self::new(u32::from_le_bytes(bytes)),
            Err(_) => Self(0),
        }
    }

    /// Returns the 24 bits.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}
