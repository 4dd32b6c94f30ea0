//! What works on memory where it lies.

#![expect(unsafe_code, reason = "a trait that others vouch for")]

use std::ops::Range;

use crate::Access;

/// What works on memory of a peer where it lies, in one pass over it: [`PeerSlice::run`](crate::PeerSlice::run), or on a window:
/// [`Window::run`](crate::Window::run), [`PeerWindow::run`](crate::PeerWindow::run).
///
/// Copies that are handed over ([`PeerSlice::reduce_from`](crate::PeerSlice::reduce_from)) need no `unsafe`; this is for loops
/// that would wait for each of them.
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
/// // SAFETY: it reads the bytes one by one, by volatile accesses.
/// unsafe impl InPlace for Largest {
///     const NEEDS: Access = Access::REMOTE_READ;
///
///     unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
///         for byte in 0..range.len() {
///             // SAFETY: it is one of them.
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
/// The peer may write the bytes at any moment, so an implementation accesses them by instructions of which the compiler knows
/// no more than of a device's, `asm!` or volatile accesses, never by a reference, and takes whatever it finds there for possible. It
/// reads none unless [`NEEDS`](Self::NEEDS) has `REMOTE_READ`, and changes none unless it has `REMOTE_WRITE`. While it runs on a
/// `PeerSlice` all software devices of the process wait: it ends soon, does not unwind, and calls nothing of this crate.
///
/// It may be run again on bytes that it was run on before, when the peer has replaced pages meanwhile: what it makes of them has to
/// be the same then.
pub unsafe trait InPlace {
    /// What the peer must allow: `REMOTE_READ`, `REMOTE_WRITE` or both, or it does not compile.
    const NEEDS: Access;

    /// Does it to the bytes at `at`, which are those of `range` of all that it is to be done to. The ranges come in order, with
    /// 256 KiB at most.
    ///
    /// # Safety
    ///
    /// They are mapped for the whole call, readable, and writable if that is needed.
    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>);
}

/// That it is something that can be needed.
pub(crate) const fn check_needs(needs: Access) {
    let both = Access::REMOTE_READ.bits() | Access::REMOTE_WRITE.bits();
    assert!(needs.bits() != 0 && needs.bits() & !both == 0, "needs are REMOTE_READ, REMOTE_WRITE or both");
}
