//! Memory that no device knows of: before registration, and after it.

#![expect(unsafe_code, reason = "derefs to the bytes that it owns alone")]

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::Mapping;
use super::kinds::{Adopted, Raw};
use crate::error::RegisterError;

/// Bytes that can be registered; owned by this value alone, so it derefs to `[u8]`.
///
/// They are [allocated](Self::allocate) by the library (page-aligned, between guard pages), [adopted](Self::adopt) from a
/// value that owns them, or [at an address](Self::from_raw_parts) that the caller vouches for. Every device takes every
/// kind. Before Linux 5.12 a fork may part the process from pinned pages of the latter two: do not fork there.
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
        Self(Mapping::Adopted(Adopted::new(owner)))
    }

    /// The value that it was [adopted](Self::adopt) from.
    ///
    /// # Errors
    ///
    /// The memory comes back when it was not adopted, or from a value of another type.
    pub fn into_owner<T: 'static>(self) -> Result<T, Self> {
        match self.0 {
            Mapping::Adopted(adopted) => {
                adopted.into_owner().map_err(|adopted| Self(Mapping::Adopted(adopted)))
            }
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
        Self(Mapping::Raw(unsafe { Raw::new(data, len, keep) }))
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
