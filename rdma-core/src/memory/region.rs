//! Memory that peers may write.

#![expect(unsafe_code, reason = "hands bounds-checked addresses to the copy routines")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{CacheHint, LocalBuf, Memory, Registered, Sharing, copy, copy_shared_hinted};
use crate::error::{CloseError, RangeError};
use crate::{Access, LocalKey, Refused, RemoteKey, RemoteMemory};

/// Bytes that are copied in one hold of the pages: whoever replaces some waits for no more.
const HOLD_BYTES_MAX: usize = 1 << 20;

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
        // SAFETY: `address_of` checked that the range is inside the mapping, which `memory` keeps alive.
        unsafe { self.fill(bytes.as_ptr(), target.as_ptr(), bytes.len(), CacheHint::of_total(bytes.len())) };
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
        self.copy_to_hinted(offset, len, (target, start), CacheHint::of_total(len))
    }

    /// [`copy_to`](Self::copy_to) of a part of more: where its bytes are expected decides whether they are stored around the caches.
    ///
    /// # Errors
    ///
    /// As for [`copy_to`](Self::copy_to).
    pub fn copy_to_hinted(
        &self,
        offset: usize,
        len: usize,
        (target, start): (&Self, usize),
        hint: CacheHint,
    ) -> Result<(), RangeError> {
        let (source, to) = (self.address_of(offset, len)?, target.address_of(start, len)?);
        // SAFETY: `address_of` checked both ranges, and both regions are alive. No reference to either memory exists: a
        // `LocalBuf`, which gives one, is the only handle to its own.
        unsafe { target.fill(source.as_ptr(), to.as_ptr(), len, hint) };
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
    /// what the kernel said, or within three seconds with a [`Quarantine`](crate::error::Quarantine);
    /// it is then still registered, and the call can be made again. A forked child is always refused:
    /// the registration is its parent's, and so is the device.
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

    pub(crate) fn memory(&self) -> &Arc<Registered> {
        &self.memory
    }

    pub(crate) fn lkey(&self) -> LocalKey {
        self.memory.keys().lkey
    }

    /// Copies `len` bytes into this region, none of whose pages is replaced during a piece of them. The ranges may overlap.
    ///
    /// # Safety
    ///
    /// As for [`copy_shared`](copy::copy_shared), and `to` is in this region.
    unsafe fn fill(&self, from: *const u8, to: *mut u8, len: usize, hint: CacheHint) {
        let pieces = len.div_ceil(HOLD_BYTES_MAX);
        // From the end where what is copied first would lie over what is still to be read.
        let backwards = to.addr().checked_sub(from.addr()).is_some_and(|ahead| (1..len).contains(&ahead));
        for index in 0..pieces {
            let piece = if backwards { pieces - 1 - index } else { index };
            let at = piece * HOLD_BYTES_MAX;
            let _held = self.memory.hold();
            // SAFETY: a part of both ranges, by the caller's promise.
            unsafe { copy_shared_hinted(from.add(at), to.add(at), HOLD_BYTES_MAX.min(len - at), hint) };
        }
    }

    /// Where that range is, for what works on memory where it lies ([`InPlace`](crate::memory::InPlace)).
    ///
    /// It stays there for as long as the region is alive. Peers may read and write it at any moment. Write it nowhere but where memory of a
    /// peer is worked on: at any other time its pages may just be replaced by others, and what is written is lost.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when there are fewer bytes.
    #[inline]
    pub fn address_of(&self, offset: usize, len: usize) -> Result<NonNull<u8>, RangeError> {
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

#[cfg(test)]
mod tests {
    use super::super::{Keys, Mapping, Pages, PdId, Registration};
    use super::*;

    struct Held;

    impl Registration for Held {
        fn keys(&self) -> Keys {
            Keys { lkey: LocalKey(1), rkey: RemoteKey(2) }
        }

        fn deregister(&mut self, _: crate::Deadline) -> Result<(), CloseError> {
            Ok(())
        }
    }

    fn region(len: usize) -> (Region, Arc<Pages>) {
        let memory = Mapping::allocate(len).unwrap();
        let pages = Arc::clone(&memory.backing().unwrap().pages);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        (Region::new(Registered::new(memory, Box::new(Held), access, PdId(1))), pages)
    }

    fn byte_of(at: usize) -> u8 {
        (at % 251) as u8 ^ (at >> 20) as u8
    }

    #[test]
    fn what_is_copied_within_a_region_is_whole_however_far() {
        const LEN: usize = 3 * HOLD_BYTES_MAX + 7;
        let (region, _) = region(LEN + 2 * HOLD_BYTES_MAX);
        let bytes: Vec<u8> = (0..LEN).map(byte_of).collect();
        for (from, to) in [(0, 1), (1, 0), (0, HOLD_BYTES_MAX + 3), (HOLD_BYTES_MAX + 3, 0), (5, 5)] {
            for hint in [CacheHint::Cached, CacheHint::Streamed] {
                region.copy_in(from, &bytes).unwrap();
                region.copy_to_hinted(from, LEN, (&region, to), hint).unwrap();
                let mut copied = vec![0; LEN];
                region.copy_out(to, &mut copied).unwrap();
                assert!(copied == bytes, "from {from} to {to}, {hint:?}");
            }
        }
    }

    #[test]
    fn whoever_replaces_pages_does_not_wait_for_a_long_copy() {
        const LEN: usize = 64 << 20;
        let (region, pages) = region(LEN);
        let (base, bytes) = (region.address_of(0, LEN).unwrap(), vec![1; LEN]);
        // What is busy beside it may make it late, though not again and again.
        let overtaken = (0..50).any(|_| {
            region.copy_in(0, &[0]).unwrap();
            region.copy_in(LEN - 1, &[0]).unwrap();
            std::thread::scope(|scope| {
                let copied = scope.spawn(|| region.copy_in(0, &bytes).unwrap());
                let mut byte = [0];
                while byte == [0] && !copied.is_finished() {
                    region.copy_out(0, &mut byte).unwrap();
                }
                let page = Pages::around(0..1);
                // SAFETY: mapped, and what writes it holds its pages.
                unsafe { pages.replace(base, std::slice::from_ref(&page)) }.unwrap();
                region.copy_out(LEN - 1, &mut byte).unwrap();
                byte == [0]
            })
        });
        assert!(overtaken, "it waits for all of the copy");
    }
}
