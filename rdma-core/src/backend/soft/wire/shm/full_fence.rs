//! What a thread stores before it comes before what it loads afterwards, for all others.
//!
//! `fence(SeqCst)` says so, and is what this is. Compilers make `mfence` of it on x86-64, which waits, besides, for all of a
//! long copy before it: after 64 KiB that takes 60 ns. A locked instruction, which does what is needed, takes 10.

#[cfg(not(all(target_arch = "x86_64", not(miri), not(all(test, loom)))))]
use super::atomic::{Ordering, fence};

/// See the module.
#[cfg(all(target_arch = "x86_64", not(miri), not(all(test, loom))))]
#[expect(unsafe_code, reason = "an instruction that compilers do not choose")]
#[inline]
pub(super) fn full_fence() {
    // SAFETY: what is on top of the stack stays as it is; flags may change. No load or store of this thread passes a locked
    // instruction, and the compiler moves none that may be shared past `asm!`.
    unsafe { std::arch::asm!("lock or dword ptr [rsp], 0") };
}

/// See the module.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(all(test, loom)))))]
#[inline]
pub(super) fn full_fence() {
    fence(Ordering::SeqCst);
}
