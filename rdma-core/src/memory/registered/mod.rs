//! [`Registered`]: a mapping with its registration, released in the right order or not at all.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard};
use std::time::Duration;

use super::{Backing, Mapping, Sharing, fork, quarantine};
use crate::error::{CloseError, Quarantine};
use crate::{Access, Deadline, LocalKey, RemoteKey};

/// Identifier of a protection domain, unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PdId(pub(crate) u64);

/// The keys that a device gave a registration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    pub(crate) lkey: LocalKey,
    pub(crate) rkey: RemoteKey,
}

/// A device's access to memory. A backend's protection domain makes one; the backend keeps what the device
/// needs.
pub(crate) trait Registration: Send + Sync {
    /// Returns the keys by which requests name the registration.
    fn keys(&self) -> Keys;

    /// Ends the access. After `Ok`, no access of the device or of a peer reaches the memory any more, and
    /// this is not called again. After an error one still may, and the call can be repeated.
    ///
    /// A peer in the middle of an access is waited for until `deadline` at most, whatever is done about it
    /// then.
    fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError>;

    /// Registers the same memory again under another key, after `deregister` returned `Ok`, where that costs
    /// less than a new registration. Returns whether it did.
    fn renew(&mut self, _access: Access, _backing: Option<&Backing>) -> bool {
        false
    }

    /// Returns whether the access has ended by itself after `deregister` failed because of a [`Quarantine`].
    /// Never waits.
    fn has_ended(&mut self) -> bool {
        false
    }
}

/// A mapping and the registration of it.
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
    /// The process that registered the memory. A forked child inherits this value, but not the right to
    /// release it.
    pid: u32,
    /// The registration of the last revoked [`Exported`](super::Exported), kept so that the next export can
    /// renew it.
    spare: Mutex<Option<Box<dyn Registration>>>,
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
            pid: fork::pid(),
            spare: Mutex::new(None),
        }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the slot of the registration that the next export may renew.
    pub(crate) fn spare(&self) -> MutexGuard<'_, Option<Box<dyn Registration>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.mapping.as_ptr()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.mapping.sharing()
    }

    #[inline]
    pub(crate) fn keys(&self) -> Keys {
        self.keys
    }

    #[inline]
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    #[inline]
    pub(crate) fn pd(&self) -> PdId {
        self.pd
    }

    /// Keeps the pages from being replaced while the result is held. Required for every write that no device
    /// makes.
    pub(super) fn hold(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.mapping.backing().map(|backing| backing.pages.hold())
    }

    /// Records that parts of the memory have several owners from now on, so that some may be used as slices
    /// at any time.
    pub(super) fn split(&self) {
        if let Some(backing) = self.mapping.backing() {
            backing.pages.split();
        }
    }

    /// Ends the registration and returns the memory; on an error nothing changes.
    ///
    /// Fails in a forked child: the registration is the parent's, and the parent's device goes on using the
    /// memory, which both processes share.
    pub(crate) fn into_mapping(mut self) -> Result<Mapping, (Self, CloseError)> {
        if let Err(error) = self.deregister(Deadline::after(Duration::MAX)) {
            return Err((self, error));
        }
        Ok(take_mapping(self))
    }

    /// Ends the registration. The memory is released when this value is dropped.
    pub(crate) fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        if self.is_forked() {
            let source = io::Error::other("this process was forked from the one that registered the memory");
            return Err(CloseError { verb: "ibv_dereg_mr", source });
        }
        if let Some(registration) = &mut self.registration {
            registration.deregister(deadline)?;
            self.registration = None;
        }
        Ok(())
    }

    pub(super) fn is_forked(&self) -> bool {
        self.pid != fork::pid()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.is_forked() {
            // The registration is the parent's, so a forked child must not run its destructor.
            std::mem::forget((self.registration.take(), self.spare().take()));
            return;
        }
        match self.deregister(Deadline::in_drop()) {
            Ok(()) => drop(move_mapping(&mut self.mapping)),
            Err(error) if Quarantine::is_cause(&error) => {
                let bytes = self.len();
                if let Some(registration) = self.registration.take() {
                    quarantine::keep(
                        quarantine::KeptMemory::Own(move_mapping(&mut self.mapping)),
                        registration,
                    );
                }
                crate::log::warn!(%error, bytes, "memory is quarantined until the stopped peer goes on or ends");
            }
            Err(error) => {
                std::mem::forget(self.registration.take());
                crate::log::error!(%error, bytes = self.len(), "deregistration failed; the memory is leaked, not freed");
            }
        }
    }
}

fn take_mapping(registered: Registered) -> Mapping {
    debug_assert!(registered.registration.is_none());
    drop(registered.spare().take());
    // The other fields own nothing, because the registration and the spare one are gone.
    move_mapping(&mut ManuallyDrop::new(registered).mapping)
}

#[expect(unsafe_code, reason = "moves the mapping out of a value that is never used again")]
fn move_mapping(mapping: &mut ManuallyDrop<Mapping>) -> Mapping {
    // SAFETY: `Registered::drop` calls this once at most and ends then, and `take_mapping` calls this on a value that
    // is never dropped; so the mapping is moved out just once, and the field is not used again.
    unsafe { ManuallyDrop::take(mapping) }
}

#[cfg(test)]
mod tests;
