//! [`ProtectionDomain`], and the calls that register memory in one. Registrations themselves are in `memory`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::dispatch::AnyPd;
use crate::backend::interface::ProtectionDomain as _;
use crate::backend::register::{export, export_range, export_ranges, register, register_in};
use crate::error::{Forked, RegisterError};
use crate::memory::{Mapping, OwnProcess, PdId, Registered};
use crate::metrics;
use crate::{Access, Exported, LocalBuf, Memory, Refused, Region, RemoteMemory, Window};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A protection domain: memory and queue pairs of different domains cannot reach each other.
///
/// Cloning a domain clones the handle. Everything that was registered in a domain keeps it alive. [`Region`]
/// has an example.
#[doc(alias = "ibv_pd")]
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<OwnProcess<AnyPd>>,
    id: PdId,
}

impl ProtectionDomain {
    pub(crate) fn new(inner: AnyPd) -> Self {
        Self { inner: Arc::new(OwnProcess::new(inner)), id: PdId(NEXT.fetch_add(1, Ordering::Relaxed)) }
    }

    pub(crate) fn inner(&self) -> Result<&AnyPd, Forked> {
        self.inner.get()
    }

    pub(crate) fn id(&self) -> PdId {
        self.id
    }

    /// Allocates `len` zeroed bytes for this process alone and registers them with `LOCAL_WRITE`.
    ///
    /// Registering costs far more than copying a little. Allocate one large buffer and
    /// [split](LocalBuf::split_at) it where many small ones are needed. [`LocalBuf`] has an example.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] for zero bytes, for a lack of memory, or for a limit on pinned memory; the message
    /// names the limit and how to raise it.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_local(&self, len: usize) -> Result<LocalBuf, RegisterError> {
        self.register_local(Memory::allocate(len)?).map_err(|refused| refused.error)
    }

    /// Allocates `len` zeroed bytes and registers them with the rights `access` for peers. [`Region`] has an
    /// example.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc_local`](Self::alloc_local), [`RegisterError::NeedsLocalWrite`], and
    /// [`RegisterError::UndeclaredAccess`].
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_region(&self, len: usize, access: Access) -> Result<Region, RegisterError> {
        self.register(Memory::allocate(len)?, access).map_err(|refused| refused.error)
    }

    /// Allocates `len` zeroed bytes that peers of this host [map](crate::Worker::peer_window) and then access
    /// without requests.
    ///
    /// Only a peer whose queue pair here grants `REMOTE_WRITE` and `REMOTE_READ` may map the window.
    /// [`Window`] has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc_local`](Self::alloc_local).
    pub fn alloc_window(&self, len: usize) -> Result<Window, RegisterError> {
        let pd = self.inner()?;
        let (memory, access) = (Mapping::allocate_window(len)?, Access::LOCAL_WRITE.union(Access::WINDOW));
        let window = register(pd, memory, access, self.id).map(Window::new).map_err(|(_, error)| error);
        window.inspect_err(metrics::registration_refused)
    }

    /// Registers `memory` for this process alone.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc_local`](Self::alloc_local); the memory comes back with them.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register_local(&self, memory: Memory) -> Result<LocalBuf, Refused<Memory, RegisterError>> {
        Ok(LocalBuf::new(self.register_any(memory, Access::LOCAL_WRITE)?))
    }

    /// Registers `memory` with the rights `access` for peers. [`Memory`] has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`alloc_region`](Self::alloc_region); the memory comes back with them.
    ///
    /// See `ibv_reg_mr(3)`.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(&self, memory: Memory, access: Access) -> Result<Region, Refused<Memory, RegisterError>> {
        if let Err(error) = check(access) {
            return Err(Refused { object: memory, error });
        }
        Ok(Region::new(self.register_any(memory, access)?))
    }

    /// Grants peers the rights `access` to `region` until the result is [revoked](Exported::revoke) or
    /// dropped.
    ///
    /// The rights of the registration itself do not change. On the software device the second and later
    /// exports of a region take about a microsecond; elsewhere every export is a registration. [`Exported`]
    /// has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`register`](Self::register), and [`RegisterError::ForeignDomain`] when `region` was
    /// registered in another domain.
    pub fn export(&self, region: &Region, access: Access) -> Result<Exported, RegisterError> {
        export(self.to_export(region, access)?, region.memory(), access, self.id)
            .inspect_err(metrics::registration_refused)
    }

    /// Grants peers the rights `access` to the bytes `range` of `region`, and to no other byte, until the result is
    /// [revoked](Exported::revoke) or dropped.
    ///
    /// Use this to give each of several peers a key of its own, or where only a part of a region is for a peer. Keys
    /// are independent, also those of ranges that overlap: ending one leaves the others. The registration, its key and
    /// the rights of the region do not change.
    ///
    /// On the software device a key takes some microseconds, however long the range is. Elsewhere it is a registration:
    /// see [`export_pins`](Self::export_pins).
    ///
    /// The trap: on the mapped wire a peer maps all of the region. A peer that runs this library keeps to the range,
    /// but any other process of the same user on the same host may reach all of the region.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// let (left, _right) = loopback(&mut worker, &pd)?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    ///
    /// let region = pd.alloc_local(64)?.into_region().expect("it is whole");
    /// let lent = pd.export_range(&region, 16..32, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let told = lent.remote();
    /// assert_eq!((told.addr, told.len), (region.remote().addr + 16, 16));
    /// worker.peer_slice(&left, told, deadline).copy_in(0, b"hello")?;
    /// // One byte more than the range has.
    /// let beyond = rdma_core::RemoteMemory { len: 17, ..told };
    /// assert!(worker.peer_slice(&left, beyond, deadline).copy_in(16, b"!").is_err());
    /// lent.revoke(deadline).map_err(|refused| refused.error)?;
    /// assert!(pd.export_range(&region, 60..65, Access::REMOTE_READ).is_err());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RegisterError::Range`] for a range that is reversed or reaches beyond the region,
    /// [`RegisterError::ZeroLength`] for an empty one; otherwise the errors of [`export`](Self::export).
    ///
    /// See `ibv_reg_mr(3)`.
    pub fn export_range(
        &self,
        region: &Region,
        range: Range<usize>,
        access: Access,
    ) -> Result<Exported, RegisterError> {
        export_range(self.to_export(region, access)?, region.memory(), range, access)
            .inspect_err(metrics::registration_refused)
    }

    /// Grants peers the rights `access` to the bytes of `ranges`, under one key, until the result is
    /// [revoked](Exported::revoke) or dropped. Each access must lie wholly in one range; ranges that meet are one.
    ///
    /// Use this where a peer may reach some places of a region and nothing between them. The device looks an access up
    /// by halving, so that a hundred thousand ranges cost little more than two. [`remote`](Exported::remote) has the
    /// bytes from the first range to the end of the last.
    ///
    /// The trap: no peer maps the region for such a key. On the mapped wire the first request with such a key moves all
    /// requests of its queue pair to TCP, which is slower, and [`Worker::peer_slice`](crate::Worker::peer_slice) fails.
    /// So the process that owns the memory checks each access itself.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
    /// let context = Device::soft(SoftOptions::default()).open()?;
    /// let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// let (left, _right) = loopback(&mut worker, &pd)?;
    /// let deadline = Deadline::after(Duration::from_secs(5));
    ///
    /// let region = pd.alloc_local(64)?.into_region().expect("it is whole");
    /// let lent = pd.export_ranges(&region, [8..16, 32..40], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let told = lent.remote();
    /// assert_eq!((told.addr, told.len), (region.remote().addr + 8, 32));
    /// worker.peer_slice(&left, told, deadline).copy_in(24, b"granted!")?;
    /// assert!(worker.peer_slice(&left, told, deadline).copy_in(8, b"between").is_err());
    /// lent.revoke(deadline).map_err(|refused| refused.error)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RegisterError::SeveralRanges`] on a device of libibverbs; [`RegisterError::ZeroLength`] without ranges, and
    /// for an empty one; otherwise the errors of [`export_range`](Self::export_range).
    pub fn export_ranges(
        &self,
        region: &Region,
        ranges: impl IntoIterator<Item = Range<usize>>,
        access: Access,
    ) -> Result<Exported, RegisterError> {
        export_ranges(self.to_export(region, access)?, region.memory(), ranges.into_iter().collect(), access)
            .inspect_err(metrics::registration_refused)
    }

    /// Returns whether an export registers the memory once more, and so pins its pages once more.
    ///
    /// No export of the software device does. On a device of libibverbs every export takes as long as a registration,
    /// and counts against `RLIMIT_MEMLOCK` and `max_mr`: make few of them there, or give peers the key of the region.
    ///
    /// ```
    /// use rdma_core::{Device, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// assert!(!pd.export_pins());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    pub fn export_pins(&self) -> bool {
        self.inner.unasked().pins()
    }

    /// Returns whether `region` was registered in this domain, so that queue pairs of this domain may use it.
    #[must_use]
    pub fn owns(&self, region: &Region) -> bool {
        region.memory().keys_in(self.id).is_some()
    }

    /// Registers a region of another domain in this one, too, with the same rights. Peers of queue pairs in this domain
    /// name it by [`remote`](Self::remote). A region that is registered here already stays as it is.
    ///
    /// Use this where requests may go over any of several devices. The trap: each registration pins the pages once
    /// more, and counts them against `RLIMIT_MEMLOCK`. Pages of such memory are never replaced, so that a stopped peer
    /// quarantines it. When one device refuses to let go of it, the others may have done so already.
    ///
    /// ```
    /// use rdma_core::{Access, Device, SoftOptions};
    /// let open = || Device::soft(SoftOptions::default()).open();
    /// let (one, two) = (open()?.alloc_pd()?, open()?.alloc_pd()?);
    /// let mut region = one.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// assert!(two.remote(&region).is_none());
    /// two.add(&mut region)?;
    /// assert_eq!(two.remote(&region).map(|memory| memory.addr), Some(region.remote().addr));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RegisterError::InUse`] when other handles to the region exist (attached ones included); otherwise the errors
    /// of [`register`](Self::register). The region stays as it was.
    ///
    /// See `ibv_reg_mr(3)`.
    pub fn add(&self, region: &mut Region) -> Result<(), RegisterError> {
        self.register_more(region.only_handle())
    }

    /// [`add`](Self::add) for memory of this process alone. The parts of a buffer that is
    /// [split](LocalBuf::split_at) later are registered in all its domains.
    ///
    /// ```
    /// use rdma_core::{Device, SoftOptions};
    /// let open = || Device::soft(SoftOptions::default()).open();
    /// let mut buffer = open()?.alloc_pd()?.alloc_local(64)?;
    /// open()?.alloc_pd()?.add_local(&mut buffer)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RegisterError::InUse`] when the buffer is a part of a registration; otherwise the errors of
    /// [`alloc_local`](Self::alloc_local). The buffer stays as it was.
    ///
    /// See `ibv_reg_mr(3)`.
    pub fn add_local(&self, buffer: &mut LocalBuf) -> Result<(), RegisterError> {
        self.register_more(buffer.only_handle())
    }

    /// Returns the description by which peers of queue pairs in this domain name `region`; `None` if it is not
    /// registered here. [`add`](Self::add) has an example.
    #[must_use]
    pub fn remote(&self, region: &Region) -> Option<RemoteMemory> {
        let keys = region.memory().keys_in(self.id)?;
        Some(RemoteMemory { rkey: keys.rkey, ..region.remote() })
    }

    /// Checks what an export asks for, and returns the domain.
    fn to_export(&self, region: &Region, access: Access) -> Result<&AnyPd, RegisterError> {
        if !self.owns(region) {
            return Err(counted(RegisterError::ForeignDomain));
        }
        check(access)?;
        Ok(self.inner()?)
    }

    /// Registers memory of another domain in this one, too, unless it is registered here.
    fn register_more(&self, memory: Option<&mut Registered>) -> Result<(), RegisterError> {
        let pd = self.inner()?;
        let memory = memory.ok_or_else(|| counted(RegisterError::InUse))?;
        if memory.keys_in(self.id).is_some() {
            return Ok(());
        }
        register_in(pd, memory, self.id).inspect_err(metrics::registration_refused)
    }

    fn register_any(
        &self,
        memory: Memory,
        access: Access,
    ) -> Result<Registered, Refused<Memory, RegisterError>> {
        let pd = match self.inner() {
            Ok(pd) => pd,
            Err(forked) => return Err(Refused { object: memory, error: forked.into() }),
        };
        register(pd, memory.into_mapping(), access, self.id)
            .inspect_err(|(_, error)| metrics::registration_refused(error))
            .map_err(|(mapping, error)| Refused { object: Memory::from_mapping(mapping), error })
    }
}

/// Counts a refusal that no device has made.
fn counted(error: RegisterError) -> RegisterError {
    metrics::registration_refused(&error);
    error
}

/// Checks the rights that a caller asks for.
fn check(access: Access) -> Result<(), RegisterError> {
    check_rights(access).inspect_err(metrics::registration_refused)
}

fn check_rights(access: Access) -> Result<(), RegisterError> {
    if let Some(bits) = access.undeclared() {
        return Err(RegisterError::UndeclaredAccess { bits });
    }
    let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !access.contains(Access::LOCAL_WRITE) {
        return Err(RegisterError::NeedsLocalWrite);
    }
    Ok(())
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("id", &self.id.0).finish_non_exhaustive()
    }
}
