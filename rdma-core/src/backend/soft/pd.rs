//! Protection domains: a number that registrations and queue pairs share.

#![expect(unsafe_code, reason = "takes the caller's word for the memory it registers")]

use std::sync::Arc;

use super::device::Context;
use super::engine::keys::Domain;
use super::mr::MemoryRegion;
use crate::Access;
use crate::backend::interface;
use crate::error::RegisterError;
use crate::memory::{Backing, Registration};

/// A protection domain of a software device.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    /// The context that made the domain. Queue pairs of other contexts are foreign to it, even on the same device.
    pub(super) context: Arc<Context>,
    pub(super) domain: Domain,
}

impl ProtectionDomain {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let mut guard = context.opened.lock();
        let domain = guard.devices.get_mut(context.opened.device).map_or(0, |device| {
            device.domains = device.domains.wrapping_add(1);
            device.domains
        });
        drop(guard);
        Self { context, domain: Domain(domain) }
    }
}

impl interface::ProtectionDomain for ProtectionDomain {
    fn shares_memory(&self) -> bool {
        let opened = &self.context.opened;
        opened.lock().devices.get(opened.device).is_some_and(|device| device.exports.is_some())
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        backing: Option<&Backing>,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        Ok(Box::new(MemoryRegion::register(self, addr.expose_provenance(), len, access, backing)?))
    }
}
