//! Protection domains.

#![expect(unsafe_code, reason = "takes the caller's word for the memory it registers")]

use std::sync::Arc;

use super::device::Opened;
use super::engine::keys::Domain;
use super::mr::MemoryRegion;
use crate::Access;
use crate::backend::interface;
use crate::error::RegisterError;
use crate::memory::Registration;

/// A protection domain of a software device.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    pub(super) opened: Arc<Opened>,
    pub(super) domain: Domain,
}

impl ProtectionDomain {
    pub(super) fn new(opened: Arc<Opened>) -> Self {
        let mut hold = opened.lock();
        let domain = hold.devices.get_mut(opened.device).map_or(0, |device| {
            device.domains = device.domains.wrapping_add(1);
            device.domains
        });
        drop(hold);
        Self { opened, domain: Domain(domain) }
    }
}

impl interface::ProtectionDomain for ProtectionDomain {
    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        Ok(Box::new(MemoryRegion::register(self, addr.expose_provenance(), len, access)?))
    }
}
