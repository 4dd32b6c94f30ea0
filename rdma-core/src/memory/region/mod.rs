//! [`Region`]: registered memory that peers may write.

#![expect(unsafe_code, reason = "hands bounds-checked addresses to the copy routines")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{CacheHint, LocalBuf, Memory, Registered, Sharing, copy, copy_shared_hinted};
use crate::error::{CloseError, RangeError};
use crate::{Access, LocalKey, Refused, RemoteKey, RemoteMemory};

/// Bytes that are copied while the pages are held. Whoever replaces pages waits for at most one such piece,
/// because it holds the lock of the software devices meanwhile.
const HOLD_BYTES_MAX: usize = 1 << 20;

/// Registered memory that grants a right to peers.
///
/// Cloning a region clones the handle. The drop of the last handle deregisters it;
/// [`deregister`](Self::deregister) does so, too, and returns the error.
///
/// A peer that has the key may write at any moment, so a `&[u8]` of a region never exists. Bytes are copied
/// in and out, and are complete only after a completion or a flag said so.
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
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
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

    /// Turns the region into a [`LocalBuf`], whose bytes can be looked at.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The region comes back when it grants a right to peers, or when other handles to it exist (attached
    /// ones included), because something else may then write it.
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
    /// [`RangeError`] when `bytes` do not fit; nothing is copied then.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), RangeError> {
        let target = self.address_of(offset, bytes.len())?;
        // SAFETY: `address_of` checked that the range is inside the mapping, and `self` keeps it mapped
        // because it is borrowed.
        unsafe { self.fill(bytes.as_ptr(), target.as_ptr(), bytes.len(), CacheHint::of_total(bytes.len())) };
        Ok(())
    }

    /// Copies `bytes.len()` bytes from `offset` into `bytes`.
    ///
    /// The trap: the bytes may be torn when a peer writes them meanwhile. Wait for the completion or the flag
    /// that announces them.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when the region has fewer bytes; nothing is copied then.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RangeError> {
        let source = self.address_of(offset, bytes.len())?;
        // SAFETY: `address_of` checked that the range is inside the mapping, and `self` keeps it mapped
        // because it is borrowed.
        unsafe { copy::copy_out(source, bytes) };
        Ok(())
    }

    /// Copies `len` bytes from `offset` to `start` of `target` in one pass; `target` may be this region.
    ///
    /// As with [`copy_out`](Self::copy_out), the bytes may be torn when a peer writes them meanwhile.
    ///
    /// ```
    /// use rdma_core::{Access, Device, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let inbox = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let kept = pd.alloc_local(64)?.into_region().expect("it is whole");
    /// inbox.copy_in(8, b"hello")?;
    /// inbox.copy_to(8, 5, &kept, 32)?;
    /// assert_eq!(&kept.into_local().expect("it is the only handle")[32..37], b"hello");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RangeError`] when either region has fewer bytes; nothing is copied then.
    pub fn copy_to(&self, offset: usize, len: usize, target: &Self, start: usize) -> Result<(), RangeError> {
        self.copy_to_hinted(offset, len, (target, start), CacheHint::of_total(len))
    }

    /// [`copy_to`](Self::copy_to) with a cache hint, for a copy that is part of a list.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_to`](Self::copy_to).
    pub fn copy_to_hinted(
        &self,
        offset: usize,
        len: usize,
        (target, start): (&Self, usize),
        hint: CacheHint,
    ) -> Result<(), RangeError> {
        let (source, to) = (self.address_of(offset, len)?, target.address_of(start, len)?);
        // SAFETY: `address_of` checked both ranges, and both regions are borrowed, so both stay mapped. No
        // reference to either memory exists, because only a `LocalBuf` gives one, and a `LocalBuf` is the
        // only handle to its memory.
        unsafe { target.fill(source.as_ptr(), to.as_ptr(), len, hint) };
        Ok(())
    }

    /// Returns the description by which a peer names this memory in its requests.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { addr: self.memory.as_ptr().as_ptr() as u64, len: self.len() as u64, rkey: self.rkey() }
    }

    /// Returns the registration, if this is the only handle to it.
    pub(crate) fn only_handle(&mut self) -> Option<&mut Registered> {
        Arc::get_mut(&mut self.memory)
    }

    /// Returns the length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a registration is never empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns the rights that the region was registered with.
    #[must_use]
    pub fn access(&self) -> Access {
        self.memory.access()
    }

    /// Returns whether peers of this host can map the region, and why not.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.memory.sharing()
    }

    /// Returns the key for peers.
    #[must_use]
    pub fn rkey(&self) -> RemoteKey {
        self.memory.keys().rkey
    }

    /// Deregisters the region and returns its memory: after `Ok`, no peer's write lands in it any more.
    /// [`Memory`] has an example.
    ///
    /// # Errors
    ///
    /// The region comes back, still registered, and the call can be repeated:
    ///
    /// - when other handles to it exist, attached ones included;
    /// - with the kernel's error;
    /// - within three seconds with a [`Quarantine`](crate::error::Quarantine), when a stopped peer accesses
    ///   it;
    /// - always in a forked child, because registration and device are its parent's.
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
                Err(kept) => {
                    let (memory, error) = *kept;
                    Err(Refused { object: Self::new(memory), error })
                }
            },
        }
    }

    pub(crate) fn memory(&self) -> &Arc<Registered> {
        &self.memory
    }

    pub(crate) fn lkey(&self) -> LocalKey {
        self.memory.keys().lkey
    }

    /// Copies `len` bytes into this region and keeps its pages from being replaced during each piece. The
    /// ranges may overlap.
    ///
    /// # Safety
    ///
    /// The promises of [`copy_shared`](copy::copy_shared), and `to` is in this region.
    unsafe fn fill(&self, from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
        let pieces = len.div_ceil(HOLD_BYTES_MAX);
        // Copy backwards if the target begins inside the source, otherwise an early piece would overwrite
        // bytes of a later one.
        let backwards = to.addr().checked_sub(from.addr()).is_some_and(|ahead| (1..len).contains(&ahead));
        for index in 0..pieces {
            let piece = if backwards { pieces - 1 - index } else { index };
            let at = piece * HOLD_BYTES_MAX;
            // Held for one piece at a time, so that whoever replaces pages waits for at most 1 MiB.
            let _held = self.memory.hold();
            // SAFETY: `at` is below `len`, so the piece is a part of both ranges, which are valid by the
            // caller's promise.
            unsafe { copy_shared_hinted(from.add(at), to.add(at), HOLD_BYTES_MAX.min(len - at), hint) };
        }
    }

    /// Returns the address of `len` bytes at `offset`, for code that works in place
    /// ([`InPlace`](crate::memory::InPlace)).
    ///
    /// The bytes stay there as long as the region is alive, and peers may access them at any moment.
    ///
    /// The trap: write to the address only inside [`InPlace::run`](crate::memory::InPlace::run). At any other
    /// time the pages may just be replaced by copies, and the write is lost.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when the region has fewer bytes.
    #[inline]
    pub fn address_of(&self, offset: usize, len: usize) -> Result<NonNull<u8>, RangeError> {
        RangeError::check(offset as u64, len as u64, self.len() as u64)?;
        // SAFETY: `offset` is at most the length of the mapping, so the address is inside it or one past its
        // end.
        Ok(unsafe { self.memory.as_ptr().add(offset) })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("remote", &self.remote()).field("access", &self.access()).finish()
    }
}

#[cfg(test)]
mod tests;
