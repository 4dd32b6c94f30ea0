//! Protection domains, and the memory registered in them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::dispatch::AnyPd;
use crate::backend::register::register;
use crate::error::RegisterError;
use crate::memory::{Mapping, PdId, Registered};
use crate::{Access, LocalBuf, Region};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A protection domain. Cloning it clones the handle; what was registered in it keeps it alive.
#[doc(alias = "ibv_pd")]
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<AnyPd>,
    id: PdId,
}

impl ProtectionDomain {
    pub(crate) fn new(inner: AnyPd) -> Self {
        Self { inner: Arc::new(inner), id: PdId(NEXT.fetch_add(1, Ordering::Relaxed)) }
    }

    pub(crate) fn inner(&self) -> &AnyPd {
        &self.inner
    }

    pub(crate) fn id(&self) -> PdId {
        self.id
    }

    /// `len` zeroed bytes that this process alone uses, registered with `LOCAL_WRITE`.
    ///
    /// Registering costs far more than copying a little: allocate once, and
    /// [`split`](LocalBuf::split_at) what is needed in pieces.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]: zero bytes, no memory, or a limit on pinned memory, which it names
    /// together with the mend.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_local(&self, len: usize) -> Result<LocalBuf, RegisterError> {
        Ok(LocalBuf::new(self.register(len, Access::LOCAL_WRITE)?))
    }

    /// `len` zeroed bytes that peers may use as `access` says.
    ///
    /// # Errors
    ///
    /// As for [`alloc_local`](Self::alloc_local), and [`RegisterError::NeedsLocalWrite`].
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_region(&self, len: usize, access: Access) -> Result<Region, RegisterError> {
        Ok(Region::new(self.register(len, access)?))
    }

    fn register(&self, len: usize, access: Access) -> Result<Registered, RegisterError> {
        let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if writes && !access.contains(Access::LOCAL_WRITE) {
            return Err(RegisterError::NeedsLocalWrite);
        }
        let mapping = Mapping::allocate(len)?;
        register(&self.inner, mapping, access, self.id)
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("id", &self.id.0).finish_non_exhaustive()
    }
}
