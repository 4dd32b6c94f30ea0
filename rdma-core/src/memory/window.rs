//! Memory through which processes of a host tell each other things at once.
//!
//! A peer that has a window mapped keeps its pages for as long, whatever becomes of the owner, and the owner never gives them
//! to anybody else: so what a peer writes late lands where nobody looks, and there is nothing to ask before each access. One
//! that is dropped is revoked at once: nobody maps it any more.

#![expect(unsafe_code, reason = "copies from and to memory that peers write")]

mod mapped_range;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use mapped_range::MappedRange;

use super::flag::Flag;
use super::{CacheHint, InPlace, Keys, Mapping, Backoff, Registered, fork};
use crate::error::{RangeError, ReachError};
use crate::{Deadline, RemoteMemory};

/// The windows of this process, by their addresses: how peers inside it come to them.
static LOCAL_WINDOWS: OnceLock<Mutex<HashMap<usize, Weak<WindowMemory>>>> = OnceLock::new();

fn local_windows() -> MutexGuard<'static, HashMap<usize, Weak<WindowMemory>>> {
    LOCAL_WINDOWS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of a window, mapped for as long as this lives.
struct WindowMemory {
    range: MappedRange,
    /// Registered until its window is dropped, and mapped in either case.
    state: Mutex<Option<WindowState>>,
}

enum WindowState {
    Registered(Registered),
    #[expect(dead_code, reason = "is kept")]
    Revoked(Mapping),
}

impl WindowMemory {
    /// Nobody maps it any more; who has it mapped keeps it.
    fn revoke(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match state.take() {
            Some(WindowState::Registered(mut registered)) => {
                // Where it is refused it is tried once more when nobody has it, and said then.
                match registered.deregister(Deadline::in_drop()) {
                    Ok(()) => registered.into_mapping().map_or_else(
                        |(registered, _)| Some(WindowState::Registered(registered)),
                        |mapping| Some(WindowState::Revoked(mapping)),
                    ),
                    Err(_) => Some(WindowState::Registered(registered)),
                }
            }
            revoked => revoked,
        };
    }
}

/// Memory of the library's that peers of this host map and write at once, without requests: for flags, mailboxes, and what
/// is to be there in a fraction of a microsecond. Made by [`ProtectionDomain::alloc_window`](crate::ProtectionDomain::alloc_window).
///
/// Unlike a [`Region`](crate::Region) it never becomes memory of anybody's again, so a peer's access needs no lock, no look at a
/// right and no slot: a write that comes late, after this was dropped, goes to pages that only that peer has still. Requests
/// do not reach it. Peers may write at any moment, so there is never a slice of it; bytes are torn unless a flag says that
/// they are whole.
///
/// A peer that has it mapped writes it for as long as this lives: a fence of the queue pair by which it came does not end
/// that. Have a window for each peer and each connection, and drop it with that.
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
    kept: Arc<WindowMemory>,
    keys: Keys,
}

impl Window {
    pub(crate) fn new(memory: Registered) -> Self {
        let (keys, range) = (memory.keys(), MappedRange { base: memory.as_ptr(), len: memory.len() });
        let kept = Arc::new(WindowMemory { range, state: Mutex::new(Some(WindowState::Registered(memory))) });
        local_windows().insert(range.base.as_ptr().addr(), Arc::downgrade(&kept));
        Self { kept, keys }
    }

    /// What a peer is told so that it can [map](crate::Worker::peer_window) it.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        let addr = self.range().base.as_ptr() as u64;
        RemoteMemory { addr, len: self.len() as u64, rkey: self.keys.rkey }
    }

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a registration is never empty")]
    pub fn len(&self) -> usize {
        self.range().len
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when they do not fit; nothing is copied then.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        self.range().copy_in(offset, bytes)
    }

    /// Copies `bytes.len()` bytes from `offset` into `bytes`.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), ReachError> {
        self.range().copy_out(offset, bytes, CacheHint::Cached)
    }

    /// Works on `len` bytes from `offset` on where they lie, once: what a peer writes there meanwhile may be seen or not.
    /// [`InPlace`] has an example.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    #[inline]
    pub fn run<W: InPlace>(&self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        self.range().run(offset, len, work)
    }

    /// Stores a flag, after all that this thread wrote before: whoever sees it sees that, too.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`]; [`ReachError::Unaligned`] unless its offset is a multiple of its length.
    #[inline]
    pub fn store<F: Flag>(&self, offset: usize, flag: F) -> Result<(), ReachError> {
        self.range().store(offset, flag)
    }

    /// Loads a flag that a peer may store: what it wrote before that is there to be read.
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store).
    #[inline]
    pub fn load<F: Flag>(&self, offset: usize) -> Result<F, ReachError> {
        self.range().load(offset)
    }

    /// Waits until `enough` says so of a flag that a peer stores here, and gives it: spins, lets others run, then sleeps, a
    /// millisecond at most. It hears nothing of a peer that is gone: wait in parts where that matters.
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store), and [`ReachError::DeadlineExceeded`].
    pub fn wait<F: Flag>(
        &self,
        offset: usize,
        enough: impl FnMut(F) -> bool,
        deadline: Deadline,
    ) -> Result<F, ReachError> {
        Backoff::new(deadline).until(|| self.load(offset), enough)
    }

    #[inline]
    fn range(&self) -> MappedRange {
        self.kept.range
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // What a child has of it is its parent's, the lock included.
        if !fork::is_child() {
            local_windows().remove(&self.range().base.as_ptr().addr());
            self.kept.revoke();
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("remote", &self.remote()).finish()
    }
}

/// A [`Window`] of a peer that is mapped here. Made by [`Worker::peer_window`](crate::Worker::peer_window); cloning it clones
/// the handle, of which any thread may use any.
///
/// Nothing tells it that the peer is gone: what is written then is seen by nobody, and what is read is what there was. The
/// pages stay for as long as a handle does.
#[derive(Clone)]
pub struct PeerWindow {
    range: MappedRange,
    /// Has them mapped.
    _keep: Arc<dyn Any + Send + Sync>,
}

impl PeerWindow {
    /// # Safety
    ///
    /// `len` bytes at `base` are readable and writable, and no reference to them is made, for as long as `keep` is alive; they
    /// are a window's, or of one that is gone and nobody's else.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { range: MappedRange { base, len }, _keep: keep }
    }

    /// That range of the window of this process that begins at `addr`, if there is one.
    pub(crate) fn local(window: usize, offset: usize, len: usize) -> Option<Self> {
        let kept = local_windows().get(&window)?.upgrade()?;
        RangeError::check(offset as u64, len as u64, kept.range.len as u64).ok()?;
        // SAFETY: no further than the end.
        let base = unsafe { kept.range.base.add(offset) };
        // SAFETY: a part of a window, whose memory is mapped for as long as it is kept.
        Some(unsafe { Self::new(base, len, kept) })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.len == 0
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when they do not fit, and nothing is copied then; [`ReachError::Refused`] in a forked child, which
    /// does not have what its parent mapped.
    #[inline]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        self.range()?.copy_in(offset, bytes)
    }

    /// Copies `bytes.len()` bytes from `offset` into `bytes`.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    #[inline]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), ReachError> {
        self.range()?.copy_out(offset, bytes, CacheHint::Cached)
    }

    /// [`copy_out`](Self::copy_out) of a part of more: where its bytes are expected decides whether they are stored around the caches.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    #[inline]
    pub fn copy_out_hinted(
        &self,
        offset: usize,
        bytes: &mut [u8],
        hint: CacheHint,
    ) -> Result<(), ReachError> {
        self.range()?.copy_out(offset, bytes, hint)
    }

    /// Works on `len` bytes from `offset` on where they lie, once: what a peer writes there meanwhile may be seen or not.
    /// [`InPlace`] has an example.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    #[inline]
    pub fn run<W: InPlace>(&self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        self.range()?.run(offset, len, work)
    }

    /// Stores a flag, after all that this thread wrote before, to this peer or another: who sees the flag sees that.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in), and [`ReachError::Unaligned`] unless its offset is a multiple of its length.
    #[inline]
    pub fn store<F: Flag>(&self, offset: usize, flag: F) -> Result<(), ReachError> {
        self.range()?.store(offset, flag)
    }

    /// Loads a flag; what was written before it is there to be read.
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store).
    #[inline]
    pub fn load<F: Flag>(&self, offset: usize) -> Result<F, ReachError> {
        self.range()?.load(offset)
    }

    #[inline]
    fn range(&self) -> Result<MappedRange, ReachError> {
        if fork::is_child() { Err(forked()) } else { Ok(self.range) }
    }
}

impl fmt::Debug for PeerWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerWindow").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cold]
fn forked() -> ReachError {
    ReachError::Refused(io::Error::other("this process was forked from the one that mapped the window"))
}
