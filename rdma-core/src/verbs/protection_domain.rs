//! Protection domains, and the memory registered in them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::dispatch::AnyPd;
use crate::backend::register::{export, register};
use crate::error::RegisterError;
use crate::memory::{Mapping, PdId, Registered};
use crate::{Access, Exported, LocalBuf, Memory, Refused, Region, Window};

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
        self.register_local(Memory::allocate(len)?).map_err(|refused| refused.error)
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
        self.register(Memory::allocate(len)?, access).map_err(|refused| refused.error)
    }

    /// `len` zeroed bytes that peers of this host [map](crate::Worker::peer_window), and then use at once; those whose queue
    /// pair here lets its peer write and read.
    ///
    /// # Errors
    ///
    /// As for [`alloc_local`](Self::alloc_local).
    pub fn alloc_window(&self, len: usize) -> Result<Window, RegisterError> {
        let (memory, access) = (Mapping::allocate_window(len)?, Access::LOCAL_WRITE.union(Access::WINDOW));
        register(&self.inner, memory, access, self.id).map(Window::new).map_err(|(_, error)| error)
    }

    /// Registers `memory` for this process alone.
    ///
    /// # Errors
    ///
    /// As for [`alloc_local`](Self::alloc_local), with the memory.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register_local(&self, memory: Memory) -> Result<LocalBuf, Refused<Memory, RegisterError>> {
        Ok(LocalBuf::new(self.register_any(memory, Access::LOCAL_WRITE)?))
    }

    /// Registers `memory` for peers, who may use it as `access` says.
    ///
    /// # Errors
    ///
    /// As for [`alloc_region`](Self::alloc_region), with the memory.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(&self, memory: Memory, access: Access) -> Result<Region, Refused<Memory, RegisterError>> {
        let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if writes && !access.contains(Access::LOCAL_WRITE) {
            return Err(Refused { object: memory, error: RegisterError::NeedsLocalWrite });
        }
        Ok(Region::new(self.register_any(memory, access)?))
    }

    /// Lets peers use `region` as `access` says, until the result is [revoked](Exported::revoke) or dropped. The rights that it was registered with stay as they are.
    ///
    /// The second time and later it takes a microsecond on the software device; elsewhere it is a registration.
    ///
    /// # Errors
    ///
    /// As for [`register`](Self::register); [`RegisterError::ForeignDomain`] when it was registered in another one.
    pub fn export(&self, region: &Region, access: Access) -> Result<Exported, RegisterError> {
        if !self.owns(region) {
            return Err(RegisterError::ForeignDomain);
        }
        if !access.contains(Access::LOCAL_WRITE)
            && access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        {
            return Err(RegisterError::NeedsLocalWrite);
        }
        export(&self.inner, region.memory(), access.difference(Access::WINDOW))
    }

    /// Whether `region` was registered in this domain, so that its queue pairs may use it.
    #[must_use]
    pub fn owns(&self, region: &Region) -> bool {
        region.memory().pd() == self.id
    }

    fn register_any(
        &self,
        memory: Memory,
        access: Access,
    ) -> Result<Registered, Refused<Memory, RegisterError>> {
        let access = access.difference(Access::WINDOW);
        register(&self.inner, memory.into_mapping(), access, self.id)
            .map_err(|(mapping, error)| Refused { object: Memory::from_mapping(mapping), error })
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("id", &self.id.0).finish_non_exhaustive()
    }
}
