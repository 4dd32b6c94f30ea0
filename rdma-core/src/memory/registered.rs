//! A mapping together with its registration, released in the right order or not at all.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::Mapping;
use crate::error::CloseError;
use crate::{Access, LocalKey, RemoteKey};

/// Which protection domain something belongs to; unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PdId(pub(crate) u64);

/// The keys that a device gave a registration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    pub(crate) lkey: LocalKey,
    pub(crate) rkey: RemoteKey,
}

/// A device's hold on memory. Made by a backend's protection domain.
pub(crate) trait Registration: Send + Sync {
    /// The keys by which requests name it.
    fn keys(&self) -> Keys;

    /// Ends the hold. After `Ok` no access of the device or of a peer reaches the memory any
    /// more; after an error it still may, and the call can be made again. Not called after `Ok`.
    fn deregister(&mut self) -> Result<(), CloseError>;
}

/// Registered memory.
///
/// # Invariants
///
/// The mapping outlives the registration: it is dropped only after `deregister` returned `Ok`.
pub(crate) struct Registered {
    mapping: ManuallyDrop<Mapping>,
    registration: Option<Box<dyn Registration>>,
    keys: Keys,
    access: Access,
    pd: PdId,
    /// The process that registered it: a forked child inherits the value, not the right to release it.
    pid: u32,
}

impl Registered {
    pub(crate) fn new(
        mapping: Mapping,
        registration: Box<dyn Registration>,
        access: Access,
        pd: PdId,
    ) -> Self {
        let keys = registration.keys();
        Self {
            mapping: ManuallyDrop::new(mapping),
            registration: Some(registration),
            keys,
            access,
            pd,
            pid: std::process::id(),
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    pub(crate) fn keys(&self) -> Keys {
        self.keys
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// Ends the registration and gives the memory back; on an error everything stays as it was.
    pub(crate) fn into_mapping(mut self) -> Result<Mapping, (Self, CloseError)> {
        if let Err(error) = self.deregister() {
            return Err((self, error));
        }
        Ok(take_mapping(self))
    }

    /// Ends the registration; the memory goes with the value afterwards.
    pub(crate) fn deregister(&mut self) -> Result<(), CloseError> {
        if let Some(registration) = &mut self.registration {
            registration.deregister()?;
            self.registration = None;
        }
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // A forked child: the registration is the parent's.
            std::mem::forget(self.registration.take());
            return;
        }
        match self.deregister() {
            Ok(()) => drop_mapping(&mut self.mapping),
            Err(error) => {
                tracing::error!(%error, bytes = self.len(), "deregistration failed; the memory is leaked, not freed");
                std::mem::forget(self.registration.take());
            }
        }
    }
}

#[expect(unsafe_code, reason = "drops the mapping at the one moment when it may be dropped")]
fn drop_mapping(mapping: &mut ManuallyDrop<Mapping>) {
    // SAFETY: called from `Registered::drop` alone, once, after which the field is not used again.
    unsafe { ManuallyDrop::drop(mapping) }
}

#[expect(unsafe_code, reason = "moves the mapping out of a value that will not drop it")]
fn take_mapping(registered: Registered) -> Mapping {
    debug_assert!(registered.registration.is_none());
    let mut registered = ManuallyDrop::new(registered);
    // SAFETY: `registered` is never dropped nor used again, so its mapping is taken just once;
    // its other fields own nothing once the registration is gone.
    unsafe { ManuallyDrop::take(&mut registered.mapping) }
}
