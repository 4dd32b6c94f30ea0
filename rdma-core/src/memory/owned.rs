//! [`Memory`]: bytes that no device knows, before their registration and after it.

#![expect(unsafe_code, reason = "derefs to the bytes that it owns alone")]

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::kinds::Foreign;
use super::{Mapping, Sharing};
use crate::Refused;
use crate::error::{RegisterError, UnshareError};

/// Bytes that can be registered. This value owns them alone, so it derefs to `[u8]`.
///
/// There are three kinds:
///
/// - [allocated](Self::allocate) by the library: page-aligned, between guard pages;
/// - [adopted](Self::adopt) from a value that owns the bytes;
/// - [at an address](Self::from_raw_parts) that the caller vouches for.
///
/// Every device takes every kind. Peers of this host can map allocated memory, and the other kinds only after
/// [`share_in_place`](Self::share_in_place).
///
/// The trap: before Linux 5.12, a fork may separate the process from pinned pages of the latter two kinds
/// (copy-on-write moves the parent to new pages), so do not fork there.
///
/// ```
/// use rdma_core::{Access, Device, Memory, SoftOptions};
/// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
/// let mut memory = Memory::allocate(16)?;
/// memory[0] = 7;
/// let region = pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// // … peers write …
/// let memory = region.deregister()?;
/// assert_eq!(memory[0], 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Memory(Mapping);

impl Memory {
    /// Allocates `len` zeroed bytes. [`Memory`] has an example.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::ZeroLength`] and [`RegisterError::TooLong`] for impossible lengths.
    /// - [`RegisterError::BeyondSystem`] for more than this machine can ever hold.
    /// - [`RegisterError::Allocate`] when the system has no memory, descriptors or mappings left.
    pub fn allocate(len: usize) -> Result<Self, RegisterError> {
        Mapping::allocate(len).map(Self)
    }

    /// Takes over the bytes of `owner`: a `Vec<u8>`, a `Box<[u8]>`, a mapping of another crate, anything that
    /// lends `&mut [u8]`.
    ///
    /// `owner` is asked for its bytes once and then kept untouched until [`into_owner`](Self::into_owner)
    /// returns it. An owner without bytes is refused at registration.
    ///
    /// ```
    /// use rdma_core::{Access, Device, Memory, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.register(Memory::adopt(vec![7; 100]), Access::LOCAL_WRITE)?;
    /// region.copy_in(1, b"more")?;
    /// let bytes: Vec<u8> = region.deregister()?.into_owner().expect("it was a Vec");
    /// assert_eq!(&bytes[..6], b"\x07more\x07");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    pub fn adopt<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        Self(Mapping::Foreign(Foreign::adopt(owner)))
    }

    /// Returns the value that the memory was [adopted](Self::adopt) from.
    ///
    /// # Errors
    ///
    /// The memory comes back when it was not adopted, when the owner has another type, or when pages that
    /// were [shared in place](Self::share_in_place) could not be put back; [`unshare`](Self::unshare) returns
    /// the reason.
    pub fn into_owner<T: 'static>(self) -> Result<T, Self> {
        match self.0 {
            Mapping::Foreign(memory) => memory.into_owner().map_err(|memory| Self(Mapping::Foreign(memory))),
            other => Err(Self(other)),
        }
    }

    /// Describes `len` bytes at `data` that stay there as long as `keep` is alive: memory that something else
    /// goes on using, such as the KV cache of an inference server.
    ///
    /// `keep` is dropped with the memory. It is never dropped if a device refuses to release the memory. For
    /// memory that no `Arc` owns, pass an `Arc` of a value whose `Drop` frees it.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::sync::Arc;
    /// use rdma_core::{Access, Device, Memory, SoftOptions};
    /// # use std::cell::UnsafeCell;
    /// # struct Cache(UnsafeCell<[u8; 64]>);
    /// # unsafe impl Sync for Cache {}
    /// let cache = Arc::new(Cache([0; 64].into()));
    /// let data = NonNull::new(cache.0.get().cast::<u8>()).ok_or("no cache")?;
    /// // SAFETY: the array lives as long as `cache`, and nobody makes a reference to it.
    /// let memory = unsafe { Memory::from_raw_parts(data, 64, Arc::clone(&cache) as _) };
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// // … peers write, and so does the server …
    /// drop(region);
    /// assert_eq!(Arc::strong_count(&cache), 1);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// - As long as `keep` is alive, the range is mapped, readable, writable and initialised; `len` is at
    ///   most [`isize::MAX`].
    /// - As long as this value, or a region or buffer made of it, is alive, nobody uses a reference to the
    ///   bytes except those that this value gives out.
    /// - Others may access the bytes through raw pointers, as a device does, while they are registered as a
    ///   [`Region`](crate::Region). They must not do so while a slice is used that a `Memory` or a
    ///   [`LocalBuf`](crate::LocalBuf) derefs to.
    #[must_use]
    pub unsafe fn from_raw_parts(data: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        // SAFETY: the caller promises what `Foreign::from_raw_parts` requires, since both have one
        // contract.
        Self(Mapping::Foreign(unsafe { Foreign::from_raw_parts(data, len, keep) }))
    }

    /// Allows a device to replace the pages of this memory, at the same addresses, by pages that can be
    /// shared. Peers of this host then reach the memory without a copy and without a socket.
    ///
    /// The pages are replaced when the memory is registered with a software device of
    /// [`Wire::Mapped`](crate::Wire::Mapped) or `Auto`: the bytes are copied to a memfd, and the memfd is
    /// mapped at the same address. Other devices and allocated memory are not affected.
    /// [`sharing`](Self::sharing) reports the result, here and on the registered value. When the pages cannot
    /// be replaced, nothing changes. It requires
    ///
    /// - whole pages: address and length are multiples of the page size, because other bytes on a page would
    ///   be shared, too;
    /// - private anonymous memory, readable and writable, that is neither locked nor marked by `madvise`, and
    ///   not of huge pages;
    /// - one descriptor, up to 16 MiB of additional memory, and about the time of copying the bytes.
    ///
    /// The pages stay shared after a deregistration, ready for the next registration. They become private
    /// anonymous memory again, with the same bytes, when this value is [unshared](Self::unshare), [taken
    /// apart](Self::into_owner) or dropped, or when the last registration of it is dropped. That takes about
    /// as long as sharing. If the system refuses it during a drop, the memory is leaked and logged, because
    /// its owner would hand shared pages to somebody else.
    ///
    /// The trap: while the pages are shared, a forked child shares them, too, as it shares allocated memory.
    /// The child keeps the bytes when the pages are put back. Afterwards, `madvise` and `mbind` hints and
    /// transparent huge pages are gone.
    ///
    /// ```
    /// # use std::error::Error;
    /// use rdma_core::{Access, Device, Memory, Sharing, SoftOptions, Wire};
    /// #[repr(align(4096))]
    /// struct Page([u8; 4096]);
    /// struct Cache(Vec<Page>);
    /// impl AsMut<[u8]> for Cache {
    ///     fn as_mut(&mut self) -> &mut [u8] {
    ///         // SAFETY: pages are bytes without gaps.
    ///         unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), 4096 * self.0.len()) }
    ///     }
    /// }
    /// let cache = Cache((0..256).map(|_| Page([7; 4096])).collect());
    /// // SAFETY: the pages are the cache's alone, and nothing else knows of them.
    /// let memory = unsafe { Memory::adopt(cache).share_in_place() };
    /// let device = Device::soft(SoftOptions { wire: Wire::Mapped, ..SoftOptions::default() });
    /// let region = device.open()?.alloc_pd()?.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// # if rustix::param::page_size() == 4096 {
    /// assert_eq!(region.sharing(), Sharing::InPlace);
    /// # }
    /// // … peers write …
    /// let cache: Cache = region.deregister()?.into_owner().map_err(|_| "it was no cache")?;
    /// assert_eq!(cache.0[255].0, [7; 4096]);
    /// # Ok::<(), Box<dyn Error + Send + Sync>>(())
    /// ```
    ///
    /// See `memfd_create(2)` and `mmap(2)`.
    ///
    /// # Safety
    ///
    /// - Nobody else accesses any of the bytes, not even through a raw pointer, during a call that registers
    ///   this value, unshares it or takes it apart. The same holds from the drop of this value, or of its last
    ///   registration, until the library has dropped the owner ([`adopt`](Self::adopt)) or `keep`
    ///   ([`from_raw_parts`](Self::from_raw_parts)). Both drops are one moment, unless the memory is
    ///   [quarantined](crate::quarantined) or leaked: a thread of the library puts the pages back later, or
    ///   nobody ever does, and either way the owner's `Drop` tells the moment.
    /// - As long as it lives, nobody else changes what its bytes are mapped to: no `munmap`, `mremap`,
    ///   `mprotect` or `mlock`.
    /// - Nothing else holds its pages: no other device or library has them registered or pinned
    ///   (`ibv_reg_mr`, `io_uring`, `cudaHostRegister`), because it would go on using pages that nobody sees
    ///   any more.
    #[must_use]
    pub unsafe fn share_in_place(mut self) -> Self {
        if let Mapping::Foreign(memory) = &mut self.0 {
            // SAFETY: the caller promises what `allow` requires, since both have one contract.
            unsafe { memory.allow() };
        }
        self
    }

    /// Makes the pages private again if they were [shared in place](Self::share_in_place). The next
    /// registration may share them again.
    ///
    /// ```
    /// use rdma_core::Memory;
    /// let memory = Memory::adopt(vec![7; 100]).unshare()?;
    /// assert_eq!(memory[99], 7);
    /// # Ok::<(), rdma_core::Refused<Memory, rdma_core::error::UnshareError>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The memory comes back when the system has no memory, address space or mappings left; free some and try
    /// again.
    ///
    /// See `mremap(2)`.
    pub fn unshare(mut self) -> Result<Self, Refused<Self, UnshareError>> {
        if let Mapping::Foreign(memory) = &mut self.0
            && let Err(error) = memory.put_back()
        {
            return Err(Refused { object: self, error });
        }
        Ok(self)
    }

    /// Returns whether peers of this host can map the memory, and why not. [`Sharing`] has an example.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.0.sharing()
    }

    pub(crate) fn from_mapping(mapping: Mapping) -> Self {
        Self(mapping)
    }

    pub(crate) fn into_mapping(self) -> Mapping {
        self.0
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: every kind of memory is mapped, readable and initialised. No device has it registered, and
        // by the promise of `from_raw_parts` nobody else writes it while a slice is used, so only `&mut self`
        // changes the bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: every kind of memory is mapped, readable and writable, and `&mut self` excludes every other
        // reference, since nobody else may use the bytes while a slice of this value is used.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl From<Vec<u8>> for Memory {
    /// Adopts the bytes; see [`adopt`](Self::adopt).
    fn from(bytes: Vec<u8>) -> Self {
        Self::adopt(bytes)
    }
}

impl From<Box<[u8]>> for Memory {
    /// Adopts the bytes; see [`adopt`](Self::adopt).
    fn from(bytes: Box<[u8]>) -> Self {
        Self::adopt(bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner that frees nothing; its `Arc` counts the handles.
    struct Kept(Vec<u8>);

    #[test]
    fn every_kind_derefs_to_its_bytes() {
        let kept = Arc::new(Kept(vec![3; 9]));
        let data = NonNull::from(&kept.0[0]);
        // SAFETY: the bytes live as long as `kept`, nothing writes them, and they are only read below.
        let raw = unsafe { Memory::from_raw_parts(data, 9, Arc::clone(&kept) as _) };
        assert_eq!(&raw[..], [3; 9]);
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(raw.into_owner::<Vec<u8>>().unwrap_err());
        assert_eq!(Arc::strong_count(&kept), 1);
        let mut adopted = Memory::from(vec![1_u8, 2, 3]);
        adopted[1] = 9;
        assert_eq!(adopted.into_owner::<Vec<u8>>().unwrap(), [1, 9, 3]);
        let boxed = Memory::from(vec![5_u8; 3].into_boxed_slice());
        assert_eq!(boxed.into_owner::<Box<[u8]>>().unwrap()[..], [5; 3]);
        assert!(Memory::allocate(8).unwrap().into_owner::<Vec<u8>>().is_err());
    }
}
