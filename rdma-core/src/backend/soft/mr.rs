//! Memory regions: a registration is a key in the table of its device.
//!
//! Deregistration is exact. Removing the key under the lock stops every thread of this process and every TCP peer.
//! Mapped peers do not take the lock: [`wait_until_revoked`] waits for those in the middle of a chunk, and has the
//! pages of stopped ones replaced.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::OpenDevice;
use super::engine::keys::{Domain, Ranges};
use super::fabric::{Command, DeviceState};
use super::fault::FaultPlan;
use super::wire::{Change, RevokeStatus};
use super::{ProtectionDomain, clock, limits};
use crate::backend::register::beyond_device;
use crate::error::{CloseError, Quarantine, RegisterError};
use crate::memory::{Backing, Irreplaceable, Keys, Registration};
use crate::{Access, Deadline, LocalKey, RemoteKey};

/// Sleep between two looks at the writers of revoked memory.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Longest wait for them, whatever the deadline: stopped writers are dealt with after a quarter of a second, so a
/// longer wait means writers that come and go.
const PATIENCE: Duration = Duration::from_secs(2);

/// A registration of a software device.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    opened: Arc<OpenDevice>,
    key: u32,
    /// The key is removed, but mapped writers may still be at the memory.
    revoked: bool,
    range: RegisteredRange,
}

/// The domain and the range of a registration; they stay when it is renewed with other rights.
#[derive(Debug, Clone, Copy)]
struct RegisteredRange {
    domain: Domain,
    addr: u64,
    len: u64,
}

impl MemoryRegion {
    /// Registers a range of memory with the device of `pd`, or those parts of it that `parts` has.
    pub(super) fn register(
        pd: &ProtectionDomain,
        addr: usize,
        len: usize,
        access: Access,
        backing: Option<(&Backing, u64)>,
        parts: Option<Ranges>,
    ) -> Result<Self, RegisterError> {
        let range = RegisteredRange { domain: pd.domain, addr: addr as u64, len: len as u64 };
        let key = add_key(&pd.context.opened, range, access, backing, parts, None)?;
        Ok(Self { opened: Arc::clone(&pd.context.opened), key, revoked: false, range })
    }
}

/// Adds a registration to the key table of the device and returns its key.
///
/// A registration that renews an earlier one gets a key with the same low bits: peers then look it up in the same slot
/// of the table, which is still in their caches.
fn add_key(
    opened: &OpenDevice,
    RegisteredRange { domain, addr, len }: RegisteredRange,
    access: Access,
    backing: Option<(&Backing, u64)>,
    parts: Option<Ranges>,
    mut renews: Option<u32>,
) -> Result<u32, RegisterError> {
    let refused = |source, explanation: &str| RegisterError::Refused {
        len,
        source,
        explanation: explanation.to_owned(),
    };
    if let Some(beyond) = beyond_device(&opened.name, len, opened.max_mr_size) {
        return Err(refused(io::Error::from_raw_os_error(libc::EINVAL), &beyond));
    }
    let gone = || io::Error::from_raw_os_error(libc::ENODEV);
    let mut guard = opened.fabric.lock();
    let device = guard.devices.get_mut(opened.device);
    let DeviceState { keys, random, exports, .. } =
        device.ok_or_else(|| refused(gone(), "the device is closed: open it again"))?;
    if keys.len() >= limits::MAX_MR as usize {
        let full = io::Error::from_raw_os_error(libc::ENOMEM);
        return Err(refused(full, "the device has no more keys (max_mr): register fewer, larger regions"));
    }
    let drawn = keys.insert(domain, addr, len, access, || {
        loop {
            let key = match renews.take() {
                Some(last) => random.next_beside(last, limits::KEY_PLACE_BITS)?,
                None => random.next()?,
            };
            if exports.as_ref().is_none_or(|exports| exports.is_free(key)) {
                return Ok(key);
            }
        }
    });
    let key = drawn.map_err(|error: getrandom::Error| {
        refused(error.into(), "the system gives no random numbers for a key: let it use getrandom(2)")
    })?;
    if let Some(parts) = parts {
        keys.restrict(key, parts);
    }
    if let (Some(exports), Some(registered)) = (exports, keys.get(key).copied())
        && let Some(memory) = exports.insert(key, registered, backing)
    {
        // Announced when the guard drops, so before the caller can hand out the key.
        guard.commands.push_back(Command::Tell { device: opened.device, change: Change::Announce(memory) });
    }
    Ok(key)
}

impl Registration for MemoryRegion {
    fn keys(&self) -> Keys {
        Keys { lkey: LocalKey(self.key), rkey: RemoteKey(self.key) }
    }

    /// Revokes the key. After `Ok` no byte lands any more: local threads and TCP place bytes under the lock that this
    /// takes, and mapped writers are waited for.
    fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        let mut guard = self.opened.fabric.lock();
        let device_ref = self.opened.device;
        let Some(device) = guard.devices.get_mut(device_ref) else { return Ok(()) };
        if device.faults.as_ref().is_some_and(FaultPlan::refuses_deregistration) {
            let source = io::Error::from_raw_os_error(libc::EBUSY);
            return Err(CloseError { verb: "ibv_dereg_mr", source });
        }
        if device.keys.remove(self.key).is_some() {
            self.revoked = true;
            let memory = device.exports.as_mut().and_then(|exports| exports.revoke(self.key));
            if let Some(memory) = memory {
                guard
                    .commands
                    .push_back(Command::Tell { device: device_ref, change: Change::Forget(memory) });
            }
        }
        if !self.revoked {
            return Ok(());
        }
        let active_writers = guard.active_writers(device_ref, self.key);
        if active_writers.is_empty() {
            guard.forget_key(device_ref, self.key);
            return Ok(());
        }
        drop(guard);
        active_writers.wait(deadline);
        let revoked = wait_until_revoked(deadline, |now| {
            self.opened.fabric.lock().advance_key_revoke(now, device_ref, self.key, deadline)
        });
        revoked.map_err(|source| CloseError { verb: "ibv_dereg_mr", source })
    }

    fn renew(&mut self, access: Access, backing: Option<&Backing>) -> bool {
        let backing = backing.map(|backing| (backing, 0));
        let Ok(key) = add_key(&self.opened, self.range, access, backing, None, Some(self.key)) else {
            return false;
        };
        (self.key, self.revoked) = (key, false);
        true
    }

    fn has_ended(&mut self) -> bool {
        let mut guard = self.opened.fabric.lock();
        let is_free = guard.active_writers(self.opened.device, self.key).are_gone();
        if is_free {
            guard.forget_key(self.opened.device, self.key);
        }
        is_free
    }
}

/// Looks at revoked memory until no mapped writer is at it. Looks at least a few times, even after the deadline,
/// because most writers finish their chunk within a millisecond.
///
/// # Errors
///
/// A [`Quarantine`]: a stopped writer is still at the memory, and its pages cannot be replaced.
pub(super) fn wait_until_revoked(
    deadline: Deadline,
    mut look: impl FnMut(Instant) -> RevokeStatus,
) -> io::Result<()> {
    let begin = clock::now();
    let until = deadline.instant().clamp(begin + 4 * LOOK_EVERY, begin + PATIENCE);
    loop {
        let now = clock::now();
        match look(now) {
            RevokeStatus::Done => return Ok(()),
            RevokeStatus::Pending if now < until => std::thread::sleep(LOOK_EVERY),
            // A writer is never at one place for long enough to be taken for stopped.
            RevokeStatus::Pending => return Err(Quarantine::io_error(Irreplaceable::Unknown)),
            RevokeStatus::Quarantined(why) => return Err(Quarantine::io_error(why)),
        }
    }
}
