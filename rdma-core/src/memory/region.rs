//! Memory that peers may write.

#![expect(unsafe_code, reason = "hands bounds-checked addresses to the copy routines")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{LocalBuf, Memory, Registered, Sharing, copy};
use crate::error::{CloseError, RangeError};
use crate::{Access, LocalKey, Refused, RemoteKey, RemoteMemory};

/// Registered memory that exports a right to peers. Cloning it clones the handle.
///
/// A peer with the key may write at any moment, so there is never a slice of it: bytes are
/// copied in and out, and are whole only when a completion said so. The last handle's drop
/// deregisters it; [`deregister`](Self::deregister) does so with the error.
///
/// ```
/// use rdma_core::{Access, Device, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let pd = context.alloc_pd()?;
/// let region = pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// region.copy_in(100, b"hello")?;
/// let mut bytes = [0; 5];
/// region.copy_out(100, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// assert!(region.copy_in(4094, b"hello").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// See `ibv_reg_mr(3)`.
#[doc(alias = "ibv_mr")]
#[derive(Clone)]
pub struct Region {
    memory: Arc<Registered>,
}

impl Region {
    pub(crate) fn new(memory: Registered) -> Self {
        Self { memory: Arc::new(memory) }
    }

    pub(super) fn from_local(memory: Arc<Registered>) -> Self {
        Self { memory }
    }

    /// The same memory as a [`LocalBuf`], whose bytes can be looked at.
    ///
    /// ```
    /// use rdma_core::{Device, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.alloc_local(64)?.into_region().expect("it is whole");
    /// region.copy_in(3, b"hello")?;
    /// let other = region.clone();
    /// let region = region.into_local().expect_err("there is another handle");
    /// drop(other);
    /// assert_eq!(&region.into_local().expect("it is the only handle")[3..8], b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The region comes back when it exports a right to peers, or other handles to it exist, attached ones included: then
    /// something else may be writing it.
    pub fn into_local(mut self) -> Result<LocalBuf, Self> {
        if self.access().is_remote() || Arc::get_mut(&mut self.memory).is_none() {
            return Err(self);
        }
        Ok(LocalBuf::exclusive(self.memory))
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when they do not fit; nothing is copied then.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        let target = self.address_of(offset, bytes.len())?;
        let _held = self.memory.hold();
        // SAFETY: `address_of` checked that the range is inside the mapping, which `memory` keeps alive.
        unsafe { copy::copy_in(bytes, target) };
        Ok(())
    }

    /// Copies `bytes.len()` bytes from `offset` into `bytes`.
    ///
    /// They may be torn when a peer writes them meanwhile; wait for the completion that
    /// announces them.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when there are fewer; nothing is copied then.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        let source = self.address_of(offset, bytes.len())?;
        // SAFETY: as in `copy_in`.
        unsafe { copy::copy_out(source, bytes) };
        Ok(())
    }

    /// Copies `len` bytes from `offset` to `start` of `target`, in one pass; `target` may be this region.
    ///
    /// As with [`copy_out`](Self::copy_out), they may be torn when a peer writes them meanwhile.
    ///
    /// ```
    /// use rdma_core::{Access, Device, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let inbox = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let kept = pd.alloc_local(64)?.into_region().expect("it is whole");
    /// inbox.copy_in(8, b"hello")?;
    /// inbox.copy_to(8, 5, &kept, 32)?;
    /// assert_eq!(&kept.into_local().expect("it is the only handle")[32..37], b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RangeError`] when either region has fewer; nothing is copied then.
    pub fn copy_to(&self, offset: usize, len: usize, target: &Self, start: usize) -> Result<(), RangeError> {
        let (source, to) = (self.address_of(offset, len)?, target.address_of(start, len)?);
        let _held = target.memory.hold();
        // SAFETY: `address_of` checked both ranges, and both regions are alive. No reference to either memory exists: a
        // `LocalBuf`, which gives one, is the only handle to its own.
        unsafe { copy::copy_shared(source.as_ptr(), to.as_ptr(), len) };
        Ok(())
    }

    /// What a peer is told so that it can name this memory.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { addr: self.memory.as_ptr().as_ptr() as u64, len: self.len() as u64, rkey: self.rkey() }
    }

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a registration is never empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// The rights that it was registered with.
    #[must_use]
    pub fn access(&self) -> Access {
        self.memory.access()
    }

    /// Whether peers of this host can map it, and why not.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.memory.sharing()
    }

    /// The key for peers.
    #[must_use]
    pub fn rkey(&self) -> RemoteKey {
        self.memory.keys().rkey
    }

    /// Deregisters it and gives the memory back: when this returns `Ok`, no peer's write lands
    /// in it any more.
    ///
    /// # Errors
    ///
    /// The region comes back when other handles to it exist (attached ones included), or with
    /// what the kernel said; it is then still registered, and the call can be made again. A forked
    /// child is always refused: the registration is its parent's, and so is the device.
    ///
    /// See `ibv_dereg_mr(3)`.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(self) -> Result<Memory, Refused<Self, CloseError>> {
        let busy =
            std::io::Error::new(std::io::ErrorKind::ResourceBusy, "other handles to the region are alive");
        match Arc::try_unwrap(self.memory) {
            Err(memory) => Err(Refused {
                object: Self { memory },
                error: CloseError { verb: "ibv_dereg_mr", source: busy },
            }),
            Ok(memory) => match memory.into_mapping() {
                Ok(mapping) => Ok(Memory::from_mapping(mapping)),
                Err((memory, error)) => Err(Refused { object: Self::new(memory), error }),
            },
        }
    }

    pub(crate) fn memory(&self) -> &Registered {
        &self.memory
    }

    pub(crate) fn lkey(&self) -> LocalKey {
        self.memory.keys().lkey
    }

    /// Where that range is.
    #[inline]
    pub(crate) fn address_of(&self, offset: usize, len: usize) -> Result<NonNull<u8>, RangeError> {
        RangeError::check(offset as u64, len as u64, self.len() as u64)?;
        // SAFETY: `offset` is at most the mapping's length, so the address is inside it or one past it.
        Ok(unsafe { self.memory.as_ptr().add(offset) })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("remote", &self.remote()).field("access", &self.access()).finish()
    }
}
