//! Protection domains: a number that registrations and queue pairs share.

#![expect(unsafe_code, reason = "takes the caller's word for the memory it registers")]

use std::ops::Range;
use std::sync::Arc;

use super::device::Context;
use super::engine::keys::Domain;
use super::mr::MemoryRegion;
use crate::Access;
use crate::backend::interface;
use crate::error::{CreateError, RegisterError};
use crate::memory::{Backing, Registration};

/// A protection domain of a software device.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    /// The context that made the domain. Queue pairs of other contexts are foreign to it, even on the same device.
    pub(super) context: Arc<Context>,
    pub(super) domain: Domain,
}

impl ProtectionDomain {
    /// Makes a domain with a number of its own. Numbers are never used twice, because memory of an earlier domain may
    /// still be registered under the same number.
    pub(crate) fn new(context: Arc<Context>) -> Result<Self, CreateError> {
        let mut guard = context.opened.fabric.lock();
        let domains = guard.devices.get_mut(context.opened.device).map(|device| &mut device.domains);
        let domain = domains.map_or(Ok(0), next)?;
        drop(guard);
        Ok(Self { context, domain: Domain(domain) })
    }
}

/// Counts a domain.
fn next(domains: &mut u32) -> Result<u32, CreateError> {
    let beyond = CreateError::BeyondLimit {
        option: "the number of protection domains that the device has made",
        asked: u64::from(u32::MAX) + 1,
        limit: u32::MAX.into(),
    };
    *domains = domains.checked_add(1).ok_or(beyond)?;
    Ok(*domains)
}

impl interface::ProtectionDomain for ProtectionDomain {
    fn shares_memory(&self) -> bool {
        let opened = &self.context.opened;
        opened.fabric.lock().devices.get(opened.device).is_some_and(|device| device.exports.is_some())
    }

    fn pins(&self) -> bool {
        false
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        backing: Option<(&Backing, u64)>,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        Ok(Box::new(MemoryRegion::register(self, addr.expose_provenance(), len, access, backing, None)?))
    }

    unsafe fn register_parts(
        &self,
        addr: *mut u8,
        parts: &[Range<usize>],
        access: Access,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        let (first, last) = (addr.expose_provenance(), parts.last().map_or(0, |part| part.end));
        let start = parts.first().map_or(0, |part| part.start);
        let address = |at: usize| first.wrapping_add(at) as u64;
        let ranges = parts.iter().map(|part| address(part.start)..address(part.end)).collect();
        // Without a backing, because the entry that peers read has room for one range: they send their requests here,
        // where each is checked.
        let (addr, len) = (first.wrapping_add(start), last.saturating_sub(start));
        Ok(Box::new(MemoryRegion::register(self, addr, len, access, None, Some(ranges))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_used_twice() {
        let mut domains = u32::MAX - 1;
        assert_eq!(next(&mut domains).unwrap(), u32::MAX);
        let refused = next(&mut domains).unwrap_err();
        assert!(matches!(refused, CreateError::BeyondLimit { .. }), "{refused}");
    }
}
