//! [`InPlace`]: code that works on shared memory in place, without a copy.

#![expect(unsafe_code, reason = "a trait that others vouch for")]

use std::ops::Range;

use crate::Access;

/// Code that works on a peer's memory in place, in one pass: [`PeerSlice::run`](crate::PeerSlice::run),
/// [`Window::run`](crate::Window::run), [`PeerWindow::run`](crate::PeerWindow::run).
///
/// [`PeerSlice::reduce_from`](crate::PeerSlice::reduce_from) passes private copies and needs no `unsafe`.
/// Implement this trait for loops that the copies would slow down.
///
/// ```
/// use std::ops::Range;
/// use std::time::Duration;
/// use rdma_core::memory::InPlace;
/// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
///
/// /// Finds the largest byte.
/// struct Largest(u8);
///
/// // SAFETY: `run` only reads, and only by volatile accesses.
/// unsafe impl InPlace for Largest {
///     const NEEDS: Access = Access::REMOTE_READ;
///
///     unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
///         for byte in 0..range.len() {
///             // SAFETY: the index is below the length, so the byte is one of those that are mapped.
///             self.0 = self.0.max(unsafe { at.add(byte).read_volatile() });
///         }
///     }
/// }
///
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
/// let (left, _right) = loopback(&mut worker, &pd)?;
/// let theirs = pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// theirs.copy_in(1000, &[3, 7, 5])?;
/// let mut largest = Largest(0);
/// let deadline = Deadline::after(Duration::from_secs(5));
/// worker.peer_slice(&left, theirs.remote(), deadline).run(0, 4096, &mut largest)?;
/// assert_eq!(largest.0, 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Safety
///
/// The peer may write the bytes at any moment. So an implementation must
///
/// - access the bytes only by volatile accesses or in `asm!`, never by a reference, and be ready for any
///   value;
/// - read only if [`NEEDS`](Self::NEEDS) has `REMOTE_READ`, and write only if it has `REMOTE_WRITE`;
/// - end soon, not unwind, and call nothing of this crate, because a run on a `PeerSlice` holds the lock of
///   all software devices of the process.
///
/// The work may run again on bytes that it ran on before, because the peer replaced pages meanwhile. Running twice
/// must give the same bytes as running once.
pub unsafe trait InPlace {
    /// Rights that the peer must grant: `REMOTE_READ`, `REMOTE_WRITE` or both. Anything else does not
    /// compile.
    const NEEDS: Access;

    /// Works on the bytes at `at`, which are the bytes `range` of the whole. Ranges come in order, each at
    /// most 256 KiB.
    ///
    /// # Safety
    ///
    /// The bytes are mapped and readable during the whole call, and writable if `NEEDS` has `REMOTE_WRITE`.
    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>);
}

/// Fails at compile time unless `needs` consists of `REMOTE_READ` and `REMOTE_WRITE` only.
pub(crate) const fn check_needs(needs: Access) {
    let both = Access::REMOTE_READ.bits() | Access::REMOTE_WRITE.bits();
    assert!(needs.bits() != 0 && needs.bits() & !both == 0, "needs are REMOTE_READ, REMOTE_WRITE or both");
}
