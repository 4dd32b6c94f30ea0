//! The decision of a plan about one message, and the byte that it may flip.

#![expect(unsafe_code, reason = "flips a byte where a payload landed")]

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// The decision of a plan about one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Injected {
    /// The wire delivers the message unchanged.
    Deliver,
    /// The wire drops the message, with its payload.
    Lose,
    /// The wire delivers the message and flips one byte of the payload; the number selects the byte
    /// ([`byte_of`]).
    Corrupt(u64),
    /// The responder answers as if no receive were posted.
    NotReady,
    /// The message is kept, and delivered later.
    Delay(Delay),
}

impl Injected {
    /// Flips a byte of the payload at `addr`, if the fault says so.
    ///
    /// # Safety
    ///
    /// The `len` bytes at `addr` are mapped and writable, and no reference to them exists.
    pub(in super::super) unsafe fn corrupt(self, addr: u64, len: u32) {
        if let Self::Corrupt(chance) = self {
            // SAFETY: the byte is one of those that the caller promises, so it is mapped, writable and unreferenced.
            unsafe { flip(byte_of(addr, len, chance)) };
        }
    }
}

/// When a delayed message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Delay {
    pub(super) due: Instant,
    /// Deliver earlier, right after the next message of the same queue pair and direction.
    pub(super) until_next: bool,
}

/// The address of the payload byte that `chance` selects.
pub(super) fn byte_of(addr: u64, len: u32, chance: u64) -> u64 {
    addr + chance % u64::from(len.max(1))
}

/// Flips every bit of the byte at `addr`.
///
/// # Safety
///
/// The byte is mapped and writable, and no reference to it exists.
pub(super) unsafe fn flip(addr: u64) {
    let byte = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
    // SAFETY: the caller promises a mapped, writable byte. Peers may write it concurrently, so the access is atomic.
    unsafe { AtomicU8::from_ptr(byte) }.fetch_xor(0xff, Ordering::Relaxed);
}
