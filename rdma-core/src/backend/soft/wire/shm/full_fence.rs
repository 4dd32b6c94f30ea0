//! A full fence: all that a thread stored before it is visible to every other thread before the thread loads anything
//! after it.
//!
//! `fence(SeqCst)` means the same, and is used everywhere but on x86-64. There, compilers make `mfence` of it, which
//! also waits until a long copy before it has left the store buffer: 60 ns after 64 KiB. A locked instruction orders
//! stores before loads as well, and takes 10 ns.

#[cfg(not(all(target_arch = "x86_64", not(miri), not(all(test, loom)))))]
use super::atomic::{Ordering, fence};

/// Orders all stores before this call before all loads after it.
#[cfg(all(target_arch = "x86_64", not(miri), not(all(test, loom))))]
#[expect(unsafe_code, reason = "an instruction that compilers do not choose")]
#[inline]
pub(super) fn full_fence() {
    // SAFETY: `or` with 0 leaves the top word of the stack as it is, and only flags change. No load or store of this
    // thread passes a locked instruction, and the compiler moves no access to shared memory past this `asm!`, because
    // it may access memory.
    unsafe { std::arch::asm!("lock or dword ptr [rsp], 0") };
}

/// Orders all stores before this call before all loads after it.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(all(test, loom)))))]
#[inline]
pub(super) fn full_fence() {
    fence(Ordering::SeqCst);
}
