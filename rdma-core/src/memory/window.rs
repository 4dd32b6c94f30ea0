//! [`Window`] and [`PeerWindow`]: memory that processes of one host map, so that they can exchange flags and
//! messages without requests.
//!
//! No access needs a check of rights, for two reasons. A peer that mapped a window keeps its pages as long as
//! it wants, even after the owner is gone. And the owner never reuses these pages for anything else. So a
//! late write lands in pages that nobody reads. Dropping a window revokes its key at once: nobody can map it
//! any more.

#![expect(unsafe_code, reason = "copies from and to memory that peers write")]

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::flag::{self, Flag};
use super::{Backoff, CacheHint, InPlace, Keys, OwnProcess, Registered, check_needs, copy};
use crate::error::{RangeError, ReachError};
use crate::log::Held;
use crate::{Deadline, RemoteMemory};

/// Bytes that [`InPlace::run`] gets at a time, at most; the same bound as on a `PeerSlice`.
const RUN_BYTES_MAX: usize = 256 * 1024;

/// The windows of this process by address. Peers inside the process find them here, because they need no
/// second mapping.
static LOCAL_WINDOWS: OnceLock<OwnProcess<Mutex<WindowTable>>> = OnceLock::new();

type WindowTable = HashMap<usize, Weak<WindowMemory>>;

/// Locks the table; `None` in a child of the process that made it, whose software device is the parent's.
fn local_windows() -> Option<MutexGuard<'static, WindowTable>> {
    let table = LOCAL_WINDOWS.get_or_init(|| OwnProcess::new(Mutex::default())).get().ok()?;
    Some(table.lock())
}

/// The address and length of a mapped window, or of a part of one. Whoever has this value also keeps the
/// bytes mapped.
#[derive(Clone, Copy)]
struct MappedRange {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread, and is only accessed by copies and flags, which allow concurrent
// writers.
unsafe impl Send for MappedRange {}
// SAFETY: `&MappedRange` gives an address and a length only, and both are immutable.
unsafe impl Sync for MappedRange {}

impl MappedRange {
    #[inline]
    fn at(self, offset: usize, len: usize) -> Result<NonNull<u8>, ReachError> {
        RangeError::check(offset as u64, len as u64, self.len as u64)?;
        // SAFETY: the range was checked, so the address is at most one past the end.
        Ok(unsafe { self.base.add(offset) })
    }

    #[inline]
    fn flag_at<F: Flag>(self, offset: usize) -> Result<NonNull<u8>, ReachError> {
        flag::check_aligned(self.at(offset, F::LEN as usize)?, F::LEN as usize)
    }

    #[inline]
    fn run<W: InPlace>(self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        const { check_needs(W::NEEDS) };
        let base = self.at(offset, len)?;
        for begin in (0..len).step_by(RUN_BYTES_MAX) {
            let end = len.min(begin + RUN_BYTES_MAX);
            // SAFETY: the part is inside the range that `at` checked, and the owner of this value keeps it
            // mapped and writable, so every `NEEDS` is met.
            unsafe { work.run(base.add(begin).as_ptr(), begin..end) };
        }
        Ok(())
    }

    #[inline]
    fn copy_in(self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked the range, and the owner of this value keeps it mapped. No reference to shared
        // memory exists, because windows never give one.
        unsafe { copy::copy_shared_hinted(bytes.as_ptr(), to.as_ptr(), bytes.len(), CacheHint::Cached) };
        Ok(())
    }

    #[inline]
    fn copy_out(self, offset: usize, bytes: &mut [u8], hint: CacheHint) -> Result<(), ReachError> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: `at` checked the range, and the owner of this value keeps it mapped. Only `bytes` has a
        // reference, which nobody shares.
        unsafe { copy::copy_shared_hinted(from.as_ptr(), bytes.as_mut_ptr(), bytes.len(), hint) };
        Ok(())
    }

    #[inline]
    fn store<F: Flag>(self, offset: usize, flag: F) -> Result<(), ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: `flag_at` checked range and alignment, and the owner of this value keeps the range mapped, so
        // the store is valid.
        unsafe { flag::store(at.as_ptr(), F::LEN, flag.into()) };
        Ok(())
    }

    #[inline]
    fn load<F: Flag>(self, offset: usize) -> Result<F, ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: `flag_at` checked range and alignment, and the owner of this value keeps the range mapped, so
        // the load is valid.
        Ok(F::from_bits(unsafe { flag::load(at.as_ptr(), F::LEN) }))
    }
}

/// The memory of a window, mapped as long as this value lives.
struct WindowMemory {
    range: MappedRange,
    /// The registration, which ends when the window is dropped. This value keeps the bytes mapped afterwards, too.
    registered: Mutex<Registered>,
}

impl WindowMemory {
    /// Revokes the key, so that nobody maps the window any more. Peers that have it mapped keep it.
    fn revoke(&self) {
        let mut registered = Held::lock(|| self.registered.lock());
        // A refused deregistration is tried once more when the last handle is dropped, and reported then.
        let _ = registered.deregister(Deadline::in_drop());
    }
}

/// Memory of the library that peers of this host map and write directly, without requests: for flags,
/// mailboxes, and messages that must arrive within a fraction of a microsecond.
///
/// [`ProtectionDomain::alloc_window`](crate::ProtectionDomain::alloc_window) makes one.
///
/// Unlike the pages of a [`Region`](crate::Region), these pages are never reused. So a peer's access takes no
/// lock, no check of a right and no writer slot: a write after the drop of the window goes to pages that only
/// that peer still has. Requests do not reach a window. Peers may write at any moment, so a `&[u8]` of it
/// never exists; bytes may be torn unless a flag says that they are complete.
///
/// The trap: fencing the queue pair by which a peer mapped the window does not stop that peer from writing.
/// Use one window for each peer and each connection, and drop the window with the connection.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::{Deadline, Device, SoftOptions, WorkerOptions, loopback};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let pd = context.alloc_pd()?;
/// let mut worker = context.worker(WorkerOptions::default())?;
/// let (left, _right) = loopback(&mut worker, &pd)?;
///
/// let window = pd.alloc_window(4096)?;
/// let deadline = Deadline::after(Duration::from_secs(5));
/// // … the peer, which was told of `window.remote()` …
/// let peer = worker.peer_window(&left, window.remote(), deadline)?;
/// peer.copy_in(64, b"hello")?;
/// peer.store(0, 1_u64)?;
/// // … and the owner:
/// window.wait(0, |flag: u64| flag == 1, deadline)?;
/// let mut bytes = [0; 5];
/// window.copy_out(64, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Window {
    kept: OwnProcess<Arc<WindowMemory>>,
    /// The range of `kept`, to be read. Whoever writes asks `kept` for it: a forked child may only read, because its
    /// parent and the peers would see its writes.
    range: MappedRange,
    keys: Keys,
}

impl Window {
    pub(crate) fn new(memory: Registered) -> Self {
        let (keys, range) = (memory.keys(), MappedRange { base: memory.as_ptr(), len: memory.len() });
        let kept = Arc::new(WindowMemory { range, registered: Mutex::new(memory) });
        if let Some(mut windows) = local_windows() {
            windows.insert(range.base.as_ptr().addr(), Arc::downgrade(&kept));
        }
        Self { kept: OwnProcess::new(kept), range, keys }
    }

    /// Returns the description by which a peer can [map](crate::Worker::peer_window) the window.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        let addr = self.range.base.as_ptr() as u64;
        RemoteMemory { addr, len: self.len() as u64, rkey: self.keys.rkey }
    }

    /// Returns the length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a registration is never empty")]
    pub fn len(&self) -> usize {
        self.range.len
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when `bytes` do not fit; nothing is copied then. [`ReachError::Forked`] in a forked
    /// child.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        self.kept.get()?.range.copy_in(offset, bytes)
    }

    /// Copies `bytes.len()` bytes from `offset` into `bytes`.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when `bytes` do not fit. A forked child reads what its parent reads.
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), ReachError> {
        self.range.copy_out(offset, bytes, CacheHint::Cached)
    }

    /// Runs `work` once on `len` bytes from `offset`, in place. It may or may not see what a peer writes
    /// meanwhile. [`InPlace`] has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in).
    #[inline]
    pub fn run<W: InPlace>(&self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        self.kept.get()?.range.run(offset, len, work)
    }

    /// Stores a flag. Whoever sees the flag also sees everything that this thread wrote before.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in), and [`ReachError::Unaligned`] unless the offset is a multiple of
    /// the flag's length.
    #[inline]
    pub fn store<F: Flag>(&self, offset: usize, flag: F) -> Result<(), ReachError> {
        self.kept.get()?.range.store(offset, flag)
    }

    /// Loads a flag that a peer may store. Everything that the peer wrote before the flag is then visible.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`], and [`ReachError::Unaligned`]. A forked child reads what its parent reads.
    #[inline]
    pub fn load<F: Flag>(&self, offset: usize) -> Result<F, ReachError> {
        self.range.load(offset)
    }

    /// Waits until `enough` accepts a flag that a peer stores here, and returns it.
    ///
    /// The thread spins first (some microseconds), then yields, then sleeps up to 1 ms at a time. The trap:
    /// the wait does not notice that the peer is gone. Wait in short parts where that matters.
    ///
    /// # Errors
    ///
    /// The errors of [`store`](Self::store), and [`ReachError::DeadlineExceeded`].
    pub fn wait<F: Flag>(
        &self,
        offset: usize,
        enough: impl FnMut(F) -> bool,
        deadline: Deadline,
    ) -> Result<F, ReachError> {
        let range = self.kept.get()?.range;
        Backoff::new(deadline).until(|| range.load(offset), enough)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let Ok(kept) = self.kept.get() else { return };
        if let Some(mut windows) = local_windows() {
            windows.remove(&kept.range.base.as_ptr().addr());
        }
        kept.revoke();
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("remote", &self.remote()).finish()
    }
}

/// A peer's [`Window`], mapped into this process.
///
/// [`Worker::peer_window`](crate::Worker::peer_window) makes one. Cloning it clones the handle; any thread
/// may use any handle.
///
/// The trap: nothing here notices that the peer is gone. Later writes are seen by nobody, and reads return
/// the last bytes. The pages stay mapped as long as a handle lives. [`Window`] has an example.
#[derive(Clone)]
pub struct PeerWindow {
    /// The range, and what keeps it mapped.
    mapped: OwnProcess<(MappedRange, Arc<dyn Any + Send + Sync>)>,
}

impl PeerWindow {
    /// # Safety
    ///
    /// As long as `keep` is alive, `len` bytes at `base` are readable and writable, and nobody makes a
    /// reference to them. They belong to a window, or did so and are never reused.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { mapped: OwnProcess::new((MappedRange { base, len }, keep)) }
    }

    /// Returns a range of the window of this process that begins at address `window`, if there is one.
    pub(crate) fn local(window: usize, offset: usize, len: usize) -> Option<Self> {
        // A window whose last handle is just being dropped is not found any more.
        let kept = local_windows()?.get(&window)?.upgrade()?;
        RangeError::check(offset as u64, len as u64, kept.range.len as u64).ok()?;
        // SAFETY: the range was checked, so the address is at most one past the end of the window.
        let base = unsafe { kept.range.base.add(offset) };
        // SAFETY: `kept` keeps the window mapped, and a window's memory is only ever accessed by copies and
        // flags.
        Some(unsafe { Self::new(base, len, kept) })
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapped.unasked().0.len
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when `bytes` do not fit; nothing is copied then. [`ReachError::Forked`] in a
    /// forked child, which does not have its parent's mapping.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        self.mapped.get()?.0.copy_in(offset, bytes)
    }

    /// Copies `bytes.len()` bytes from `offset` into `bytes`.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in).
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), ReachError> {
        self.copy_out_hinted(offset, bytes, CacheHint::Cached)
    }

    /// [`copy_out`](Self::copy_out) with a cache hint, for a copy that is part of a list.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in).
    #[inline]
    pub fn copy_out_hinted(
        &self,
        offset: usize,
        bytes: &mut [u8],
        hint: CacheHint,
    ) -> Result<(), ReachError> {
        self.mapped.get()?.0.copy_out(offset, bytes, hint)
    }

    /// Runs `work` once on `len` bytes from `offset`, in place. It may or may not see what the owner writes
    /// meanwhile. [`InPlace`] has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in).
    #[inline]
    pub fn run<W: InPlace>(&self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        self.mapped.get()?.0.run(offset, len, work)
    }

    /// Stores a flag. Whoever sees the flag also sees everything that this thread wrote before, to this peer
    /// or another one.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in), and [`ReachError::Unaligned`] unless the offset is a
    /// multiple of the flag's length.
    #[inline]
    pub fn store<F: Flag>(&self, offset: usize, flag: F) -> Result<(), ReachError> {
        self.mapped.get()?.0.store(offset, flag)
    }

    /// Loads a flag. Everything that was written before the flag is then visible.
    ///
    /// # Errors
    ///
    /// The errors of [`store`](Self::store).
    #[inline]
    pub fn load<F: Flag>(&self, offset: usize) -> Result<F, ReachError> {
        self.mapped.get()?.0.load(offset)
    }
}

impl fmt::Debug for PeerWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerWindow").field("len", &self.len()).finish_non_exhaustive()
    }
}
