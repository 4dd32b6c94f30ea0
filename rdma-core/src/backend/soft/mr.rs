//! Memory regions: a key in the device's table for as long as they are registered.

use std::io;
use std::sync::Arc;

use super::device::Opened;
use super::fault::FaultPlan;
use super::{ProtectionDomain, port};
use crate::backend::register::beyond_device;
use crate::error::{CloseError, RegisterError};
use crate::memory::{Keys, Registration};
use crate::{Access, LocalKey, RemoteKey};

/// A registration of a software device.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    opened: Arc<Opened>,
    key: u32,
}

impl MemoryRegion {
    pub(super) fn register(
        pd: &ProtectionDomain,
        addr: usize,
        len: usize,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let refused = |source, explanation: &str| RegisterError::Refused {
            len: len as u64,
            source,
            explanation: explanation.to_owned(),
        };
        let Opened { name, max_mr_size, .. } = &*pd.context.opened;
        if let Some(beyond) = beyond_device(name, len as u64, *max_mr_size) {
            return Err(refused(io::Error::from_raw_os_error(libc::EINVAL), &beyond));
        }
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        let mut hold = pd.context.opened.lock();
        let device = hold.devices.get_mut(pd.context.opened.device);
        let keys = &mut device.ok_or_else(|| refused(gone(), "the device is closed: open it again"))?.keys;
        if keys.len() >= port::MAX_MR as usize {
            let full = io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(refused(
                full,
                "the device has no more keys (max_mr): register fewer, larger regions",
            ));
        }
        let drawn = keys.insert(pd.domain, addr as u64, len as u64, access, getrandom::u32);
        let key = drawn.map_err(|error| {
            refused(error.into(), "the system gives no random numbers for a key: let it use getrandom(2)")
        })?;
        drop(hold);
        Ok(Self { opened: Arc::clone(&pd.context.opened), key })
    }
}

impl Registration for MemoryRegion {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(self.key), rkey: RemoteKey(self.key) }
    }

    /// Exact: every byte is placed under the lock that this takes.
    fn deregister(&mut self) -> Result<(), CloseError> {
        let mut hold = self.opened.lock();
        let Some(device) = hold.devices.get_mut(self.opened.device) else { return Ok(()) };
        if device.faults.as_ref().is_some_and(FaultPlan::refuses_deregistration) {
            let source = io::Error::from_raw_os_error(libc::EBUSY);
            return Err(CloseError { verb: "ibv_dereg_mr", source });
        }
        device.keys.remove(self.key);
        Ok(())
    }
}
