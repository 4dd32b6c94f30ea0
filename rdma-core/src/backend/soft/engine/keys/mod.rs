//! The key table: which key names which memory, with which rights.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::Access;

/// A protection domain, unique on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Domain(pub(crate) u32);

/// A registration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) domain: Domain,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
    /// A number that is never used twice, unlike the key: distinguishes a registration from a later one of the same
    /// key.
    pub(crate) serial: u64,
}

impl Registered {
    /// Checks whether `domain` may use the `len` bytes at `addr` with the rights `needs`.
    #[inline]
    pub(crate) fn check(
        &self,
        domain: Domain,
        addr: u64,
        len: impl Into<u64>,
        needs: Access,
    ) -> Result<(), KeyRefusal> {
        if self.domain != domain {
            return Err(KeyRefusal::ForeignDomain);
        }
        let offset = addr.checked_sub(self.addr).ok_or(KeyRefusal::OutOfRange)?;
        let end = offset.checked_add(len.into()).ok_or(KeyRefusal::OutOfRange)?;
        if end > self.len {
            return Err(KeyRefusal::OutOfRange);
        }
        if !self.access.contains(needs) {
            return Err(KeyRefusal::AccessDenied);
        }
        Ok(())
    }

    /// Checks whether `domain` may use the `len` bytes at `addr`, and a peer has any right to them.
    pub(crate) fn check_any(&self, domain: Domain, addr: u64, len: u64) -> Result<(), KeyRefusal> {
        self.check(domain, addr, len, Access::empty())?;
        if self.access.is_remote() { Ok(()) } else { Err(KeyRefusal::AccessDenied) }
    }
}

/// The reason why a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRefusal {
    Unknown,
    ForeignDomain,
    OutOfRange,
    AccessDenied,
}

/// Address ranges, sorted and with bytes between them that belong to none.
pub(crate) type Ranges = Box<[Range<u64>]>;

/// The registrations of a device, by key.
///
/// Keys come from the system's random source, so they serve as their own hash. A key that renews another shares its low
/// bits, which is why [`Identity`] also uses the high ones.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    by_key: HashMap<u32, Registered, BuildHasherDefault<Identity>>,
    /// The addresses of a key that names parts of its registration alone.
    ranges: HashMap<u32, Ranges, BuildHasherDefault<Identity>>,
    /// The registration that was used last, because consecutive requests mostly use the same one. Removing a key must
    /// clear it: otherwise a revoked key would still be accepted.
    last: Cell<Option<(u32, Registered)>>,
    serials: u64,
}

impl KeyTable {
    /// Adds a registration under a key from `draw`, which is asked again for a key that is taken.
    pub(crate) fn insert<E>(
        &mut self,
        domain: Domain,
        addr: u64,
        len: u64,
        access: Access,
        mut draw: impl FnMut() -> Result<u32, E>,
    ) -> Result<u32, E> {
        let key = loop {
            let key = draw()?;
            // A request without memory carries key 0, so no registration may have it.
            if key != 0 && !self.by_key.contains_key(&key) {
                break key;
            }
        };
        self.serials += 1;
        self.by_key.insert(key, Registered { domain, addr, len, access, serial: self.serials });
        Ok(key)
    }

    /// Limits `key` to ranges within its registration: an access must lie wholly in one of them.
    pub(crate) fn restrict(&mut self, key: u32, ranges: Ranges) {
        self.ranges.insert(key, ranges);
    }

    /// Revokes `key`. From now on every check of it fails.
    pub(crate) fn remove(&mut self, key: u32) -> Option<Registered> {
        self.last.set(None);
        self.ranges.remove(&key);
        self.by_key.remove(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the registration of `key`, if `domain` may use the `len` bytes at `addr` with the rights `needs`.
    #[inline]
    pub(crate) fn check(
        &self,
        key: u32,
        domain: Domain,
        addr: u64,
        len: impl Into<u64>,
        needs: Access,
    ) -> Result<Registered, KeyRefusal> {
        let found = match self.last.get() {
            Some((last, found)) if last == key => found,
            _ => self.look_up(key)?,
        };
        let len = len.into();
        found.check(domain, addr, len, needs)?;
        if !self.ranges.is_empty() {
            self.check_ranges(key, addr, len)?;
        }
        Ok(found)
    }

    /// Checks that one of the ranges of `key` has all the bytes, if the key is limited to ranges. Kept out of line, so
    /// that the common case inlines.
    #[inline(never)]
    fn check_ranges(&self, key: u32, addr: u64, len: u64) -> Result<(), KeyRefusal> {
        let Some(ranges) = self.ranges.get(&key) else { return Ok(()) };
        let behind = ranges.partition_point(|range| range.start <= addr);
        let range = behind.checked_sub(1).and_then(|at| ranges.get(at));
        let left = range.and_then(|range| range.end.checked_sub(addr));
        if left.is_some_and(|left| len <= left) { Ok(()) } else { Err(KeyRefusal::OutOfRange) }
    }

    /// Looks a key up in the table, and remembers it. Kept out of line, so that the common case inlines.
    #[inline(never)]
    fn look_up(&self, key: u32) -> Result<Registered, KeyRefusal> {
        let found = *self.by_key.get(&key).ok_or(KeyRefusal::Unknown)?;
        self.last.set(Some((key, found)));
        Ok(found)
    }

    /// The registration of `key`.
    pub(crate) fn get(&self, key: u32) -> Option<&Registered> {
        self.by_key.get(&key)
    }

    /// Whether `key` still names the registration `serial`.
    pub(crate) fn is_current(&self, key: u32, serial: u64) -> bool {
        self.by_key.get(&key).is_some_and(|found| found.serial == serial)
    }
}

/// A hasher for keys, which are random already, and for serials and identifiers, which are counted up and need one
/// multiplication.
#[derive(Debug, Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, key: u32) {
        // `HashMap` takes the group from the lowest bits and the tag from the highest, so both must vary.
        self.0 = u64::from(key) << 32 | u64::from(key);
    }

    fn write_u64(&mut self, number: u64) {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }
}

#[cfg(test)]
mod tests;
