//! Memory that no device knows of: before registration, and after it.

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

/// Bytes that can be registered; owned by this value alone, so it derefs to `[u8]`.
///
/// They are [allocated](Self::allocate) by the library (page-aligned, between guard pages), [adopted](Self::adopt) from a
/// value that owns them, or [at an address](Self::from_raw_parts) that the caller vouches for. Every device takes every
/// kind; peers of this host map the first kind, and the others [in place](Self::share_in_place) where that is allowed.
/// Before Linux 5.12 a fork may part the process from pinned pages of the latter two: do not fork there.
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory(Mapping);

impl Memory {
    /// `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// [`RegisterError::ZeroLength`], [`RegisterError::TooLong`], [`RegisterError::BeyondSystem`], or
    /// [`RegisterError::Allocate`] when the system has no memory, descriptors or mappings left.
    pub fn allocate(len: usize) -> Result<Self, RegisterError> {
        Mapping::allocate(len).map(Self)
    }

    /// The bytes that `owner` owns: a `Vec<u8>`, a `Box<[u8]>`, a mapping of another crate, whatever lends `&mut [u8]`.
    ///
    /// It is asked for them once and kept untouched until [`into_owner`](Self::into_owner) gives it back. One without
    /// bytes is refused when it is registered.
    ///
    /// ```
    /// use rdma_core::{Access, Device, Memory, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.register(Memory::adopt(vec![7; 100]), Access::LOCAL_WRITE)?;
    /// region.copy_in(1, b"more")?;
    /// let bytes: Vec<u8> = region.deregister()?.into_owner().expect("it was a Vec");
    /// assert_eq!(&bytes[..6], b"\x07more\x07");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn adopt<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        Self(Mapping::Foreign(Foreign::adopt(owner)))
    }

    /// The value that it was [adopted](Self::adopt) from.
    ///
    /// # Errors
    ///
    /// The memory comes back when it was not adopted, or from a value of another type, or when its pages could not be put
    /// back that were [shared in place](Self::share_in_place): [`unshare`](Self::unshare) tells why.
    pub fn into_owner<T: 'static>(self) -> Result<T, Self> {
        match self.0 {
            Mapping::Foreign(memory) => memory.into_owner().map_err(|memory| Self(Mapping::Foreign(memory))),
            other => Err(Self(other)),
        }
    }

    /// `len` bytes at `data`, there for as long as `keep` is alive: memory that something else goes on using, such as
    /// the KV cache of an inference server.
    ///
    /// `keep` is dropped with the memory, or never when a device refuses to let go of it. Memory that no `Arc` owns can
    /// be kept by one whose `Drop` frees it.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// - For as long as `keep` is alive the range is mapped, readable, writable and initialised, and `len` is at most
    ///   [`isize::MAX`].
    /// - While this value, or a region or buffer made of it, is alive, no reference to any of the bytes is used but those
    ///   that it gives itself.
    /// - Others may read and write them through raw pointers as a device does, while they are registered as a
    ///   [`Region`](crate::Region); not while a slice is used that a `Memory` or a [`LocalBuf`](crate::LocalBuf) derefs to.
    #[must_use]
    pub unsafe fn from_raw_parts(data: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        // SAFETY: by the caller's promise.
        Self(Mapping::Foreign(unsafe { Foreign::from_raw_parts(data, len, keep) }))
    }

    /// Lets a device replace the pages of memory that the caller made, where they are, by some that can be shared, so that
    /// peers of this host reach it without a copy and without a socket.
    ///
    /// It is done when the memory is registered with a software device of [`Wire::Mapped`](crate::Wire::Mapped) or `Auto`: its bytes
    /// are copied to a memfd, which is mapped at the same address. Other devices, and memory that the library allocated, are
    /// not affected. What became of it [`sharing`](Self::sharing) tells, there and on what it is registered as; where it
    /// cannot be done all is as without this call. It takes
    /// - whole pages: the first byte and the length are multiples of the page size, for what else is on a page is not shared;
    /// - private anonymous memory, readable and writable, which is not locked, of huge pages, or marked by `madvise`;
    /// - a descriptor, as much memory again as 16 MiB at most, and about as long as to copy the bytes.
    ///
    /// A deregistration leaves it so, for the next one. Its pages are private anonymous memory again, with the same bytes, once
    /// this value is [unshared](Self::unshare), [taken apart](Self::into_owner) or dropped, or what is registered of it is
    /// dropped. That takes as long again. Where the system refuses it, what is dropped is leaked instead, and that is logged:
    /// the shared pages are given to nobody else. Meanwhile a child that is forked shares the bytes, as it does memory that
    /// the library allocated, and keeps them when the pages are put back; afterwards hints of `madvise` and `mbind` are gone,
    /// and huge pages that the kernel made by itself.
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
    /// # Ok::<(), Box<dyn Error>>(())
    /// ```
    ///
    /// See `memfd_create(2)` and `mmap(2)`.
    ///
    /// # Safety
    ///
    /// - Nobody else accesses any of the bytes, not even through a raw pointer, during a call that registers this value,
    ///   unshares it or takes it apart, nor while it, or the last of what is registered of it, is dropped.
    /// - As long as it lives, nobody else changes what its bytes are mapped to: no `munmap`, `mremap`, `mprotect` or `mlock`.
    /// - Nothing else holds on to its pages: no other device or library has them registered or pinned (`ibv_reg_mr`,
    ///   `io_uring`, `cudaHostRegister`). It would go on with pages that nobody sees any more.
    #[must_use]
    pub unsafe fn share_in_place(mut self) -> Self {
        if let Mapping::Foreign(memory) = &mut self.0 {
            // SAFETY: the caller's promise.
            unsafe { memory.allow() };
        }
        self
    }

    /// Has its pages private again, if they were [shared in place](Self::share_in_place); the next registration may share
    /// them anew.
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
    /// The memory comes back when the system has no memory, address space or mappings left: give it some, and try again.
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

    /// Whether peers of this host can map it, and why not.
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
        // SAFETY: the bytes are there, readable and initialised, whatever their kind, and no device has them
        // registered: only `&mut self` writes them, by what `from_raw_parts` was promised too.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes any other reference.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl From<Vec<u8>> for Memory {
    /// As [`adopt`](Self::adopt).
    fn from(bytes: Vec<u8>) -> Self {
        Self::adopt(bytes)
    }
}

impl From<Box<[u8]>> for Memory {
    /// As [`adopt`](Self::adopt).
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

    /// Frees nothing, and counts.
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
