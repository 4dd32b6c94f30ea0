//! Memory registration with a device. Explaining a refusal is in [`super::explain`].
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::pd::Pd;
use super::sys::{self, ibv_mr};
use super::{check, explain, not_null};
use crate::error::{CloseError, RegisterError};
use crate::memory::{Keys, Registration};
use crate::{Access, Deadline, LocalKey, RemoteKey};

/// A registration of libibverbs.
///
/// # Invariants
///
/// `mr` belongs to `pd`, and is alive until `deregister` returned `Ok`.
pub(super) struct MemoryRegion {
    pd: Arc<Pd>,
    mr: NonNull<ibv_mr>,
    keys: Keys,
}

// SAFETY: libibverbs ties no registration to a thread, and only this value releases it, in `deregister`.
unsafe impl Send for MemoryRegion {}
// SAFETY: only `keys`, a plain value, is read through `&self`; `deregister` needs `&mut self`.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `len` bytes at `addr`, and warns before if that will probably fail.
    ///
    /// # Safety
    ///
    /// The range stays mapped, readable and writable, until `deregister` of the result returned `Ok`.
    pub(super) unsafe fn register(
        pd: &Arc<Pd>,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Self, RegisterError> {
        let symbols = pd.context().symbols;
        let need = explain::registration(addr, len);
        explain::warn_before(pd.context(), need, len);
        let (required, optional) = split(access);
        let mr = match (optional, &symbols.ibv_reg_mr_iova2) {
            // Optional bits need this function: an old `ibv_reg_mr` passes them on, and the kernel refuses them.
            (1.., Ok(reg_mr_iova2)) => {
                // SAFETY: `pd` keeps the domain alive, and the caller promises a range that stays mapped while
                // registered, so the device may access it.
                unsafe { reg_mr_iova2(pd.as_ptr(), addr.cast(), len, addr as u64, required | optional) }
            }
            _ => {
                let reg_mr = symbols.ibv_reg_mr.clone()?;
                // SAFETY: `pd` keeps the domain alive, and the caller promises a range that stays mapped while
                // registered, so the device may access it. The cast is exact: required bits are below the sign.
                unsafe { reg_mr(pd.as_ptr(), addr.cast(), len, required.cast_signed()) }
            }
        };
        let mr = not_null(mr).map_err(|source| {
            let explanation = explain::refused(pd.context(), &source, need, len);
            RegisterError::Refused { len: len as u64, explanation, source }
        })?;
        // SAFETY: the registration was just returned and is not null, so it may be read.
        let raw = unsafe { mr.as_ref() };
        let keys = Keys { lkey: LocalKey(raw.lkey), rkey: RemoteKey(raw.rkey) };
        // INVARIANT: the memory was just registered, and only this value knows it.
        Ok(Self { pd: Arc::clone(pd), mr, keys })
    }
}

impl Registration for MemoryRegion {
    fn keys(&self) -> Keys {
        self.keys
    }

    fn deregister(&mut self, _: Deadline) -> Result<(), CloseError> {
        let verb = "ibv_dereg_mr";
        let dereg_mr = self.pd.context().symbols.ibv_dereg_mr.clone();
        let dereg_mr = dereg_mr.map_err(|error| CloseError { verb, source: io::Error::other(error) })?;
        // SAFETY: the invariant says that the registration is alive; `Registration` must not be deregistered again
        // after `Ok`.
        check(unsafe { dereg_mr(self.mr.as_ptr()) }).map_err(|source| CloseError { verb, source })
    }
}

/// Splits `access` into the C bits that must be granted and those that a kernel may ignore.
fn split(access: Access) -> (sys::ibv_access_flags, sys::ibv_access_flags) {
    let bits = access.difference(Access::WINDOW).bits();
    (bits & !sys::IBV_ACCESS_OPTIONAL_RANGE, bits & sys::IBV_ACCESS_OPTIONAL_RANGE)
}

// The bits of the public type are those of the C headers; this stops the build if they differ.
const _: () = {
    assert!(Access::LOCAL_WRITE.bits() == sys::IBV_ACCESS_LOCAL_WRITE);
    assert!(Access::REMOTE_WRITE.bits() == sys::IBV_ACCESS_REMOTE_WRITE);
    assert!(Access::REMOTE_READ.bits() == sys::IBV_ACCESS_REMOTE_READ);
    assert!(Access::REMOTE_ATOMIC.bits() == sys::IBV_ACCESS_REMOTE_ATOMIC);
    assert!(Access::MW_BIND.bits() == sys::IBV_ACCESS_MW_BIND);
    assert!(Access::RELAXED_ORDERING.bits() == sys::IBV_ACCESS_RELAXED_ORDERING);
};
