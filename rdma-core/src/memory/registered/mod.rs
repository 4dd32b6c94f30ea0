//! [`Registered`]: a mapping with its registrations, released in the right order or not at all.

mod several;

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLockReadGuard};

use self::several::Several;
use super::{Backing, Mapping, OwnProcess, Sharing, quarantine};
use crate::error::{CloseError, Forked, Quarantine};
use crate::metrics;
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

    /// Registers the same memory, all of it, again under another key, after `deregister` returned `Ok`, where that
    /// costs less than a new registration. Returns whether it did.
    fn renew(&mut self, _access: Access, _backing: Option<&Backing>) -> bool {
        false
    }

    /// Returns whether the access has ended by itself after `deregister` failed because of a [`Quarantine`].
    /// Never waits.
    fn has_ended(&mut self) -> bool {
        false
    }
}

/// A mapping and its registration, or several of them: one for each domain whose queue pairs may use it.
///
/// A forked child inherits this value, but not the right to release it: the registration is the parent's, whose device
/// goes on using the memory, which both processes share.
pub(crate) struct Registered {
    kept: OwnProcess<Kept>,
    keys: Keys,
    access: Access,
    pd: PdId,
    /// The keys of the further domains. Nearly all memory has none.
    others: Vec<(PdId, Keys)>,
}

/// A registration that an export may renew, and its domain.
pub(crate) type Spare = (PdId, Box<dyn Registration>);

/// The part of a [`Registered`] that is released.
///
/// # Invariants
///
/// The mapping outlives the registration: it is dropped only after `deregister` returned `Ok`.
struct Kept {
    mapping: ManuallyDrop<Mapping>,
    registration: Option<Box<dyn Registration>>,
    /// The registration of the last revoked [`Exported`](super::Exported) and its domain, kept so that the next
    /// export there can renew it.
    spare: Mutex<Option<Spare>>,
}

impl Registered {
    pub(crate) fn new(
        mapping: Mapping,
        registration: Box<dyn Registration>,
        access: Access,
        pd: PdId,
    ) -> Self {
        let keys = registration.keys();
        metrics::registered(mapping.len());
        let kept = Kept {
            mapping: ManuallyDrop::new(mapping),
            registration: Some(registration),
            spare: Mutex::new(None),
        };
        Self { kept: OwnProcess::new(kept), keys, access, pd, others: Vec::new() }
    }

    /// Keeps a registration of the same memory in a further domain, which ends with the others.
    pub(crate) fn add(&mut self, registration: Box<dyn Registration>, pd: PdId) -> Result<(), Forked> {
        let kept = self.kept.get_mut()?;
        self.others.push((pd, registration.keys()));
        kept.registration = Some(match kept.registration.take() {
            Some(first) => Box::new(Several::new(first, registration)),
            None => registration,
        });
        // A peer that is stopped in the middle of a write is otherwise dealt with by new pages. A second device
        // would go on using the old ones, so this memory keeps its pages, and is quarantined in such a case.
        if let Some(backing) = kept.mapping.backing() {
            backing.pages.lend();
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.kept.unasked().mapping
    }

    /// Returns the slot of the registration that the next export may renew.
    pub(crate) fn spare(&self) -> Result<MutexGuard<'_, Option<Spare>>, Forked> {
        Ok(self.kept.get()?.spare.lock())
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.mapping().as_ptr()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.mapping().len()
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.mapping().sharing()
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

    /// Returns the keys by which requests in `pd` name the memory; `None` if it is not registered there.
    #[inline]
    pub(crate) fn keys_in(&self, pd: PdId) -> Option<Keys> {
        if pd == self.pd {
            return Some(self.keys);
        }
        self.others.iter().find(|(other, _)| *other == pd).map(|(_, keys)| *keys)
    }

    /// Keeps the pages from being replaced while the result is held. Required for every write that no device
    /// makes.
    ///
    /// A forked child holds nothing: it replaces no pages, and a thread of its parent may have had the lock.
    pub(super) fn hold(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.kept.get().ok()?.mapping.backing().map(|backing| backing.pages.hold())
    }

    /// Records that the owner of a part may write it at any moment from now on. A forked child replaces no pages.
    pub(super) fn lend_part(&self) {
        if let Some(backing) = self.kept.get().ok().and_then(|kept| kept.mapping.backing()) {
            backing.pages.lend_part();
        }
    }

    /// Ends the registration and returns the memory; on an error nothing changes.
    pub(crate) fn into_mapping(mut self) -> Result<Mapping, Box<(Self, CloseError)>> {
        if let Err(error) = self.deregister(Deadline::after(Duration::MAX)) {
            return Err(Box::new((self, error)));
        }
        let Self { kept, keys, access, pd, others } = self;
        match kept.into_inner() {
            Ok(kept) => Ok(kept.into_mapping()),
            Err(kept) => Err(Box::new((Self { kept, keys, access, pd, others }, Forked::new().into()))),
        }
    }

    /// Ends the registration. The memory is released when this value is dropped.
    pub(crate) fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        self.kept.get_mut()?.deregister(deadline)
    }
}

impl Kept {
    fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        if let Some(registration) = &mut self.registration {
            registration.deregister(deadline)?;
            self.registration = None;
            metrics::deregistered(self.mapping.len());
        }
        Ok(())
    }

    fn into_mapping(mut self) -> Mapping {
        debug_assert!(self.registration.is_none());
        drop(self.spare.get_mut().take());
        // The other fields own nothing, because the registration and the spare one are gone.
        move_mapping(&mut ManuallyDrop::new(self).mapping)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        match self.deregister(Deadline::in_drop()) {
            Ok(()) => drop(move_mapping(&mut self.mapping)),
            Err(error) if Quarantine::is_cause(&error) => {
                let bytes = self.mapping.len();
                metrics::deregistered(bytes);
                if let Some(registration) = self.registration.take() {
                    quarantine::keep(move_mapping(&mut self.mapping), bytes, registration);
                }
                crate::log::warn!(%error, bytes, "memory is quarantined until the stopped peer goes on or ends");
            }
            Err(error) => {
                std::mem::forget(self.registration.take());
                crate::log::error!(%error, bytes = self.mapping.len(), "deregistration failed; the memory is leaked, not freed");
            }
        }
    }
}

#[expect(unsafe_code, reason = "moves the mapping out of a value that is never used again")]
fn move_mapping(mapping: &mut ManuallyDrop<Mapping>) -> Mapping {
    // SAFETY: `Kept::drop` calls this once at most and ends then, and `into_mapping` calls this on a value that
    // is never dropped; so the mapping is moved out just once, and the field is not used again.
    unsafe { ManuallyDrop::take(mapping) }
}

#[cfg(test)]
mod tests;
