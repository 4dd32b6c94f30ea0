//! [`LocalBuf`]: a registered buffer that has one owner at a time.

#![expect(unsafe_code, reason = "derefs to the bytes that it owns alone")]

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use super::{Region, Registered, Sharing};
use crate::LocalKey;
use crate::error::RangeError;

/// Registered memory of this process alone. The device may access it while it is posted; no peer ever may.
///
/// Posting moves the buffer into the worker, and the completion gives it back. So the bytes can be looked at
/// exactly while no device accesses them. The buffer derefs to its *view*, which [`slice`](Self::slice)
/// narrows and [`whole`](Self::whole) restores. A posted request transfers the view.
///
/// ```
/// use rdma_core::{Device, SoftOptions};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let pd = context.alloc_pd()?;
/// let mut buffer = pd.alloc_local(64)?;
/// buffer[..5].copy_from_slice(b"hello");
/// let view = buffer.slice(0..5)?;
/// assert_eq!(&view[..], b"hello");
/// let (left, right) = view.whole().split_at(32)?;
/// assert_eq!((left.len(), right.len()), (32, 32));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// See `ibv_reg_mr(3)`.
///
/// # Invariants
///
/// - `own` lies within the registration, and `view` within `own`.
/// - No two buffers of one registration have overlapping `own` ranges.
/// - The registration grants no right to peers.
pub struct LocalBuf {
    memory: Arc<Registered>,
    own: Range<usize>,
    view: Range<usize>,
}

impl LocalBuf {
    /// Returns a buffer of all of `memory`, which must grant no right to peers.
    pub(crate) fn new(memory: Registered) -> Self {
        // `memory` was moved in here, so its handle is the only one.
        Self::exclusive(Arc::new(memory))
    }

    /// Narrows the view to `range`, in bytes of the present view.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when `range` leaves the view. The trap: the buffer is then dropped. Check a range that
    /// comes from outside first, or use [`set_view`](Self::set_view).
    pub fn slice(mut self, range: Range<usize>) -> Result<Self, RangeError> {
        self.set_view(range)?;
        Ok(self)
    }

    /// Narrows the view in place, and keeps the buffer on an error.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when `range` leaves the view; the view stays as it was.
    pub fn set_view(&mut self, range: Range<usize>) -> Result<(), RangeError> {
        let len = self.view.len();
        if range.start > range.end || range.end > len {
            return Err(RangeError { start: range.start as u64, end: range.end as u64, len: len as u64 });
        }
        // INVARIANT: inside the old view, which is inside `own`.
        self.view = self.view.start + range.start..self.view.start + range.end;
        Ok(())
    }

    /// Widens the view to all bytes that the buffer owns.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.reset_view();
        self
    }

    /// Widens the view in place to all bytes that the buffer owns.
    pub fn reset_view(&mut self) {
        self.view = self.own.clone();
    }

    /// Splits the buffer into the first `mid` bytes that it owns and the rest.
    ///
    /// The registration ends when the last part is dropped.
    ///
    /// # Errors
    ///
    /// [`RangeError`] when the buffer owns fewer than `mid` bytes.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self), RangeError> {
        RangeError::check(0, mid as u64, self.own.len() as u64)?;
        let middle = self.own.start + mid;
        let (left, right) = (self.own.start..middle, middle..self.own.end);
        // INVARIANT: the halves are disjoint, and this value alone owned the range.
        let left = Self { memory: Arc::clone(&self.memory), view: left.clone(), own: left };
        Ok((left, Self { memory: self.memory, view: right.clone(), own: right }))
    }

    /// Returns a buffer of all of the registration. `memory` must be the only handle to it and grant no right
    /// to peers.
    pub(super) fn exclusive(memory: Arc<Registered>) -> Self {
        debug_assert!(!memory.access().is_remote() && Arc::strong_count(&memory) == 1);
        let own = 0..memory.len();
        // INVARIANT: `memory` is the only handle, so no other buffer of the registration exists.
        Self { memory, view: own.clone(), own }
    }

    /// Turns the buffer into a [`Region`], which can be [attached](crate::Worker::attach) and posted by
    /// ranges. The view is lost.
    ///
    /// [`Region::into_local`] turns it back. Neither call registers or allocates anything.
    ///
    /// # Errors
    ///
    /// The buffer comes back when it is a part of a registration that was [split](Self::split_at).
    pub fn into_region(mut self) -> Result<Region, Self> {
        if Arc::get_mut(&mut self.memory).is_none() || self.own != (0..self.memory.len()) {
            return Err(self);
        }
        Ok(Region::from_local(self.memory))
    }

    /// Returns the registration, if this is the only handle to it.
    pub(crate) fn only_handle(&mut self) -> Option<&mut Registered> {
        Arc::get_mut(&mut self.memory)
    }

    /// Returns whether peers of this host can map the buffer, and why not. Peers fill a mapped receive buffer
    /// without a copy.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.memory.sharing()
    }

    /// Returns the bytes that the buffer owns, whatever its view.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.own.len()
    }

    pub(crate) fn memory(&self) -> &Registered {
        &self.memory
    }

    pub(crate) fn lkey(&self) -> LocalKey {
        self.memory.keys().lkey
    }

    /// Returns the address of the first byte of the view.
    pub(crate) fn address(&self) -> u64 {
        self.memory.as_ptr().as_ptr() as u64 + self.view.start as u64
    }
}

impl Deref for LocalBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: by the invariant, the range is inside a live mapping, overlaps no other buffer, and no peer
        // has a right to it. While a device accesses it the value is inside the worker, which never gives out
        // a reference.
        unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().as_ptr().add(self.view.start), self.view.len())
        }
    }
}

impl DerefMut for LocalBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.own.len() < self.memory.len() {
            self.memory.lend_part();
        }
        // SAFETY: by the invariant, the range is inside a live mapping that only this buffer and its device
        // access. `&mut self` excludes other references, and the device accesses it only while the worker
        // owns the value.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.as_ptr().as_ptr().add(self.view.start),
                self.view.len(),
            )
        }
    }
}

impl fmt::Debug for LocalBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBuf").field("own", &self.own).field("view", &self.view).finish_non_exhaustive()
    }
}
