//! Protection domains. What is registered in one is [`super::mr`]'s.
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

/// A protection domain; regions and queue pairs share it.
pub(crate) struct ProtectionDomain(Arc<Pd>);

/// # Invariants
///
/// `pd` is of `context` and is released by this value alone, in its drop. libibverbs locks what it shares between
/// threads.
pub(super) struct Pd {
    context: Arc<Context>,
    pd: NonNull<ibv_pd>,
}

// SAFETY: by the invariant.
unsafe impl Send for Pd {}
// SAFETY: by the invariant.
unsafe impl Sync for Pd {}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CreateError> {
        let alloc_pd = context.symbols.ibv_alloc_pd.clone()?;
        // SAFETY: the context is open.
        let pd = not_null(unsafe { alloc_pd(context.as_ptr()) }).map_err(|source| {
            explain::creation(context, "ibv_alloc_pd", "protection domains", PinningNeed::length(0), source)
        })?;
        // INVARIANT: allocated just now.
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

    unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
        _: Option<&Backing>,
    ) -> Result<Box<dyn Registration>, RegisterError> {
        // SAFETY: the caller's promise is passed on unchanged.
        let region = unsafe { mr::MemoryRegion::register(&self.0, addr, len, access) }?;
        Ok(Box::new(region))
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        let Ok(dealloc_pd) = self.context.symbols.ibv_dealloc_pd else { return };
        if self.context.is_forked() {
            return;
        }
        // SAFETY: by the invariant alive, and not used after this; its regions and queue pairs hold an `Arc` of it.
        if let Err(error) = check(unsafe { dealloc_pd(self.pd.as_ptr()) }) {
            tracing::warn!(%error, device = self.context.label(), "ibv_dealloc_pd failed; the domain is leaked");
            std::mem::forget(Arc::clone(&self.context));
        }
    }
}
