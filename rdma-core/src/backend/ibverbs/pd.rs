//! Protection domains. Registrations in one are in [`super::mr`].
#![expect(unsafe_code, reason = "owns an object of libibverbs")]

use std::ptr::NonNull;
use std::sync::Arc;

use super::sys::ibv_pd;
use super::{Context, check, explain, mr, not_null};
use crate::Access;
use crate::backend::interface;
use crate::error::{CreateError, RegisterError};
use crate::memory::pinning::PinningNeed;
use crate::memory::{Backing, Registration};

/// A protection domain, which its regions and queue pairs share.
pub(crate) struct ProtectionDomain(Arc<Pd>);

/// The domain of libibverbs behind a [`ProtectionDomain`].
///
/// # Invariants
///
/// `pd` belongs to `context`, and only this value releases it, in its drop. libibverbs locks the data that a domain
/// shares between threads.
pub(super) struct Pd {
    context: Arc<Context>,
    pd: NonNull<ibv_pd>,
}

// SAFETY: libibverbs ties no domain to a thread, and only this value releases it.
unsafe impl Send for Pd {}
// SAFETY: libibverbs locks what threads share through a domain, so calls through `&Pd` may run at once.
unsafe impl Sync for Pd {}

impl ProtectionDomain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, CreateError> {
        let alloc_pd = context.symbols.ibv_alloc_pd.clone()?;
        // SAFETY: `context` is open as long as the `Arc` lives, so the call may use it.
        let pd = not_null(unsafe { alloc_pd(context.as_ptr()) }).map_err(|source| {
            explain::creation(context, "ibv_alloc_pd", "protection domains", PinningNeed::length(0), source)
        })?;
        // INVARIANT: the domain was just allocated, and only this value knows it.
        Ok(Self(Arc::new(Pd { context: Arc::clone(context), pd })))
    }

    pub(super) fn inner(&self) -> &Arc<Pd> {
        &self.0
    }
}

impl Pd {
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }
}

impl interface::ProtectionDomain for ProtectionDomain {
    fn shares_memory(&self) -> bool {
        false
    }

    fn pins(&self) -> bool {
        true
    }

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        _: Option<(&Backing, u64)>,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        // SAFETY: the caller promises a range that stays mapped until `deregister` returned `Ok`, so the callee, which
        // asks for that, may register it.
        let region = unsafe { mr::MemoryRegion::register(&self.0, addr, len, access) }?;
        Ok(Box::new(region))
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        let Ok(dealloc_pd) = self.context.symbols.ibv_dealloc_pd else { return };
        // SAFETY: the invariant says that the domain is alive. Its regions and queue pairs hold an `Arc` of it, so
        // none is left, and nothing uses it after its drop.
        if let Err(error) = check(unsafe { dealloc_pd(self.pd.as_ptr()) }) {
            std::mem::forget(Arc::clone(&self.context));
            crate::log::warn!(%error, device = self.context.name(), "ibv_dealloc_pd failed; the domain is leaked");
        }
    }
}
